package shard

import (
	"errors"
	"slices"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// An owner combines the rows of a key with its value in any order, and in groups. So a source whose keys repeat combines
// its rows first, and sends one row for each key: 250 million rows of 10 million keys on each of two H200s become 20
// million sums in 5 ms, while the rows themselves would take 10 ms to their owners.

// sumsOf returns the sums of a source's values, or the numbers of its rows; none if the table does not combine rows, or
// if it is not worth it.
func sumsOf(x table.Table, s source, values bool, with table.Combine) (frame.Sums, error) {
	sums, ok := x.(interface {
		Sums(st *device.Stream, keys, values device.Slice[byte], with table.Combine) (frame.Sums, error)
	})
	if !ok || !itself(x) || s.n == 0 || s.when != 0 {
		return frame.Sums{}, nil
	}
	of := device.Slice[byte]{}
	if values {
		of = s.slices.values
	}
	return sums.Sums(s.st, s.slices.keys, of, with)
}

// summed returns sums as a source.
func (w widths) summed(st *device.Stream, sums frame.Sums) source {
	return sourceOf(st, received{n: sums.N, keys: sums.Keys.Slice(0, sums.N*w.keyBytes),
		values: sums.Values.Slice(0, sums.N*w.valueBytes)})
}

// combine returns the sums of each source's rows as sources, and a function that frees them. A source without sums sends
// its rows, which are sums, too, if they have values. combine returns none if no source has sums, or if some source has
// neither. The caller holds the lock.
func (c *cluster) combine(sumsOf func(i int, s source) (frame.Sums, error), all []source, values bool) (summed []source,
	free func() error, err error) {
	if c.vain > 0 {
		c.vain--
		return nil, nil, nil
	}
	sums := make([]frame.Sums, len(all))
	freeSums := func() error {
		return c.together(func(i int) error { return sums[i].Free(c.members[i].following(all[i].st)) })
	}
	defer func() {
		if summed == nil { // after an error or a panic, too
			err = frame.OneLine(errors.Join(err, freeSums()))
		}
	}()
	err = c.together(func(i int) (err error) {
		sums[i], err = sumsOf(i, all[i])
		return err
	})
	has := func(s frame.Sums) bool { return s.N > 0 }
	if err != nil || !slices.ContainsFunc(sums, has) {
		return nil, nil, err
	}
	of := slices.Clone(all)
	for i, s := range all {
		if has(sums[i]) {
			of[i] = c.summed(s.st, sums[i])
		} else if s.n > 0 && !values {
			c.vain = vainBatches
			return nil, nil, nil
		}
	}
	return of, freeSums, nil
}

// matchSums marks the rows whose sums are not done, without a look-up. Equal sums can take each other's place. If only
// some sums of a key are done, all rows of that key and source are marked, because the rows of a sum are not known. That
// takes a table that refused a sum of the key and had memory for another one later, and none for a look-up since.
func (t *taking) matchSums(b placed) error {
	t.undone.sort()
	lost := t.losses()
	clear(lost)
	for k, i := range b.devices {
		s := t.summed[i]
		if s.n == 0 {
			continue
		}
		keys, err := s.slices.keys.Host(s.st)
		if err != nil {
			return err
		}
		values, err := s.slices.values.Host(s.st)
		if err != nil {
			return err
		}
		undone := rowSet{width: t.keyBytes}
		var row []byte
		for r := range s.n {
			row = append(append(row[:0], t.keyAt(keys, r)...), t.valueAt(values, r)...)
			if t.undone.take(row) {
				undone.add(row[:t.keyBytes])
			}
		}
		undone.sort()
		for r := b.before[k]; r < b.before[k]+b.sources[i].n; r++ {
			if undone.find(t.keyAt(t.keys, r)) >= 0 {
				lost[r] = rowAbsent
			}
		}
	}
	return nil
}
