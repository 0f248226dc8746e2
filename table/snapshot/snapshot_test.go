package snapshot_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/snapshot"
)

// goMap is a Go map as far as files need one: what is tested here is files, and not tables, which tabletest's suites
// save and load.
type goMap struct {
	table.Map[uint32, uint64]
	in    map[uint32]uint64
	room  int // made by Grow
	chunk int // 0: all at once
	slow  time.Duration
	most  int // pairs that have room; 0: any
}

func newGoMap(n int, seed uint64) *goMap {
	m := &goMap{in: map[uint32]uint64{}}
	rng := rand.New(rand.NewPCG(seed, 1))
	for len(m.in) < n {
		m.in[rng.Uint32()] = rng.Uint64()
	}
	return m
}

func (m *goMap) Family() table.Family { return "go" }
func (m *goMap) Len() (int, error)    { return len(m.in), nil }
func (m *goMap) Clear() error         { clear(m.in); return nil }
func (m *goMap) Grow(n int) error     { m.room = n; return nil }

func (m *goMap) Insert(keys []uint32, values []uint64) error {
	for i, k := range keys {
		if m.most > 0 && len(m.in) == m.most {
			return frame.Full([]int{i}, m.most, m.most, table.ErrMaxBytes)
		}
		m.in[k] = values[i]
	}
	return nil
}

func (m *goMap) Chunks(ctx context.Context, do func(keys []uint32, values []uint64) error) error {
	var keys []uint32
	var values []uint64
	for k, v := range m.in {
		keys, values = append(keys, k), append(values, v)
	}
	for step := max(1, min(len(keys), m.chunk)); len(keys) > 0; {
		if m.chunk == 0 {
			step = len(keys)
		}
		step = min(step, len(keys))
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err := do(keys[:step], values[:step]); err != nil {
			return err
		}
		keys, values = keys[step:], values[step:]
		time.Sleep(m.slow)
	}
	return nil
}

func saved(t testing.TB, m *goMap) []byte {
	t.Helper()
	var b bytes.Buffer
	if err := snapshot.Map(m).Save(context.Background(), &b); err != nil {
		t.Fatal(err)
	}
	return b.Bytes()
}

// load loads a file into an empty map: on an error it is empty again.
func load(t testing.TB, r io.Reader) (*goMap, error) {
	t.Helper()
	m := newGoMap(0, 0)
	err := snapshot.Map(m).Load(context.Background(), r)
	if err != nil && len(m.in) > 0 {
		t.Fatalf("%d pairs are left after %v", len(m.in), err)
	}
	return m, err
}

// Whatever the chunks, and whether or not the length of the file is known, all comes back, and the table is made large
// enough at once.
func TestRoundTrips(t *testing.T) {
	for _, n := range []int{0, 1, 1000, 1<<20 + 5} {
		for _, chunk := range []int{0, 7, 65_536} {
			if n > 1000 && chunk > 0 {
				continue
			}
			m := newGoMap(n, 1)
			m.chunk = chunk
			file := saved(t, m)
			for what, r := range map[string]io.Reader{"a file": bytes.NewReader(file),
				"a pipe": io.MultiReader(bytes.NewReader(file))} {
				got, err := load(t, r)
				if err != nil || !maps.Equal(got.in, m.in) || got.room < n {
					t.Errorf("%d pairs in chunks of %d from %s: %v, %d pairs, room for %d", n, chunk, what, err,
						len(got.in), got.room)
				}
			}
		}
	}
}

// A header is believed as far as the file's length bears it out.
func TestHeadersAreNotBelieved(t *testing.T) {
	big := &lying{goMap: newGoMap(10, 1)}
	var file bytes.Buffer
	if err := snapshot.Map(big).Save(context.Background(), &file); !errors.Is(err, table.ErrChanged) {
		t.Fatalf("10 of 2⁴⁰ entries are saved: %v", err)
	}
	if _, err := load(t, bytes.NewReader(file.Bytes())); !errors.Is(err, io.ErrUnexpectedEOF) {
		t.Errorf("a short file of 2⁴⁰ entries: %v", err)
	}
	m, err := load(t, io.MultiReader(&file))
	if !errors.Is(err, io.ErrUnexpectedEOF) || m.room > 1<<23 {
		t.Errorf("2⁴⁰ entries from a pipe, of which 10 came: %v, room for %d", err, m.room)
	}
}

// lying says that it has more than it has.
type lying struct{ *goMap }

func (l *lying) Len() (int, error) { return 1 << 40, nil }

// No byte may change, and none be missing.
func TestDamage(t *testing.T) {
	m := newGoMap(20, 1)
	m.chunk = 8
	file := saved(t, m)
	for i := range file {
		for bit := range 8 {
			damaged := bytes.Clone(file)
			damaged[i] ^= 1 << bit
			if _, err := load(t, bytes.NewReader(damaged)); err == nil {
				t.Errorf("bit %d of byte %d of %d was changed, and the file was loaded", bit, i, len(file))
			}
		}
		for _, r := range []io.Reader{bytes.NewReader(file[:i]), io.MultiReader(bytes.NewReader(file[:i]))} {
			if _, err := load(t, r); !errors.Is(err, io.ErrUnexpectedEOF) {
				t.Errorf("a file that ends after %d of %d bytes: %v", i, len(file), err)
			}
		}
	}
	for what, bad := range map[string][]byte{
		"more follows":         append(bytes.Clone(file), 0),
		"not with \"warpmap\\": append([]byte("SQLite format 3\x00"), file...),
		"ends after 0 bytes":   nil,
	} {
		if _, err := load(t, bytes.NewReader(bad)); err == nil || !strings.Contains(err.Error(), what) {
			t.Errorf("%q: %v", what, err)
		}
	}
	// A block that is missing, and one that is twice.
	const block = 4 + 8 + 4 + 8*(4+8) + 4
	first := len(file) - (4 + 8 + 4) - (block - 4*12) - 2*block
	missing := append(bytes.Clone(file[:first]), file[first+block:]...)
	twice := append(append(bytes.Clone(file[:first+block]), file[first:first+block]...), file[first+block:]...)
	for _, bad := range [][]byte{missing, twice} {
		if _, err := load(t, bytes.NewReader(bad)); err == nil || !strings.Contains(err.Error(), "checksum") {
			t.Errorf("a block is missing, or twice: %v", err)
		}
	}
}

// A file goes into a table of its kind and types that is empty, and has room.
func TestRefusals(t *testing.T) {
	file := saved(t, newGoMap(10, 1))
	full := newGoMap(1, 1)
	small := newGoMap(0, 1)
	small.most = 5
	var set table.Set[uint32] = fakeSet[uint32]{}
	for want, into := range map[string]*snapshot.Table{
		"the table holds 1 entries already": snapshot.Map(full),
		"the table is a set":                snapshot.Set(set),
		"the table of int32":                snapshot.Map(fakeMap[int32, uint64]{}),
		"and the table of \"[2]uint32\"":    snapshot.Map(fakeMap[uint32, [2]uint32]{}),
		"table is full":                     snapshot.Map(small),
	} {
		if err := into.Load(context.Background(), bytes.NewReader(file)); err == nil ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v", want, err)
		}
	}
	if len(full.in) != 1 || len(small.in) != 0 {
		t.Errorf("%d and %d pairs, want 1 and 0", len(full.in), len(small.in))
	}
}

type fakeMap[K, V any] struct{ table.Map[K, V] }

func (fakeMap[K, V]) Family() table.Family { return "fake" }
func (fakeMap[K, V]) Len() (int, error)    { return 0, nil }

type fakeSet[K any] struct{ table.Set[K] }

func (fakeSet[K]) Family() table.Family { return "fake" }
func (fakeSet[K]) Len() (int, error)    { return 0, nil }

// Saving and loading stop when they are told to, and tell how far they are.
func TestProgressAndCancel(t *testing.T) {
	m := newGoMap(1000, 1)
	m.chunk = 100
	for _, stop := range []int64{0, 300} {
		ctx, cancel := context.WithCancel(context.Background())
		var told []int64
		progress := func(done, total int64) {
			if told = append(told, done); total != 1000 {
				t.Errorf("%d entries in all, want 1000", total)
			}
			if done == stop {
				cancel()
			}
		}
		var file bytes.Buffer
		x := snapshot.Map(m)
		x.Progress = progress
		if err := x.Save(ctx, &file); (stop > 0) != errors.Is(err, context.Canceled) || len(told) != 10 && stop == 0 ||
			stop > 0 && len(told) != 3 {
			t.Errorf("saving, stopped at %d: %v, told %v", stop, err, told)
		}
		told = nil
		y := newGoMap(0, 1)
		x = snapshot.Map(y)
		x.Progress = progress
		ctx, cancel = context.WithCancel(context.Background())
		if err := x.Load(ctx, bytes.NewReader(saved(t, m))); (stop > 0) != errors.Is(err, context.Canceled) ||
			stop > 0 && (len(told) != 3 || len(y.in) > 0) || stop == 0 && len(y.in) != 1000 {
			t.Errorf("loading, stopped at %d: %v, told %v, %d pairs", stop, err, told, len(y.in))
		}
		cancel()
	}
}

// A writer that fails leaves the file that was there, and nothing beside it.
func TestSaveFileThatFails(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "m")
	old := newGoMap(100, 1)
	if err := snapshot.Map(old).SaveFile(context.Background(), path); err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	x := snapshot.Map(newGoMap(100, 2))
	x.Progress = func(int64, int64) { panic("killed") }
	func() {
		defer func() { recover() }()
		x.SaveFile(ctx, path)
	}()
	cancel()
	if err := snapshot.Map(newGoMap(100, 2)).SaveFile(ctx, path); !errors.Is(err, context.Canceled) {
		t.Errorf("canceled: %v", err)
	}
	if err := snapshot.Map(old).SaveFile(context.Background(), filepath.Join(dir, "none", "m")); !errors.Is(err,
		os.ErrNotExist) {
		t.Errorf("no such folder: %v", err)
	}
	m := newGoMap(0, 0)
	if err := snapshot.Map(m).LoadFile(context.Background(), path); err != nil || !maps.Equal(m.in, old.in) {
		t.Errorf("the old file: %v", err)
	}
	if files, err := os.ReadDir(dir); err != nil || len(files) != 1 {
		t.Errorf("%d files, %v: want the old one alone", len(files), err)
	}
	if err := snapshot.Map(newGoMap(0, 0)).LoadFile(context.Background(), path+"x"); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no such file: %v", err)
	}
}

// A link is written through, the file that it leads to keeps its mode, and a device is written to, not replaced.
func TestSaveFileThroughLinks(t *testing.T) {
	t.Chdir(t.TempDir())
	m := snapshot.Map(newGoMap(100, 1))
	if err := errors.Join(os.WriteFile("m", nil, 0o600), os.Symlink("m", "link"),
		os.Symlink(os.DevNull, "null")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"link", "null"} {
		if err := m.SaveFile(context.Background(), name); err != nil {
			t.Fatal(err)
		}
		if i, err := os.Lstat(name); err != nil || i.Mode().Type() != os.ModeSymlink {
			t.Errorf("%s is %v now, %v", name, i.Mode(), err)
		}
	}
	if i, err := os.Stat("m"); err != nil || i.Mode() != 0o600 || i.Size() == 0 {
		t.Errorf("%d bytes, %v, %v", i.Size(), i.Mode(), err)
	}
	if i, err := os.Stat(os.DevNull); err != nil || i.Mode().IsRegular() {
		t.Errorf("the device is %v, %v", i.Mode(), err)
	}
}

const childFile = "WARPMAP_TEST_SNAPSHOT"

// TestChild is the process that TestKilled kills: it saves one table, then another, over and over.
func TestChild(t *testing.T) {
	path := os.Getenv(childFile)
	if path == "" {
		t.Skip("only for TestKilled")
	}
	for i := uint64(0); ; i++ {
		m := newGoMap(2000, 1+i%2)
		m.chunk, m.slow = 100, 100*time.Microsecond
		if err := snapshot.Map(m).SaveFile(context.Background(), path); err != nil {
			t.Fatal(err)
		}
		if i == 0 {
			fmt.Println("saved")
		}
	}
}

// A process that is killed while it saves leaves the old file or the new, and whole.
func TestKilled(t *testing.T) {
	rounds := 15
	if testenv.Long() {
		rounds = 300
	}
	path := filepath.Join(t.TempDir(), "m")
	models := []*goMap{newGoMap(2000, 1), newGoMap(2000, 2)}
	left := 0
	for range rounds {
		cmd := exec.Command(os.Args[0], "-test.run=^TestChild$")
		cmd.Env = append(os.Environ(), childFile+"="+path)
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(out, make([]byte, len("saved"))); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Duration(rand.IntN(20_000)) * time.Microsecond)
		if err := cmd.Process.Kill(); err != nil {
			t.Fatal(err)
		}
		cmd.Wait() // it was killed
		m := newGoMap(0, 0)
		if err := snapshot.Map(m).LoadFile(context.Background(), path); err != nil {
			t.Fatal(err)
		}
		if !maps.Equal(m.in, models[0].in) && !maps.Equal(m.in, models[1].in) {
			t.Fatalf("%d pairs, of neither table", len(m.in))
		}
		files, err := filepath.Glob(filepath.Join(filepath.Dir(path), ".m.*.tmp"))
		if err != nil {
			t.Fatal(err)
		}
		left += min(1, len(files))
		for _, f := range files {
			if err := os.Remove(f); err != nil {
				t.Fatal(err)
			}
		}
	}
	if left == 0 {
		t.Errorf("none of %d processes was killed while it saved: the test tests nothing", rounds)
	}
	t.Logf("%d of %d processes were killed while they saved", left, rounds)
}

// sealed is a file with right checksums of whatever it says: a header, and blocks of so many entries, of which this is
// what comes.
func sealed(t testing.TB, h snapshot.Header, blocks ...block) []byte {
	t.Helper()
	text, err := json.Marshal(h)
	if err != nil {
		t.Fatal(err)
	}
	var file, summed []byte
	add := func(b []byte) { file, summed = append(file, b...), append(summed, b...) }
	seal := func() {
		file = binary.LittleEndian.AppendUint32(file, crc32.Checksum(summed, crc32.MakeTable(crc32.Castagnoli)))
	}
	add(binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32([]byte("warpmap\n"), 1), uint32(len(text))))
	add(text)
	seal()
	for _, b := range blocks {
		add(binary.LittleEndian.AppendUint64([]byte(b.tag), b.n))
		seal()
		if b.tag == "rows" {
			add(b.bytes)
			seal()
		}
	}
	return file
}

type block struct {
	tag   string
	n     uint64
	bytes []byte
}

// wideMap is a map of 4 KiB and more, in the order in which they come.
type wideMap struct {
	table.Map[uint32, [1024]uint32]
	keys   []uint32
	values [][1024]uint32
	room   int
}

func (m *wideMap) Family() table.Family { return "go" }
func (m *wideMap) Len() (int, error)    { return len(m.keys), nil }
func (m *wideMap) Clear() error         { m.keys, m.values = nil, nil; return nil }
func (m *wideMap) Grow(n int) error     { m.room = n; return nil }

func (m *wideMap) Insert(keys []uint32, values [][1024]uint32) error {
	m.keys, m.values = append(m.keys, keys...), append(m.values, values...)
	return nil
}

func (m *wideMap) Chunks(ctx context.Context, do func(keys []uint32, values [][1024]uint32) error) error {
	return do(m.keys, m.values)
}

// allocated is how many bytes do allocates, freed or not.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// A file is believed as far as its bytes have come: whatever numbers stand in it, reading it takes little memory.
func TestAbsurdNumbersTakeNoMemory(t *testing.T) {
	header := snapshot.Header{Kind: "map", Family: "go", Key: "uint32", Value: "[1024]uint32", KeyBytes: 4,
		ValueBytes: 4096, Len: 1 << 46}
	wider := header
	wider.ValueBytes = 1 << 20
	widest := header
	widest.KeyBytes, widest.ValueBytes = math.MaxInt64, math.MaxInt64
	some := make([]byte, 100_000)
	for what, file := range map[string][]byte{
		"a header alone":              sealed(t, header),
		"a block of a million":        sealed(t, header, block{"rows", 1 << 20, nil}),
		"some of a block's keys":      sealed(t, header, block{"rows", 1 << 20, some}),
		"a larger block":              sealed(t, header, block{"rows", 1 << 63, some}),
		"no block":                    sealed(t, header, block{"rows", 0, some}),
		"some of a block's values":    sealed(t, header, block{"rows", 24_000, some}),
		"wider values":                sealed(t, wider, block{"rows", 1 << 20, some}),
		"the widest keys and values":  sealed(t, widest, block{"rows", 1 << 20, some}),
		"an end of too many":          sealed(t, header, block{"end\n", 1 << 63, nil}),
		"another tag":                 sealed(t, header, block{"text", 1 << 20, some}),
		"a good block, and an absurd": sealed(t, header, block{"rows", 1, make([]byte, 4100)}, block{"rows", 1 << 20, some}),
	} {
		m := &wideMap{}
		var err error
		took := allocated(func() {
			err = snapshot.Map(m).Load(context.Background(), io.MultiReader(bytes.NewReader(file)))
		})
		if err == nil || len(m.keys) > 0 {
			t.Errorf("%s: %v, %d pairs", what, err, len(m.keys))
		}
		if took > 8<<20 || m.room > 1<<23 {
			t.Errorf("%s: %d bytes of a file took %d MiB, and room for %d pairs", what, len(file), took>>20, m.room)
		}
	}
}

// What is wider than 1,024 bytes comes back, in blocks that are bounded by their bytes, from blocks of any size.
func TestWideRoundTrips(t *testing.T) {
	const n = 8200 // 34 MB
	m := &wideMap{keys: make([]uint32, n), values: make([][1024]uint32, n)}
	for i := range m.keys {
		m.keys[i], m.values[i] = uint32(i), [1024]uint32{uint32(i), 1023: uint32(i)}
	}
	var file bytes.Buffer
	if err := snapshot.Map(m).Save(context.Background(), &file); err != nil {
		t.Fatal(err)
	}
	blocks := bytes.Count(file.Bytes(), []byte("rows"))
	got := &wideMap{}
	if err := snapshot.Map(got).Load(context.Background(), &file); err != nil || !slices.Equal(got.keys, m.keys) ||
		!slices.Equal(got.values, m.values) || got.room < n || blocks != 2 {
		t.Errorf("%v, %d pairs, room for %d, %d blocks: want %d in 2", err, len(got.keys), got.room, blocks, n)
	}
	raw := slices.Concat(unsafe.Slice((*byte)(unsafe.Pointer(&m.keys[0])), 4*n),
		unsafe.Slice((*byte)(unsafe.Pointer(&m.values[0])), 4096*n))
	h := snapshot.Header{Kind: "map", Family: "go", Key: "uint32", Value: "[1024]uint32", KeyBytes: 4, ValueBytes: 4096,
		Len: n}
	one := sealed(t, h, block{"rows", n, raw}, block{"end\n", n, nil}) // as older versions wrote them
	got = &wideMap{}
	if err := snapshot.Map(got).Load(context.Background(), bytes.NewReader(one)); err != nil ||
		!slices.Equal(got.keys, m.keys) || !slices.Equal(got.values, m.values) {
		t.Errorf("one block: %v, %d pairs", err, len(got.keys))
	}
}

// Types whose names no header holds are not saved, for nobody could load them.
func TestTypesOfTooManyFields(t *testing.T) {
	type a struct{ a, b, c, d, e, f, g, h uint8 }
	type b struct{ a, b, c, d, e, f, g, h a }
	type c struct{ a, b, c, d, e, f, g, h b }
	type d struct{ a, b, c, d, e, f, g, h c }
	type e struct{ a, b, c, d, e, f, g, h d }
	if err := snapshot.Map(fakeMap[uint32, e]{}).Save(context.Background(), io.Discard); err == nil ||
		!strings.Contains(err.Error(), "too many fields") {
		t.Errorf("32,768 fields: %v", err)
	}
}

// FuzzSealed loads files whose checksums are right, and whose numbers need not be.
func FuzzSealed(f *testing.F) {
	f.Add(int64(10), uint64(10), make([]byte, 120), uint64(0), []byte{}, uint64(10))
	f.Add(int64(1)<<46, uint64(1)<<20, make([]byte, 1000), uint64(2), make([]byte, 24), uint64(1)<<63)
	f.Fuzz(func(t *testing.T, length int64, first uint64, firstBytes []byte, second uint64, secondBytes []byte,
		end uint64) {
		testenv.Bounded(t, len(firstBytes)+len(secondBytes), func() {
			h := snapshot.Header{Kind: "map", Family: "go", Key: "uint32", Value: "uint64", KeyBytes: 4, ValueBytes: 8,
				Len: length}
			file := sealed(t, h, block{"rows", first, firstBytes}, block{"rows", second, secondBytes},
				block{"end\n", end, nil})
			for _, r := range []io.Reader{bytes.NewReader(file), io.MultiReader(bytes.NewReader(file))} {
				var err error
				if took := allocated(func() { _, err = load(t, r) }); took > 8<<20+64*uint64(len(file)) {
					t.Errorf("%d bytes of a file took %d", len(file), took)
				}
				if whole := 12*first == uint64(len(firstBytes)) && 12*second == uint64(len(secondBytes)) && first > 0 &&
					second > 0; err == nil && !whole {
					t.Errorf("blocks of %d and %d entries in %d and %d bytes were loaded", first, second, len(firstBytes),
						len(secondBytes))
				}
			}
		})
	})
}

// Whatever a file holds, it is loaded as what it says, or not at all.
func FuzzLoad(f *testing.F) {
	for _, n := range []int{0, 1, 20} {
		m := newGoMap(n, 1)
		m.chunk = 8
		f.Add(saved(f, m))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		testenv.Bounded(t, len(file), func() {
			m, err := load(t, bytes.NewReader(file))
			if err != nil {
				return
			}
			again, err := load(t, bytes.NewReader(saved(t, m)))
			if err != nil || !maps.Equal(again.in, m.in) {
				t.Errorf("what was loaded is not what is saved: %v", err)
			}
			if 12*len(m.in) > len(file) {
				t.Errorf("%d pairs of %d bytes", len(m.in), len(file))
			}
		})
	})
}

// FuzzHeader loads files of any header, whose checksum is right, and which a block of some bytes follows.
func FuzzHeader(f *testing.F) {
	for _, kind := range []string{"map", "set", "multimap", "counter", "filter", "strings"} {
		f.Add([]byte(`{"kind":"`+kind+`","family":"go","key":"uint32","value":"uint64","key_bytes":4,"value_bytes":8,"len":1}`),
			uint64(1), make([]byte, 12))
	}
	f.Add([]byte(`{"kind":"map","key_bytes":9223372036854775807,"len":70368744177664}`), uint64(1)<<63, []byte{1})
	f.Add([]byte(`{"kind":"filter","key":"uint32","key_bytes":4,"len":4194305,"form":{"Words":4194305,"Make":"x"}} more`),
		uint64(1)<<20, []byte{})
	f.Add([]byte(`{"kind":"map","kind":"set","LEN":-1}`), uint64(0), []byte(nil))
	f.Fuzz(func(t *testing.T, header []byte, rows uint64, bytesOf []byte) {
		testenv.Bounded(t, len(header)+len(bytesOf), func() {
			var file, summed []byte
			add := func(b []byte) { file, summed = append(file, b...), append(summed, b...) }
			seal := func() {
				file = binary.LittleEndian.AppendUint32(file, crc32.Checksum(summed, crc32.MakeTable(crc32.Castagnoli)))
			}
			add(binary.LittleEndian.AppendUint32(binary.LittleEndian.AppendUint32([]byte("warpmap\n"), 1), uint32(len(header))))
			add(header)
			seal()
			add(binary.LittleEndian.AppendUint64([]byte("rows"), rows))
			seal()
			add(bytesOf)
			seal()
			add(binary.LittleEndian.AppendUint64([]byte("end\n"), rows))
			seal()
			for _, r := range []io.Reader{bytes.NewReader(file), io.MultiReader(bytes.NewReader(file))} {
				var m *goMap
				var err error
				if took := allocated(func() { m, err = load(t, r) }); took > 8<<20+64*uint64(len(file)) {
					t.Errorf("%d bytes of a file took %d", len(file), took)
				}
				if err == nil && (uint64(len(m.in)) > rows || 12*rows != uint64(len(bytesOf))) {
					t.Errorf("%q: %d pairs of %d rows of %d bytes", header, len(m.in), rows, len(bytesOf))
				}
			}
		})
	})
}
