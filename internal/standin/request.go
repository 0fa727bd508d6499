package standin

import (
	"fmt"
	"net/http"
	"net/url"
	"strconv"
	"strings"

	"vingate/internal/standin/vpicdata"
)

const (
	apiPrefix = "/api/vehicles/"
	maxBatch  = 50      // VINs that NHTSA takes in one call
	maxBody   = 1 << 20 // bytes of a batch call's form
)

// format of an answer.
type format string

const (
	formatXML  format = "xml" // what NHTSA sends when nobody asks for another
	formatJSON format = "json"
	formatCSV  format = "csv"
)

func parseFormat(text string) format {
	switch f := format(strings.ToLower(strings.TrimSpace(text))); f {
	case formatJSON, formatCSV:
		return f
	}
	return formatXML
}

// apiCall is what a request asks for.
type apiCall struct {
	batch   bool
	queries []vpicdata.Query
	format  format
}

// criteria is the SearchCriteria of the answer.
func (c apiCall) criteria() string {
	if c.batch {
		return ""
	}
	return "VIN(s): " + c.queries[0].VIN
}

// apiError is a request that NHTSA's front end refuses. Its body is JSON with keys
// in lower case, whatever format was asked for.
type apiError struct {
	status  int
	kind    string // in Stats.Answers
	message string
	detail  string
	allow   string // methods, with 405
}

func (e *apiError) Error() string { return e.message }

func notFound(r *http.Request) *apiError {
	return &apiError{status: http.StatusNotFound, kind: AnswerNotFound,
		message: fmt.Sprintf("No HTTP resource was found that matches the request URI 'http://%s%s'.", r.Host, r.URL.RequestURI()),
		detail:  "No action was found on the controller 'Vehicles' that matches the request."}
}

// parseCall reads a request. body is its form; it is looked at for batch calls only.
func parseCall(r *http.Request, body string) (apiCall, *apiError) {
	path := r.URL.EscapedPath()
	if len(path) < len(apiPrefix) || !strings.EqualFold(path[:len(apiPrefix)], apiPrefix) {
		return apiCall{}, notFound(r)
	}
	action, argument, _ := strings.Cut(path[len(apiPrefix):], "/")
	switch strings.ToLower(action) {
	case "decodevinvalues", "decodevinvaluesextended":
		if r.Method != http.MethodGet {
			return apiCall{}, methodNotAllowed(r.Method, http.MethodGet)
		}
		return parseSingle(r, argument)
	case "decodevinvaluesbatch":
		if argument != "" {
			return apiCall{}, notFound(r)
		}
		if r.Method != http.MethodPost {
			return apiCall{}, methodNotAllowed(r.Method, http.MethodPost)
		}
		return parseBatch(body), nil
	}
	return apiCall{}, notFound(r)
}

func methodNotAllowed(method, allowed string) *apiError {
	return &apiError{status: http.StatusMethodNotAllowed, kind: AnswerBadRequest, allow: allowed,
		message: fmt.Sprintf("The requested resource does not support http method '%s'.", method)}
}

func parseSingle(r *http.Request, argument string) (apiCall, *apiError) {
	vin, err := url.PathUnescape(strings.TrimSuffix(argument, "/"))
	if err != nil || vin == "" || strings.Contains(strings.TrimSuffix(argument, "/"), "/") {
		return apiCall{}, notFound(r)
	}
	call := apiCall{format: formatXML, queries: []vpicdata.Query{{VIN: vin}}}
	for name, value := range pairs(r.URL.RawQuery) {
		switch strings.ToLower(name) {
		case "format":
			call.format = parseFormat(value)
		case "modelyear":
			if value = strings.TrimSpace(value); value == "" {
				continue
			}
			year, err := strconv.ParseInt(value, 10, 32)
			if err != nil {
				return apiCall{}, &apiError{status: http.StatusBadRequest, kind: AnswerBadRequest,
					message: "The request is invalid.",
					detail:  "The parameters dictionary contains an invalid entry for parameter 'modelyear'."}
			}
			call.queries[0].ModelYear = int(year)
		}
	}
	return call, nil
}

// parseBatch reads the form "DATA=VIN[,year];VIN[,year]&format=json". A year that
// is no number counts as none. Blanks and empty entries do not matter.
func parseBatch(form string) apiCall {
	call := apiCall{batch: true, format: formatXML}
	data := ""
	for name, value := range pairs(form) {
		switch strings.ToLower(name) {
		case "format":
			call.format = parseFormat(value)
		case "data":
			data = value
		}
	}
	for entry := range strings.SplitSeq(data, ";") {
		vin, year, _ := strings.Cut(entry, ",")
		if vin = strings.TrimSpace(vin); vin == "" {
			continue
		}
		q := vpicdata.Query{VIN: vin}
		if n, err := strconv.ParseInt(strings.TrimSpace(year), 10, 32); err == nil {
			q.ModelYear = int(n)
		}
		call.queries = append(call.queries, q)
	}
	return call
}

// pairs reads a query or a form. net/url refuses a bare ';', which NHTSA's own
// examples have, and a bad escape; here the text then counts as it stands.
func pairs(text string) func(yield func(name, value string) bool) {
	return func(yield func(name, value string) bool) {
		for pair := range strings.SplitSeq(text, "&") {
			name, value, _ := strings.Cut(pair, "=")
			if pair != "" && !yield(unescape(name), unescape(value)) {
				return
			}
		}
	}
}

func unescape(text string) string {
	if plain, err := url.QueryUnescape(text); err == nil {
		return plain
	}
	return text
}
