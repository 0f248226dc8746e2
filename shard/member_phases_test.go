package shard_test

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
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

// phaseEnv makes the process a member that does something in a phase of an exchange, such as "kill sending".
const phaseEnv = "WARPMAP_TEST_PHASE"

// exchangePhases are the phases of an exchange: this member counts its rows; others wait for its counts; rows are sent;
// its table works; results are put in order.
var exchangePhases = []string{"counting", "agreeing", "sending", "working", "fetching"}

// phase acts once, in one phase of an exchange, after it was armed.
type phase struct {
	where         string
	act           func()
	armed, counts atomic.Bool
	worked        atomic.Bool
	once          sync.Once
}

func (p *phase) reach(where string) {
	if p.armed.Load() && where == p.where {
		p.once.Do(p.act)
	}
}

// order sees what a member asks of its device. The first launch counts, and the member waits for that; the launch that
// follows the table's own puts the results in order.
func (p *phase) order(site faults.Site, _ int64) faults.Outcome {
	switch {
	case site == faults.NCCL:
		p.reach("sending")
	case site == faults.Sync && p.counts.Load():
		p.reach("agreeing")
	case site == faults.Launch && p.worked.Load():
		p.reach("fetching")
	case site == faults.Launch:
		p.reach("counting")
		p.counts.Store(p.armed.Load())
	}
	return faults.Passes
}

// in does a table's operation.
func (p *phase) in(do func() error) error {
	p.reach("working")
	err := do()
	p.worked.Store(p.armed.Load())
	return err
}

type phasedMap struct {
	table.Map[uint32, uint32]
	*phase
}

func (x phasedMap) FindOn(st *device.Stream, keys, values device.Slice[uint32], found device.Slice[bool]) error {
	return x.in(func() error { return x.Map.FindOn(st, keys, values, found) })
}

type phasedMultiMap struct {
	table.MultiMap[uint32, uint32]
	*phase
}

func (x phasedMultiMap) FindAllOn(st *device.Stream, keys device.Slice[uint32]) (o device.Slice[uint64],
	v device.Slice[uint32], err error) {
	err = x.in(func() error { o, v, err = x.MultiMap.FindAllOn(st, keys); return err })
	return o, v, err
}

// acts are what a member does to itself.
func acts(m *shard.Member) map[string]func() {
	return map[string]func(){
		"kill": func() {
			self, _ := os.FindProcess(os.Getpid())
			self.Kill()
			time.Sleep(time.Minute)
		},
		"stop": func() { // by another process, which has it go on
			stop := fmt.Sprintf("kill -STOP %d; sleep 0.5; kill -CONT %d", os.Getpid(), os.Getpid())
			if out, err := exec.Command("sh", "-c", stop).CombinedOutput(); err != nil {
				panic(fmt.Sprintf("%v: %s", err, out))
			}
		},
		"slow": func() { time.Sleep(500 * time.Millisecond) },
		"close": func() {
			go m.Close()
			time.Sleep(300 * time.Millisecond)
		},
	}
}

// playPhases is a member of TestMembersPhases. It looks keys up in a map or a multimap.
func playPhases(m *shard.Member, multi bool) (err error) {
	p := &phase{}
	if how, where, ok := strings.Cut(os.Getenv(phaseEnv), " "); ok {
		p.where, p.act = where, acts(m)[how]
		faults.Set(m.Device(), p.order)
		faults.Set(faults.OfNCCL, p.order)
	}
	keys, values := batches([]int{3000, 0, 4500}, 1)
	own, vals, asked := keys[m.Rank()], values[m.Rank()], keys[(m.Rank()+1)%m.Size()]
	var x interface {
		Insert(keys, values []uint32) error
		Len() (int, error)
		Close() error
	}
	var ask func() error
	if o := (shard.Options{Piece: 1}); multi {
		many, e := shard.NewMultiMap(m, o, func(d *device.Device, o table.Options) (
			table.MultiMap[uint32, uint32], error) {
			inner, err := multiMaps[uint32, uint32]()["slab"](d, o)
			return phasedMultiMap{inner, p}, err
		})
		x, err = many, e
		ask = func() error {
			offsets, got, err := many.FindAll(asked)
			if err == nil && (len(got) != len(asked) || int(offsets[len(asked)]) != len(asked)) {
				err = fmt.Errorf("%d values of %d keys", len(got), len(asked))
			}
			return err
		}
	} else {
		one, e := shard.NewMap(m, o, func(d *device.Device, o table.Options) (table.Map[uint32, uint32], error) {
			inner, err := families[uint32, uint32]()["warpcore"](d, o)
			return phasedMap{inner, p}, err
		})
		x, err = one, e
		ask = func() error {
			found := make([]bool, len(asked))
			err := one.Find(asked, make([]uint32, len(asked)), found)
			if err == nil && slices.Contains(found, false) {
				err = errors.New("a key is not found")
			}
			return err
		}
	}
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, x.Close()) }()
	if err := x.Insert(own, vals); err != nil {
		return err
	}
	p.armed.Store(p.act != nil)
	if err = ask(); err == nil {
		_, err = x.Len() // a member that had its results may have ended its call
	}
	return err
}

// A member may be slow, or stopped for a while, in any phase of an exchange: the call succeeds. If it is killed or
// closed there, the other members' calls end soon, and name it.
func TestMembersPhases(t *testing.T) {
	slots := make(chan struct{}, 2) // jobs at a time
	for h, how := range []string{"kill", "stop", "slow", "close"} {
		for w, where := range exchangePhases {
			for k, kind := range []string{"map", "multimap"} {
				if (2*w+k)%5 != h && !testenv.Long() {
					continue // each way has two of ten turns, and each phase has one
				}
				victim := 2 * ((h + w + k) % 2)
				t.Run(fmt.Sprintf("%s, %s, %s, rank %d", how, where, kind, victim), func(t *testing.T) {
					if how == "stop" && runtime.GOOS == "windows" {
						t.Skip("no process of Windows can be stopped")
					}
					t.Parallel()
					slots <- struct{}{}
					defer func() { <-slots }()
					phaseEnds(t, how, where, kind, victim)
				})
			}
		}
	}
}

func phaseEnds(t *testing.T, how, where, kind string, victim int) {
	all := job(t, 3, "cpu", func(rank int) []string {
		env := []string{operationsEnv + "=phases of a " + kind}
		if rank == victim {
			env = append(env, phaseEnv+"="+how+" "+where)
		}
		return env
	})
	for rank, e := range all {
		want := map[string]string{"kill": fmt.Sprintf("rank %d is gone", victim),
			"close": fmt.Sprintf("rank %d is gone: it was closed in the middle of a call", victim)}[how]
		switch {
		case want == "" && e.err != nil:
			t.Errorf("rank %d: %v\n%s", rank, e.err, e.text)
		case want == "":
		case e.err == nil || e.at.Sub(all[victim].at) > rendezvous.Patience/2:
			t.Errorf("rank %d ended %v after rank %d, %v\n%s", rank, e.at.Sub(all[victim].at), victim, e.err, e.text)
		case rank != victim && !strings.Contains(e.text, want):
			t.Errorf("rank %d: want %q\n%s", rank, want, e.text)
		}
	}
}

// Jobs of several sizes, whose members have uneven batches. Some batches are empty, and some have keys of one owner
// only.
func TestMembersUneven(t *testing.T) {
	t.Setenv(nccl.Env, standin.Build(t))
	for _, n := range []int{3, 5, 7} {
		if n != 5 && !testenv.Long() {
			continue
		}
		guests := inviting(t, several(t, "cpu", n))
		errs, _ := party(t, guests, guestStep{"all", func(g *guest) (err error) {
			if err := g.join(); err != nil {
				return err
			}
			x, err := shard.NewMap(g.m, shard.Options{Piece: 1, Options: table.Options{Seed: 5}},
				families[uint32, uint32]()["slab"])
			if err != nil {
				return err
			}
			return errors.Join(playMap(g.m, x, "slab"), x.Close(), playMultiMap[uint32](g.m, "slab"), g.leave())
		}})
		must(t, errors.Join(errs...))
	}
}

// Members' boxes have room for what each call receives and sends together, whatever the calls before had room for; and
// a member without rows takes part in all rounds.
func TestMembersBoxes(t *testing.T) {
	t.Setenv(nccl.Env, standin.Build(t))
	calls := [][2]int{{0, 40_000}, {10_000, 0}, {10_000, 29_000}, {0, 90_000}, {90_000, 1}}
	for _, piece := range []int{0, 17_000} {
		guests := inviting(t, several(t, "cpu", 2))
		errs, _ := party(t, guests, guestStep{"all", func(g *guest) (err error) {
			if err := g.join(); err != nil {
				return err
			}
			x, err := shard.NewMap(g.m, shard.Options{Regions: 8, Piece: piece, Options: table.Options{Capacity: 300_000}},
				families[uint32, uint32]()["warpcore"])
			if err != nil {
				return err
			}
			all := 0
			for call, rows := range calls {
				keys := make([]uint32, rows[g.rank])
				for i := range keys {
					keys[i] = uint32(call)<<24 | uint32(g.rank)<<20 | uint32(i)
				}
				found := make([]bool, len(keys))
				if err := errors.Join(x.Insert(keys, keys), x.Contains(keys, found)); err != nil {
					return fmt.Errorf("call %d: %w", call, err)
				}
				all += rows[0] + rows[1]
				if n, err := x.Len(); err != nil || n != all || slices.Contains(found, false) {
					return fmt.Errorf("call %d: %d pairs (want %d), %w", call, n, all, err)
				}
			}
			return errors.Join(x.Check(), x.Close(), g.leave())
		}})
		must(t, errors.Join(errs...))
	}
}
