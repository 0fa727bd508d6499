package vpicdata

import (
	"context"
	"encoding/json"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"

	"pgregory.net/rapid"
)

// expect compares some fields of a row; "" means that the field is empty.
func expect(t *testing.T, row Row, want map[string]string) {
	t.Helper()
	for _, field := range slices.Sorted(maps.Keys(want)) {
		if row[field] != want[field] {
			t.Errorf("%s is %q, want %q", field, row[field], want[field])
		}
	}
}

func TestDecodeVINsOfTheUSMarket(t *testing.T) {
	for _, test := range []struct {
		name string
		vin  string
		year int
		want map[string]string
	}{
		{"an Accord of 2003 by position 7", "1HGCM82633A004352", 0, map[string]string{
			"Make": "HONDA", "MakeID": "474", "Model": "Accord", "ModelID": "1861", "ModelYear": "2003", "VehicleType": "PASSENGER CAR",
			"Manufacturer": "AMERICAN HONDA MOTOR CO., INC.", "ManufacturerId": "988", "BodyClass": "Coupe", "Doors": "2",
			"EngineModel": "J30A4", "EngineCylinders": "6", "PlantCity": "MARYSVILLE", "PlantState": "OHIO", "PlantCountry": "UNITED STATES (USA)",
			"ErrorCode": "0", "ErrorText": "0 - VIN decoded clean. Check Digit (9th position) is correct", "AdditionalErrorText": "",
			"VehicleDescriptor": "1HGCM826*3A", "BedType": "Not Applicable", "NCSAMake": ""}},
		{"a pickup with derived displacements", "1FTMW1T88MFA00001", 0, map[string]string{
			"Make": "FORD", "Model": "F-150", "ModelYear": "2021", "VehicleType": "TRUCK", "ErrorCode": "0",
			"DisplacementL": "3.5", "DisplacementCC": "3500.0", "DisplacementCI": "213.58310433156", "BedType": ""}},
		{"an SUV whose maker has many plants", "KM8K2CAB4PU001140", 0, map[string]string{
			"Make": "HYUNDAI", "Model": "Kona", "ModelYear": "2023", "ErrorCode": "0", "PlantCity": "UL-SAN", "BedType": ""}},
		{"an incomplete VIN with a wildcard", "5UXWX7C5*BA", 2011, map[string]string{
			"Make": "BMW", "Model": "X3", "ModelYear": "2011", "ErrorCode": "6", "ErrorText": "6 - Incomplete VIN", "VehicleDescriptor": "5UXWX7C5*BA"}},
		{"a wrong check digit without NHTSA's list of exceptions", "ZACCJABT0FPB71014", 0, map[string]string{
			"Make": "JEEP", "Model": "Renegade", "ErrorCode": "1", "ErrorText": "1 - Check Digit (9th position) does not calculate properly"}},
		{"a check digit X", "1M8GDM9AXKP042788", 0, map[string]string{"Make": "MOTOR COACH INDUSTRIES", "ErrorCode": "0", "ModelYear": "1989"}},
		{"a bus whose decade position 7 does not tell", "1BAKGCPA4GF316234", 0, map[string]string{
			"ModelYear": "2016", "VehicleType": "BUS", "Make": "BLUE BIRD", "AdditionalErrorText": yearNote}},
		{"a small maker with six characters", "1C9FA3822R1257465", 0, map[string]string{
			"Manufacturer": "C.E.I. EQUIPMENT COMPANY INC", "ModelYear": "2024", "VehicleType": "TRAILER",
			"VehicleDescriptor": "1C9FA382*R1257", "FuelTypePrimary": "Not Applicable", "DriverAssist": ""}},
		{"lower case is echoed and decoded", "1hgcm82633a004352", 0, map[string]string{"VIN": "1hgcm82633a004352", "Model": "Accord", "ErrorCode": "0"}},
		{"blanks around", " 1HGCM82633A004352\t", 0, map[string]string{"VIN": " 1HGCM82633A004352\t", "ErrorCode": "0"}},
		{"more than 17 characters are cut", "1HGCM82633A004352XYZ", 0, map[string]string{"VIN": "1HGCM82633A004352XYZ", "ErrorCode": "0"}},
		{"an unknown maker", "AAA11111111111111", 0, map[string]string{"ErrorCode": "7", "Manufacturer": "", "Make": "", "ModelYear": "", "ErrorText": errorCodes[7].text}},
		{"makers that are not NHTSA's are unknown", "XP7YGCEE5MB000001", 0, map[string]string{"ErrorCode": "1,7", "Manufacturer": ""}},
		{"nothing filed for the year", "KL4MRSUC0TL588504", 0, map[string]string{"ErrorCode": "8", "Make": "BUICK", "Model": "", "ModelYear": "2026", "SuggestedVIN": ""}},
		{"the year only, of a maker with several makes", "JA45ELZ45TS282752", 0, map[string]string{"ErrorCode": "8", "Make": "", "ModelYear": "2026"}},
		{"a letter that no VIN has, in the serial number", "1HGCM82633A00435O", 0, map[string]string{
			"ErrorCode": "1,400", "Model": "Accord", "SuggestedVIN": "1HGCM82633A00435!", "AdditionalErrorText": "Invalid character(s): 17:O."}},
		{"a letter that no VIN has, at position 7", "1HGCM8Q633A004352", 0, map[string]string{"ErrorCode": "1,3,14,400", "Model": "",
			"AdditionalErrorText": "Unused position(s): 4,5,6,7,8. Invalid character(s): 7:Q."}},
		{"position 10 is no year", "1HGCM8263UA004352", 0, map[string]string{"ErrorCode": "1,11,400", "ModelYear": "", "Model": "Accord", "PossibleValues": ""}},
		{"position 10 is no year but the caller knows it", "1HGCM8263UA004352", 2003, map[string]string{"ErrorCode": "1,12,400", "ModelYear": "2003"}},
		{"the caller's year agrees", "1HGCM82633A004352", 2003, map[string]string{"ErrorCode": "0", "ModelYear": "2003"}},
		{"the caller's year contradicts and has its own pass", "1HGCM82633A004352", 2010, map[string]string{"ErrorCode": "5,12,14", "ModelYear": "2010", "Model": ""}},
		{"the caller's year is before VINs", "1HGCM82633A004352", 1979, map[string]string{"ErrorCode": "0,12", "ModelYear": "2003", "Model": "Accord"}},
		{"the caller's year is too far ahead", "1HGCM82633A004352", 2029, map[string]string{"ErrorCode": "0,12", "ModelYear": "2003"}},
		{"the caller's year is the last that exists", "1HGCM82633A004352", 2028, map[string]string{"ErrorCode": "5,12,14", "ModelYear": "2028"}},
		{"one wrong position that the check digit settles", "1HGCM82633Z004352", 0, map[string]string{
			"ErrorCode": "1,3,14", "SuggestedVIN": "1HGCM82633A004352", "PossibleValues": "(11:A)"}},
		{"one wrong position, several candidates", "JM1GC3111FU937813", 0, map[string]string{
			"ErrorCode": "4,14", "SuggestedVIN": "JM1GC3111F!937813", "PossibleValues": "(11:01)", "Model": "626",
			"AdditionalErrorText": errorCodes[4].extra + " Unused position(s): 11."}},
		{"several wrong positions", "2LMDJ9JL0HE297971", 0, map[string]string{
			"ErrorCode": "5,14", "SuggestedVIN": "2LM!J9J!0H!297971", "PossibleValues": "(4:HMP)(8:9KPRT)(11:B)", "Model": "MKX"}},
		{"a maker's characters alone", "1HG", 0, map[string]string{"ErrorCode": "6,8,11", "Make": "HONDA", "Manufacturer": "AMERICAN HONDA MOTOR CO., INC."}},
		{"nothing", "", 0, map[string]string{"ErrorCode": "6,7,11", "VIN": ""}},
		{"what is no VIN at all", "ÄÖÜ<>&\"' 1HG", 0, map[string]string{"ErrorCode": "6,7,400", "VIN": "ÄÖÜ<>&\"' 1HG"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			expect(t, decode(t, test.vin, test.year), test.want)
		})
	}
}

// A public report: position 10 alone made a bus of 2016 one of 1986. Both decades can
// be asked for.
func TestCorgi_35_BusOf2016IsNotReadAs1986(t *testing.T) {
	expect(t, decode(t, "1BAKGCPA4GF316234", 2016), map[string]string{"ModelYear": "2016"})
	expect(t, decode(t, "1BAKGCPA4GF316234", 1986), map[string]string{"ModelYear": "1986"})
}

func TestRowIsWrittenInNHTSAsOrder(t *testing.T) {
	body, err := json.Marshal(decode(t, "1HGCM82633A004352", 0))
	if err != nil {
		t.Fatal(err)
	}
	d := json.NewDecoder(strings.NewReader(string(body)))
	var keys []string
	for d.More() || len(keys) == 0 {
		token, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		if _, open := token.(json.Delim); open {
			continue
		}
		keys = append(keys, token.(string))
		if value, err := d.Token(); err != nil || value == nil {
			t.Fatalf("%s is %v (%v), want a string", token, value, err)
		}
	}
	if !slices.Equal(keys, Fields()) {
		t.Errorf("keys are\n%q, want\n%q", keys, Fields())
	}
}

// genVIN draws texts that look like VINs: half of them of well-known makers.
func genVIN() *rapid.Generator[string] {
	return rapid.Custom(func(t *rapid.T) string {
		wmi := rapid.OneOf(
			rapid.SampledFrom([]string{"1HG", "1FT", "5UX", "JM1", "1HD", "1C9", "2LM", "5YJ"}),
			rapid.StringMatching(`[0-9A-HJ-NPR-Z]{3}`)).Draw(t, "wmi")
		rest := rapid.StringMatching(`[0-9A-HJ-NPR-Z*]{0,14}`).Draw(t, "rest")
		return wmi + rest
	})
}

// checkRow asserts what is true of every answer.
func checkRow(t rapid.TB, vin string, year int, row Row) {
	t.Helper()
	if len(row) != len(fields) || row["VIN"] != vin {
		t.Fatalf("%q: %d keys, VIN %q", vin, len(row), row["VIN"])
	}
	for _, f := range fields {
		if _, ok := row[f]; !ok {
			t.Fatalf("%q: no %s", vin, f)
		}
	}
	last := -1
	for part := range strings.SplitSeq(row["ErrorCode"], ",") {
		code, err := strconv.Atoi(part)
		if err != nil || code <= last || errorCodes[code].text == "" {
			t.Fatalf("%q: ErrorCode is %q", vin, row["ErrorCode"])
		}
		last = code
	}
	if got, want := strings.HasPrefix(row["ErrorText"], strings.Split(row["ErrorCode"], ",")[0]+" - "), true; got != want {
		t.Fatalf("%q: ErrorText %q for ErrorCode %q", vin, row["ErrorText"], row["ErrorCode"])
	}
	if y := row["ModelYear"]; y != "" {
		if n, err := strconv.Atoi(y); err != nil || n < FirstModelYear || n > today.Year()+13 {
			t.Fatalf("%q with %d: ModelYear %q", vin, year, y)
		}
	}
	if len([]rune(row["AdditionalErrorText"])) > textLimit || len([]rune(row["ErrorText"])) > textLimit {
		t.Fatalf("%q: an error text is too long", vin)
	}
}

func TestEveryTextHasAnAnswerOfNHTSAsShape(t *testing.T) {
	c := catalog(t)
	rapid.Check(t, func(t *rapid.T) {
		vin := rapid.OneOf(genVIN(), rapid.String()).Draw(t, "vin")
		year := rapid.OneOf(rapid.Just(0), rapid.IntRange(1970, 2040)).Draw(t, "year")
		row, err := c.Decode(context.Background(), Query{VIN: vin, ModelYear: year})
		if err != nil {
			t.Fatalf("%q: %v", vin, err)
		}
		checkRow(t, vin, year, row)
		again, err := c.Decode(context.Background(), Query{VIN: strings.ToLower(vin), ModelYear: year})
		if err != nil {
			t.Fatalf("%q: %v", vin, err)
		}
		again["VIN"] = vin
		if vinText(strings.ToLower(vin)) == vinText(vin) && !maps.Equal(row, again) {
			t.Fatalf("%q: lower case decodes otherwise", vin)
		}
	})
}

func TestDecodeEndsWithItsContext(t *testing.T) {
	root := t.TempDir()
	c := openFixture(t, root)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if _, err := c.Decode(ctx, Query{VIN: "AAA1111111A111111"}); err == nil {
		t.Error("a cancelled decode that has to read the data succeeds")
	}
	if _, err := c.Decode(context.Background(), Query{VIN: "AAA1111111A111111"}); err != nil {
		t.Errorf("the failed load was kept: %v", err)
	}
}

// One decode from a warm catalog is the stand-in's work per call; from a cold one
// the schemas have to be read first.
func BenchmarkDecode(b *testing.B) {
	c := catalog(b)
	vins := []string{"1HGCM82633A004352", "1FTMW1T88MFA00001", "KM8K2CAB4PU001140", "5UXWX7C5*BA", "1BAKGCPA4GF316234", "2LMDJ9JL0HE297971"}
	run := func(b *testing.B, before func()) {
		for i := 0; b.Loop(); i++ {
			before()
			if _, err := c.Decode(context.Background(), Query{VIN: vins[i%len(vins)]}); err != nil {
				b.Fatal(err)
			}
		}
	}
	b.Run("warm", func(b *testing.B) { run(b, func() {}) })
	b.Run("cold", func(b *testing.B) {
		run(b, func() {
			c.makers, c.schemas, c.models = newLRU[string, *maker](keptMakers), newLRU[int, *schema](keptSchemas), newLRU[int, model](keptModels)
		})
	})
}
