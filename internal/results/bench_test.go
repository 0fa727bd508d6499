package results

import (
	"runtime"
	"testing"

	"vingate/internal/vpic"
)

// What a stored answer costs to unpack and to understand, and what it takes in memory both ways.
func BenchmarkAStoredAnswer(b *testing.B) {
	q := vpic.Query{VIN: accord}
	body := envelope(b, car())
	packed, err := pack(body)
	if err != nil {
		b.Fatal(err)
	}
	var u unpacker
	b.Run("unpack and interpret", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			body, err := u.unpack(packed)
			if err != nil {
				b.Fatal(err)
			}
			if _, err := vpic.Read(body, q); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("kept decoded", func(b *testing.B) {
		const n = 1000
		var before, after runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&before)
		kept := make([]vpic.Answer, n)
		for i := range kept {
			body, _ := u.unpack(packed)
			a, err := vpic.Read(body, q)
			if err != nil {
				b.Fatal(err)
			}
			kept[i] = a
		}
		runtime.GC()
		runtime.ReadMemStats(&after)
		b.ReportMetric(float64(after.HeapAlloc-before.HeapAlloc)/n, "heapbytes/answer")
		b.ReportMetric(float64(len(packed)), "packedbytes/answer")
		runtime.KeepAlive(kept)
	})
}
