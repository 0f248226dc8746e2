package bench

import (
	"errors"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/workload"
)

// Set is a set with all keys inserted. Inserts that tell which keys were new are measured too, and deletions that tell which were there:
// of both, as many must be told as the set comes to have, or had.
func Set[K, V workload.Wide](w *Work[K, V], s table.Set[K]) Subject {
	st := w.Device.Stream()
	fill := byKeys(w, s.InsertOn, device.Slice[bool]{})
	return Subject{
		Table: s,
		Fill:  fill,
		Find:  func() error { return s.ContainsOn(st, w.Queries, w.Found) },
		Wrong: func() (int, error) { return w.count("verify_set", verifyParams{Found: w.Found.Addr()}) },
		Bytes: w.Options.KeyBytes,
		More: func(row *Row) error {
			told, err := device.Make[bool](w.Device, w.Options.N)
			if err != nil {
				return err
			}
			defer told.Free()
			if row.InsertAdded, err = w.rate("insert with added", w.Options.N, s.Clear, byKeys(w, s.InsertOn, told)); err != nil {
				return err
			}
			added, err := w.trues(told)
			if err != nil {
				return err
			}
			there, err := s.Len()
			if err != nil {
				return err
			}
			row.Wrong += apart(added, there)
			if w.kinds.Unique() {
				row.Wrong += apart(there, w.keys)
			}
			full := func() error { return errors.Join(s.Clear(), fill()) }
			if row.Delete, err = w.rate("delete", w.Options.N, full, byKeys(w, s.DeleteOn, told)); err != nil {
				return err
			}
			deleted, err := w.trues(told)
			if err != nil {
				return err
			}
			left, err := s.Len()
			if err != nil {
				return err
			}
			if err := s.ContainsOn(st, w.Queries, w.Found); err != nil {
				return err
			}
			found, err := w.trues(w.Found)
			row.Wrong += apart(deleted, there) + left + found
			return err
		},
	}
}

// byKeys does op with all keys, and has it tell of each; where told has no memory, it need not.
func byKeys[K, V workload.Wide](w *Work[K, V], op func(*device.Stream, device.Slice[K], device.Slice[bool]) error,
	told device.Slice[bool]) func() error {
	return w.batches(func(first, end int) error {
		part := told
		if told.Addr() != 0 {
			part = told.Slice(first, end)
		}
		return op(w.Device.Stream(), w.Keys.Slice(first, end), part)
	})
}

// apart is how far two numbers are from one another.
func apart(a, b int) int { return max(a-b, b-a) }
