package flight

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/columnar"
	"github.com/warpmap/warpmap/internal/syscalls"
	"github.com/warpmap/warpmap/internal/testenv"
)

// tablesEnv names the folder in which a process that TestTablesKilledAtEachCall starts has its tables.
const tablesEnv = "WARPMAP_TEST_TABLES"

func init() {
	if dir := os.Getenv(tablesEnv); dir != "" {
		if err := tableSteps(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

// numbered are the rows of a key and a value that both count from a number on.
func numbered(from, n int) columnar.Batch {
	var ids []byte
	for i := range n {
		ids = binary.LittleEndian.AppendUint64(ids, uint64(from+i))
	}
	return columnar.Batch{Rows: n, Columns: []columnar.Data{{Fixed: ids}, {Fixed: ids}}}
}

// tableModel is what tables have: the values of keys, by their names.
type tableModel map[string]map[int]int

func (m tableModel) clone() tableModel {
	out := tableModel{}
	for name, rows := range m {
		own := map[int]int{}
		for k, v := range rows {
			own[k] = v
		}
		out[name] = own
	}
	return out
}

// tableStep is something that is done to a server's tables, and to a model of them. saved is what files have.
type tableStep struct {
	name string
	do   func(s *Server) error
	to   func(m, saved tableModel)
}

// killSteps are the steps that are killed: each is done wholly or not at all.
func killSteps() (all []tableStep) {
	ctx := context.Background()
	create := func(name string) {
		all = append(all, tableStep{"create " + name, func(s *Server) error {
			return s.Create(Spec{Name: name, Columns: "id:int64,n:int64", Keys: []string{"id"}})
		}, func(m, _ tableModel) { m[name] = map[int]int{} }})
	}
	put := func(name string, mode columnar.Mode, from, n int) {
		all = append(all, tableStep{fmt.Sprint(mode, " ", name), func(s *Server) error {
			e, err := s.tables.get(name)
			if err != nil {
				return err
			}
			if err := s.tables.writable(); err != nil {
				return err
			}
			b := numbered(from, n)
			if mode == columnar.Delete {
				b.Columns = b.Columns[:1]
			}
			_, err = e.Put(mode, b)
			return errors.Join(err, s.tables.commit())
		}, func(m, _ tableModel) {
			for i := from; i < from+n; i++ {
				switch mode {
				case columnar.Add:
					m[name][i] += i
				case columnar.Delete:
					delete(m[name], i)
				default:
					m[name][i] = i
				}
			}
		}})
	}
	save := func(name string) {
		all = append(all, tableStep{"save " + name, func(s *Server) error { return s.tables.save(ctx, name) },
			func(m, saved tableModel) {
				for have, rows := range m.clone() {
					if name == "" || name == have {
						saved[have] = rows
					}
				}
			}})
	}
	drop := func(name string) {
		all = append(all, tableStep{"drop " + name, func(s *Server) error { return s.tables.drop(name) },
			func(m, saved tableModel) { delete(m, name); delete(saved, name) }})
	}
	load := func(name string) {
		all = append(all, tableStep{"load " + name, func(s *Server) error { return s.tables.reload(ctx, name) },
			func(m, saved tableModel) { m[name] = saved.clone()[name] }})
	}
	create("a")
	put("a", columnar.Insert, 1, 5)
	put("a", columnar.Add, 3, 5)
	create("b")
	put("b", columnar.Insert, 1, 3)
	save("")
	put("a", columnar.Add, 1, 4)
	drop("b")
	create("b")
	put("b", columnar.Add, 7, 2)
	save("a")
	put("a", columnar.Delete, 2, 3)
	load("a")
	put("a", columnar.Add, 1, 2)
	save("")
	put("b", columnar.Add, 8, 2)
	load("b")
	drop("a")
	put("b", columnar.Insert, 1, 1)
	save("")
	create("a")
	put("a", columnar.Insert, 5, 1)
	drop("b")
	return all
}

// tableSteps does all steps, and says how many are acknowledged.
func tableSteps(dir string) error {
	d, err := device.Open("cpu")
	if err != nil {
		return err
	}
	s, err := New(context.Background(), Options{Devices: []*device.Device{d}, Folder: dir, Fsync: FsyncAlways})
	if err != nil {
		return err
	}
	for i, step := range killSteps() {
		if err := step.do(s); err != nil {
			return errors.Join(fmt.Errorf("%s: %w", step.name, err), s.Close())
		}
		fmt.Println(i + 1)
	}
	return s.Close()
}

// modelOf is what a server's tables have.
func modelOf(s *Server) (tableModel, error) {
	m := tableModel{}
	for _, e := range s.tables.list() {
		own := map[int]int{}
		err := e.Export(context.Background(), 0, 1, func(f columnar.Frame) error {
			b, err := columnar.Decode(f.Header, f.Body, e.Schema().All(), 1<<20)
			for i := range b.Rows {
				own[int(binary.LittleEndian.Uint64(b.Columns[0].Fixed[8*i:]))] =
					int(binary.LittleEndian.Uint64(b.Columns[1].Fixed[8*i:]))
			}
			return err
		})
		if err != nil {
			return nil, err
		}
		m[e.Schema().Name] = own
	}
	return m, nil
}

// A process that changes tables is killed at each system call by which it changes files, or that call fails. Its folder
// can be opened, with all steps that were acknowledged and with no more than one that was not, wholly. No table that was
// dropped comes back, also when the server goes on from there and is killed again.
func TestTablesKilledAtEachCall(t *testing.T) {
	devices := cpu(t)
	run := func(tr *syscalls.Trace) (dir string, acknowledged int, said string) {
		dir = t.TempDir()
		tr.Under = dir
		out, err := os.Create(filepath.Join(t.TempDir(), "said"))
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), tablesEnv+"="+dir, "GORACE=atexit_sleep_ms=0")
		cmd.Stdout, cmd.Stderr = out, out
		err = tr.Run(cmd)
		if err != nil && !errors.Is(err, syscall.EPERM) && !errors.Is(err, errors.ErrUnsupported) {
			t.Fatal(err)
		}
		testenv.Require(t, "ptrace", err)
		text, err := os.ReadFile(out.Name())
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(string(text), "\n") {
			if n := 0; strings.TrimLeft(line, "0123456789") == "" && line != "" {
				fmt.Sscan(line, &n)
				acknowledged = n
			}
		}
		return dir, acknowledged, string(text)
	}
	steps := killSteps()
	var states []tableModel // before each step, and at the end
	m, saved := tableModel{}, tableModel{}
	for _, step := range steps {
		states = append(states, m.clone())
		step.to(m, saved)
	}
	states = append(states, m)
	read := func(dir string) (tableModel, *Server, error) {
		s, err := New(context.Background(), Options{Devices: devices, Folder: dir, Fsync: FsyncAlways})
		if err != nil {
			return nil, nil, err
		}
		have, err := modelOf(s)
		return have, s, err
	}
	// opened is what is wrong with the tables that a process left.
	opened := func(dir string, acknowledged int) error {
		have, s, err := read(dir)
		if err != nil {
			return err
		}
		defer s.Close()
		got := fmt.Sprint(have)
		if next := min(acknowledged+1, len(steps)); got != fmt.Sprint(states[acknowledged]) && got != fmt.Sprint(states[next]) {
			return fmt.Errorf("%d steps are acknowledged, and there are %s; want %v or %v", acknowledged, got, states[acknowledged],
				states[next])
		}
		for _, dir := range []string{copied(t, dir), dir} { // killed again; and after snapshots
			if dir != s.o.Folder {
				again, other, err := read(dir)
				if err != nil {
					return err
				}
				other.Close()
				if fmt.Sprint(again) != got {
					return fmt.Errorf("opened again there are %v, before %s", again, got)
				}
				continue
			}
			if err := errors.Join(s.tables.save(context.Background(), ""), s.Close()); err != nil {
				return err
			}
			again, other, err := read(dir)
			if err != nil {
				return err
			}
			other.Close()
			if fmt.Sprint(again) != got {
				return fmt.Errorf("after snapshots there are %v, before %s", again, got)
			}
		}
		return nil
	}
	count := &syscalls.Trace{}
	dir, acknowledged, said := run(count)
	if count.State.ExitStatus() != 0 || acknowledged != len(steps) || len(count.Seen) < 2*len(steps) {
		t.Fatalf("%d steps are acknowledged in %d calls: %s", acknowledged, len(count.Seen), said)
	}
	if err := opened(dir, acknowledged); err != nil {
		t.Fatal(err)
	}
	kills, faults := 0, 0
	moments := rand.New(rand.NewPCG(1+testenv.FirstSeed(), 4)).Perm(len(count.Seen))
	for _, n := range testenv.Some(moments, 4) {
		tr := &syscalls.Trace{Kill: n + 1}
		if (uint64(n)+testenv.FirstSeed())%3 == 0 {
			tr = &syscalls.Trace{Fail: n + 1, Errno: []syscall.Errno{syscall.EIO, syscall.ENOSPC}[n/3%2]}
		}
		dir, acknowledged, said := run(tr)
		if len(tr.Seen) <= n {
			continue // it made fewer calls this time
		}
		if tr.Kill > 0 {
			kills++
		} else {
			faults++
		}
		if killed := tr.State.Signaled(); killed != (tr.Kill > 0) {
			t.Fatalf("call %d, %v: %v: %s", n+1, tr.Seen[n], tr.State, said)
		}
		if err := opened(dir, acknowledged); err != nil {
			t.Fatalf("call %d, %v, of %+v: %v\n%s", n+1, tr.Seen[n], tr, err, said)
		}
	}
	testenv.Tried(t, kills, "kills")
	testenv.Tried(t, faults, "faults")
	t.Logf("%d kills and %d calls that fail, of %d calls", kills, faults, len(count.Seen))
}
