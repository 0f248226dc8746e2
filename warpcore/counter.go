package warpcore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// Counter is WarpCore's CountingHashTable (paper, §IV): it counts how often each key came. Keys have 4 or 8 bytes. Rows
// that have the same key and are near one another in a batch are counted together, so a batch in which most rows have
// one key is no slower. All methods take whole batches and are safe for use by several goroutines.
//
// Counter implements table.Counter, whose comments are the contract of the methods. Counter also has Histogram.
type Counter[K any, C uint32 | uint64] struct {
	handle
	header   device.File
	saturate bool
	counts   struct{ number, export, histogram device.Kernel[countsParams] }
}

func _[K any, C uint32 | uint64](c *Counter[K, C]) table.Counter[K, C] { return c }

// CounterOptions are the options of NewCounter. The zero value is good.
type CounterOptions struct {
	Options
	// Saturate makes it no error if a count is as large as its type allows.
	Saturate bool
}

// NewCounter makes an empty counter on the device: see New.
func NewCounter[K any, C uint32 | uint64](d *device.Device, o CounterOptions) (*Counter[K, C], error) {
	header, err := frame.CountHeader[C]()
	if err != nil {
		return nil, err
	}
	c, err := newCore(d, frame.WidthsOf[K, C](), o.Options, table.KindCounter)
	if err == nil {
		var k inserts
		if k, err = c.update(header); err == nil {
			err = c.aheadOf(k, c.regions.PieceRows) // a large batch, if the table is large
		}
		if err != nil {
			err = errors.Join(err, c.frame.Close())
		}
	}
	return frame.Made(&Counter[K, C]{handle: handle{core: c}, header: header, saturate: o.Saturate}, err)
}

// counting takes a batch in, and notes counts that are too large.
func (c *Counter[K, C]) counting(over *bool) frame.Insertion {
	x := c.made().updating(c.header)
	put := x.Put
	x.Put = func(st *device.Stream, b frame.Rows) (refused []int, why, err error) {
		c.made().over = false
		err = b.InPieces(mostCounted, c.made().cfg.keyBytes, c.made().cfg.valueBytes, func(piece frame.Rows) error {
			lost, w, err := put(st, piece)
			for _, i := range lost {
				refused = append(refused, i+int((piece.Keys-b.Keys)/uint64(c.made().cfg.keyBytes)))
			}
			if w != nil {
				why = w
			}
			return err
		})
		if err != nil {
			return nil, nil, err
		}
		if _, err := c.made().look(st); err != nil || !c.made().over {
			return refused, why, err
		}
		*over = true
		return refused, why, c.made().reset(st)
	}
	return x
}

// told is the error of a batch, of which some counts may be too large.
func (c *Counter[K, C]) told(err error, over bool) error {
	if over && !c.saturate {
		return frame.OneLine(errors.Join(err, table.ErrOverflow))
	}
	return err
}

// Add counts each key once more: see table.Counter. For each key it reads one window and does one atomic operation in
// the same sector.
func (c *Counter[K, C]) Add(keys []K) error {
	var over bool
	x := c.counting(&over)
	err := frame.InsertColumns(&c.made().frame, frame.In(keys), []frame.Column{frame.In(keys)}, func(st *device.Stream, n int64, addr []uint64) ([]int, error, error) {
		return x.Put(st, frame.Rows{Keys: addr[0], N: n})
	}, x)
	return c.told(err, over)
}

// AddOn does what Add does, with slices on the device. It waits for the stream, to know of counts that are too large.
func (c *Counter[K, C]) AddOn(st *device.Stream, keys device.Slice[K]) error {
	var over bool
	err := frame.InsertOn(&c.made().frame, st, keys, frame.NoValues(), device.Slice[bool]{}, c.counting(&over))
	return c.told(err, over)
}

// AddCounts adds counts[i] to the count of keys[i]: see table.Counter. It is slower than Add if the table is small and
// many rows that are not near one another in the batch have the same key, because its sums may become too large.
func (c *Counter[K, C]) AddCounts(keys []K, counts []C) error {
	if err := family.CheckNamed("counts", len(keys), len(counts)); err != nil {
		return err
	}
	var over bool
	err := frame.Insert(&c.made().frame, keys, counts, c.counting(&over))
	return c.told(err, over)
}

// AddCountsOn does what AddCounts does, with slices on the device. It waits for the stream, as AddOn does.
func (c *Counter[K, C]) AddCountsOn(st *device.Stream, keys device.Slice[K], counts device.Slice[C]) error {
	var over bool
	err := frame.InsertOn(&c.made().frame, st, keys, counts, device.Slice[bool]{}, c.counting(&over))
	return c.told(err, over)
}

// Find writes how often each key came, and whether it is in: see table.Counter. It costs as much as Map.Find.
func (c *Counter[K, C]) Find(keys []K, counts []C, found []bool) error {
	if err := family.CheckNamed("counts found", len(keys), frame.OptionalLen(counts), frame.OptionalLen(found)); err != nil {
		return err
	}
	return frame.Find(&c.made().frame, keys, counts, found, c.made().find)
}

// FindOn does what Find does, with slices on the device.
func (c *Counter[K, C]) FindOn(st *device.Stream, keys device.Slice[K], counts device.Slice[C], found device.Slice[bool]) error {
	return frame.FindOn(&c.made().frame, st, keys, counts, found, c.made().find)
}

// All exports every key and its count, in no order.
func (c *Counter[K, C]) All() ([]K, []C, error) {
	return frame.All[K, C](&c.made().frame, false, c.made().exporter)
}

// Chunks calls do with every key and its count, in chunks: see table.Map.
func (c *Counter[K, C]) Chunks(ctx context.Context, do func(keys []K, counts []C) error) error {
	return frame.Chunks(ctx, &c.made().frame, c.made().exporter, do)
}

// overCounts runs do, which launches kernels over all slots, with the lock held; live is the number of keys.
func (c *Counter[K, C]) overCounts(do func(st *device.Stream, live int64) error) error {
	return c.made().frame.Alone(nil, func(st *device.Stream) error {
		if c.counts.number == (device.Kernel[countsParams]{}) {
			m, err := c.made().frame.Device.CompileApart(c.made().updateProgram(c.header))
			if err != nil {
				return err
			}
			if err := errors.Join(device.Bind(m, "number_of_counts", &c.counts.number), device.Bind(m, "export_counts", &c.counts.export),
				device.Bind(m, "histogram_of_counts", &c.counts.histogram)); err != nil {
				return err
			}
		}
		live, err := c.made().look(st)
		if err != nil {
			return err
		}
		return do(st, live)
	})
}

// among runs a kernel over all slots that counts in Counters.Exported, and gives what it counted.
func (c *Counter[K, C]) among(st *device.Stream, k device.Kernel[countsParams], p countsParams) (int64, error) {
	p.Table = c.made().t
	if err := frame.InTurn(
		func() error { return c.made().reset(st) },
		func() error { return k.Launch(st, c.made().grid(c.made().slots()), &p) },
	); err != nil {
		return 0, err
	}
	_, err := c.made().look(st)
	return int64(c.made().counters.Seen.Exported), err
}

// Top returns the n keys that came most often, the most frequent first, or all keys if there are fewer: see
// table.Counter. An n below 0 is an error. It passes over the table once for each bit of a count.
func (c *Counter[K, C]) Top(n int) (keys []K, counts []C, err error) {
	if n < 0 {
		return nil, nil, fmt.Errorf("warpcore: the %d most frequent keys", n)
	}
	err = c.overCounts(func(st *device.Stream, live int64) error {
		want := min(int64(n), live)
		if want == 0 {
			return nil
		}
		// No more than want keys have counts over `under`; together with those that have just that, there are enough.
		under, all := uint64(0), uint64(^C(0))
		for over := all; under < over; {
			mid := under + (over-under)/2
			more, err := c.among(st, c.counts.number, countsParams{Least: mid + 1, Most: all})
			if err != nil {
				return err
			}
			if more <= want {
				over = mid
			} else {
				under = mid + 1
			}
		}
		k, err := frame.Make[K](&c.made().frame, want)
		if err != nil {
			return err
		}
		defer c.made().frame.Free(k)
		v, err := frame.Make[C](&c.made().frame, want)
		if err != nil {
			return err
		}
		defer c.made().frame.Free(v)
		p := countsParams{Least: under + 1, Most: all, Keys: k.Addr(), Values: v.Addr(), Limit: uint64(want)}
		n := int64(0)
		if under < all {
			if n, err = c.among(st, c.counts.export, p); err != nil {
				return err
			}
		}
		if n < want {
			p.Least, p.Most, p.Limit = under, under, uint64(want-n)
			p.Keys += uint64(n) * uint64(c.made().cfg.keyBytes)
			p.Values += uint64(n) * uint64(c.made().cfg.valueBytes)
			more, err := c.among(st, c.counts.export, p)
			if err != nil {
				return err
			}
			n += min(more, want-n)
		}
		if err := c.made().frame.Family.Exported(n, want); err != nil {
			return err
		}
		if keys, err = frame.Host(st, k); err == nil {
			counts, err = frame.Host(st, v)
		}
		return err
	})
	if err != nil {
		return nil, nil, err
	}
	order := make([]int, len(keys))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, func(i, j int) int { return cmp.Compare(counts[j], counts[i]) })
	sortedKeys, sortedCounts := make([]K, len(keys)), make([]C, len(keys))
	for to, from := range order {
		sortedKeys[to], sortedCounts[to] = keys[from], counts[from]
	}
	return sortedKeys, sortedCounts, nil
}

// Histogram returns how many keys have each count. n[i] is the number of keys whose count is i. The last element also
// counts the keys with larger counts. Histogram passes over the table once. Errors: fewer than one bin, or more than
// 2³¹; *device.OutOfMemoryError.
func (c *Counter[K, C]) Histogram(bins int) (n []uint64, err error) {
	if bins < 1 || bins > math.MaxInt32 {
		return nil, fmt.Errorf("warpcore: a histogram of %d bins (want 1 to 2³¹)", bins)
	}
	err = c.overCounts(func(st *device.Stream, _ int64) error {
		n, err = c.made().frame.Histogram(st, bins, func(addr uint64) error {
			return c.counts.histogram.Launch(st, c.made().grid(c.made().slots()), &countsParams{Table: c.made().t, Histogram: addr, Bins: uint64(bins)})
		})
		return err
	})
	return n, err
}
