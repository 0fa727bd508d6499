package vpicdata

import (
	"slices"
	"testing"
)

func TestCheckDigit(t *testing.T) {
	for _, test := range []struct {
		vin        string
		serialFrom int
		want       byte
	}{
		{"1M8GDM9AXKP042788", 14, 'X'},
		{"11111111111111111", 13, '1'},
		{"1HGCM82633A004352", 13, '3'},
		{"1FTMW1T88MFA00001", 14, '8'},
		{"1FBNE3BE1CDB23596", 14, 'X'},
		{"1HGCM82633AA04352", 13, 'X'}, // position 12 may be a letter
		{"1HGCM82633A0A4352", 13, '?'}, // position 13 of a car may not
		{"1HGCM82633A0A4352", 14, '9'},
		{"1HGCM8263UA004352", 13, '?'},
		{"1HGCM8263*A004352", 13, '?'},
		{"1HGCM82633A00435O", 13, '?'},
		{"1HGCM8263", 13, '?'},
	} {
		if got := checkDigit(test.vin, test.serialFrom); got != test.want {
			t.Errorf("check digit of %s with serial from %d is %c, want %c", test.vin, test.serialFrom, got, test.want)
		}
	}
}

// A public report: the remainder 10, read from the decimals of a division, became 1.
func TestJ1939_84_964_RemainderTenIsX(t *testing.T) {
	if got := checkDigit("1M8GDM9A_KP042788"[:8]+"0"+"KP042788", 14); got != 'X' {
		t.Errorf("check digit is %c, want X", got)
	}
}

func TestYearOfPosition10(t *testing.T) {
	for c, want := range map[byte]int{'A': 2010, 'H': 2017, 'J': 2018, 'N': 2022, 'P': 2023, 'R': 2024, 'T': 2026, 'V': 2027, 'Y': 2030, '1': 2031, '9': 2039,
		'0': 0, 'I': 0, 'O': 0, 'Q': 0, 'U': 0, 'Z': 0, '*': 0} {
		if got := yearOf("111111111" + string(c)); got != want {
			t.Errorf("position 10 %c is %d, want %d", c, got, want)
		}
	}
	if got := yearOf("123456789"); got != 0 {
		t.Errorf("nine characters have the year %d", got)
	}
}

func TestCandidateYears(t *testing.T) {
	car, bike := &maker{vehicleType: typeCar, schemas: []schemaYears{{1, 1980, 2999}}}, &maker{vehicleType: typeMotorcycle}
	light := &maker{vehicleType: typeTruck, truckType: 1, schemas: []schemaYears{{1, 1980, 2999}}}
	for _, test := range []struct {
		name          string
		p7, p10       byte
		maker         *maker
		year, earlier int
		conclusive    bool
	}{
		{"a car with a digit at 7 is of the earlier decades", '2', '3', car, 2003, 0, true},
		{"a car with a letter at 7 is of the later ones", 'A', 'D', car, 2013, 0, true},
		{"a light truck counts as a car", '2', 'D', light, 1983, 0, true},
		{"a motorcycle may be of both", '2', 'D', bike, 2013, 1983, false},
		{"an unknown maker's, too", '2', 'D', nil, 2013, 1983, false},
		{"a year that is too far ahead can only be the earlier one", 'A', '9', bike, 2009, 0, true},
		{"a car with * at 7 may be of both", '*', 'D', car, 2013, 1983, false},
		{"no year", '2', 'U', car, 0, 0, true},
		{"a maker that files only for the other decade is believed", '2', 'D',
			&maker{vehicleType: typeCar, schemas: []schemaYears{{1, 2010, 2999}}}, 2013, 0, true},
		{"also the other way", 'A', 'D', &maker{vehicleType: typeCar, schemas: []schemaYears{{1, 1980, 1990}}}, 1983, 0, true},
	} {
		year, earlier, conclusive := candidateYears("111111"+string(test.p7)+"11"+string(test.p10)+"1111111", test.maker, 2028)
		if year != test.year || earlier != test.earlier || conclusive != test.conclusive {
			t.Errorf("%s: %d, %d, %v, want %d, %d, %v", test.name, year, earlier, conclusive, test.year, test.earlier, test.conclusive)
		}
	}
}

func TestInvalidPositions(t *testing.T) {
	for _, test := range []struct {
		vin        string
		serialFrom int
		anyCheck   bool
		want       []int
	}{
		{"1HGCM82633A004352", 13, false, nil},
		{"1HGCM826*3A******", 13, false, nil},
		{"1HGCM826A3A004352", 13, false, []int{9}},
		{"1HGCM826A3A004352", 13, true, nil},
		{"IOQCM8263UA00435A", 13, false, []int{1, 2, 3, 10, 17}},
		{"1HGCM8263*A0A4352", 13, false, []int{10, 13}},
		{"1HGCM82633A0A4352", 14, false, nil},
		{"1H-", 13, false, []int{3}},
	} {
		if got := invalidPositions(test.vin, test.serialFrom, test.anyCheck); !slices.Equal(got, test.want) {
			t.Errorf("invalid positions of %s are %v, want %v", test.vin, got, test.want)
		}
	}
}

func TestDescriptor(t *testing.T) {
	for vin, want := range map[string]string{
		"": "***********", "1HG": "1HG********", "1HGCM82633A004352": "1HGCM826*3A", "1C9FA3822R1257465": "1C9FA382*R1257", "5UXWX7C5*BA": "5UXWX7C5*BA",
	} {
		if got := descriptorOf(vin); got != want {
			t.Errorf("descriptor of %q is %q, want %q", vin, got, want)
		}
	}
}
