package shard_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/faults"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/ports"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/shard"
	"github.com/warpmap/warpmap/shard/internal/nccl"
	"github.com/warpmap/warpmap/shard/internal/nccl/standin"
	"github.com/warpmap/warpmap/shard/internal/rendezvous"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/snapshot"
)

// guest is a member of a job all of which is in this process.
type guest struct {
	rank, size   int
	meet         string
	d            *device.Device
	m            *shard.Member
	x            *shard.Map[uint32, uint32]
	keys, values []uint32
}

// join makes the guest a member.
func (g *guest) join() (err error) {
	g.m, err = shard.Join(context.Background(), shard.JoinOptions{Rank: g.rank, Size: g.size, Meet: g.meet,
		Token: "secret", Device: g.d, Timeout: 15 * time.Second})
	return err
}

// guestStep is what all members do at once.
type guestStep struct {
	name string
	do   func(g *guest) error
}

var guestSteps = []guestStep{
	{"Join", (*guest).join},
	{"New", func(g *guest) (err error) {
		g.x, err = made(shard.NewMap(g.m, shard.Options{Piece: 600}, families[uint32, uint32]()["warpcore"]))
		return err
	}},
	{"Insert", func(g *guest) error { return g.x.Insert(g.keys, g.values) }},
	{"Find", func(g *guest) error {
		got, found := make([]uint32, len(g.keys)), make([]bool, len(g.keys))
		if err := g.x.Find(g.keys, got, found); err != nil {
			return err
		}
		for i, k := range g.keys {
			if !found[i] || got[i] != g.values[i] {
				return fmt.Errorf("rank %d: key %#x: %t with %d", g.rank, k, found[i], got[i])
			}
		}
		return nil
	}},
	{"Len", func(g *guest) error {
		n, err := g.x.Len()
		if err == nil && n != 3*guestRows {
			err = fmt.Errorf("%d keys", n)
		}
		return err
	}},
	{"Save", func(g *guest) error { // this member's part, which any map takes
		var file bytes.Buffer
		if err := snapshot.Map(g.x).Save(context.Background(), &file); err != nil {
			return err
		}
		part, err := families[uint32, uint32]()["warpcore"](g.d, table.Options{})
		if err != nil {
			return err
		}
		defer part.Close()
		own, _, err := g.x.All()
		if err == nil {
			err = snapshot.Map(part).Load(context.Background(), &file)
		}
		found := make([]bool, len(own))
		if err == nil {
			err = part.Contains(own, found)
		}
		if n, e := part.Len(); err == nil && (n != len(own) || frame.Count(found) != n || e != nil) {
			err = fmt.Errorf("%d of %d keys are loaded: %w", n, len(own), e)
		}
		return err
	}},
	{"Delete", func(g *guest) error {
		n, err := g.x.Delete(g.keys[:guestRows/2], nil)
		if err == nil && n != guestRows/2 {
			err = fmt.Errorf("%d keys are deleted", n)
		}
		return err
	}},
	{"Close", func(g *guest) error { return g.leave() }},
}

const guestRows = 1500

// leave closes what the member has.
func (g *guest) leave() (err error) {
	if g.x != nil {
		err = g.x.Close()
	}
	if g.m != nil {
		err = errors.Join(err, g.m.Close())
	}
	g.x, g.m = nil, nil
	return err
}

// party does a step at all members, and gives their errors, and how long the last of them took. None hangs.
func party(t *testing.T, guests []*guest, step guestStep) (errs []error, took time.Duration) {
	t.Helper()
	errs = make([]error, len(guests))
	began := time.Now()
	var wg sync.WaitGroup
	for i, g := range guests {
		wg.Go(func() { errs[i] = step.do(g) })
	}
	ended := make(chan struct{})
	go func() { wg.Wait(); close(ended) }()
	select {
	case <-ended:
	case <-time.After(2 * time.Minute): // kernels may have to be compiled
		all := make([]byte, 1<<20)
		t.Fatalf("%s hangs:\n%s", step.name, all[:runtime.Stack(all, true)])
	}
	return errs, time.Since(began)
}

func inviting(t *testing.T, devices []*device.Device) (guests []*guest) {
	port, err := ports.Free()
	must(t, err)
	for rank, d := range devices {
		keys, values := batches([]int{guestRows}, uint64(1+rank*guestRows))
		guests = append(guests, &guest{rank: rank, size: len(devices), meet: "127.0.0.1:" + port, d: d, keys: keys[0],
			values: values[0]})
	}
	return guests
}

// descriptors is how many files and sockets the process has open; 0 where nothing tells.
func descriptors() int {
	all, _ := os.ReadDir("/proc/self/fd")
	return len(all)
}

// Each call of NCCL fails in turn, at whichever member makes it. That member returns the error, and the others its rank,
// in the same call or in the next. All calls after it are errors, too; nobody hangs, and all can be closed.
func TestEachNCCLCallFails(t *testing.T) {
	t.Setenv(nccl.Env, standin.Build(t))
	devices := several(t, "cpu", 3)
	var counts []int64
	guests := inviting(t, devices)
	for _, step := range guestSteps {
		var calls faults.Counter
		faults.Set(faults.OfNCCL, calls.Order)
		errs, _ := party(t, guests, step)
		faults.Set(faults.OfNCCL, nil)
		must(t, errors.Join(errs...))
		counts = append(counts, calls.Count(faults.NCCL))
	}
	open := descriptors()
	r := rand.New(rand.NewPCG(39, testenv.FirstSeed()))
	ways, last := 0, time.Duration(0)
	for i, count := range counts {
		for n := int64(1); n <= count; n++ {
			if !testenv.Long() { // one of those that are made however often members ask how far NCCL is
				n = 1 + r.Int64N(min(count, 7))
			}
			c := &faults.Counter{Site: faults.NCCL, N: n, Outcome: faults.Fails}
			if n%4 == 2 { // somebody may be gone, and nobody is
				c.Outcome = faults.Breaks
			}
			last = max(last, ncclCallFails(t, devices, i, c))
			if c.Met() {
				ways++
			}
			if !testenv.Long() {
				break
			}
		}
	}
	for end := time.Now().Add(10 * time.Second); descriptors() > open && time.Now().Before(end); {
		time.Sleep(time.Millisecond)
	}
	if now := descriptors(); now > open {
		t.Errorf("%d files and sockets are open, and were %d", now, open)
	}
	if ways < 3 {
		t.Errorf("%d calls failed, of %v", ways, counts)
	}
	testenv.Tried(t, ways, "faults")
	t.Logf("%d calls failed, of %v in the steps; all members heard of one within %v", ways, counts, last)
}

// ncclCallFails has a call of a step fail, and tells how long the step took.
func ncclCallFails(t *testing.T, devices []*device.Device, at int, c *faults.Counter) (took time.Duration) {
	t.Helper()
	live := make([]int, len(devices))
	for i, d := range devices {
		live[i] = len(d.Live())
	}
	guests := inviting(t, devices)
	step := guestSteps[at]
	wrong := func(format string, args ...any) {
		t.Helper()
		t.Fatalf("%s, NCCL's call %d %v: %s", step.name, c.N, c.Outcome, fmt.Sprintf(format, args...))
	}
	for _, before := range guestSteps[:at] {
		errs, _ := party(t, guests, before)
		must(t, errors.Join(errs...))
	}
	faults.Set(faults.OfNCCL, c.Order)
	errs, took := party(t, guests, step)
	faults.Set(faults.OfNCCL, nil)
	if !c.Met() || step.name == "Close" {
		for rank, err := range errs {
			if err != nil && !errors.As(err, new(*faults.Error)) {
				wrong("rank %d: %v", rank, err)
			}
		}
		if err := errors.Join(errs...); c.Met() && err == nil {
			wrong("no error")
		}
	} else {
		culprit := -1
		for rank, err := range errs {
			if errors.As(err, new(*faults.Error)) && !strings.Contains(err.Error(), " is gone: ") {
				if culprit >= 0 && c.Outcome == faults.Fails {
					wrong("ranks %d and %d both say that it was theirs", culprit, rank)
				}
				culprit = rank
			}
		}
		if culprit < 0 && c.Outcome == faults.Fails {
			wrong("no rank has the error: %v", errors.Join(errs...))
		}
		name := fmt.Sprintf("rank %d is gone: ", culprit)
		named := func(rank int, err error) bool {
			return c.Outcome != faults.Fails || rank == culprit || strings.Contains(err.Error(), name)
		}
		for rank, err := range errs {
			if err != nil && !named(rank, err) {
				wrong("rank %d: %v", rank, err)
			}
		}
		for _, after := range guestSteps[2 : len(guestSteps)-1] {
			if guests[0].x == nil || guests[1].x == nil || guests[2].x == nil {
				break
			}
			again, _ := party(t, guests, after)
			for rank, err := range again {
				if err == nil && after.name == "Save" && errs[rank] == nil { // looks at no other member
					continue
				}
				if err == nil || !named(rank, err) {
					wrong("afterwards, %s of rank %d: %v", after.name, rank, err)
				}
			}
		}
	}
	errs, _ = party(t, guests, guestStep{"Close", (*guest).leave})
	if err := errors.Join(errs...); err != nil {
		wrong("Close: %v", err)
	}
	for i, d := range devices {
		if now := d.Live(); len(now) > live[i] {
			wrong("%v stays behind", now)
		}
	}
	if took > rendezvous.Patience/2 { // one that is gone is known in milliseconds, on a busy machine in seconds
		wrong("the last member heard after %v", took)
	}
	return took
}

// After an error of an exchange nothing of it is under way at any member, which may free or use the slices that the
// results were to go to: each member waits for its three streams. The CPU device does everything at once, so this
// counts the waits.
func TestMembersSettle(t *testing.T) {
	t.Setenv(nccl.Env, standin.Build(t))
	guests := gathered(t, 3)
	errs, _ := party(t, guests, guestStep{"Insert", func(g *guest) error { return g.x.Insert(g.keys, g.values) }})
	must(t, errors.Join(errs...))
	keys, found := make([]device.Slice[uint32], 3), make([]device.Slice[bool], 3)
	for i, g := range guests {
		var e1, e2 error
		keys[i], e1 = device.From(g.d, g.keys)
		found[i], e2 = device.Make[bool](g.d, guestRows)
		must(t, errors.Join(e1, e2))
	}
	find := func(g *guest) error { return g.x.FindOn(nil, keys[g.rank], device.Slice[uint32]{}, found[g.rank]) }
	c := &faults.Counter{Site: faults.NCCL, N: 9, Outcome: faults.Fails}
	waits := make([]atomic.Int64, 3)
	for i, g := range guests {
		faults.Set(g.d, func(site faults.Site, _ int64) faults.Outcome {
			if site == faults.Sync && c.Met() {
				waits[i].Add(1)
			}
			return faults.Passes
		})
	}
	faults.Set(faults.OfNCCL, c.Order)
	errs, _ = party(t, guests, guestStep{"Find", find})
	faults.Set(faults.OfNCCL, nil)
	for i, g := range guests {
		faults.Set(g.d, nil)
		if errs[i] == nil || waits[i].Load() < 3 {
			t.Errorf("rank %d waited for %d streams after NCCL had failed (want 3): %v", i, waits[i].Load(), errs[i])
		}
		if errs[i] != nil && strings.Contains(errs[i].Error(), "\n") {
			t.Errorf("rank %d: an error of several lines: %v", i, errs[i])
		}
		must(t, errors.Join(keys[i].Free(), found[i].Free()))
	}
	errs, _ = party(t, guests, guestStep{"Close", (*guest).leave})
	must(t, errors.Join(errs...))
}
