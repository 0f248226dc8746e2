package warpmap_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"hash/crc32"
	"io"
	"slices"
	"testing"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/stadium"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/snapshot"
	"github.com/warpmap/warpmap/warpcore"
)

func openCPU(t *testing.T, opts ...device.Option) *device.Device {
	t.Helper()
	d, err := device.Open("cpu", opts...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func live(d *device.Device) (bytes int64) {
	for _, a := range d.Live() {
		bytes += a.Bytes
	}
	return bytes
}

// wide has 4 KiB.
type wide = [1024]uint32

func wideMap(t *testing.T, d *device.Device, n int) *stadium.Map[uint32, wide] {
	t.Helper()
	m, err := stadium.New[uint32, wide](d, stadium.Options{Options: table.Options{Capacity: n}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { m.Close() })
	keys, values := make([]uint32, n), make([]wide, n)
	for i := range keys {
		keys[i], values[i] = uint32(i), wide{uint32(i), 1023: uint32(i) * 3}
	}
	if err := m.Insert(keys, values); err != nil {
		t.Fatal(err)
	}
	return m
}

// Chunks are bounded by their bytes: two, there and here, take no more than 4 MiB each however wide values are, and
// less where memory is short.
func TestChunksOfWideValues(t *testing.T) {
	const n = 4096
	d := openCPU(t, device.WithMemory(128<<20))
	m := wideMap(t, d, n)
	for _, room := range []int64{64 << 20, 512 << 10} {
		free, _, err := d.Memory()
		if err != nil {
			t.Fatal(err)
		}
		others, err := device.Make[byte](d, int(free-room))
		if err != nil {
			t.Fatal(err)
		}
		before, most, seen := live(d), int64(0), 0
		if err := m.Chunks(context.Background(), func(keys []uint32, values []wide) error {
			most = max(most, live(d)-before)
			for i, k := range keys {
				if values[i] != (wide{k, 1023: k * 3}) {
					t.Fatalf("key %d has value %v", k, values[i])
				}
			}
			seen += len(keys)
			return nil
		}); err != nil || seen != n {
			t.Errorf("%d pairs of %d, %v", seen, n, err)
		}
		if most > min(16<<20, 2*room) {
			t.Errorf("chunks of a table of 16 MiB take %s, with %s free on the device", device.Bytes(most), device.Bytes(room))
		}
		if now := live(d); now > before {
			t.Errorf("%s are left: %v", device.Bytes(now-before), d.Live())
		}
		if err := others.Free(); err != nil {
			t.Fatal(err)
		}
	}
}

// A stream that used the table last, and is closed when chunks end, is not the device: what chunks take is given back.
func TestChunksAfterAClosedStream(t *testing.T) {
	d := openCPU(t)
	m, err := warpcore.New[uint64, uint64](d, warpcore.Options{Options: table.Options{Capacity: 100_000}})
	if err != nil {
		t.Fatal(err)
	}
	all := make([]uint64, 50_000)
	for i := range all {
		all[i] = uint64(i)
	}
	keys, err := device.From(d, all[:10])
	if err = errors.Join(err, m.Insert(all, all)); err != nil {
		t.Fatal(err)
	}
	before := len(d.Live())
	for _, stop := range []error{nil, errors.New("stop")} {
		seen := 0
		err = m.Chunks(context.Background(), func(c, _ []uint64) error {
			if seen += len(c); seen < len(all) { // the last chunk: no other is fetched behind
				return nil
			}
			st, err := d.NewStream()
			if err == nil {
				err = errors.Join(m.InsertOn(st, keys, keys), st.Close())
			}
			return errors.Join(err, stop)
		})
		if !errors.Is(err, stop) {
			t.Errorf("chunks end with %v, want %v", err, stop)
		}
		if now := d.Live(); len(now) > before {
			t.Errorf("%d allocations before, now %v", before, now)
		}
	}
	if err := errors.Join(keys.Free(), m.Close()); err != nil {
		t.Error(err)
	}
	if now := d.Live(); len(now) > 0 {
		t.Errorf("left: %v", now)
	}
}

// What has thousands of bytes is saved, and loaded again, in blocks that are bounded by their bytes.
func TestSnapshotOfWideValues(t *testing.T) {
	ctx, d := context.Background(), openCPU(t)
	const n = 10_000 // 41 MB: several blocks
	m := wideMap(t, d, n)
	var file bytes.Buffer
	if err := snapshot.Map(m).Save(ctx, &file); err != nil {
		t.Fatal(err)
	}
	got, err := warpmap.LoadMap[uint32, wide](ctx, &file, d, "", table.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	keys, values, err := got.All()
	if err != nil || len(keys) != n {
		t.Fatalf("%d pairs, want %d, %v", len(keys), n, err)
	}
	for i, k := range keys {
		if values[i] != (wide{k, 1023: k * 3}) {
			t.Fatalf("key %d has value %v", k, values[i])
		}
	}
}

// A filter is not made before its bytes have come, where nobody knows how many will.
func TestFilterOfAbsurdSize(t *testing.T) {
	ctx := context.Background()
	d := openCPU(t, device.WithMemory(128<<20))
	f, err := warpmap.NewFilter[uint32](d, warpmap.WarpCore, table.FilterOptions{Bytes: 33 << 20})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.Insert([]uint32{1, 2, 3}); err != nil {
		t.Fatal(err)
	}
	var b bytes.Buffer
	if err := snapshot.Filter(f).Save(ctx, &b); err != nil {
		t.Fatal(err)
	}
	file := b.Bytes()
	g, err := warpmap.LoadFilter[uint32](ctx, io.MultiReader(bytes.NewReader(file)), d, "")
	if err != nil {
		t.Fatal(err)
	}
	found := make([]bool, 3)
	if err := g.Contains([]uint32{1, 2, 3}, found); err != nil || slices.Contains(found, false) {
		t.Errorf("keys that are in: %v, %v", found, err)
	}
	if err := errors.Join(f.Close(), g.Close()); err != nil {
		t.Fatal(err)
	}
	for what, bad := range map[string][]byte{"cut off": file[:len(file)-1], "longer": append(slices.Clone(file), 0)} {
		if _, err := warpmap.LoadFilter[uint32](ctx, io.MultiReader(bytes.NewReader(bad)), d, ""); err == nil {
			t.Errorf("a file that is %s was loaded", what)
		}
	}
	// The same header, but of 8 GiB.
	r, err := snapshot.NewReader(bytes.NewReader(file))
	if err != nil {
		t.Fatal(err)
	}
	h := r.Header
	h.Len, h.Form.Words = 1<<30, 1<<30
	text, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	bad := binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32([]byte("warpmap\n"), 1), uint32(len(text)))
	bad = append(bad, text...)
	bad = binary.LittleEndian.AppendUint32(bad, crc32.Checksum(bad, crc32.MakeTable(crc32.Castagnoli)))
	if _, err := warpmap.LoadFilter[uint32](ctx, io.MultiReader(bytes.NewReader(bad)), d, ""); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("8 GiB of which none came: %v, want %v", err, io.ErrUnexpectedEOF)
	}
	if now := d.Live(); len(now) > 0 {
		t.Errorf("left: %v", now)
	}
}
