package frame_test

import (
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
)

// A table grows for a batch that is expected to be new, and not for one whose first keys are in, nor for more than it has
// reason to believe in.
func TestForecast(t *testing.T) {
	x := newToy(t, 100, 100)
	d := x.frame.Device
	keys, err := device.Make[uint32](d, 1000)
	must(t, err)
	defer keys.Free()
	rows := frame.Rows{Keys: keys.Addr(), N: int64(keys.Len())}
	in := 0 // so many of the rows that are asked for
	find := func(_ *device.Stream, b frame.Rows) error {
		for i, found := 0, column[bool](b.Flags, b.N); i < len(found); i++ {
			found[i] = i < in
		}
		return nil
	}
	var f frame.Forecast
	for _, c := range []struct {
		name            string
		rows, was, is   int64 // of the batch before
		in              int
		live, limit, to int64
	}{
		{"nothing is known", 0, 0, 0, 0, 900, 1000, 0},
		{"all were new", 5000, 0, 5000, 0, 900, 1000, 1900},
		{"there is room", 5000, 0, 5000, 0, 900, 2000, 0},
		{"half were new", 5000, 0, 2500, 0, 900, 1000, 1400},
		{"all are in", 5000, 0, 5000, 1000, 900, 1000, 0},
		{"half are in", 5000, 0, 5000, 500, 900, 1000, 1400},
		{"more than four times as many", 5000, 0, 5000, 0, 300, 400, 0},
		{"there were few", 500, 0, 500, 0, 900, 1000, 1900}, // as was learned before
		{"some were deleted meanwhile", 5000, 8000, 3000, 0, 900, 1000, 0},
	} {
		f.Learn(c.rows, c.was, c.is)
		in = c.in
		got, err := f.Pairs(&x.frame, d.Stream(), rows, c.live, c.limit, find)
		must(t, err)
		if got != c.to {
			t.Errorf("%s: %d pairs, want %d", c.name, got, c.to)
		}
	}
}
