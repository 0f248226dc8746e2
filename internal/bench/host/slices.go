package host

import (
	"errors"
	"fmt"
	"time"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/warpcore"
	"github.com/warpmap/warpmap/workload"
)

// carried measures how fast batches of Go slices come to a device and back.
type carried struct {
	d    *device.Device
	n    int
	fig  *bench.Fig
	step func(string)

	oneWay, eachWay float64 // GB/s of pinned memory: to the device alone, and each way at once
	fresh           []any   // output slices that were new, kept so that no others are made of their memory
}

// add adds a rate of an operation that takes so long and carries so many bytes of each item one way.
func (x *carried) add(what, unit string, bytes int, took time.Duration) float64 {
	rate := float64(bytes) * bench.Rate(x.n, took)
	one, both := "", ""
	if x.eachWay > 0 {
		one, both = share(rate/x.oneWay), share(rate/x.eachWay)
	}
	x.fig.Add(what, bench.Round(rate), unit, one, both, bench.Round(took.Seconds()))
	return rate
}

// copies measures copies of pinned memory alone.
func (x *carried) copies() (err error) {
	var host [2]device.Host[uint64]
	var mem [2]device.Slice[uint64]
	var st [2]*device.Stream
	for i := range host {
		if host[i], err = device.MakeHost[uint64](x.d, x.n); err != nil {
			return err
		}
		defer host[i].Free()
		if mem[i], err = device.Make[uint64](x.d, x.n); err != nil {
			return err
		}
		defer mem[i].Free()
		if st[i], err = x.d.NewStream(); err != nil {
			return err
		}
		defer st[i].Close()
		clear(host[i].Slice())
	}
	in := func() error { return mem[0].WriteAsync(st[0], host[0], x.n) }
	out := func() error { return mem[1].ReadAsync(st[1], host[1], x.n) }
	var rates [3]float64
	for i, queue := range []func() error{in, out, func() error { return errors.Join(in(), out()) }} {
		took, err := bench.Clocked(x.d.Stream(), func() error { return errors.Join(queue(), st[0].Sync(), st[1].Sync()) })
		if err != nil {
			return err
		}
		what := []string{"pinned copy to the device", "pinned copy from the device", "both at once, each way"}[i]
		rates[i] = x.add(what, "GB/s", 8, took)
	}
	x.oneWay, x.eachWay = rates[0], rates[2]
	return nil
}

// slicesOf measures operations on ordinary slices of n pairs, and on pinned ones; keys and values are of so many bytes.
func slicesOf[T uint32 | uint64](x *carried, size int) error {
	m, err := warpcore.New[T, T](x.d, warpcore.Options{Options: table.Options{Capacity: x.n}})
	if err != nil {
		return err
	}
	defer m.Close()
	kinds, err := workload.NewKeys("rand", size, 1)
	if err != nil {
		return err
	}
	keys, values := make([]T, x.n), make([]T, x.n)
	workload.Pairs(kinds, keys, values)
	if err := rates(x, m, "ordinary", size, keys, values, make([]T, x.n), make([]bool, x.n)); err != nil {
		return err
	}
	var pinned [3]device.Host[T]
	for i := range pinned {
		if pinned[i], err = device.MakeHost[T](x.d, x.n); err != nil {
			return err
		}
		defer pinned[i].Free()
	}
	found, err := device.MakeHost[bool](x.d, x.n)
	if err != nil {
		return err
	}
	defer found.Free()
	copy(pinned[0].Slice(), keys)
	copy(pinned[1].Slice(), values)
	return rates(x, m, "pinned", size, pinned[0].Slice(), pinned[1].Slice(), pinned[2].Slice(), found.Slice())
}

func rates[T uint32 | uint64](x *carried, m *warpcore.Map[T, T], memory string, size int, keys, values, out []T, found []bool) error {
	freshly := func(found bool) func() error {
		return func() error {
			values, flags := make([]T, x.n), []bool(nil)
			if found {
				flags = make([]bool, x.n)
			}
			x.fresh = append(x.fresh, values, flags)
			return m.Find(keys, values, flags)
		}
	}
	fresh := memory == "ordinary"
	for _, op := range []struct {
		what, unit string
		bytes      int // of an item, one way
		leave      bool
		run        func() error
	}{
		{"Clear, Insert", "GB/s in", 2 * size, false, func() error { return errors.Join(m.Clear(), m.Insert(keys, values)) }},
		{"Find into new slices, which are made", "GB/s each way", size, !fresh, freshly(false)},
		{"the same with found", "GB/s out", size + 1, !fresh, freshly(true)},
		{"Find", "GB/s each way", size, false, func() error { return m.Find(keys, out, nil) }},
		{"Find with found", "GB/s out", size + 1, false, func() error { return m.Find(keys, out, found) }},
		{"Contains", "GB/s in", size, false, func() error { return m.Contains(keys, found) }},
		{"FindOrInsert", "GB/s in", 2 * size, false, func() error { _, err := m.FindOrInsert(keys, values, out, found); return err }},
		{"Delete, of none after the first", "GB/s in", size, false, func() error { _, err := m.Delete(keys, found); return err }},
	} {
		if op.leave {
			continue
		}
		what := fmt.Sprintf("%d+%d bytes, %s Go slices: %s", size, size, memory, op.what)
		if x.step != nil {
			x.step(what)
		}
		took, err := bench.Clocked(x.d.Stream(), op.run)
		if err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
		x.add(what, op.unit, op.bytes, took)
		if op.what == "Find with found" {
			for i := range out {
				if out[i] != values[i] || !found[i] {
					return fmt.Errorf("%s: key %d is found: %t, with %v: want %v", what, i, found[i], out[i], values[i])
				}
			}
		}
	}
	return nil
}
