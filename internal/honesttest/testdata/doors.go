package testdata

import (
	_ "unsafe" // want "imports unsafe"

	. "vingate/internal/vpic" // want "dot import"
	nhtsa "vingate/internal/vpic"
)

func offline(q nhtsa.Query) nhtsa.Answer {
	a, _ := nhtsa.Read([]byte("{}"), q) // want "vpic.Read"
	return a
}

func offlineToo(qs []nhtsa.Query) (nhtsa.BatchAnswer, error) {
	read := nhtsa.ReadBatch // want "vpic.ReadBatch"
	return read(nil, qs)
}

func elsewhere() (*nhtsa.Client, error) {
	return nhtsa.New(nhtsa.Config{BaseURL: "http://127.0.0.1/guesses"}) // want "vpic.New"
}

//go:linkname decode vingate/internal/vpic.decode // want "go:linkname"
func decode()

// Reading is free.
func headline(d Decoding) string { return d.Summary() + d.Value("Trim").Text() }
