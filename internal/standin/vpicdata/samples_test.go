package vpicdata

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// Reasons why a value differs from a captured one.
const (
	older     = "the capture is of 2021 or 2022; NHTSA has changed the value since"
	reworded  = "NHTSA has reworded this name since the data was taken"
	lacking   = "decided by elements or lists that the data lacks"
	otherwise = "the capture's pattern of this element is missing; another pattern or a conversion steps in"
)

// sample is one captured answer of NHTSA: how it was asked for, and what cannot be equal.
type sample struct {
	file    string
	years   []int // as asked, per row
	differs map[string]string
}

// F-150: three captures of the same VIN.
var f150 = map[string]string{
	"AdditionalErrorText": older, "Manufacturer": older, "Turbo": older, "VehicleType": older, "Trim": older,
}

var samples = []sample{
	{"01-clean-1FTMW1T88MFA00001.json", []int{0}, f150},
	{"02-clean-modelyear-1FTMW1T88MFA00001.json", []int{2021}, f150},
	{"03-extended-1FTMW1T88MFA00001.json", []int{0}, f150},
	{"04-partial-code6-5UXWX7C5_BA-my2011.json", []int{2011}, map[string]string{"DisplacementCC": otherwise, "DisplacementCI": otherwise}},
	{"05-batch-2-codes-6-and-5_6_14.json", []int{2011, 0}, map[string]string{
		"DisplacementCC": otherwise, "DisplacementCI": otherwise, "Trim": older,
		"AdditionalErrorText": lacking, "ErrorCode": lacking, "ErrorText": lacking, "PossibleValues": lacking, "SuggestedVIN": lacking}},
	{"07-clean-2026-154keys-3VV3B7AX9NM000001.json", []int{0}, map[string]string{"BodyClass": reworded}},
	{"08-clean-2026-hybrid-KMHC85LCXHU000001.json", []int{0}, map[string]string{"GVWR": lacking, "GVWR_to": lacking}},
	{"09-code8-make-no-model-KL4MRSUC0TL588504.json", []int{0}, nil},
	{"10-code8-no-make-JA45ELZ45TS282752.json", []int{0}, nil},
	{"11-codes-4_14-my1985-JM1GC3111FU937813.json", []int{0}, map[string]string{"DisplacementCI": otherwise}},
	{"12-codes-5_14-partial-2LMDJ9JL0HE297971.json", []int{0}, map[string]string{"BodyClass": reworded}},
	{"13-code0-checkdigit-exception-ZACCJABT0FPB71014.json", []int{0}, map[string]string{"BodyClass": reworded, "ErrorCode": lacking, "ErrorText": lacking}},
	{"14-codes-5_14-make-no-model-1FAUVP5U913895730.json", []int{0}, map[string]string{"PossibleValues": lacking}},
}

// readSample gives the rows of a capture, or skips where the folder is absent.
func readSample(t *testing.T, file string) []map[string]string {
	t.Helper()
	root, err := moduleRoot()
	if err != nil {
		t.Fatal(err)
	}
	body, err := os.ReadFile(filepath.Join(filepath.Dir(root), "shared", "vpic", "samples", file))
	if os.IsNotExist(err) {
		t.Skip("no captures of NHTSA's answers here")
	}
	if err != nil {
		t.Fatal(err)
	}
	var envelope struct {
		Content *struct{ Results []map[string]string }
		Results []map[string]string
	}
	if err := json.Unmarshal(body, &envelope); err != nil {
		t.Fatal(err)
	}
	if envelope.Content != nil {
		return envelope.Content.Results
	}
	return envelope.Results
}

// covered are the fields that the data has patterns for, or that come from the
// maker, the model year, conversions or the judgement.
var covered = []string{
	"AdditionalErrorText", "BatteryType", "BodyClass", "BrakeSystemType", "ChargerLevel", "DisplacementCC", "DisplacementCI",
	"DisplacementL", "Doors", "EngineConfiguration", "EngineCylinders", "EngineManufacturer", "EngineModel", "ErrorCode",
	"ErrorText", "FuelTypePrimary", "FuelTypeSecondary", "GVWR", "GVWR_to", "Make", "MakeID", "Manufacturer",
	"ManufacturerId", "Model", "ModelID", "ModelYear", "OtherEngineInfo", "OtherRestraintSystemInfo", "PlantCity",
	"PlantCountry", "PlantState", "PossibleValues", "Series", "SuggestedVIN", "Trim", "Turbo", "VIN",
	"VehicleDescriptor", "VehicleType",
}

// NHTSA's captured answers are equal here, field by field, but for fields that the
// data has no patterns for, and for what the table of samples names with its reason.
func TestDecodeAgreesWithNHTSAsAnswers(t *testing.T) {
	for _, s := range samples {
		t.Run(strings.TrimSuffix(s.file, ".json"), func(t *testing.T) {
			rows := readSample(t, s.file)
			if len(rows) != len(s.years) {
				t.Fatalf("%d rows, want %d", len(rows), len(s.years))
			}
			differing := make(map[string]bool)
			for i, want := range rows {
				got := decode(t, want["VIN"], s.years[i])
				for field, value := range want {
					absent := !slices.Contains(covered, field)
					switch {
					case got[field] == value:
					case s.differs[field] != "":
						differing[field] = true
					case absent && got[field] == "":
					case value == "" || absent || got[field] != "":
						t.Errorf("%s is %q, NHTSA says %q", field, got[field], value)
					default:
						t.Errorf("%s is missing, NHTSA says %q", field, value)
					}
				}
			}
			for field := range s.differs {
				if !differing[field] {
					t.Errorf("%s is excused but equal", field)
				}
			}
		})
	}
}

// The keys are exactly those of NHTSA's answers of 2026, in NHTSA's order, and those
// of 2021 are among them.
func TestFieldsAreNHTSAsKeys(t *testing.T) {
	if len(fields) != 154 || !slices.IsSorted(fields) || len(slices.Compact(slices.Clone(fields))) != 154 {
		t.Errorf("%d fields, sorted %v, want 154 different ones in byte order", len(fields), slices.IsSorted(fields))
	}
	for _, s := range samples {
		for _, row := range readSample(t, s.file) {
			for key := range row {
				if !slices.Contains(fields, key) {
					t.Errorf("%s: key %s is not among the fields", s.file, key)
				}
			}
			if s.file >= "07" && len(row) != len(fields) {
				t.Errorf("%s has %d keys, want %d", s.file, len(row), len(fields))
			}
		}
	}
}
