package vpic

import (
	"encoding/json"
	"maps"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	accord = "1HGCM82633A004352"
	pickup = "1FTMW1T88MFA00001"
	suv    = "5UXWX7C5*BA"

	// canary stands in every upstream body that must not come through.
	canary = "UPSTREAM-TEXT-7319"
)

type row = map[string]any

// flat is a row as NHTSA sends it for a vehicle it knows, with changes.
func flat(vin string, changes row) row {
	r := row{
		"VIN": vin, "Make": "HONDA", "Model": "Accord", "ModelYear": "2003", "Manufacturer": "AMERICAN HONDA MOTOR CO., INC.",
		"ErrorCode": "0", "ErrorText": "0 - VIN decoded clean. Check Digit (9th position) is correct",
		"SuggestedVIN": "", "PossibleValues": "", "AdditionalErrorText": "", "BusType": "Not Applicable", "Doors": "2", "VehicleType": "PASSENGER CAR ",
	}
	maps.Copy(r, changes)
	for k, v := range r {
		if v == absent {
			delete(r, k)
		}
	}
	return r
}

// absent removes a key from a row.
var absent any = struct{ absent string }{"absent"}

func envelope(rows ...row) []byte { return envelopeWith("Results returned successfully.", rows...) }

func envelopeWith(message string, rows ...row) []byte {
	if rows == nil {
		rows = []row{}
	}
	b, err := json.Marshal(map[string]any{"Count": 136, "Message": message, "SearchCriteria": "", "Results": rows})
	if err != nil {
		panic(err)
	}
	return b
}

func readFile(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// samples gives the folder of captured NHTSA answers beside the module, and skips
// the test where there is none.
func samples(t *testing.T) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			break
		}
		if dir == filepath.Dir(dir) {
			t.Fatal("no go.mod above the test")
		}
		dir = filepath.Dir(dir)
	}
	dir = filepath.Join(dir, "../shared/vpic/samples")
	if _, err := os.Stat(dir); err != nil {
		t.Skip("no captured answers here")
	}
	return dir
}

// mustNotLeak fails when an error, or a cause inside it, repeats upstream text or a whole VIN.
func mustNotLeak(t *testing.T, err error) {
	t.Helper()
	for e := err; e != nil; {
		text := e.Error()
		if strings.Contains(text, "7319") || strings.Contains(text, "<") || len(text) > 300 {
			t.Errorf("the error repeats what the server sent: %q", text)
		}
		for _, vin := range []string{accord, pickup, suv, accord[11:], pickup[11:]} {
			if strings.Contains(text, vin) {
				t.Errorf("the error holds the VIN: %q", text)
			}
		}
		u, ok := e.(interface{ Unwrap() error })
		if !ok {
			break
		}
		e = u.Unwrap()
	}
}
