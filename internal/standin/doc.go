// Package standin answers like NHTSA's vPIC API on loopback, for people without
// the network and for tests, and can be told to misbehave like it.
//
// It is not NHTSA, and says so: every answer has the headers "Server: vpic-standin"
// and "X-Vpic-Standin: 1", and GET / tells what it is.
//
// # What is real and what is imitated
//
// Real: the decoded values. They come from NHTSA's public-domain data by NHTSA's
// rules; package vpicdata says how far the data goes. The keys of a row, the texts
// of the error codes and the envelope's message are NHTSA's own, too.
//
// Imitated after public captures, in shape only: paths, the JSON envelope, the
// XML answer when no format is asked for, the JSON of a 404 for an empty VIN, the
// echo of the caller's spelling. Made up, since no capture exists: the layout of
// CSV, what happens above 50 VINs in a batch, the JSON of 400 and 405, and the
// bodies of 403, 429, 503 and 504. NCSA's fields of the Extended call stay empty.
//
// # Calls
//
//	GET  /api/vehicles/DecodeVinValues/{vin}?format=json|xml|csv&modelyear=YYYY
//	GET  /api/vehicles/DecodeVinValuesExtended/{vin}
//	POST /api/vehicles/DecodeVINValuesBatch/    DATA=VIN[,year];VIN[,year]&format=json in the body
//
// in any letter case. No format means XML.
//
// # Control
//
//	GET, POST, DELETE /_standin/faults   what goes wrong; see Faults
//	GET, DELETE       /_standin/stats    what was called; see Stats
//	GET               /_standin/calls    the last calls, one by one; see Call
//
// These are not calls and no fault touches them.
package standin
