package testdata

// Decoded is what it is called where it may be.
type Decoded struct {
	Make  *string `json:"make"`
	Trim  *string `json:"trim"`
	Doors int     `json:"doors"`
}

type another struct {
	Make string `json:"make"` // want `JSON key "make"`
}

func from(a *Decoded, b other) Decoded {
	guess := "FX4"
	d := Decoded{
		Make:  a.Make,
		Trim:  &guess, // want "Trim is given something"
		Doors: 4,      // want "Doors is given something"
	}
	d.Make = b.Model                    // want "Make is given something"
	d.Make = b.Make()                   // of the same name
	d.Trim, d.Doors = b.Trim, b.Seats() // want "Doors is given something"
	d.Trim, d.Doors = b.both()          // want "Trim is given something" "Doors is given something"
	_ = Decoded{a.Make, nil, 4}         // want "without names"
	return d
}
