package keyspace

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/warpmap/warpmap/internal/syscalls"
	"github.com/warpmap/warpmap/internal/testenv"
)

// writesEnv names the folder in which a process that TestKilledAtEachCall starts has its keys.
const writesEnv = "WARPMAP_TEST_KEYS"

func init() {
	if dir := os.Getenv(writesEnv); dir != "" {
		if err := writes(dir); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
}

const (
	written    = 40 // keys, one after the other
	savedEvery = 15
	removed    = 10 // before each snapshot, the oldest
)

// steps are what is written: the number of a key that comes, or below 0 of one that goes.
func steps() (all []int) {
	gone := 0
	for i := 1; i <= written; i++ {
		all = append(all, i)
		for k := 0; i%savedEvery == 0 && k < removed; k++ {
			gone++
			all = append(all, -gone)
		}
	}
	return all
}

// writes does all steps, makes snapshots between them, and says how many are acknowledged.
func writes(dir string) error {
	s, err := Open(Options{Folder: dir, Sync: SyncAlways})
	if err != nil {
		return err
	}
	for i, step := range steps() {
		if key := fmt.Sprint("key ", max(step, -step)); step > 0 {
			s.testPut(key, strings.Repeat(key, 50), 0)
		} else {
			s.with(key, func(sh *Shard, h uint64, k []byte) { sh.Delete(h, k, 0) })
		}
		if err := s.Commit(); err != nil {
			return errors.Join(err, s.Close())
		}
		fmt.Println(i + 1)
		if step < 0 && -step%removed == 0 {
			if err := s.Save(true); err != nil {
				return errors.Join(err, s.Close())
			}
		}
	}
	return s.Close()
}

// A process that writes keys, and makes snapshots, is killed at each system call by which it changes files, or that
// call fails. The keys can be opened, with all that was acknowledged and with no more than one step that was not, and
// a snapshot of them leaves the files that there are in a folder that nothing happened to.
func TestKilledAtEachCall(t *testing.T) {
	var names []string
	run := func(tr *syscalls.Trace) (dir string, acknowledged int, said string) {
		dir = t.TempDir()
		tr.Under = dir
		out, err := os.Create(filepath.Join(t.TempDir(), "said"))
		if err != nil {
			t.Fatal(err)
		}
		defer out.Close()
		cmd := exec.Command(os.Args[0])
		cmd.Env = append(os.Environ(), writesEnv+"="+dir, "GORACE=atexit_sleep_ms=0")
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
	// opened is what is wrong with the keys that a process left.
	opened := func(dir string, acknowledged int) (err error) {
		s, err := Open(Options{Folder: dir, Sync: SyncAlways})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, s.Close()) }()
		have, all := s.all(), steps()
		for _, n := range []int{acknowledged, min(acknowledged+1, len(all))} {
			want := map[string]bool{}
			for _, step := range all[:n] {
				want[fmt.Sprint("key ", max(step, -step))] = step > 0
			}
			err = nil
			for key, is := range want {
				if v, there := have[key]; there != is || is && v != fmt.Sprint(strings.Repeat(key, 50), 0, true) {
					err = fmt.Errorf("%d steps are acknowledged, and %s is there: %t, %.20q", acknowledged, key, there, v)
				}
			}
			for key := range have {
				if _, known := want[key]; !known {
					err = fmt.Errorf("%d steps are acknowledged, and %s is there", acknowledged, key)
				}
			}
			if err == nil {
				break
			}
		}
		if err = errors.Join(err, s.Check(), s.Save(true)); err != nil {
			return err
		}
		left, err := os.ReadDir(dir)
		kinds := []string{}
		for _, e := range left {
			kind, _, _ := strings.Cut(e.Name(), ".")
			kinds = append(kinds, kind)
		}
		if names == nil {
			names = kinds
		}
		if !slices.Equal(names, kinds) {
			err = errors.Join(err, fmt.Errorf("%v are in the folder, want %v", left, names))
		}
		return err
	}
	count := &syscalls.Trace{}
	dir, acknowledged, said := run(count)
	if count.State.ExitStatus() != 0 || acknowledged != len(steps()) || len(count.Seen) < 2*len(steps()) {
		t.Fatalf("%d steps are acknowledged in %d calls: %s", acknowledged, len(count.Seen), said)
	}
	if err := opened(dir, acknowledged); err != nil {
		t.Fatal(err)
	}
	kills, faults := 0, 0
	moments := rand.New(rand.NewPCG(1+testenv.FirstSeed(), 4)).Perm(len(count.Seen))
	for _, n := range testenv.Some(moments, 4) {
		tr := &syscalls.Trace{Kill: n + 1}
		if n%3 == 0 {
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
