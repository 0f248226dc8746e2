package frame_test

import (
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
)

// A table grows for a batch that is expected to be new, and not for one whose first keys are in, nor for more than it has
// reason to believe in, nor for one key that comes again and again.
func TestForecast(t *testing.T) {
	x := newToy(t, 100, 100)
	d := x.frame.Device
	keys, err := device.Make[uint32](d, 1000)
	must(t, err)
	defer keys.Free()
	rows := frame.Rows{Keys: keys.Addr(), N: int64(keys.Len())}
	in := 0 // so many of the rows that are asked for
	host := make([]uint32, keys.Len())
	find := func(_ *device.Stream, b frame.Rows) error {
		for i, found := 0, column[bool](b.Flags, b.N); i < len(found); i++ {
			found[i] = i < in
		}
		return nil
	}
	var f frame.Forecast
	for _, c := range []struct {
		name            string
		distinct        int   // keys of the batch
		rows, was, is   int64 // of the batch before
		in              int
		live, limit, to int64
	}{
		{"nothing is known", 1000, 0, 0, 0, 0, 900, 1000, 0},
		{"all were new", 1000, 5000, 0, 5000, 0, 900, 1000, 1900},
		{"there is room", 1000, 5000, 0, 5000, 0, 900, 2000, 0},
		{"half were new", 1000, 5000, 0, 2500, 0, 900, 1000, 1400},
		{"all are in", 1000, 5000, 0, 5000, 1000, 900, 1000, 0},
		{"half are in", 1000, 5000, 0, 5000, 500, 900, 1000, 1400},
		{"more than four times as many", 1000, 5000, 0, 5000, 0, 300, 400, 0},
		{"there were few", 1000, 500, 0, 500, 0, 900, 1000, 1900}, // as was learned before
		{"one that comes again and again", 1, 5000, 0, 5000, 0, 900, 1000, 0},
		{"each comes twice", 500, 5000, 0, 5000, 0, 900, 1000, 1416}, // of 500 keys and some
		{"some were deleted meanwhile", 1000, 5000, 8000, 3000, 0, 900, 1000, 0},
	} {
		f.Learn(c.rows, c.was, c.is)
		in = c.in
		for i := range host {
			host[i] = uint32(i%c.distinct) * 0x9e3779b9
		}
		must(t, keys.Write(nil, host))
		got, err := f.Pairs(&x.frame, d.Stream(), rows, 4, c.live, c.limit, find)
		must(t, err)
		if d := got - c.to; d < -30 || d > 30 || d != 0 && c.distinct == 1000 { // how many keys differ is an estimate
			t.Errorf("%s: %d pairs, want %d", c.name, got, c.to)
		}
	}
}
