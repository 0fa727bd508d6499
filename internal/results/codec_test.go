//go:build unix

package results

import (
	"bytes"
	"compress/gzip"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"path/filepath"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"vingate/internal/meter"
	"vingate/internal/vpic"
)

// Stored answers are read with the dictionary they were written with.
func TestTheDictionaryOfFormatOneNeverChanges(t *testing.T) {
	sum := sha256.Sum256(dictionary)
	if got, want := hex.EncodeToString(sum[:]), "3b794366f0ac9a536cc019ed6ae4e2eb9f4921545777521678d417a4d7074ea1"; got != want {
		t.Errorf("dictionary-1.txt has changed (%s): give a new one a new format number", got)
	}
	if n := len(names(t)); n != 154 {
		t.Errorf("%d fields in the dictionary's envelope, NHTSA sends 154", n)
	}
}

func TestANormalCarTakesOneWriteUnit(t *testing.T) {
	q := vpic.Query{VIN: accord, ModelYear: 2003}
	a := answer(t, q, car())
	if len(a.Body()) < 3800 || len(a.Body()) > 5500 {
		t.Fatalf("a body of %d bytes is no normal car", len(a.Body()))
	}
	s, _ := store(t, realClient)
	if err := s.Put(t.Context(), a); err != nil {
		t.Fatal(err)
	}
	var zipped bytes.Buffer
	w, _ := gzip.NewWriterLevel(&zipped, gzip.BestCompression)
	_, _ = w.Write(a.Body())
	_ = w.Close()
	size := meter.Size(taken(t, Key(q)))
	t.Logf("body %d bytes, gzip %d, whole item %d", len(a.Body()), zipped.Len(), size)
	if size > 1024 {
		t.Errorf("the item takes %d bytes: more than one write unit, and it may take no more than 2 KB", size)
	}
	// Nor does it with a flight and all that a refresh may leave.
	row, err := decode(taken(t, Key(q)))
	if err != nil {
		t.Fatal(err)
	}
	row.Flight, row.Slow = Flight{strings.Repeat("x", 12), at(9000)}, Slow{9, at(0)}
	row.Verdict, row.Rest = Verdict{row.Flight.Leader, "bad-response", at(0)}, Rest{at(0), "COORDINATION_UNAVAILABLE"}
	if size := meter.Size(encode(Key(q), row)); size > 1024 {
		t.Errorf("with a flight the item takes %d bytes", size)
	}
}

func TestNHTSAsCapturedAnswersFitToo(t *testing.T) {
	for _, name := range samples(t) {
		var body bytes.Buffer
		if err := json.Compact(&body, mustRead(t, name)); err != nil || !bytes.Contains(body.Bytes(), []byte(`"SearchCriteria"`)) || strings.Contains(name, "longform") || strings.Contains(name, "batch") {
			continue // not an answer to a single flat call
		}
		packed, err := pack(body.Bytes())
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("%-55s %5d -> %4d bytes", filepath.Base(name), body.Len(), len(packed))
		if len(packed) > 900 {
			t.Errorf("%s takes %d bytes", filepath.Base(name), len(packed))
		}
	}
}

func TestProperty_WhatIsPackedComesBackByteForByte(t *testing.T) {
	var u unpacker // one for all: what it read before leaves nothing behind
	rapid.Check(t, func(t *rapid.T) {
		body := rapid.SliceOfN(rapid.Byte(), 1, 3000).Draw(t, "body")
		packed, err := pack(body)
		if err != nil {
			t.Fatal(err)
		}
		got, err := u.unpack(packed)
		if err != nil || !bytes.Equal(got, body) {
			t.Fatalf("%d bytes came back as %d, %v", len(body), len(got), err)
		}
		// Any single damaged byte is noticed: an answer is NHTSA's or it is none.
		at := rapid.IntRange(0, len(packed)-1).Draw(t, "at")
		packed[at] ^= byte(rapid.IntRange(1, 255).Draw(t, "flip"))
		if got, err := u.unpack(packed); err == nil && !bytes.Equal(got, body) {
			t.Fatalf("damage at %d went unnoticed", at)
		}
	})
}

func TestABodyThatUnpacksWithoutEndIsRefused(t *testing.T) {
	packed, err := pack(make([]byte, maxBody+1))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := new(unpacker).unpack(packed); err == nil {
		t.Errorf("%d bytes unpacked to more than %d", len(packed), maxBody)
	}
}

func FuzzUnpack(f *testing.F) {
	packed, _ := pack([]byte(`{"Count":1}`))
	f.Add(packed)
	f.Add([]byte{})
	f.Add([]byte("x\x9c"))
	var u unpacker
	f.Fuzz(func(t *testing.T, b []byte) {
		if body, err := u.unpack(b); err == nil && (len(body) == 0 || len(body) > maxBody) {
			t.Errorf("%d bytes", len(body))
		}
	})
}
