package bench

import (
	"errors"
	"fmt"

	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/workload"
)

// ErrNotDrawn is what a Work is refused with whose keys come once each.
var ErrNotDrawn = errors.New("a counter counts keys that come often: say how many are distinct")

// Counter is a counter with all keys added, which must be drawn (TableOptions.Distinct). A look-up gives the count of its key.
func Counter[K workload.Wide, C uint32 | uint64](w *Work[K, C], c table.Counter[K, C]) (Subject, error) {
	st := w.Device.Stream()
	s := Subject{
		Table: c,
		Fill:  w.batches(func(first, end int) error { return c.AddOn(st, w.Keys.Slice(first, end)) }),
		Find:  func() error { return c.FindOn(st, w.Queries, w.Results, w.Found) },
		Wrong: func() (int, error) {
			return w.count(fmt.Sprintf("verify_counts%d", w.Options.ValueBytes), verifyParams{Values: w.Results.Addr(), Found: w.Found.Addr()})
		},
		Bytes: w.Options.pairBytes(),
	}
	if w.times == nil {
		return s, ErrNotDrawn
	}
	return s, nil
}
