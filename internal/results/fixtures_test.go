package results

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"

	"vingate/internal/vpic"
)

const accord = "1HGCM82633A004352"

var (
	noon  = time.Date(2026, 6, 1, 12, 0, 0, 123e6, time.UTC)
	lives = Lives{Hard: 720 * time.Hour, Soft: 168 * time.Hour, Negative: 24 * time.Hour}
)

// names are NHTSA's fields in NHTSA's order, as the dictionary has them.
func names(t testing.TB) []string {
	t.Helper()
	_, skeleton, ok := bytes.Cut(dictionary, []byte(`"{"Count":1,`))
	if !ok {
		t.Fatal("the dictionary holds no envelope")
	}
	_, row, _ := bytes.Cut(skeleton, []byte(`"Results":[`))
	d := json.NewDecoder(bytes.NewReader(row))
	var list []string
	for d.More() {
		k, err := d.Token()
		if err != nil {
			t.Fatal(err)
		}
		if k == json.Delim('{') {
			continue
		}
		if k == json.Delim('}') {
			break
		}
		list = append(list, k.(string))
		if _, err := d.Token(); err != nil {
			t.Fatal(err)
		}
	}
	return list
}

// envelope is an answer in NHTSA's shape: all fields in order, texts where given.
func envelope(t testing.TB, fields map[string]string) []byte {
	t.Helper()
	var row bytes.Buffer
	for i, name := range names(t) {
		if i > 0 {
			row.WriteByte(',')
		}
		text, _ := json.Marshal(fields[name])
		fmt.Fprintf(&row, "%q:%s", name, text)
	}
	return fmt.Appendf(nil, `{"Count":1,"Message":"Results returned successfully. NOTE: Any missing decoded values should be interpreted as NHTSA does not have data on the specific variable. Missing value should NOT be interpreted as an indication that a feature or technology is unavailable for a vehicle.","SearchCriteria":"VIN(s): %s","Results":[{%s}]}`, fields["VIN"], row.String())
}

// car has about as many texts, and as long ones, as NHTSA's answer for a car of a recent year.
func car() map[string]string {
	return map[string]string{
		"VIN": accord, "Make": "HONDA", "MakeID": "474", "Model": "Accord", "ModelID": "1861", "ModelYear": "2003", "Manufacturer": "AMERICAN HONDA MOTOR CO., INC.", "ManufacturerId": "988",
		"ABS": "Standard", "AirBagLocFront": "1st Row (Driver and Passenger)", "AirBagLocSide": "1st Row (Driver and Passenger)", "AirBagLocCurtain": "All Rows",
		"BodyClass": "Coupe", "BusFloorConfigType": "Not Applicable", "BusType": "Not Applicable", "CustomMotorcycleType": "Not Applicable", "DisplacementCC": "2998.832712",
		"DisplacementCI": "183", "DisplacementL": "2.998832712", "Doors": "2", "EngineConfiguration": "V-Shaped", "EngineCylinders": "6", "EngineHP": "240", "EngineKW": "178.9680",
		"EngineManufacturer": "Honda", "EngineModel": "J30A4", "ErrorCode": "0", "ErrorText": "0 - VIN decoded clean. Check Digit (9th position) is correct", "FuelTypePrimary": "Gasoline",
		"GVWR": "Class 1C: 4,001 - 5,000 lb (1,814 - 2,268 kg)", "MotorcycleChassisType": "Not Applicable", "MotorcycleSuspensionType": "Not Applicable", "NCSABodyType": "2-door sedan,hardtop,coupe",
		"NCSAMake": "Honda", "NCSAModel": "Accord (Note: For Crosstour model years 2010 and 2011 only. For 2012-2015, use 37-411)", "OtherEngineInfo": "Three-way catalytic converter (TWC) / Closed loop fuel system",
		"OtherRestraintSystemInfo": "Seat Belt (Front center, rear center and rear outboard): lap and shoulder / pretensioners in front", "PlantCity": "MARYSVILLE", "PlantCompanyName": "Honda of America Mfg., Inc.",
		"PlantCountry": "UNITED STATES (USA)", "PlantState": "OHIO", "Pretensioner": "Standard", "SeatBeltsAll": "Manual", "Seats": "5", "SeatRows": "2", "Series": "Base", "SteeringLocation": "Left-Hand Drive (LHD)",
		"TPMS": "Indirect", "TractionControl": "Optional", "TrailerBodyType": "Not Applicable", "TrailerType": "Not Applicable", "TransmissionSpeeds": "5", "TransmissionStyle": "Automatic", "Trim": "EX-V6",
		"ValveTrainDesign": "Single Overhead Cam (SOHC)", "VehicleDescriptor": "1HGCM826*3A", "VehicleType": "PASSENGER CAR", "WheelBaseShort": "105.1", "WheelSizeFront": "17", "WheelSizeRear": "17", "Wheels": "4",
	}
}

// answer is a live answer as the client gives it.
func answer(t testing.TB, q vpic.Query, fields map[string]string) vpic.Answer {
	t.Helper()
	a, err := vpic.Read(envelope(t, fields), q)
	if err != nil {
		t.Fatal(err)
	}
	a.FetchedAt, a.Took = noon, 412*time.Millisecond
	return a
}

// store over the real table, with a clock that can be turned and room in memory for a few answers.
func store(t testing.TB, api API) (*Store, *time.Time) {
	now := noon
	n := 0
	return New(Config{Client: api, Table: "results", Lives: lives, Memory: 1 << 20, SkewBound: 250 * time.Millisecond,
		NewID: func() string { n++; return fmt.Sprint("flight", n) }, Now: func() time.Time { return now }}), &now
}

// samples are captured answers of NHTSA beside the module; a test that reads them skips where they are absent.
func samples(t *testing.T) []string {
	t.Helper()
	files, _ := filepath.Glob(filepath.Join("..", "..", "..", "shared", "vpic", "samples", "*-*.json"))
	if len(files) == 0 {
		t.Skip("no captured answers beside the module")
	}
	return files
}

func mustRead(t *testing.T, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	return b
}
