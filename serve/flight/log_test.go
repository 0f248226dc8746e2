package flight

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/columnar"
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

