package testdata

type problem struct {
	Code  string `json:"code"`
	Make  string `json:"make,omitempty"` // want `JSON key "make"`
	Model string `json:"Model"`          // want `JSON key "Model"`
	Year  int    `json:"modelYear"`      // want `JSON key "modelYear"`
	Also  string `yaml:"make"`
}

func refuse() map[string]any {
	m := map[string]any{
		"code":      "RATE_LIMITED",
		"BodyClass": "Sedan", // want `key "BodyClass"`
	}
	m["Trim"] = "LX"                            // want `key "Trim"`
	m["doors"], m["x"] = 4, 1                   // want `key "doors"`
	m["note"] = map[string]any{"retryAfter": 3} // want `key "note"`
	return m
}

const body = `{"code":"RATE_LIMITED","make": "unknown"}` // want `JSON key "make"`

var escaped = "{\"ModelYear\":\"2003\"}" // want `JSON key "ModelYear"`

const names = "a 2003 HONDA Accord" // want "names a make: HONDA"

var read = []string{"Make", "Model", "Trim"} // what is read of an answer

const fine = "make run; the model year must be a number; model: free text"
