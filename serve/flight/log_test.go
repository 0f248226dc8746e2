package flight

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	stdlog "log"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"google.golang.org/grpc/codes"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/columnar"
	"github.com/warpmap/warpmap/internal/faults"
	"github.com/warpmap/warpmap/internal/testenv"
)

// loggedTables are tables of all forms: values in the index, none, and in rows behind keys of words and of texts.
var loggedTables = []string{"id:int64,n:int64", "id:int32,x:float32", "id:int64", "id:int64,x:float64?,n:int8", "s:utf8,n:int64",
	"s:utf8,t:utf8?,u:large_binary"}

// batchFor makes rows whose keys are few, so that many are equal.
func batchFor(r *rand.Rand, columns []columnar.Column, rows, keys int) (b columnar.Batch) {
	b.Rows = rows
	for i, c := range columns {
		var d columnar.Data
		if c.Nullable {
			d.Valid = make([]byte, (rows+7)/8)
		}
		for row := range rows {
			n := r.IntN(keys)
			if i > 0 {
				n = r.IntN(1000)
			}
			if c.Nullable && n%5 == 0 {
				d.Nulls++
			} else if c.Nullable {
				d.Valid[row/8] |= 1 << (row % 8)
			}
			switch c.Type.String() {
			case "int8":
				d.Fixed = append(d.Fixed, byte(n))
			case "int32":
				d.Fixed = binary.LittleEndian.AppendUint32(d.Fixed, uint32(n))
			case "int64":
				d.Fixed = binary.LittleEndian.AppendUint64(d.Fixed, uint64(n))
			case "float32":
				d.Fixed = binary.LittleEndian.AppendUint32(d.Fixed, math.Float32bits(float32(n)/7))
			case "float64":
				d.Fixed = binary.LittleEndian.AppendUint64(d.Fixed, math.Float64bits(float64(n)/7))
			default:
				if row == 0 {
					d.Text.Offsets = []int64{0}
				}
				d.Text.Bytes = append(d.Text.Bytes, strings.Repeat(fmt.Sprint(n, ";"), n%4)...)
				d.Text.Offsets = append(d.Text.Offsets, int64(len(d.Text.Bytes)))
			}
		}
		b.Columns = append(b.Columns, d)
	}
	return b
}

// contents are all rows of all tables.
func contents(t testing.TB, s *Server) map[string][]string {
	t.Helper()
	out := map[string][]string{}
	for _, e := range s.tables.list() {
		rows := []string{}
		columns := e.Schema().All()
		err := e.Export(context.Background(), 0, 1, func(f columnar.Frame) error {
			b, err := columnar.Decode(f.Header, f.Body, columns, 1<<20)
			for row := range b.Rows {
				line := ""
				for _, d := range b.Columns {
					switch {
					case d.Valid != nil && d.Valid[row/8]>>(row%8)&1 == 0:
						line += "null "
					case d.Fixed != nil:
						width := len(d.Fixed) / b.Rows
						line += fmt.Sprintf("%x ", d.Fixed[row*width:(row+1)*width])
					default:
						line += fmt.Sprintf("%q ", d.Text.At(row))
					}
				}
				rows = append(rows, line)
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		slices.Sort(rows)
		out[e.Schema().Name+" "+columnar.Describe(columns)] = rows
	}
	return out
}

func sameTables(a, b map[string][]string) bool { return maps.EqualFunc(a, b, slices.Equal) }

// copied copies a folder as it would be if its process were killed now.
func copied(t testing.TB, folder string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(folder)); err != nil {
		t.Fatal(err)
	}
	return to
}

func cpu(t testing.TB, o ...device.Option) []*device.Device {
	t.Helper()
	d, err := device.Open("cpu", o...)
	testenv.Require(t, "cpu", err)
	t.Cleanup(func() { d.Close() })
	return []*device.Device{d}
}

// opened is a server that nobody asks over a network.
func opened(t testing.TB, o Options) *Server {
	t.Helper()
	s, err := New(context.Background(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { s.Close() })
	return s
}

// change does a random thing to a server's tables, and returns when it would be acknowledged.
func change(r *rand.Rand, s *Server) error {
	at := r.IntN(len(loggedTables))
	name, ctx := fmt.Sprint("t", at), context.Background()
	e, err := s.tables.get(name)
	if err != nil {
		columns, _ := columnar.Parse(loggedTables[at])
		return s.Create(Spec{Name: name, Columns: loggedTables[at], Keys: []string{columns[0].Name}})
	}
	switch n := r.IntN(40); n {
	case 0:
		return s.tables.drop(name)
	case 1:
		return errors.Join(e.Clear(), s.tables.commit())
	case 2:
		return s.tables.save(ctx, "")
	case 3:
		return s.tables.save(ctx, name)
	case 4:
		if _, err := os.Stat(s.tables.path(name)); errors.Is(err, fs.ErrNotExist) {
			return nil
		}
		return s.tables.reload(ctx, name)
	default:
		mode := columnar.Modes[n%len(columnar.Modes)]
		if e.CanPut(mode) != nil {
			mode = columnar.Insert
		}
		_, err := e.Put(mode, batchFor(r, e.Columns(mode), r.IntN(60), 40))
		return errors.Join(err, s.tables.commit())
	}
}

// After any changes, a server that is killed has the tables that it had, to the last bit of what was added in batches
// with equal keys; and so has one that goes on from there, with a log or without.
func TestLogIsTheTables(t *testing.T) {
	devices := cpu(t, device.WithStress(testenv.FirstSeed()+1)) // which of equal keys stays is chance
	rounds := 6
	if testenv.Long() {
		rounds = 300
	}
	r := rand.New(rand.NewPCG(testenv.FirstSeed(), 7))
	o := Options{Devices: devices, Folder: t.TempDir(), Fsync: FsyncAlways}
	s := opened(t, o)
	for round := range rounds {
		for range 30 {
			if err := change(r, s); err != nil {
				t.Fatal(err)
			}
		}
		want := contents(t, s)
		killed := o
		killed.Folder = copied(t, o.Folder)
		if round%3 == 0 {
			killed.Fsync = NoLog
		}
		again := opened(t, killed)
		if got := contents(t, again); !sameTables(got, want) {
			t.Fatalf("round %d: %v, want %v", round, got, want)
		}
		logs, _ := filepath.Glob(filepath.Join(killed.Folder, "log.*"))
		if none := len(logs) == 0; none != (killed.Fsync == NoLog) {
			t.Errorf("round %d: the logs are %v", round, logs)
		}
		if round%4 != 0 {
			continue
		}
		s.Close()
		again.Close()
		killed.Fsync = FsyncAlways
		o, s = killed, opened(t, killed)
		if got := contents(t, s); !sameTables(got, want) {
			t.Fatalf("round %d: started again %v, want %v", round, got, want)
		}
	}
	testenv.Tried(t, rounds, "kills")
}

// A batch in which every key comes several times is in the log with the values that have stayed.
func TestLogOfEqualKeys(t *testing.T) {
	devices := cpu(t, device.WithStress(testenv.FirstSeed()+1))
	r := rand.New(rand.NewPCG(testenv.FirstSeed(), 8))
	o := Options{Devices: devices, Folder: t.TempDir(), Fsync: FsyncAlways}
	s := opened(t, o)
	for i, columns := range loggedTables {
		all, err := columnar.Parse(columns)
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Create(Spec{Name: fmt.Sprint("t", i), Columns: columns, Keys: []string{all[0].Name}}); err != nil {
			t.Fatal(err)
		}
		e, err := s.tables.get(fmt.Sprint("t", i))
		if err != nil {
			t.Fatal(err)
		}
		for range 3 {
			b := batchFor(r, all, 40, 1<<20)
			keys := b.Columns[0]
			twice := columnar.Data{Fixed: slices.Concat(keys.Fixed, keys.Fixed), Text: keys.Text}
			if keys.Fixed == nil {
				twice.Text.Bytes = slices.Concat(keys.Text.Bytes, keys.Text.Bytes)
				twice.Text.Offsets = slices.Clone(keys.Text.Offsets)
				for _, at := range keys.Text.Offsets[1:] {
					twice.Text.Offsets = append(twice.Text.Offsets, keys.Text.Offsets[40]+at)
				}
			}
			b = batchFor(r, all, 80, 1)
			b.Columns[0] = twice
			if _, err := e.Put(columnar.Insert, b); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.tables.commit(); err != nil {
		t.Fatal(err)
	}
	want := contents(t, s)
	o.Folder = copied(t, o.Folder)
	if got := contents(t, opened(t, o)); !sameTables(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A batch that fails in its middle may be done in part: a server that is killed then has the same part of it, at once
// if the keys can be read, else from the next batch on.
func TestLogOfFailedBatches(t *testing.T) {
	devices := cpu(t)
	r := rand.New(rand.NewPCG(testenv.FirstSeed(), 9))
	o := Options{Devices: devices, Folder: t.TempDir(), Fsync: FsyncAlways}
	s := opened(t, o)
	failed, partly := 0, 0
	for i, columns := range loggedTables {
		all, err := columnar.Parse(columns)
		if err != nil {
			t.Fatal(err)
		}
		name := fmt.Sprint("t", i)
		created := func() *entry {
			if err := s.Create(Spec{Name: name, Columns: columns, Keys: []string{all[0].Name}}); err != nil {
				t.Fatal(err)
			}
			e, err := s.tables.get(name)
			if err != nil {
				t.Fatal(err)
			}
			return e
		}
		e := created()
		for _, mode := range []columnar.Mode{columnar.Insert, columnar.Add, columnar.InsertNew, columnar.Delete} {
			if e.CanPut(mode) != nil {
				continue
			}
			for _, site := range []faults.Site{faults.Alloc, faults.HostAlloc, faults.Launch, faults.CopyOut, faults.Sync} {
				for n := int64(1); n <= 12; n++ {
					b := batchFor(r, e.Columns(mode), 20, 300)
					before := contents(t, s)
					rest := n%2 == 0
					order := &faults.Counter{Site: site, N: n, Rest: rest, Outcome: faults.Fails}
					faults.Set(devices[0], order.Order)
					_, err := e.Put(mode, b)
					faults.Set(devices[0], nil)
					if !order.Met() {
						break
					}
					if err == nil {
						continue
					}
					if e.Export(context.Background(), 0, 1, func(columnar.Frame) error { return nil }) != nil { // nobody can read it any more
						if err := s.tables.drop(name); err != nil {
							t.Fatal(err)
						}
						e = created()
						continue
					}
					if failed++; sameTables(before, contents(t, s)) {
						continue
					}
					partly++
					if rest {
						if _, err := e.Put(columnar.Insert, batchFor(r, all, 1, 300)); err != nil {
							t.Fatal(err)
						}
					}
					if err := s.tables.commit(); err != nil {
						t.Fatal(err)
					}
					want, killed := contents(t, s), o
					killed.Folder = copied(t, o.Folder)
					again := opened(t, killed)
					if got := contents(t, again); !sameTables(got, want) {
						t.Errorf("%s, %s, %s %d fails: %v, want %v", columns, mode, site, n, got, want)
					}
					again.Close()
				}
			}
		}
	}
	if partly == 0 {
		t.Errorf("%d batches failed, and none was done in part", failed)
	}
	t.Logf("%d batches failed, of which %d had changed something", failed, partly)
}

// logged is a folder whose log has a few changes, the log's name, and what the tables were before each change and after
// the last.
func logged(t *testing.T, devices []*device.Device) (folder, log string, states []map[string][]string, ends []int64) {
	t.Helper()
	s := opened(t, Options{Devices: devices, Folder: t.TempDir(), Fsync: FsyncAlways})
	folder = s.o.Folder
	log = filepath.Join(folder, "log.1")
	r := rand.New(rand.NewPCG(1, 2))
	note := func(err error) {
		about, statErr := os.Stat(log)
		if err = errors.Join(err, statErr); err != nil {
			t.Fatal(err)
		}
		states, ends = append(states, contents(t, s)), append(ends, about.Size())
	}
	note(nil)
	for _, at := range []int{0, 5} {
		columns, _ := columnar.Parse(loggedTables[at])
		name := fmt.Sprint("t", at)
		note(s.Create(Spec{Name: name, Columns: loggedTables[at], Keys: []string{columns[0].Name}}))
		e, _ := s.tables.get(name)
		for _, mode := range []columnar.Mode{columnar.Insert, columnar.Delete} {
			_, err := e.Put(mode, batchFor(r, e.Columns(mode), 3, 4))
			note(errors.Join(err, s.tables.commit()))
		}
	}
	note(s.tables.drop("t0"))
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return folder, log, states, ends
}

// A log that ends anywhere has all changes before that, and the rest is cut and told.
func TestTornLogs(t *testing.T) {
	devices := cpu(t)
	folder, log, states, ends := logged(t, devices)
	whole, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	cuts := rand.New(rand.NewPCG(testenv.FirstSeed(), 3)).Perm(len(whole))
	for _, cut := range append(testenv.Some(cuts, 20), 0, 1, int(ends[0]), int(ends[1])-1, int(ends[1])) {
		for _, zeros := range []int{0, 50} { // as file systems leave what they had no time to write
			if cut < int(ends[0]) && zeros > 0 {
				continue // no log is added to before that is on the disk
			}
			torn := append(slices.Clone(whole[:cut]), make([]byte, zeros)...)
			if err := os.WriteFile(log, torn, 0o600); err != nil {
				t.Fatal(err)
			}
			var said strings.Builder
			s, err := New(context.Background(), Options{Devices: devices, Folder: folder, Log: stdlog.New(&said, "", 0)})
			if err != nil {
				t.Fatalf("cut to %d bytes, and %d zeros: %v", cut, zeros, err)
			}
			at := 0
			for at+1 < len(ends) && bytes.HasPrefix(torn, whole[:ends[at+1]]) { // which may end with zeros
				at++
			}
			if got := contents(t, s); !sameTables(got, states[at]) {
				t.Fatalf("cut to %d bytes there is %v, want %v", cut, got, states[at])
			}
			if is := int64(len(torn)) != ends[at]; is != strings.Contains(said.String(), "cut to") {
				t.Fatalf("cut to %d bytes, and %d zeros, it says %q", cut, zeros, said.String())
			}
			s.Close()
			for _, name := range []string{"t0.table", "t5.table"} { // which it makes, for there is no log any more
				os.Remove(filepath.Join(folder, name))
			}
		}
	}
}

// A log that is damaged anywhere is an error that says where, or has all changes before that where it may be cut.
func TestDamagedLogs(t *testing.T) {
	devices := cpu(t)
	folder, log, states, ends := logged(t, devices)
	whole, err := os.ReadFile(log)
	if err != nil {
		t.Fatal(err)
	}
	places := rand.New(rand.NewPCG(testenv.FirstSeed(), 4)).Perm(len(whole))
	for _, at := range testenv.Some(places, 15) {
		damaged := slices.Clone(whole)
		damaged[at] ^= 0x10
		if err := os.WriteFile(log, damaged, 0o600); err != nil {
			t.Fatal(err)
		}
		o := Options{Devices: devices, Folder: folder}
		s, err := New(context.Background(), o)
		before := 0
		for before+1 < len(ends) && ends[before+1] <= int64(at) {
			before++
		}
		if last := before == len(ends)-2; !last || err != nil { // the last record's body may be torn
			var bad *DamagedLogError
			if !errors.As(err, &bad) || bad.Name != log || at >= int(ends[0]) && bad.At != ends[before] {
				t.Fatalf("byte %d, behind record %d: %v", at, before, err)
			}
			if o.Repair = true; at < int(ends[0]) {
				if _, err := New(context.Background(), o); !errors.As(err, &bad) {
					t.Fatalf("a log of another kind is repaired: %v", err)
				}
				continue
			}
			if s, err = New(context.Background(), o); err != nil {
				t.Fatal(err)
			}
		}
		if got := contents(t, s); !sameTables(got, states[before]) {
			t.Fatalf("byte %d: repaired there is %v, want %v", at, got, states[before])
		}
		s.Close()
		for _, name := range []string{"t0.table", "t5.table"} {
			os.Remove(filepath.Join(folder, name))
		}
	}
}

// Files that do not belong together are told: a log whose beginning is lost, one whose table is gone, and a table of
// another server, whose name the log has.
func TestFilesOfOthers(t *testing.T) {
	devices := cpu(t)
	ctx := context.Background()
	r := rand.New(rand.NewPCG(1, 3))
	o := Options{Devices: devices, Folder: t.TempDir(), Fsync: FsyncAlways}
	s := opened(t, o)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	fill := func(s *Server) {
		t.Helper()
		e, err := s.tables.get("t")
		must(err)
		_, err = e.Put(columnar.Insert, batchFor(r, e.Columns(columnar.Insert), 50, 1000))
		must(errors.Join(err, s.tables.commit()))
	}
	must(s.Create(Spec{Name: "t", Columns: loggedTables[0], Keys: []string{"id"}}))
	fill(s)
	must(s.tables.save(ctx, ""))
	older := copied(t, o.Folder)
	fill(s)
	must(s.tables.save(ctx, ""))
	fill(s)
	want := contents(t, s)
	must(s.Close())
	table := func(folder string) string { return filepath.Join(folder, "t.table") }
	attempt := func(what string, change func(folder string) error, words string, repaired bool) *Server {
		t.Helper()
		o := o
		o.Folder = copied(t, o.Folder)
		must(change(o.Folder))
		var bad *DamagedLogError
		first, err := New(ctx, o)
		if err == nil {
			first.Close()
		}
		if repaired != errors.As(err, &bad) || repaired && !strings.Contains(err.Error(), words) {
			t.Errorf("%s: %v, want %s", what, err, words)
		}
		var said strings.Builder
		o.Repair, o.Log = repaired, stdlog.New(&said, "", 0)
		s := opened(t, o)
		if !repaired {
			s.Close()
			s = opened(t, o)
		}
		return s
	}
	give := func(from string) func(folder string) error {
		return func(folder string) error {
			text, err := os.ReadFile(table(from))
			return errors.Join(err, os.WriteFile(table(folder), text, 0o600))
		}
	}
	attempt("an older snapshot", give(older), "change 3", true)
	if s := attempt("no snapshot", func(folder string) error { return os.Remove(table(folder)) }, "missing", true); len(s.tables.list()) > 0 {
		t.Error("a table without its snapshot is there")
	}
	other := opened(t, Options{Devices: devices, Folder: t.TempDir()})
	must(other.Create(Spec{Name: "t", Columns: loggedTables[0], Keys: []string{"id"}}))
	fill(other)
	must(other.tables.save(ctx, ""))
	if s := attempt("a table of others", give(other.o.Folder), "", false); !sameTables(contents(t, s), contents(t, other)) {
		t.Error("what the log has of one table is done to another")
	}
	must(os.Mkdir(filepath.Join(o.Folder, "log.1000"), 0o700))
	if _, err := New(ctx, o); err == nil {
		t.Error("there are logs from 3 to 1000")
	}
	must(os.Remove(filepath.Join(o.Folder, "log.1000")))
	if got := contents(t, opened(t, o)); !sameTables(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
	if _, err := New(ctx, o); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("two servers in one folder: %v", err)
	}
}

// A long log is replaced by snapshots, also while batches come, and nothing is lost; a table that is a copy of another has
// changes of its own.
func TestLongLogs(t *testing.T) {
	was := mostLogged
	t.Cleanup(func() { mostLogged = was })
	mostLogged = 20_000
	s := start(t, Options{Folder: t.TempDir(), Fsync: FsyncAlways})
	c, ctx := s.client(), context.Background()
	mustAct(t, c, "create", `{"table":"a","columns":"id:int64,n:int64","keys":["id"]}`)
	mustAct(t, c, "save", "")
	f, err := os.Open(s.tables.path("a"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := s.Load(ctx, f, Spec{Name: "b"}); err != nil {
		t.Fatal(err)
	}
	first := filepath.Join(s.o.Folder, "log.1")
	for i := int64(0); ; i++ {
		for k, name := range []string{"a", "b"} {
			rec := record(map[string][]int64{"id": {i, i + 1}, "n": {i, int64(k)}}, "id", "n")
			if _, err := put(ctx, c, path(name), rec, rec); err != nil {
				t.Fatal(err)
			}
		}
		logs, _ := filepath.Glob(filepath.Join(s.o.Folder, "log.*"))
		if _, err := os.Stat(first); errors.Is(err, fs.ErrNotExist) && len(logs) == 1 && i > 50 {
			break
		} else if i == 100_000 {
			t.Fatalf("the logs are %v", logs)
		}
	}
	want := contents(t, s.Server)
	if err := s.end(); err != nil {
		t.Fatal(err)
	}
	if got := contents(t, opened(t, Options{Devices: s.o.Devices, Folder: s.o.Folder})); !sameTables(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A table that is created has no file, or after a crash that would be it.
func TestCreateBesideFile(t *testing.T) {
	o := Options{Devices: cpu(t), Folder: t.TempDir(), Fsync: FsyncNever}
	s := opened(t, o)
	spec := Spec{Name: "t", Columns: loggedTables[0], Keys: []string{"id"}}
	if err := errors.Join(s.Create(spec), s.tables.save(context.Background(), ""), os.Rename(s.tables.path("t"), s.tables.path("x")),
		s.tables.drop("t"), os.Rename(s.tables.path("x"), s.tables.path("t"))); err != nil {
		t.Fatal(err)
	}
	code(t, "beside a file", s.Create(spec), codes.AlreadyExists, "t.table")
	if err := s.tables.reload(context.Background(), "t"); err != nil {
		t.Fatal(err)
	}
	e, _ := s.tables.get("t")
	if _, err := e.Put(columnar.Insert, batchFor(rand.New(rand.NewPCG(1, 1)), e.Columns(columnar.Insert), 10, 50)); err != nil {
		t.Fatal(err)
	}
	want := contents(t, s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := contents(t, opened(t, o)); !sameTables(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// A table that was dropped stays away, though the log has all of one before it, whose place it had taken.
func TestDroppedStaysAway(t *testing.T) {
	o := Options{Devices: cpu(t), Folder: t.TempDir(), Fsync: FsyncAlways}
	s, ctx := opened(t, o), context.Background()
	if err := errors.Join(s.Create(Spec{Name: "t", Columns: loggedTables[0], Keys: []string{"id"}}), s.tables.save(ctx, "t"),
		s.tables.reload(ctx, "t"), s.tables.drop("t")); err != nil {
		t.Fatal(err)
	}
	o.Folder = copied(t, o.Folder)
	if all := opened(t, o).tables.list(); len(all) > 0 {
		t.Errorf("%d tables came back", len(all))
	}
}

// A process that is killed when a table has a snapshot leaves of other tables what was done before.
func TestSnapshotIsNotAheadOfLog(t *testing.T) {
	o := Options{Devices: cpu(t), Folder: t.TempDir(), Fsync: FsyncNever}
	s, r := opened(t, o), rand.New(rand.NewPCG(1, 1))
	for _, name := range []string{"a", "b"} {
		if err := s.Create(Spec{Name: name, Columns: loggedTables[0], Keys: []string{"id"}}); err != nil {
			t.Fatal(err)
		}
		e, _ := s.tables.get(name)
		if _, err := e.Put(columnar.Insert, batchFor(r, e.Columns(columnar.Insert), 10, 50)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.tables.save(context.Background(), "b"); err != nil {
		t.Fatal(err)
	}
	o.Folder = copied(t, o.Folder)
	if got, want := contents(t, opened(t, o)), contents(t, s); !sameTables(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}
