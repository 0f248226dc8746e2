package shard_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/faults"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/shard"
	"github.com/warpmap/warpmap/shard/internal/nccl"
	"github.com/warpmap/warpmap/shard/internal/nccl/standin"
	"github.com/warpmap/warpmap/shard/internal/rendezvous"
	"github.com/warpmap/warpmap/table"
)

// gathered returns n members of a job in this process, each with a map. On CPU devices, NCCL is the stand-in.
func gathered(t *testing.T, n int) []*guest { return gatheredOn(t, "cpu", n) }

func gatheredOn(t *testing.T, kind string, n int) []*guest {
	t.Helper()
	guests := inviting(t, several(t, kind, n))
	for _, step := range guestSteps[:2] {
		errs, _ := party(t, guests, step)
		must(t, errors.Join(errs...))
	}
	return guests
}

// ncclItselfEnv has a process of TestMembersClose load NCCL.
const ncclItselfEnv = "WARPMAP_TEST_NCCL_ITSELF"

// A Close of all members is orderly and quick. A Close of one does not wait for the others to leave, whichever rank it
// is. A call that another member makes before or afterwards returns an error that names the rank.
func TestMembersClose(t *testing.T) {
	t.Run("cpu", func(t *testing.T) {
		t.Setenv(nccl.Env, standin.Build(t))
		testMembersClose(t, "cpu", 3)
	})
	t.Run("cuda", func(t *testing.T) { // with NCCL itself
		several(t, "cuda", 2)
		if os.Getenv(ncclItselfEnv) == "" { // this process has loaded the stand-in
			cmd := exec.Command(os.Args[0], "-test.run=^TestMembersClose$/^cuda$", "-test.v")
			cmd.Env = append(os.Environ(), ncclItselfEnv+"=1")
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("%v\n%s", err, out)
			}
			return
		}
		_, err := nccl.Open()
		testenv.Require(t, "nccl", err)
		testMembersClose(t, "cuda", 2)
	})
}

func testMembersClose(t *testing.T, kind string, n int) {
	t.Run("all", func(t *testing.T) {
		guests := gatheredOn(t, kind, n)
		var calls faults.Counter
		faults.Set(faults.OfNCCL, calls.Order)
		defer faults.Set(faults.OfNCCL, nil)
		errs, took := party(t, guests, guestStep{"Close", func(g *guest) error {
			var wg sync.WaitGroup
			var errs [3]error
			for i := range errs { // two of these calls do nothing
				wg.Go(func() { errs[i] = g.m.Close() })
			}
			wg.Wait()
			return errors.Join(append(errs[:], g.m.Close(), g.x.Close())...)
		}})
		must(t, errors.Join(errs...))
		if made := calls.Count(faults.NCCL); made < int64(3*n) || took > rendezvous.Silence {
			t.Errorf("%d calls of NCCL in %v: want that each of %d members finalizes its communicator, asks for the "+
				"end of that, and destroys the communicator", made, took, n)
		}
	})
	for leaver := range n {
		for _, when := range []string{"after", "before"} {
			t.Run(fmt.Sprintf("rank %d %s a call", leaver, when), func(t *testing.T) {
				guests := gatheredOn(t, kind, n)
				errs, took := party(t, guests, guestStep{"Close", func(g *guest) error {
					if (g.rank == leaver) == (when == "after") {
						time.Sleep(100 * time.Millisecond)
					}
					if g.rank == leaver {
						return g.m.Close()
					}
					_, err := g.x.Len()
					return err
				}})
				want := fmt.Sprintf("rank %d is gone: it has left", leaver)
				for rank, err := range errs {
					if rank == leaver && err != nil {
						t.Errorf("Close: %v", err)
					} else if rank != leaver && (err == nil || !strings.Contains(err.Error(), want)) {
						t.Errorf("rank %d: %v (want %q)", rank, err, want)
					}
				}
				if took > rendezvous.Silence {
					t.Errorf("it took %v", took)
				}
				errs, _ = party(t, guests, guestStep{"Len", func(g *guest) error { _, err := g.x.Len(); return err }})
				if slices.Contains(errs, nil) {
					t.Errorf("calls of tables without their job: %v", errs)
				}
				errs, _ = party(t, guests, guestStep{"Close", (*guest).leave})
				must(t, errors.Join(errs...))
			})
		}
	}
	t.Run("one by one", func(t *testing.T) {
		for _, g := range gatheredOn(t, kind, n) {
			errs, took := party(t, []*guest{g}, guestStep{"Close", (*guest).leave})
			must(t, errors.Join(errs...))
			if took > rendezvous.Silence {
				t.Errorf("rank %d: Close took %v", g.rank, took)
			}
		}
	})
	t.Run("after a failure", func(t *testing.T) {
		guests := gatheredOn(t, kind, n)
		c := &faults.Counter{Site: faults.NCCL, N: 1, Outcome: faults.Fails}
		faults.Set(faults.OfNCCL, c.Order)
		errs, _ := party(t, guests, guestStep{"Insert", func(g *guest) error { return g.x.Insert(g.keys, g.values) }})
		faults.Set(faults.OfNCCL, nil)
		if slices.Contains(errs, nil) {
			t.Errorf("NCCL fails: %v", errs)
		}
		errs, took := party(t, guests, guestStep{"Close", (*guest).leave})
		must(t, errors.Join(errs...))
		if took > rendezvous.Silence {
			t.Errorf("Close took %v", took)
		}
	})
}

// lateFinder is a map that takes its time in a look-up.
type lateFinder struct{ table.Map[uint32, uint32] }

func (l lateFinder) FindOn(st *device.Stream, keys, values device.Slice[uint32], found device.Slice[bool]) error {
	time.Sleep(300 * time.Millisecond)
	return l.Map.FindOn(st, keys, values, found)
}

// A member that has done its part of a call may leave while another is still in that call, and waits for what the first
// has sent: it gets its results.
func TestMemberClosesEarly(t *testing.T) {
	t.Setenv(nccl.Env, standin.Build(t))
	for leaver := range 2 {
		guests := inviting(t, several(t, "cpu", 2))
		for _, step := range []guestStep{{"Join", (*guest).join}, {"New", func(g *guest) (err error) {
			g.x, err = made(shard.NewMap(g.m, shard.Options{}, func(d *device.Device,
				o table.Options) (table.Map[uint32, uint32], error) {
				x, err := families[uint32, uint32]()["warpcore"](d, o)
				if g.rank != leaver {
					x = lateFinder{x}
				}
				return x, err
			}))
			return err
		}}, {"Insert", func(g *guest) error { return g.x.Insert(g.keys, g.values) }}} {
			errs, _ := party(t, guests, step)
			must(t, errors.Join(errs...))
		}
		left := make(chan time.Time, 1)
		errs, _ := party(t, guests, guestStep{"Find and Close", func(g *guest) error {
			keys := g.keys
			if g.rank == leaver {
				keys = nil
			}
			got, found := make([]uint32, len(keys)), make([]bool, len(keys))
			err := g.x.Find(keys, got, found)
			if err == nil && g.rank == leaver {
				left <- time.Now()
				return g.m.Close()
			}
			if at := time.Now(); err == nil && at.Sub(<-left) < 50*time.Millisecond {
				return errors.New("it does not wait longer than the rank that leaves")
			}
			if err == nil && (!slices.Equal(got, g.values) || slices.Contains(found, false)) {
				err = errors.New("other values")
			}
			return err
		}})
		must(t, errors.Join(errs...))
		errs, _ = party(t, guests, guestStep{"Close", (*guest).leave})
		must(t, errors.Join(errs...))
	}
}
