//go:build unix

package join

import (
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"github.com/warpmap/warpmap/device"
)

// BenchmarkStringKeys counts the pairs of joins with text as keys: two million rows look for a million, in Parquet
// files, with keys that are short or long, that are there or mostly not, that come again and again, and of two columns.
// cpu-ns/row is the time of all cores for each row of both sides.
func BenchmarkStringKeys(b *testing.B) {
	d, err := device.Open("cpu")
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	const builds, probes = 1 << 20, 1 << 21
	for _, c := range []struct {
		name string
		key  func(i int) string
		of   int // probe keys are drawn from so many
		more bool
	}{
		{"short", func(i int) string { return fmt.Sprintf("%x", i*0x9e3779b1) }, builds, false},
		{"long", func(i int) string { return strings.Repeat("customer-", 8) + fmt.Sprintf("%x", i*0x9e3779b1) }, builds, false},
		{"misses", func(i int) string { return fmt.Sprintf("key %x", i*0x9e3779b1) }, 20 * builds, false},
		{"few", func(i int) string { return fmt.Sprint("country ", i%200) }, builds, false},
		{"two columns", func(i int) string { return fmt.Sprintf("%x", i*0x9e3779b1) }, builds, true},
	} {
		dir, rng := b.TempDir(), rand.New(rand.NewPCG(1, 2))
		on := []Pair{{"k", "k"}}
		if c.more {
			on = append(on, Pair{"l", "l"})
		}
		var paths [2]string
		for side, n := range [2]int{builds, probes} {
			keys, more := array.NewStringBuilder(mem), array.NewInt32Builder(mem)
			for i := range n {
				if side == 1 || c.name == "few" {
					i = rng.IntN(c.of)
				}
				if side == 0 && c.name == "few" {
					i %= 2000 // each country ten times
					if keys.Len() >= 2000 {
						break
					}
				}
				keys.Append(c.key(i))
				more.Append(int32(i % 10))
			}
			s := arrow.NewSchema([]arrow.Field{{Name: "k", Type: arrow.BinaryTypes.String},
				{Name: "l", Type: arrow.PrimitiveTypes.Int32}}, nil)
			a, m := keys.NewArray(), more.NewArray()
			rec := array.NewRecordBatch(s, []arrow.Array{a, m}, int64(a.Len()))
			paths[side] = filepath.Join(dir, fmt.Sprint(side, ".parquet"))
			r, err := array.NewRecordReader(s, []arrow.RecordBatch{rec})
			if err != nil {
				b.Fatal(err)
			}
			write(b, paths[side], r)
		}
		b.Run(c.name, func(b *testing.B) {
			before := used(b)
			for b.Loop() {
				if _, err := Run(b.Context(), d, Options{Build: paths[0], Probe: paths[1], On: on,
					Count: true}); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(used(b)-before)/float64(b.N)/(builds+probes), "cpu-ns/row")
		})
	}
}

// used is the time that the process has taken of all cores, in nanoseconds.
func used(b *testing.B) int64 {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		b.Fatal(err)
	}
	return u.Utime.Nano() + u.Stime.Nano()
}
