// Command standin takes the flags of vpic-standin and answers its statistics, and nothing else.
package main

import (
	"flag"
	"fmt"
	"net/http"
	"os"
)

func main() {
	listen := flag.String("listen", "", "")
	flag.String("data", "", "")
	flag.String("cache-dir", "", "")
	end := flag.Bool("end", false, "")
	flag.Parse()
	if *end {
		fmt.Fprintln(os.Stderr, "no data")
		os.Exit(4)
	}
	http.HandleFunc("GET /_standin/stats", func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte("{}")) })
	fmt.Println("vpic-standin: listening on http://" + *listen)
	fmt.Fprintln(os.Stderr, http.ListenAndServe(*listen, nil))
	os.Exit(1)
}
