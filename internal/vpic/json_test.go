package vpic

import "testing"

func TestADecodingAsJSON(t *testing.T) {
	d := mustRead(t, envelope(flat(accord, row{"ErrorCode": "4", "ErrorText": "4 - One <wrong> & several", "Model": "", "Manufacturer": "", "SuggestedVIN": "1HGCM82!33A004352",
		"PossibleValues": "(8:56)", "Doors": "4", "EngineCylinders": "TBD", "VehicleType": absent, "BusType": absent})), accord)
	const want = `{"modelYear":2003,"make":"HONDA","model":null,"outcome":"partial","summary":"2003 HONDA",` +
		`"sentence":"NHTSA could decode only a part of this VIN. It may be mistyped.","codes":[4],"messages":["One <wrong> & several"],` +
		`"remarks":["NHTSA found one wrong position and several ways to correct it.","At position 8 NHTSA expects one of 5, 6."],` +
		`"suggestedVin":"1HGCM82!33A004352","possibleValues":[{"position":8,"characters":"56"}],` +
		`"fields":{"Doors":"4","EngineCylinders":"TBD","ErrorCode":"4","ErrorText":"4 - One <wrong> & several","Make":"HONDA","ModelYear":"2003",` +
		`"PossibleValues":"(8:56)","SuggestedVIN":"1HGCM82!33A004352","VIN":"1HGCM82633A004352"},"numbers":{"Doors":4,"EngineCylinders":null,"ModelYear":2003}}`
	if got := string(d.JSON()); got != want {
		t.Errorf("%s\nwant %s", got, want)
	}
}
