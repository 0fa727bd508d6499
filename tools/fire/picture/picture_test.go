package picture

import (
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"vingate/internal/chaos"
)

func TestThePictureIsSVGAndNamesWhatItShows(t *testing.T) {
	for _, n := range []int{0, 1, 100, 8 * 3600} {
		var samples []chaos.Sample
		for i := range n {
			samples = append(samples, chaos.Sample{At: time.Duration(i) * time.Second, Served: 3 * i, Limit: 4, Memory: 20 << 20, Files: 25})
		}
		path := filepath.Join(t.TempDir(), "x.svg")
		if err := Write(path, samples); err != nil {
			t.Fatalf("%d samples: %v", n, err)
		}
		drawn, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		d := xml.NewDecoder(strings.NewReader(string(drawn)))
		for err == nil {
			_, err = d.Token()
		}
		if !errors.Is(err, io.EOF) {
			t.Errorf("%d samples: no XML: %v", n, err)
		}
		if len(drawn) > 400<<10 {
			t.Errorf("%d samples: %d bytes, too large to look at", n, len(drawn))
		}
		for _, p := range panels {
			if !strings.Contains(string(drawn), p.title) {
				t.Errorf("%d samples: nothing of %q", n, p.title)
			}
		}
	}
}
