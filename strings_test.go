package warpmap_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	gomaps "maps"
	"path/filepath"
	"strings"
	"testing"
	"unsafe"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/tabletest"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/snapshot"
	"github.com/warpmap/warpmap/table/text"
)

// fixed is a Strings as a map of keys of one width: a key is its bytes, and behind them as many others as it says.
type fixed[K, V any] struct {
	*warpmap.Strings[V]
	d *device.Device
}

var _ table.Map[uint32, uint32] = fixed[uint32, uint32]{}

func textOf[K any](keys []K) text.Keys {
	out := make([][]byte, len(keys))
	for i := range keys {
		b := unsafe.Slice((*byte)(unsafe.Pointer(&keys[i])), unsafe.Sizeof(keys[i]))
		out[i] = append(b[:len(b):len(b)], make([]byte, int(b[0])%41*(1+int(b[1])%7))...)
	}
	return text.Of(out...)
}

func fixedOf[K any](keys text.Keys) []K {
	out := make([]K, keys.Len())
	for i := range out {
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&out[i])), unsafe.Sizeof(out[i])), keys.At(i))
	}
	return out
}

// on runs an operation on the device with keys from there.
func (m fixed[K, V]) on(st *device.Stream, keys device.Slice[K], columns []frame.DeviceSlice, op func(keys text.KeysOn) error) error {
	if _, err := m.Len(); err != nil {
		return err
	}
	if err := table.Family("strings").CheckOn(m.d, st, append([]frame.DeviceSlice{keys}, columns...)...); err != nil {
		return err
	}
	host, err := keys.Host(st)
	if err != nil {
		return err
	}
	k, err := textOf(host).Upload(m.d)
	if err != nil {
		return err
	}
	return errors.Join(op(k), st.SyncOf(m.d), k.Free())
}

func (m fixed[K, V]) Insert(keys []K, values []V) error {
	return m.Strings.Insert(textOf(keys), values)
}

func (m fixed[K, V]) InsertOn(st *device.Stream, keys device.Slice[K], values device.Slice[V]) error {
	return m.on(st, keys, []frame.DeviceSlice{values}, func(k text.KeysOn) error { return m.Strings.InsertOn(st, k, values) })
}

func (m fixed[K, V]) InsertNew(keys []K, values []V, added []bool) (int, error) {
	return m.Strings.InsertNew(textOf(keys), values, added)
}

func (m fixed[K, V]) InsertNewOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], added device.Slice[bool]) error {
	return m.on(st, keys, []frame.DeviceSlice{values, frame.Optional(added)}, func(k text.KeysOn) error { return m.Strings.InsertNewOn(st, k, values, added) })
}

func (m fixed[K, V]) Find(keys []K, values []V, found []bool) error {
	return m.Strings.Find(textOf(keys), values, found)
}

func (m fixed[K, V]) FindOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], found device.Slice[bool]) error {
	return m.on(st, keys, []frame.DeviceSlice{frame.Optional(values), frame.Optional(found)}, func(k text.KeysOn) error { return m.Strings.FindOn(st, k, values, found) })
}

func (m fixed[K, V]) Contains(keys []K, found []bool) error {
	return m.Strings.Contains(textOf(keys), found)
}

func (m fixed[K, V]) ContainsOn(st *device.Stream, keys device.Slice[K], found device.Slice[bool]) error {
	return m.on(st, keys, []frame.DeviceSlice{found}, func(k text.KeysOn) error { return m.Strings.ContainsOn(st, k, found) })
}

func (m fixed[K, V]) Delete(keys []K, deleted []bool) (int, error) {
	return m.Strings.Delete(textOf(keys), deleted)
}

func (m fixed[K, V]) DeleteOn(st *device.Stream, keys device.Slice[K], deleted device.Slice[bool]) error {
	return m.on(st, keys, []frame.DeviceSlice{frame.Optional(deleted)}, func(k text.KeysOn) error { return m.Strings.DeleteOn(st, k, deleted) })
}

func (m fixed[K, V]) All() ([]K, []V, error) {
	keys, values, err := m.Strings.All()
	return fixedOf[K](keys), values, err
}

func (m fixed[K, V]) Chunks(ctx context.Context, do func(keys []K, values []V) error) error {
	return m.Strings.Chunks(ctx, func(keys text.Keys, values []V) error { return do(fixedOf[K](keys), values) })
}

func (m fixed[K, V]) Stats() (table.Stats, error) {
	s, err := m.Strings.Stats()
	return s.Stats, err
}

// stringMaps is the suite of maps for a Strings over a family.
func stringMaps[K, V any](family table.Family) *tabletest.Suite {
	return tabletest.Map(func(d *device.Device, o table.Options) (table.Map[K, V], error) {
		m, err := warpmap.NewStrings[V](d, family, text.Options{Options: o, KeyBytes: 80})
		if err != nil {
			return nil, err
		}
		return fixed[K, V]{m, d}, nil
	}).Larger(8).Without("seeds") // the order of keys is that of the arena: package text has a test
}

// What every map promises, Strings does.
func TestStringsAsMaps(t *testing.T) {
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			open(t, name)
			t.Run("4,4", func(t *testing.T) {
				stringMaps[uint32, uint32](warpmap.WarpCore).Run(t, tabletest.Whole, open(t, name), open(t, "cpu"))
			})
			t.Run("8,16", func(t *testing.T) {
				stringMaps[uint64, [2]uint64](warpmap.Slab).Run(t, tabletest.Widths, open(t, name), open(t, "cpu"))
			})
			t.Run("degenerate", func(t *testing.T) { stringMaps[uint32, uint32](warpmap.DyCuckoo).Degenerate(t, open(t, name)) })
			if name == "cpu" {
				t.Run("stress", func(t *testing.T) {
					stringMaps[uint32, uint64](warpmap.WarpCore).Stress(t, func(seed uint64) *device.Device { return open(t, name, device.WithStress(seed)) }, table.Options{}, testenv.Seeds(12))
				})
			}
		})
	}
}

// A file of strings goes into a map of any family, on another device.
func TestStringsSavedAndLoaded(t *testing.T) {
	ctx := context.Background()
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			d, other := open(t, name), open(t, "cpu")
			m, err := warpmap.NewStrings[[2]uint64](d, warpmap.WarpCore, text.Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer m.Close()
			want := map[string][2]uint64{"": {1, 2}, "\x00": {3}, "\xff\xfe": {4}, strings.Repeat("long ", 2_000_000): {5}}
			for i := range uint64(60_000) {
				want[strings.Repeat(fmt.Sprint(i), 1+int(i%30))] = [2]uint64{i, ^i}
			}
			var keys []string
			var values [][2]uint64
			for k, v := range want {
				keys, values = append(keys, k), append(values, v)
			}
			if err := m.Insert(text.Of(keys...), values); err != nil {
				t.Fatal(err)
			}
			file := save(t, snapshot.Strings(m))
			for _, to := range []table.Family{"", warpmap.GPH, warpmap.Slab} {
				for _, r := range []io.Reader{bytes.NewReader(file), io.MultiReader(bytes.NewReader(file))} {
					l, err := warpmap.LoadStrings[[2]uint64](ctx, r, other, to, text.Options{})
					if err != nil {
						t.Fatal(err)
					}
					pairs, failed := l.Pairs(ctx)
					if got := gomaps.Collect(pairs); failed() != nil || !gomaps.Equal(got, want) {
						t.Errorf("to %q: %d pairs, want %d, %v", to, len(got), len(want), failed())
					}
					if err := errors.Join(l.Check(), l.Close()); err != nil {
						t.Error(err)
					}
				}
			}
			path := filepath.Join(t.TempDir(), "strings")
			if err := snapshot.Strings(m).SaveFile(ctx, path); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(m.Clear(), snapshot.Strings(m).LoadFile(ctx, path), m.Check()); err != nil {
				t.Fatal(err)
			}
			if n, err := m.Len(); n != len(want) || err != nil {
				t.Errorf("%d keys of %d, %v", n, len(want), err)
			}
			if err := snapshot.Strings(m).Load(ctx, bytes.NewReader(file)); err == nil {
				t.Error("a map that is not empty was loaded")
			}
			if _, err := warpmap.LoadStrings[uint64](ctx, bytes.NewReader(file), other, "", text.Options{}); err == nil {
				t.Error("values of 16 bytes were loaded as values of 8")
			}
			if _, err := warpmap.LoadMap[uint64, [2]uint64](ctx, bytes.NewReader(file), other, "", table.Options{}); err == nil {
				t.Error("strings were loaded as numbers")
			}
		})
	}
}

// Every byte of a file counts, and every cut is seen: then the map is empty.
func TestDamagedStrings(t *testing.T) {
	ctx, d := context.Background(), open(t, "cpu")
	m, err := warpmap.NewStrings[uint32](d, warpmap.WarpCore, text.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer m.Close()
	if err := m.Insert(text.Of("", "a", "some longer key", "b"), []uint32{1, 2, 3, 4}); err != nil {
		t.Fatal(err)
	}
	file := save(t, snapshot.Strings(m))
	check := func(what string, file []byte) {
		t.Helper()
		for _, r := range []io.Reader{bytes.NewReader(file), io.MultiReader(bytes.NewReader(file))} {
			if err := errors.Join(m.Clear(), snapshot.Strings(m).Load(ctx, r)); err == nil {
				t.Errorf("%s: loaded", what)
			}
			if n, err := m.Len(); n != 0 || err != nil {
				t.Fatalf("%s: %d keys are left, %v", what, n, err)
			}
		}
	}
	for i := range file {
		damaged := bytes.Clone(file)
		damaged[i] ^= 1 << (i % 8)
		check(fmt.Sprint("byte ", i), damaged)
		check(fmt.Sprint("cut at ", i), file[:i])
	}
	check("more behind", append(bytes.Clone(file), 0))
	if err := snapshot.Strings(m).Load(ctx, bytes.NewReader(file)); err != nil {
		t.Error(err)
	}
}
