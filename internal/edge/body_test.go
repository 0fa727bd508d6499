package edge

import (
	"encoding/base64"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"pgregory.net/rapid"

	"vingate/internal/decode"
)

func TestReadVINs(t *testing.T) {
	q := func(vin string, year int) decode.Question { return decode.Question{VIN: vin, ModelYear: year} }
	for body, want := range map[string][]decode.Question{
		`{"vins":["a"]}`: {q("a", 0)},
		` { "VINS" : [ "a" , {"modelyear": 2011 , "Vin":"b"}, {"vin":"c","modelYear":null}, {"vin":""} ] } ` + "\n": {q("a", 0), q("b", 2011), q("c", 0), q("", 0)},
		`{"vins":[{"vin":"a","modelYear":0},{"vin":"a","modelYear":-1},{"vin":"a","modelYear":2011.0},{"vin":"a","modelYear":99999999999999999999}]}`: {
			q("a", -1), q("a", -1), q("a", -1), q("a", -1)},
		`{"vins":["\u0031\ud83d\ude97\ud800"]}`: {q("1🚗\uFFFD", 0)},
	} {
		got, refused := readVINs([]byte(body))
		if refused != nil || len(got) != len(want) {
			t.Errorf("%s: %v, %v", body, got, refused)
			continue
		}
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%s: entry %d is %+v, want %+v", body, i, got[i], want[i])
			}
		}
	}
	for body, want := range map[string]decode.Fault{
		``:                                     decode.FaultNotJSON,
		`x`:                                    decode.FaultNotJSON,
		`{"vins":["a"`:                         decode.FaultNotJSON,
		`{"vins":["a",]}`:                      decode.FaultNotJSON,
		`{"vins":["a"]`:                        decode.FaultNotJSON,
		`{"vins":["a"],}`:                      decode.FaultNotJSON,
		`{"vins":["` + "\xff" + `"]}`:          decode.FaultNotJSON,
		`["a"]`:                                decode.FaultNoObject,
		`"a"`:                                  decode.FaultNoObject,
		`null`:                                 decode.FaultNoObject,
		`{"vins":["a"]}1`:                      decode.FaultNoObject,
		`{"vins":["a"]}{`:                      decode.FaultNoObject,
		`{"vins":"a"}`:                         decode.FaultNoList,
		`{"vins":{"vin":"a"}}`:                 decode.FaultNoList,
		`{"vins":null}`:                        decode.FaultNoList,
		`{"vin":["a"]}`:                        decode.FaultMember,
		`{"vins":["a"],"format":"json"}`:       decode.FaultMember,
		`{"vins":["a"],"vins":["b"]}`:          decode.FaultTwice,
		`{"vins":["a"],"VINS":["a"]}`:          decode.FaultTwice,
		`{}`:                                   decode.FaultEmpty,
		`{"vins":[]}`:                          decode.FaultEmpty,
		`{"vins":["a",["b"]]}`:                 decode.FaultEntry,
		`{"vins":["a",true]}`:                  decode.FaultEntry,
		`{"vins":["a",null]}`:                  decode.FaultEntry,
		`{"vins":["a",1]}`:                     decode.FaultNumber,
		`{"vins":["a",{"vin":1}]}`:             decode.FaultNumber,
		`{"vins":["a",{"vin":null}]}`:          decode.FaultEntryVIN,
		`{"vins":["a",{"vin":["b"]}]}`:         decode.FaultEntryVIN,
		`{"vins":["a",{}]}`:                    decode.FaultEntryVIN,
		`{"vins":["a",{"modelYear":2011}]}`:    decode.FaultEntryVIN,
		`{"vins":["a",{"vin":"b","x":1}]}`:     decode.FaultEntryMember,
		`{"vins":["a",{"vin":"b","vin":"b"}]}`: decode.FaultEntryTwice,
		`{"vins":["a",{"vin":"b","modelYear":2011,"modelyear":2011}]}`: decode.FaultEntryTwice,
		`{"vins":["a",{"vin":"b","modelYear":"2011"}]}`:                decode.FaultEntryYear,
		`{"vins":["a",{"vin":"b","modelYear":[2011]}]}`:                decode.FaultEntryYear,
		`{"vins":["a",{"vin":"b","modelYear":false}]}`:                 decode.FaultEntryYear,
	} {
		questions, refused := readVINs([]byte(body))
		if refused == nil || questions != nil || refused.Sentence != decode.NewRequestInvalid(want, 2).Sentence {
			t.Errorf("%s: %v, %v; want %q", body, questions, refused, want)
		}
	}
	for n, want := range map[int]bool{1: true, 50: true, 51: false, 5000: false} {
		_, refused := readVINs([]byte(`{"vins":["a"` + strings.Repeat(`,"a"`, n-1) + `]}`))
		if (refused == nil) != want || refused != nil && refused.Code != decode.BatchTooLarge {
			t.Errorf("%d VINs: %v", n, refused)
		}
	}
}

func TestABodyIsReadInOneMediaTypeAndUpToItsSize(t *testing.T) {
	const json = "application/json"
	for name, tc := range map[string]struct {
		header map[string]string
		text   string
		base64 bool
		want   decode.Code // "" when it is read
	}{
		"as it is":               {map[string]string{"Content-Type": json}, "{}", false, ""},
		"with a charset":         {map[string]string{"content-type": "Application/JSON; charset=utf-8"}, "{}", false, ""},
		"as it says":             {map[string]string{"content-type": json, "content-encoding": "identity"}, "{}", false, ""},
		"encoded by the gateway": {map[string]string{"content-type": json}, "e30=", true, ""},
		"just not too large":     {map[string]string{"content-type": json}, strings.Repeat(" ", maxBody), false, ""},
		"too large":              {map[string]string{"content-type": json}, strings.Repeat(" ", maxBody+1), false, decode.BodyTooLarge},
		"too large, encoded":     {map[string]string{"content-type": json}, base64.StdEncoding.EncodeToString(make([]byte, maxBody+1)), true, decode.BodyTooLarge},
		"far too large, encoded": {map[string]string{"content-type": json}, strings.Repeat("A", 2*maxBody), true, decode.BodyTooLarge},
		"encoded, but not so":    {map[string]string{"content-type": json}, "e3", true, decode.RequestInvalid},
		"no type":                {nil, "{}", false, decode.MediaUnsupported},
		"another type":           {map[string]string{"content-type": "text/json"}, "{}", false, decode.MediaUnsupported},
		"a type and more":        {map[string]string{"content-type": "application/jsonx"}, "{}", false, decode.MediaUnsupported},
		"a broken type":          {map[string]string{"content-type": "application/json; ="}, "{}", false, decode.MediaUnsupported},
		"compressed":             {map[string]string{"content-type": json, "content-encoding": "gzip"}, "H4sI", true, decode.MediaUnsupported},
	} {
		e := event{}
		e.Headers, e.Body, e.IsBase64Encoded = tc.header, tc.text, tc.base64
		body, refused := newRequest(t.Context(), e).body(json)
		if (refused == nil) != (tc.want == "") || refused != nil && (refused.Code != tc.want || body != nil) || refused == nil && len(body) < 2 {
			t.Errorf("%s: %d bytes, %v; want %q", name, len(body), refused, tc.want)
		}
	}
}

func TestABodyThatCannotBeReadIsCalledWhatItHadToBe(t *testing.T) {
	for media, want := range map[string]decode.Fault{"application/json": decode.FaultNotJSON, "application/x-www-form-urlencoded": decode.FaultForm} {
		e := event{}
		e.Headers, e.Body, e.IsBase64Encoded = map[string]string{"content-type": media}, "e3", true
		if _, refused := newRequest(t.Context(), e).body(media); refused == nil || refused.Sentence != string(want) {
			t.Errorf("%s: %v", media, refused)
		}
	}
}

// What a program writes with its own JSON library is what is asked.
func TestProperty_AListIsReadAsItWasMeant(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		type entry struct {
			VIN       string `json:"vin"`
			ModelYear int    `json:"modelYear,omitempty"`
		}
		var entries []any
		var want []decode.Question
		for range rapid.IntRange(1, decode.MaxBatch).Draw(t, "n") {
			q := decode.Question{VIN: rapid.String().Draw(t, "vin")}
			if rapid.Bool().Draw(t, "as an object") {
				q.ModelYear = rapid.IntRange(1, 9999).Draw(t, "year")
				entries = append(entries, entry{q.VIN, q.ModelYear})
			} else {
				entries = append(entries, q.VIN)
			}
			want = append(want, q)
		}
		body, err := json.Marshal(map[string]any{"vins": entries})
		if err != nil {
			t.Fatal(err)
		}
		got, refused := readVINs(body)
		if refused != nil || len(got) != len(want) {
			t.Fatalf("%s: %v", body, refused)
		}
		for i := range want {
			if got[i] != want[i] {
				t.Fatalf("entry %d of %s is %+v, want %+v", i, body, got[i], want[i])
			}
		}
	})
}

func TestReadForm(t *testing.T) {
	q := func(vin string, year int) decode.Question { return decode.Question{VIN: vin, ModelYear: year} }
	for form, want := range map[string][]decode.Question{
		"DATA=a;b&format=json":                  {q("a", 0), q("b", 0)},
		"data=a,2011;b":                         {q("a", 2011), q("b", 0)},
		"DATA=a%2C%202011%3B+b+%3B":             {q("a", 2011), q("b", 0)},
		"Data=%0Aa;%0D%0Ab,%0A2003;%0A":         {q("a", 0), q("b", 2003)},
		"DATA=a,;b":                             {q("a", 0), q("b", 0)},
		"DATA=a,x;b,20111;c,0;d,-2000;e,2011,1": {q("a", -1), q("b", -1), q("c", -1), q("d", -1), q("e", -1)},
		"DATA=,2011":                            {q("", 2011)},
		"DATA=%zz;1%":                           {q("%zz", 0), q("1%", 0)},
		"x=1&DATA=a&y=2":                        {q("a", 0)},
		"DATA=" + strings.Repeat("a;", 60):      make([]decode.Question, 51),
	} {
		got, _, refused := readForm(form)
		if refused != nil || len(got) != len(want) {
			t.Errorf("%s: %v, %v", form, got, refused)
			continue
		}
		for i := range want {
			if want[i] != (decode.Question{}) && got[i] != want[i] {
				t.Errorf("%s: entry %d is %+v, want %+v", form, i, got[i], want[i])
			}
		}
	}
	for form, want := range map[string]decode.Fault{
		"": decode.FaultEmpty, "DATA=": decode.FaultEmpty, "DATA=;;": decode.FaultEmpty, "format=json": decode.FaultEmpty, "VINS=a": decode.FaultEmpty,
		"DATA=a&data=b": decode.FaultTwice, "DATA=a&DATA=a": decode.FaultTwice,
	} {
		if questions, _, refused := readForm(form); refused == nil || questions != nil || refused.Sentence != decode.NewRequestInvalid(want, 0).Sentence {
			t.Errorf("%q: %v, %v; want %q", form, questions, refused, want)
		}
	}
	for query, want := range map[string]bool{"": true, "format=json": true, "Format=JSON&x=xml": true, "format=": true, "format=xml": false, "FORMAT=csv": false,
		"format=json&format=xml": false, "f%6frmat=x%6dl": false, "format=jsonp": false, "x=;&format=xml": false} {
		if got := jsonAlone(formats(query)); got != want {
			t.Errorf("%q: JSON will do: %v, want %v", query, got, want)
		}
	}
}

// FuzzReadVINs: whatever comes is read within bounds, or refused; what is read could have been meant.
func FuzzReadVINs(f *testing.F) {
	f.Add([]byte(`{"vins":["1HGCM82633A004352",{"vin":"5UXWX7C5*BA","modelYear":2011}]}`))
	f.Add([]byte(`{"vins":[{"vin":"a","vin":"b"}],"vins":[[[[[]]]]]}`))
	f.Add([]byte(strings.Repeat("[", 1000)))
	f.Fuzz(func(t *testing.T, body []byte) {
		questions, refused := readVINs(body)
		switch {
		case (refused == nil) != (len(questions) > 0), len(questions) > decode.MaxBatch:
			t.Fatalf("%d questions, %v", len(questions), refused)
		case refused == nil && (!json.Valid(body) || !utf8.Valid(body)):
			t.Fatalf("it was read, and is no JSON: %q", body)
		case refused != nil && len(refused.Sentence) > 200:
			t.Fatalf("a long sentence: %q", refused.Sentence)
		}
	})
}

// FuzzReadForm: whatever comes is read within bounds, or refused.
func FuzzReadForm(f *testing.F) {
	f.Add("DATA=1HGCM82633A004352,2003;5UXWX7C5*BA&format=json")
	f.Add("data=%zz;;,&format=xml&DATA")
	f.Fuzz(func(t *testing.T, form string) {
		questions, _, refused := readForm(form)
		if (refused == nil) != (len(questions) > 0) || len(questions) > decode.MaxBatch+1 {
			t.Fatalf("%d questions, %v", len(questions), refused)
		}
		jsonAlone(formats(form))
	})
}
