package bench

import (
	"errors"
	"math"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/workload"
)

// FilterRow is what a Row has of filters beside the others.
type FilterRow struct {
	Absent         float64 `json:"absent"`          // look-ups of absent keys, billions a second
	FalsePositives float64 `json:"false_positives"` // share of these that are told to be in
	Estimate       float64 `json:"estimate"`        // FilterStats.Rate: the share to be expected
	// Ideal is what a Bloom filter of as many bits would have that is not blocked, with the best number of hash functions: exp(-ln²2 · bits/keys).
	Ideal      float64 `json:"ideal"`
	BitsPerKey float64 `json:"bits_per_key"`

	Delete     float64 `json:"delete,omitempty"`      // of filters that delete: all keys, untold
	DeleteTold float64 `json:"delete_told,omitempty"` // and told which were there
}

// deleting is a filter that deletes keys.
type deleting[K any] interface {
	table.Filter[K]
	DeleteOn(st *device.Stream, keys device.Slice[K], deleted device.Slice[bool]) error
	Len() (int, error)
}

// Filter is a filter with all keys inserted. Look-ups are of those alone, and what it does not find is wrong, also when each is asked for
// once more. As many look-ups of absent keys are measured apart, and what it finds of them is no wrong answer but FilterRow's rate. Errors: keys of which it is not known
// whether they are absent.
func Filter[K, V workload.Wide](w *Work[K, V], f table.Filter[K]) (Subject, error) {
	st := w.Device.Stream()
	find := func() error { return f.ContainsOn(st, w.Queries, w.Found) }
	s := Subject{
		Table: filterTable[K]{f},
		Fill:  w.batches(func(first, end int) error { return f.InsertOn(st, w.Keys.Slice(first, end)) }),
		Find:  find,
		Wrong: func() (int, error) { return w.count("verify_set", verifyParams{Found: w.Found.Addr()}) },
		Reads: 32,
		More: func(row *Row) error {
			told, err := device.Make[bool](w.Device, w.Options.N)
			if err != nil {
				return err
			}
			defer told.Free()
			if err := byKeys(w, f.ContainsOn, told)(); err != nil {
				return err
			}
			there, err := w.trues(told)
			if err != nil {
				return err
			}
			row.Wrong += w.Options.N - there
			if err := w.Ask(0, 0); err != nil {
				return err
			}
			stats, err := f.Stats()
			if err != nil {
				return err
			}
			bits := 8 * float64(stats.Bytes) / float64(w.keys)
			row.Filter = &FilterRow{Estimate: stats.Rate, Ideal: math.Exp(-math.Ln2 * math.Ln2 * bits), BitsPerKey: bits}
			if row.Filter.Absent, err = w.rate("find absent keys", w.Options.Queries, nil, find); err != nil {
				return err
			}
			found, err := w.trues(w.Found)
			row.Filter.FalsePositives = float64(found) / float64(w.Options.Queries)
			if del, is := f.(deleting[K]); is && err == nil {
				err = deletions(w, row, del, told)
			}
			return err
		},
	}
	if !w.kinds.Unique() {
		return s, WrongOption("keys %q are hashes that meet: it is not known which are absent; want others", w.kinds.Kind)
	}
	return s, w.Ask(1, 0)
}

// deletions measures the deletion of all keys. None may stay, and each must be told to be deleted, but for as many as were
// refused, of which one in a hundred million may be.
func deletions[K, V workload.Wide](w *Work[K, V], row *Row, f deleting[K],
	told device.Slice[bool]) (err error) {
	fill := w.batches(func(first, end int) error { return f.InsertOn(w.Device.Stream(), w.Keys.Slice(first, end)) })
	refused := 0
	full := func() error {
		err := errors.Join(f.Clear(), fill())
		refused = 0
		if no := (*table.FullError)(nil); errors.As(err, &no) {
			if refused = len(no.Positions); refused <= 1+w.Options.N/100_000_000 {
				return nil
			}
		}
		return err
	}
	for _, x := range []struct {
		rate *float64
		told device.Slice[bool]
	}{{&row.Filter.Delete, device.Slice[bool]{}}, {&row.Filter.DeleteTold, told}} {
		if *x.rate, err = w.rate("delete", w.Options.N, full, byKeys(w, f.DeleteOn, x.told)); err != nil {
			return err
		}
		left, err := f.Len()
		if err != nil {
			return err
		}
		row.Wrong += left
	}
	deleted, err := w.trues(told)
	row.Wrong += w.Options.N - refused - deleted
	return err
}

// filterTable tells of a filter what other tables tell of themselves. Its load factor is the share of bits that are set.
type filterTable[K any] struct{ table.Filter[K] }

// Stats are the filter's own.
func (f filterTable[K]) Stats() (table.Stats, error) {
	s, err := f.Filter.Stats()
	return table.Stats{LoadFactor: float64(s.BitsSet) / float64(max(1, s.Bits)), Bytes: s.Bytes}, err
}
