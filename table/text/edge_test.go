package text_test

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/text"
)

// Batches without rows, from Go and on the device, and keys without bytes.
func TestNoRowsAndNoBytes(t *testing.T) {
	everywhere(t, func(t *testing.T, d *device.Device, newMap maker) {
		x := newTwin(t, d, newMap, text.Options{}, 5)
		m, none := x.m, device.Slice[bool]{}
		for _, k := range []text.Keys{{}, {Offsets: []int64{}}, {Offsets: []int64{0}}, {Offsets32: []int32{0}}, {Offsets: []int64{3}, Bytes: []byte("abc")}, text.Of[string]()} {
			n, err := m.InsertNew(k, nil, nil)
			deleted, err2 := m.Delete(k, nil)
			must(t, errors.Join(m.Insert(k, nil), m.Insert(k, []uint64{}), m.Find(k, nil, nil), m.Contains(k, nil), err, err2))
			if n != 0 || deleted != 0 {
				t.Errorf("%d and %d keys of none", n, deleted)
			}
			on, err := k.Upload(d)
			must(t, err)
			for _, on := range []text.KeysOn{on, {}} {
				must(t, errors.Join(m.InsertOn(nil, on, device.Slice[uint64]{}), m.InsertNewOn(nil, on, device.Slice[uint64]{}, none), m.FindOn(nil, on, device.Slice[uint64]{}, none),
					m.ContainsOn(nil, on, none), m.DeleteOn(nil, on, none)))
			}
			must(t, on.Free())
		}
		x.verify()
		for range 4 { // keys of which none has a byte, where no memory is needed for bytes
			x.insertNew([]string{"", "", ""})
			x.find([]string{""})
			x.drop([]string{"", ""})
			x.find([]string{""})
		}
		empty := text.Keys{Offsets: []int64{0, 0, 0}}
		must(t, m.Insert(empty, []uint64{7, 7}))
		on, err := empty.Upload(d)
		must(t, err)
		on.Bytes = device.Slice[byte]{}
		found := deviceSlice(x, make([]bool, 2))
		must(t, m.ContainsOn(nil, on, found))
		got, err := found.Host(nil)
		must(t, errors.Join(err, on.Free()))
		x.giveBack()
		if !got[0] || !got[1] {
			t.Error("the empty key is not found")
		}
	})
}

// Offsets and sizes at the ends of their ranges are errors, and not addresses.
func TestSizesOutOfRange(t *testing.T) {
	d := openDevice(t, "cpu")
	m, err := text.New[uint64](d, text.Options{}, index(warpmap.WarpCore))
	must(t, err)
	must(t, m.Insert(text.Of("a"), []uint64{1}))
	value := make([]uint64, 1)
	for _, offsets := range [][]int64{{0, math.MaxInt64}, {math.MaxInt64, math.MinInt64}, {math.MinInt64, math.MaxInt64}, {math.MaxInt64 - 1, math.MaxInt64}, {1, 2}} {
		if err := m.Insert(text.Keys{Bytes: []byte("a"), Offsets: offsets}, value); err == nil {
			t.Errorf("offsets %d of one byte: no error", offsets)
		}
		on, err := text.Of("a").Upload(d)
		must(t, errors.Join(err, on.Offsets.Write(nil, offsets)))
		values, err := device.From(d, value)
		must(t, err)
		if err := m.InsertOn(nil, on, values); err == nil {
			t.Errorf("offsets %d of one byte on the device: no error", offsets)
		}
		must(t, errors.Join(on.Free(), values.Free()))
	}
	if err := m.Insert(text.Keys{Bytes: []byte("a"), Offsets32: []int32{0, math.MaxInt32}}, value); err == nil {
		t.Error("offsets of 4 bytes: no error")
	}
	if _, err := text.Of("a").Upload(nil); err == nil {
		t.Error("no device: no error")
	}
	for _, o := range []text.Options{{KeyBytes: 1<<32 + 1}, {KeyBytes: 1 << 32, Options: table.Options{Capacity: 1 << 45}}, {KeyBytes: math.MaxInt}} {
		if m, err := text.New[uint64](d, o, index(warpmap.WarpCore)); err == nil {
			t.Errorf("%+v: no error", o)
			must(t, m.Close())
		}
	}
	big, err := text.New[uint64](d, text.Options{Options: table.Options{MaxBytes: math.MaxInt64}}, index(warpmap.WarpCore))
	must(t, err)
	must(t, errors.Join(big.Insert(text.Of("a", strings.Repeat("b", 10<<20)), []uint64{1, 2}), big.Check(), big.Close(), m.Check(), m.Close()))
	small, err := text.New[uint64](d, text.Options{Options: table.Options{MaxBytes: 256 << 10}}, index(warpmap.WarpCore))
	must(t, err)
	full := (*table.FullError)(nil)
	if err := small.Insert(text.Of("a", strings.Repeat("b", 10<<20), "c"), []uint64{1, 2, 3}); !errors.As(err, &full) || len(full.Positions) != 1 || full.Positions[0] != 1 {
		t.Errorf("10 MB in 256 KiB: %v", err)
	}
	must(t, errors.Join(small.Check(), small.Close()))
}

// A map that is closed while others are at work in it ends their calls with ErrClosed, and breaks nothing.
func TestClosedMeanwhile(t *testing.T) {
	d := openDevice(t, "cpu")
	for range testenv.SeedsOf(8, 3) {
		m, err := text.New[uint64](d, text.Options{}, index(warpmap.Slab))
		must(t, err)
		keys, values := text.Of("a", "b", strings.Repeat("c", 3000)), make([]uint64, 3)
		var work sync.WaitGroup
		begun := make(chan struct{}, 8)
		for i := range 8 {
			work.Go(func() {
				begun <- struct{}{}
				for err := error(nil); !errors.Is(err, table.ErrClosed); {
					switch i % 4 {
					case 0:
						err = m.Insert(keys, values)
					case 1:
						_, err = m.Delete(keys, nil)
					case 2:
						_, _, err = m.All()
					case 3:
						err = m.Check()
					}
					if err != nil && !errors.Is(err, table.ErrClosed) && !errors.Is(err, table.ErrChanged) {
						t.Error(err)
						return
					}
				}
			})
		}
		for range 8 {
			<-begun
		}
		must(t, m.Close())
		work.Wait()
	}
}

// Many keys are brought together by several goroutines.
func TestOfManyKeys(t *testing.T) {
	for _, n := range []int{0, 1, 1<<16 - 1, 1 << 16, 100_001} {
		keys := make([]string, n)
		for i := range keys {
			keys[i] = strings.Repeat("k", i%5) + fmt.Sprint(i%3)
		}
		if got := text.Of(keys...); got.Len() != n || !slices.Equal(got.Strings(), keys) {
			t.Errorf("%d keys come back as others", n)
		}
	}
}
