package programs

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
)

// kinds are the programs by the kind of table.
var kinds = []struct {
	name string
	run  func(p *program) error
}{
	{"map", mapProgram},
	{"set", setProgram},
	{"multimap", multiMapProgram},
	{"counter", counterProgram},
	{"filter", filterProgram},
	{"strings", stringsProgram},
}

// slow is the time after which a step is a finding. The slowest step of a slow machine, under stress with every key on
// one path, takes a tenth of it.
const slow = 2 * time.Minute

// few is how many programs a short run has of each kind.
const few = 5

// program is a table, the model beside it, and the steps that were done.
type program struct {
	*rand.Rand
	name    string // of the device
	gpu     bool
	short   bool             // a run of few programs
	devices []*device.Device // several for a table over shards
	stress  bool
	options table.Options

	what   strings.Builder // device, options and steps
	step   atomic.Pointer[step]
	counts map[string]int // of what came to pass in the run
	lock   *sync.Mutex    // on counts
}

type step struct {
	text  string
	begin time.Time
}

func pick[T any](p *program, from ...T) T { return from[p.IntN(len(from))] }

func (p *program) chance(one int) bool { return p.IntN(one) == 0 }

// say adds to what a failure tells.
func (p *program) say(format string, args ...any) { fmt.Fprintf(&p.what, format, args...) }

// next begins a step.
func (p *program) next(format string, args ...any) {
	text := fmt.Sprintf(format, args...)
	p.say("\n  %s", text)
	p.step.Store(&step{text, time.Now()})
}

func (p *program) count(what string) {
	p.lock.Lock()
	p.counts[what]++
	p.lock.Unlock()
}

func (p *program) d() *device.Device { return p.devices[0] }

// openDevices opens one device, or two or three for shards, with little memory or under stress.
func (p *program) openDevices(shards int) error {
	var opts []device.Option
	if !p.gpu && p.chance(3) {
		p.stress = true
		opts = append(opts, device.WithStress(p.Uint64()))
	}
	if p.chance(2) {
		bytes := pick[int64](p, 300<<10, 1<<20, 2<<20, 8<<20)
		p.say(" memory %d,", bytes)
		opts = append(opts, device.WithMemory(bytes))
	}
	if p.chance(4) {
		opts = append(opts, device.WithKept(0))
	}
	for i := range max(shards, 1) {
		name := p.name
		if shards > 1 {
			name = fmt.Sprintf("cpu:%d", i)
		}
		d, err := device.Open(name, opts...)
		if err != nil {
			return err
		}
		p.devices = append(p.devices, d)
	}
	p.say(" stress %t", p.stress)
	return nil
}

func (p *program) close() error {
	var left error
	for _, d := range p.devices {
		if live := d.Live(); len(live) > 0 && left == nil {
			left = fmt.Errorf("%d allocations are left, the first: %v", len(live), live[0])
		}
		left = errors.Join(left, d.Close())
	}
	return left
}

// plain tells that options which are other kernels stay as they are: compiling these is most of a short run, and of one
// on a GPU.
func (p *program) plain() bool { return p.short || p.gpu && p.IntN(4) > 0 }

// hash is a hash function, up to a number: half of the time the default.
func (p *program) hash(most int) int {
	if p.plain() || p.chance(2) {
		return 0
	}
	return 1 + p.IntN(most)
}

// random are options that every family has.
func (p *program) random() table.Options {
	o := table.Options{
		Capacity:   pick(p, 0, 0, 1, 100, 5000),
		LoadFactor: pick(p, 0, 0, 0.1, 0.5, 0.9, 1.0, 0.001),
		Hash:       p.hash(3),
		Seed:       p.Uint64() | 1,
	}
	if p.chance(2) {
		o.MaxBytes = pick[int64](p, 2<<10, 5000, 16<<10, 64<<10, 300<<10)
	}
	p.options = o
	return o
}

// universe is how many keys a program has, and most how many rows a batch.
func (p *program) sizes() (universe, most int) {
	universe = pick(p, 1, 10, 300, 3000, 9000)
	most = pick(p, 50, 1000, 2*universe+1)
	// A table filled to a thousandth would have gigabytes, which Check walks.
	if p.gpu && p.chance(3) && (p.options.LoadFactor == 0 || p.options.LoadFactor >= 0.1) {
		universe, most = 200_000, 300_000
	}
	if p.stress {
		universe, most = min(universe, 1000), min(most, 1000)
	}
	if p.options.Hash == 3 { // every key is on one path
		universe, most = min(universe, 300), min(most, 300)
		if p.stress {
			universe, most = min(universe, 60), min(most, 60)
		}
	}
	return universe, most
}

// rows is the length of the next batch.
func (p *program) rows(most int) int {
	if p.chance(3) {
		return p.IntN(40)
	}
	return p.IntN(most + 1)
}

// number is a key's: near the ends of what keys can be, or one of the universe, spread or side by side.
func (p *program) number(universe int) uint64 {
	switch p.IntN(24) {
	case 0:
		return ^uint64(0) - p.Uint64N(5)
	case 1:
		return p.Uint64N(3)
	}
	x := p.Uint64N(uint64(universe))
	if universe%2 == 0 {
		return x * 0x9e3779b97f4a7c15 >> 3
	}
	return x
}

// refused are the positions of a FullError; any other error is the program's end.
func (p *program) refused(err error, n int) (map[int]bool, error) {
	if err == nil {
		return nil, nil
	}
	var full *table.FullError
	if !errors.As(err, &full) {
		return nil, fmt.Errorf("an error that is no FullError: %w", err)
	}
	p.count("full")
	positions := make(map[int]bool, len(full.Positions))
	last := -1
	for _, at := range full.Positions {
		if at <= last || at >= n {
			return nil, fmt.Errorf("FullError names position %d after %d, of %d rows", at, last, n)
		}
		last, positions[at] = at, true
	}
	if len(positions) == 0 {
		return nil, fmt.Errorf("a FullError that names no position: %w", err)
	}
	return positions, nil
}

// grow asks for room and takes the refusals that Grow has.
func (p *program) grow(t table.Table, n int) error {
	err := t.Grow(n)
	if errors.Is(err, table.ErrMaxBytes) || device.IsOutOfMemory(err) {
		p.count("grow refused")
		return nil
	}
	return err
}

// whole walks the table, and compares its length and its bytes.
func (p *program) whole(t table.Table, want int) error {
	if err := t.Check(); err != nil && !device.IsOutOfMemory(err) {
		return fmt.Errorf("Check: %w", err)
	}
	n, err := t.Len()
	if err != nil || n != want {
		return fmt.Errorf("Len is %d, want %d: %w", n, want, err)
	}
	s, err := t.Stats()
	if device.IsOutOfMemory(err) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("Stats: %w", err)
	}
	if s.Len != want {
		return fmt.Errorf("Stats has %d, want %d", s.Len, want)
	}
	if most := p.options.MaxBytes; most > 0 && s.Bytes > most {
		return fmt.Errorf("%d bytes at MaxBytes %d", s.Bytes, most)
	}
	return nil
}

// stream is the device's own, or another that is closed by the function that comes with it.
func (p *program) stream() (*device.Stream, func() error, error) {
	if p.chance(2) {
		return nil, func() error { return nil }, nil
	}
	st, err := p.d().NewStream()
	if err != nil {
		return nil, nil, err
	}
	return st, func() error {
		if err := st.Sync(); err != nil {
			return err
		}
		return st.Close()
	}, nil
}

// environment says how long each kind goes on, 0 for a short run of a few programs, from which seed on, and whether with
// that alone.
func environment(t *testing.T) (long time.Duration, seed uint64, one string) {
	if testenv.Long() {
		long = 20 * time.Second
	}
	var err error
	if text := os.Getenv("WARPMAP_PROGRAMS"); text != "" {
		if long, err = time.ParseDuration(text); err != nil {
			t.Fatal(err)
		}
		long /= time.Duration(len(kinds))
	}
	seed = 3 // the map of seed 2 has all keys on one path, under stress: 20 seconds
	if long > 0 {
		seed = uint64(time.Now().UnixNano())
	}
	if text := os.Getenv("WARPMAP_SEED"); text != "" {
		if seed, err = strconv.ParseUint(text, 10, 64); err != nil {
			t.Fatal(err)
		}
	}
	one = os.Getenv("WARPMAP_ONE")
	if one != "" && one != "short" && one != "long" {
		t.Fatalf("WARPMAP_ONE is %q (want short or long, as the failure says)", one)
	}
	return long, seed, one
}

func TestPrograms(t *testing.T) {
	long, seed, one := environment(t)
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			d, err := device.Open(name)
			testenv.Require(t, "cuda", err)
			defer d.Close() // open meanwhile, so that the GPU's context stays
			for _, kind := range kinds {
				t.Run(kind.name, func(t *testing.T) { runKind(t, name, kind.run, long, seed, one) })
			}
		})
	}
}

// runKind goes on with one seed after the other, in several goroutines, until the time is up or something is found.
func runKind(t *testing.T, name string, run func(*program) error, long time.Duration, seed uint64, one string) {
	end := time.Now().Add(long)
	counts, lock, made := map[string]int{}, new(sync.Mutex), 0
	workers := runtime.GOMAXPROCS(0)
	if one != "" {
		workers = 1
	}
	length := one
	if length == "" {
		if length = "long"; long == 0 {
			length = "short"
		}
	}
	findings := 0
	var all sync.WaitGroup
	for range workers {
		all.Go(func() {
			for {
				lock.Lock()
				mine := seed
				seed++
				over := findings > 9
				switch {
				case one != "":
					over = over || made == 1
				case long == 0:
					over = over || made == few
				default:
					over = over || time.Now().After(end)
				}
				if !over {
					made++
				}
				lock.Unlock()
				if over {
					return
				}
				p := &program{Rand: rand.New(rand.NewPCG(mine, 7)), name: name, counts: counts, lock: lock}
				p.gpu, p.short = name != "cpu", length == "short"
				p.say("seed %d: ", mine)
				p.step.Store(&step{"", time.Now()}) // kernels are compiled, one after the other on some machines
				if err := p.run(run); err != nil {
					lock.Lock()
					findings++
					lock.Unlock()
					t.Errorf("WARPMAP_ONE=%s WARPMAP_SEED=%d: %v\n %s", length, mine, err, p.what.String())
				}
			}
		})
	}
	all.Wait()
	t.Logf("%d programs; %v", made, counts)
}

// run is one program. A step that takes far too long is told with the stacks of all goroutines, and is the end: nothing
// can stop it.
func (p *program) run(run func(*program) error) (err error) {
	done := make(chan struct{})
	defer close(done)
	go func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Second):
			}
			if s := p.step.Load(); s.text != "" && time.Since(s.begin) > slow {
				var stacks bytes.Buffer
				buf := make([]byte, 1<<20)
				stacks.Write(buf[:runtime.Stack(buf, true)])
				panic(fmt.Sprintf("step %q takes more than %v: %s\n%s", s.text, slow, p.what.String(), stacks.String()))
			}
		}
	}()
	defer func() {
		if r := recover(); r != nil {
			buf := make([]byte, 1<<16)
			err = fmt.Errorf("panic: %v\n%s", r, buf[:runtime.Stack(buf, false)])
		}
		if e := p.close(); err == nil {
			err = e
		}
	}()
	return run(p)
}
