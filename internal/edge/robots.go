package edge

import "strings"

// robotsTxt asks crawlers not to follow VINs: each would be a call to NHTSA for nobody.
const robotsTxt = `User-agent: *
Allow: /$
Disallow: /*?
Disallow: /api/
Disallow: /v1/
`

// robotWords are in the User-Agents of crawlers and of programs that fetch a link to show a preview of it.
var robotWords = []string{"bot", "crawl", "spider", "slurp", "facebookexternalhit", "mediapartners", "preview", "embedly", "whatsapp", "archiver", "scrapy"}

// noRobots are words in the User-Agents of people's devices that look like one of a robot's: CUBOT makes telephones.
var noRobots = []string{"cubot"}

// robot says that a program asks by itself, without a person waiting. It gets what is stored. A program with an API key says whose it is
// and is none.
func (r *request) robot() bool {
	if r.header("X-Api-Key") != "" {
		return false
	}
	agent := strings.ToLower(r.header("User-Agent"))
	for _, word := range noRobots {
		agent = strings.ReplaceAll(agent, word, "")
	}
	for _, word := range robotWords {
		if strings.Contains(agent, word) {
			return true
		}
	}
	return false
}

// prefetch says that a browser asks without a person waiting.
func (r *request) prefetch() bool {
	for _, name := range []string{"Sec-Purpose", "Purpose", "X-Purpose", "X-Moz"} {
		if v := strings.ToLower(r.header(name)); strings.Contains(v, "prefetch") || strings.Contains(v, "preview") || strings.Contains(v, "prerender") {
			return true
		}
	}
	return false
}

// storedOnly says that this request may cause no call.
func (r *request) storedOnly() bool { return r.method == "HEAD" || r.prefetch() || r.robot() }
