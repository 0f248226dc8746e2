package cuckoo

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/faults"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/snapshot"
)

// Whatever call of the device fails within an operation, the error is a line, and the filter holds what was in or what
// is to be in, or says that it is broken. Tried again the operation is done, but for what went in before. What is
// merged into it stays whole, and nothing stays open.
func TestFaults(t *testing.T) {
	d := openCPU(t)
	o := Options{FilterOptions: table.FilterOptions{Capacity: 300, Seed: 3}}
	first, more := randomKeys(1, 200), randomKeys(2, 100)
	on, err := device.From(d, more)
	must(t, err)
	defer on.Free()
	other, full := newFilter[uint64](t, d, o), newFilter[uint64](t, d, o)
	must(t, errors.Join(other.Insert(more), full.Insert(randomKeys(3, 300))))
	both := slices.Concat(first, more)
	for _, op := range []struct {
		name   string
		do     func(f *Filter[uint64]) error
		expect []uint64
		exact  bool // it is the same however often it is done
	}{
		{"Insert", func(f *Filter[uint64]) error { return f.Insert(more) }, both, false},
		{"InsertOn", func(f *Filter[uint64]) error { return f.InsertOn(nil, on) }, both, false},
		{"Delete", func(f *Filter[uint64]) error { _, err := f.Delete(first[:50], nil); return err }, first[50:], false},
		{"Merge", func(f *Filter[uint64]) error { return f.Merge(other) }, both, false},
		{"Merge without room", func(f *Filter[uint64]) error {
			err := f.Merge(full)
			if err == nil {
				return errors.New("merged")
			} else if errors.Is(err, errFull) {
				return nil
			}
			return err
		}, first, true},
		{"Clear", func(f *Filter[uint64]) error { return f.Clear() }, nil, true},
		{"Contains", func(f *Filter[uint64]) error {
			found := make([]bool, len(first))
			if err := f.Contains(first, found); err != nil {
				return err
			}
			if slices.Contains(found, false) {
				return fmt.Errorf("a key is missed")
			}
			return nil
		}, first, true},
		{"Len and Stats", func(f *Filter[uint64]) error {
			n, err := f.Len()
			if err != nil {
				return err
			}
			s, err := f.Stats()
			if err == nil && (n != len(first) || s.Keys != float64(n)) {
				err = fmt.Errorf("%d keys, %+v", n, s)
			}
			return err
		}, first, true},
		{"Save and load", func(f *Filter[uint64]) error {
			var b bytes.Buffer
			if err := snapshot.Filter[uint64](f).Save(context.Background(), &b); err != nil {
				return err
			}
			g, err := NewOf[uint64](d, f.Form())
			if err != nil {
				return err
			}
			if err := snapshot.Filter[uint64](g).Load(context.Background(), &b); err != nil {
				return errors.Join(err, g.Close())
			}
			n, err := g.Len()
			if err == nil && n != len(first) {
				err = fmt.Errorf("%d keys were loaded", n)
			}
			return errors.Join(err, g.Close())
		}, first, true},
	} {
		t.Run(op.name, func(t *testing.T) {
			failed := 0
			for site := range faults.Sites {
				for n := int64(1); n < 1000; n++ {
					f, err := New[uint64](d, o)
					must(t, err)
					must(t, f.Insert(first))
					open := len(frame.OpenTables(d))
					order := &faults.Counter{Site: site, N: n, Outcome: faults.Fails}
					faults.Set(d, order.Order)
					err = op.do(f)
					faults.Set(d, nil)
					if now := len(frame.OpenTables(d)); now != open {
						t.Fatalf("%s %d fails: %d filters are open, were %d", site, n, now, open)
					}
					if err != nil {
						failed++
						var call *device.CallError
						if strings.Contains(err.Error(), "\n") {
							t.Errorf("%s %d fails: %q", site, n, err)
						}
						if errors.As(err, &call) && call.Broken {
							must(t, errors.Join(f.Close(), other.filter.expect(more)))
							if !order.Met() {
								t.Fatalf("the filter is broken, though no call failed: %v", err)
							}
							continue
						}
						before, after := f.filter.expect(first), f.filter.expect(op.expect)
						if before != nil && after != nil {
							t.Fatalf("%s %d fails: %v: %v, %v", site, n, err, before, after)
						}
						if op.exact || before == nil {
							if err := op.do(f); err != nil {
								t.Fatalf("%s %d failed, and again: %v", site, n, err)
							}
						}
					}
					if err := f.filter.expect(op.expect); err != nil {
						t.Fatalf("%s %d fails: %v", site, n, err)
					}
					must(t, f.Close())
					if !order.Met() {
						break
					}
				}
			}
			if failed == 0 {
				t.Error("no call failed")
			}
		})
	}
	must(t, errors.Join(other.filter.expect(more), other.Check(), full.Check()))
}
