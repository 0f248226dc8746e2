package bench

import (
	"errors"
	"fmt"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/workload"
)

// ErrNoUpdate is what a map is refused with that cannot combine values.
var ErrNoUpdate = errors.New("this table has no Update for values of 4 or 8 bytes: measure its inserts, without update")

// updater is as much of table.Updater as is measured: each method of an interface costs the compiler time for each pair of
// types.
type updater[K, V any] interface {
	UpdateOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], with table.Combine) error
}

// Updated is a map whose values are added up: Fill is UpdateOn with table.Add into the empty map, and a look-up gives the sum of all values that
// came with its key. Errors: a map that cannot; keys of which it is not known how often they come.
func Updated[K, V workload.Wide](w *Work[K, V], m table.Map[K, V]) (Subject, error) {
	s := w.Map(m)
	u, ok := m.(updater[K, V])
	if !ok || max(w.Options.KeyBytes, w.Options.ValueBytes) > 8 {
		return s, ErrNoUpdate
	}
	if !w.kinds.Unique() {
		return s, WrongOption("keys %q are hashes that meet: how often each comes is not known; want others", w.kinds.Kind)
	}
	st := w.Device.Stream()
	s.Fill = w.batches(func(first, end int) error {
		return u.UpdateOn(st, w.Keys.Slice(first, end), w.Values.Slice(first, end), table.Add)
	})
	s.Wrong = func() (int, error) {
		return w.count(fmt.Sprintf("verify_sums%d%d", w.Options.KeyBytes, w.Options.ValueBytes), verifyParams{Values: w.Results.Addr(), Found: w.Found.Addr()})
	}
	return s, nil
}
