package shard_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/ports"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/shard"
	"github.com/warpmap/warpmap/shard/internal/nccl"
	"github.com/warpmap/warpmap/shard/internal/nccl/standin"
	"github.com/warpmap/warpmap/shard/internal/rendezvous"
	"github.com/warpmap/warpmap/table"
)

// scenarioEnv makes the test binary a member of a job: what it is to do, and where it is to be killed.
const (
	scenarioEnv = "WARPMAP_TEST_SCENARIO"
	deviceEnv   = "WARPMAP_TEST_DEVICE" // cpu, or cuda
	// operationsEnv makes the members go through operations of all kinds: all, choices, independent or regions; or with
	// wrong through what one of them does wrong, and with phases of a map or of a multimap through a look-up.
	operationsEnv = "WARPMAP_TEST_OPERATIONS"
	// hurryEnv has members wait seconds for one that does not come. Others may have the cores for longer than that.
	hurryEnv = "WARPMAP_TEST_HURRY"
)

// die kills the process if this is where it is to be killed.
func die(where string) {
	if os.Getenv(scenarioEnv) == "die "+where {
		self, _ := os.FindProcess(os.Getpid())
		self.Kill()
	}
}

// member is the process of a member. Its exit code is 0 where all is well.
func member() int {
	if err := play(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 3
	}
	return 0
}

// deadly is a table that may kill the process in an operation, panic, or leave the job.
type deadly struct {
	table.Map[uint32, uint32]
	of *shard.Member
}

func (d deadly) InsertOn(st *device.Stream, keys, values device.Slice[uint32]) error {
	die("in the table")
	switch os.Getenv(scenarioEnv) {
	case "panics":
		panic("planted")
	case "leaves":
		go d.of.Close()
		time.Sleep(time.Second)
	}
	return d.Map.InsertOn(st, keys, values)
}

func play() (err error) {
	rank, _ := strconv.Atoi(os.Getenv("RANK"))
	d, err := device.Open(fmt.Sprintf("%s:%d", os.Getenv(deviceEnv), rank))
	if err != nil {
		return err
	}
	defer d.Close()
	die("before it comes")
	o := shard.JoinOptions{Device: d}
	if os.Getenv(hurryEnv) != "" {
		o.Timeout = 4 * time.Second
	}
	m, err := shard.Join(context.Background(), o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()
	die("when it has come")
	switch os.Getenv(operationsEnv) {
	case "all":
		return playOperations(m)
	case "choices":
		return playChoices(m)
	case "independent":
		return playIndependent(m)
	case "regions":
		return playRegions(m)
	case "wrong":
		return playWrong(m)
	case "phases of a map", "phases of a multimap":
		return playPhases(m, os.Getenv(operationsEnv) == "phases of a multimap")
	}
	x, err := shard.NewMap(m, shard.Options{Piece: 5000},
		func(d *device.Device, o table.Options) (table.Map[uint32, uint32], error) {
			die("making the table")
			inner, err := families[uint32, uint32]()["warpcore"](d, o)
			return deadly{inner, m}, err
		})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.Close()) }()
	size := m.Size()
	sizes := make([]int, size)
	total := 0
	for i := range sizes {
		sizes[i] = 20_000 + 7001*i
		if i == 1 && size > 2 {
			sizes[i] = 0 // brings nothing
		}
		total += sizes[i]
	}
	keys, values := batches(sizes, 1)
	die("between operations")
	if err := lasting(func() error { return x.Insert(keys[rank], values[rank]) }); err != nil {
		return err
	}
	if n, err := x.Len(); n != total || err != nil {
		return errors.Join(err, fmt.Errorf("%d pairs of %d", n, total))
	}
	others := append([]uint32{1, 2, 3}, keys[(rank+1)%size]...)
	got, found := make([]uint32, len(others)), make([]bool, len(others))
	if err := x.Find(others, got, found); err != nil {
		return err
	}
	for i, k := range others {
		if found[i] != (i >= 3) || i >= 3 && got[i] != k^0x55aa {
			return fmt.Errorf("rank %d: key %#x found %t with %#x", rank, k, found[i], got[i])
		}
	}
	if err := x.Check(); err != nil {
		return err
	}
	return rest(x, m, d, keys[(rank+1)%size])
}

// lasting is do in a process that outlives a panic of it.
func lasting(do func() error) (err error) {
	defer func() {
		if x := recover(); x != nil {
			time.Sleep(15 * time.Second)
			err = fmt.Errorf("recovered %v", x)
		}
	}()
	return do()
}

// rest deletes, calls what is wrong, and overfills a map.
func rest(x *shard.Map[uint32, uint32], m *shard.Member, d *device.Device, keys []uint32) error {
	k, err := device.From(d, keys)
	if err != nil {
		return err
	}
	if err := x.DeleteOn(nil, k, device.Slice[bool]{}); err != nil {
		return err
	}
	if n, err := x.Len(); n != 0 || err != nil {
		return errors.Join(err, fmt.Errorf("%d pairs are left", n))
	}
	// Bad arguments of one are an error everywhere, and the map goes on.
	bad := keys
	if m.Rank() == 0 {
		bad = append(keys, 1)
	}
	if err := x.Insert(bad, keys); err == nil || m.Rank() > 0 && !strings.Contains(err.Error(), "rank 0: ") {
		return fmt.Errorf("rank %d, bad arguments of rank 0: %v", m.Rank(), err)
	}
	if err := x.Insert(keys, keys); err != nil {
		return err
	}
	if err := x.Clear(); err != nil {
		return err
	}
	small, err := shard.NewMap(m, shard.Options{Options: table.Options{MaxBytes: 64 << 10}},
		families[uint32, uint32]()["slab"])
	if err != nil {
		return err
	}
	err = small.Insert(keys, keys)
	var full *table.FullError
	if len(keys) > 0 && (!errors.As(err, &full) || !errors.Is(err, table.ErrMaxBytes)) {
		return fmt.Errorf("a map that is too small: %v", err)
	}
	found := make([]bool, len(keys))
	if err := small.Find(keys, make([]uint32, len(keys)), found); err != nil {
		return err
	}
	if full != nil && len(full.Positions) != len(keys)-frame.Count(found) {
		return fmt.Errorf("%d positions are not in, and %d are named", len(keys)-frame.Count(found),
			len(full.Positions))
	}
	return small.Close()
}

// job starts n members, of which env may change the environment, and gives what each of them wrote and when and how it
// ended.
type ended struct {
	text string
	err  error
	at   time.Time
}

func job(t *testing.T, n int, kind string, env func(rank int) []string) []ended {
	t.Helper()
	lib := os.Getenv(nccl.Env)
	if kind == "cpu" {
		lib = standin.Build(t)
	}
	port, err := ports.Free()
	must(t, err)
	exe, err := os.Executable()
	must(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute) // kernels may have to be compiled
	defer cancel()
	out := make([]ended, n)
	var wg sync.WaitGroup
	for rank := range n {
		wg.Add(1)
		go func() {
			defer wg.Done()
			cmd := exec.CommandContext(ctx, exe)
			cmd.Env = append(os.Environ(), fmt.Sprintf("RANK=%d", rank), fmt.Sprintf("WORLD_SIZE=%d", n),
				fmt.Sprintf("LOCAL_RANK=%d", rank), "MASTER_ADDR=127.0.0.1",
				"MASTER_PORT="+port, "WARPMAP_TOKEN=secret", scenarioEnv+"=play", deviceEnv+"="+kind)
			if lib != "" {
				cmd.Env = append(cmd.Env, nccl.Env+"="+lib)
			}
			cmd.Env = append(cmd.Env, env(rank)...)
			var text bytes.Buffer
			cmd.Stdout, cmd.Stderr = &text, &text
			err := cmd.Run()
			out[rank] = ended{text.String(), err, time.Now()}
		}()
	}
	wg.Wait()
	return out
}

func TestMembers(t *testing.T) {
	for _, kind := range []string{"cpu", "cuda"} {
		for n := 1; n <= 4; n++ {
			if kind == "cpu" && n%3 != 1 && !testenv.Long() { // TestMembersOperations has these
				continue
			}
			t.Run(fmt.Sprintf("%s/%d", kind, n), func(t *testing.T) {
				several(t, kind, n)
				if kind == "cuda" {
					_, err := nccl.Open()
					testenv.Require(t, "nccl", err)
				}
				for rank, e := range job(t, n, kind, func(int) []string { return nil }) {
					if e.err != nil {
						t.Errorf("rank %d: %v\n%s", rank, e.err, e.text)
					}
				}
			})
		}
	}
}

// shortly are the operations that so many members go through in short runs on the CPU.
var shortly = map[int][]string{2: {"all", "choices", "regions"}, 3: {"independent"}}

// All operations of all kinds of tables, each member with its own batches, of which some are empty.
func TestMembersOperations(t *testing.T) {
	for _, kind := range []string{"cpu", "cuda"} {
		for n := 1; n <= 4; n++ {
			operations := []string{"all", "choices", "independent", "regions"}
			if kind == "cpu" && !testenv.Long() {
				operations = shortly[n]
			}
			for _, which := range operations {
				t.Run(fmt.Sprintf("%s/%s/%d", kind, which, n), func(t *testing.T) {
					several(t, kind, n)
					if kind == "cuda" {
						_, err := nccl.Open()
						testenv.Require(t, "nccl", err)
					}
					env := []string{operationsEnv + "=" + which}
					for rank, e := range job(t, n, kind, func(int) []string { return env }) {
						if e.err != nil {
							t.Errorf("rank %d: %v\n%s", rank, e.err, e.text)
						}
					}
				})
			}
		}
	}
}

// What one member does wrong is told to the others, by its rank, and nobody waits for ever.
func TestMembersWrong(t *testing.T) {
	for n := 1; n <= 4; n++ {
		if n%2 == 0 && !testenv.Long() {
			continue
		}
		for rank, e := range job(t, n, "cpu", func(int) []string { return []string{operationsEnv + "=wrong"} }) {
			if e.err != nil {
				t.Errorf("rank %d of %d: %v\n%s", rank, n, e.err, e.text)
			}
		}
	}
}

// A panic in one member's table, and a member that leaves in the middle of a call, end that call of the others, who
// hear which member it was, though its process lives on.
func TestMemberFails(t *testing.T) {
	for how, want := range map[string]string{"panics": "rank 1 is gone: a panic in Insert",
		"leaves": "rank 1 is gone: it was closed in the middle of a call"} {
		t.Run(how, func(t *testing.T) {
			t.Parallel()
			all := job(t, 3, "cpu", func(rank int) []string {
				if rank == 1 {
					return []string{scenarioEnv + "=" + how}
				}
				return nil
			})
			soon := 0 * time.Second // before the process ends in which there was a panic, a quarter of a minute later
			if how == "leaves" {
				soon = 30 * time.Second
			}
			for rank, e := range all {
				switch {
				case e.err == nil:
					t.Errorf("rank %d ended well", rank)
				case rank != 1 && (!strings.Contains(e.text, want) || e.at.Sub(all[1].at) > soon):
					t.Errorf("rank %d ended %v after rank 1, want %q:\n%s", rank, e.at.Sub(all[1].at), want, e.text)
				}
			}
		})
	}
}

// Wherever a member is killed, the others end before they lose their patience, and name it.
func TestMemberKilled(t *testing.T) {
	phases := map[string]string{
		"before it comes": scenarioEnv + "=die before it comes", "when it has come": scenarioEnv + "=die when it has " +
			"come", "making the table": scenarioEnv + "=die making the table",
		"between operations": scenarioEnv + "=die between operations", "in the table": scenarioEnv + "=die in the " +
			"table",
		"making the communicator": "STANDIN_KILL_INIT=1", "sending": "STANDIN_KILL=1", "sending, " +
			"later": "STANDIN_KILL=9", "late": "STANDIN_KILL=40",
	}
	slots := make(chan struct{}, 3) // jobs at a time: members that start late do not come in time
	for phase, how := range phases {
		for victim := range 3 {
			if victim != len(phase)%3 && !testenv.Long() {
				continue // each phase with one victim, and each victim in some
			}
			t.Run(fmt.Sprintf("%s/%d", phase, victim), func(t *testing.T) {
				t.Parallel()
				slots <- struct{}{}
				defer func() { <-slots }()
				all := job(t, 3, "cpu", func(rank int) []string {
					switch {
					case rank == victim:
						return []string{how}
					case phase == "before it comes":
						return []string{hurryEnv + "=1"}
					}
					return nil
				})
				for rank, e := range all {
					switch {
					case rank == victim:
						if e.err == nil || !strings.Contains(e.err.Error(), "killed") {
							t.Errorf("rank %d was not killed: %v\n%s", rank, e.err, e.text)
						}
					case e.err == nil || e.at.Sub(all[victim].at) > rendezvous.Patience/2:
						t.Errorf("rank %d ended after %v, %v\n%s", rank, e.at.Sub(all[victim].at), e.err, e.text)
					case !strings.Contains(e.text, fmt.Sprintf("rank %d is gone", victim)) && !strings.Contains(e.text,
						fmt.Sprintf("did not come: rank %d", victim)):
						t.Errorf("rank %d does not name rank %d:\n%s", rank, victim, e.text)
					}
				}
			})
		}
	}
}
