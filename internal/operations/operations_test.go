package operations_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/operations"
	"github.com/warpmap/warpmap/internal/testenv"
)

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// slow is the time after which an operation is a finding. The slowest one, with every key on one path, takes a tenth of
// it, on a machine that does nothing else.
const slow = 5 * time.Minute

// watched runs a file. An operation that takes far too long is the end, since nothing can stop it. It is told with all
// files that are being run, for it may wait for another one's, and with the stacks of all goroutines.
func watched(r *operations.Runner, f *operations.File) error {
	mine := running.begin(r.Device, f)
	defer running.end(mine)
	r.Step = func(ground, op int) { running.step(mine, ground, op, time.Now()) }
	done := make(chan struct{})
	defer close(done)
	go func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Second):
			}
			if text := running.late(time.Now()); text != "" {
				buf := make([]byte, 1<<20)
				panic(fmt.Sprintf("%s\n%s", text, buf[:runtime.Stack(buf, true)]))
			}
		}
	}()
	return r.Run(f)
}

// flight is a file that is being run.
type flight struct {
	device     string
	file       *operations.File
	ground, op int
	since      time.Time // of the operation; zero before the first
}

func (x *flight) text(now time.Time) string {
	name := "the end"
	if x.op < len(x.file.Ops) {
		name = x.file.Ops[x.op].Name
	}
	if x.since.IsZero() {
		return fmt.Sprintf("no operation yet on %s:\n%v", x.device, x.file)
	}
	return fmt.Sprintf("ground %d, operation %d (%s) on %s for %v:\n%v", x.ground+1, x.op+1, name, x.device,
		now.Sub(x.since).Round(time.Millisecond), x.file)
}

// flights are the files that are being run.
type flights struct {
	sync.Mutex
	all []*flight
}

var running flights

func (w *flights) begin(device string, f *operations.File) *flight {
	w.Lock()
	defer w.Unlock()
	x := &flight{device: device, file: f}
	w.all = append(w.all, x)
	return x
}

func (w *flights) end(x *flight) {
	w.Lock()
	defer w.Unlock()
	w.all = slices.DeleteFunc(w.all, func(y *flight) bool { return x == y })
}

func (w *flights) step(x *flight, ground, op int, now time.Time) {
	w.Lock()
	defer w.Unlock()
	x.ground, x.op, x.since = ground, op, now
}

// late tells of all files, that of the oldest operation first, where this one takes too long.
func (w *flights) late(now time.Time) string {
	w.Lock()
	defer w.Unlock()
	order := slices.SortedFunc(slices.Values(w.all), func(a, b *flight) int {
		if a.since.IsZero() || b.since.IsZero() { // those that have not begun come last
			return b.since.Compare(a.since)
		}
		return a.since.Compare(b.since)
	})
	if len(order) == 0 || order[0].since.IsZero() || now.Sub(order[0].since) <= slow {
		return ""
	}
	var text strings.Builder
	fmt.Fprintf(&text, "an operation takes more than %v; %d files are being run, that of the oldest operation first\n", slow,
		len(order))
	for _, x := range order {
		fmt.Fprintf(&text, "\n%s", x.text(now))
	}
	return text.String()
}

// Where an operation takes too long, all files are told with what they do and for how long, the one that came first
// foremost; none is where all are in time.
func TestLateOperations(t *testing.T) {
	parse := func(text string) *operations.File {
		f, err := operations.Parse(text)
		must(t, err)
		return f
	}
	a := parse("operations 1\ntable map key=u32 value=u32\ninsert 1=1\ndelete 1\n")
	b := parse("operations 1\ntable set key=u32\ncontains 7\n")
	begin := time.Now()
	var w flights
	w.begin("cpu", b)
	y, x := w.begin("cpu", b), w.begin("cuda:0", a)
	w.step(x, 1, 0, begin.Add(-time.Hour))
	w.step(x, 1, 1, begin)
	w.step(y, 0, 0, begin.Add(time.Minute))
	if text := w.late(begin.Add(slow)); text != "" {
		t.Errorf("in time, and it says %s", text)
	}
	text := w.late(begin.Add(slow + time.Second))
	at := 0
	for _, want := range []string{"3 files", "ground 2, operation 2 (delete) on cuda:0 for 5m1s", "insert 1=1",
		"ground 1, operation 1 (contains) on cpu for 4m1s", "contains 7", "no operation yet on cpu", "contains 7"} {
		i := strings.Index(text[at:], want)
		if i < 0 {
			t.Fatalf("%q is missing or out of its place in %s", want, text)
		}
		at += i + len(want)
	}
	w.end(x)
	if text := w.late(begin.Add(slow + time.Second)); text != "" {
		t.Errorf("what was late has ended, and it says %s", text)
	}
}

// few is how many files of each kind a short run generates.
const few = 3

// environment says how long each kind goes on, 0 for a short run of a few files, from which seed on, and whether with that
// alone. A seed makes another file in a long run than in a short one.
func environment(t *testing.T) (long time.Duration, seed uint64, one bool) {
	if testenv.Long() {
		long = 15 * time.Second
	}
	var err error
	if text := os.Getenv("WARPMAP_PROGRAMS"); text != "" {
		long, err = time.ParseDuration(text)
		must(t, err)
		long /= time.Duration(len(operations.Kinds))
	}
	seed = 3
	if long > 0 {
		seed = uint64(time.Now().UnixMilli())
	}
	if first := testenv.FirstSeed(); first > 0 {
		seed = first
	}
	if text := os.Getenv("WARPMAP_SEED"); text != "" {
		seed, err = strconv.ParseUint(text, 10, 64)
		must(t, err)
		one = true
	}
	return long, seed, one
}

// Files of random seeds leave every table as the model says, on one device and, if there are two GPUs, on both. In long
// runs, what fails is reduced.
func TestGenerated(t *testing.T) {
	long, seed, one := environment(t)
	for _, names := range [][]string{{"cpu"}, {"cuda:0"}, {"cuda:0", "cuda:1"}} {
		t.Run(strings.Join(names, "+"), func(t *testing.T) {
			for _, name := range names {
				d, err := device.Open(name)
				if len(names) == 2 && err != nil {
					t.Skip(err)
				}
				testenv.Require(t, "cuda", err)
				defer d.Close() // open meanwhile, so that the GPU's context stays
			}
			for _, kind := range operations.Kinds {
				t.Run(kind, func(t *testing.T) {
					g := operations.Generator{Kind: kind, Short: long == 0, GPU: names[0] != "cpu",
						Shards: len(names) == 2}
					generated(t, g, names[0], long, seed, one)
				})
			}
		})
	}
}

func generated(t *testing.T, g operations.Generator, name string, long time.Duration, seed uint64, one bool) {
	end := time.Now().Add(long)
	var lock sync.Mutex
	var all sync.WaitGroup
	var sum operations.Runner
	files, findings, reductions := 0, 0, 0
	length := "short"
	if !g.Short {
		length = "long"
	}
	beside := runtime.GOMAXPROCS(0)
	if g.GPU {
		beside = min(beside, 8) // which keep a GPU busy; more wait for one another, and a hang has more victims
	}
	for range beside {
		all.Go(func() {
			for {
				lock.Lock()
				mine := seed + uint64(files)
				over := findings > 9 || one && files == 1 || long == 0 && files == few || long > 0 && time.Now().After(end)
				if !over {
					files++
				}
				lock.Unlock()
				if over {
					return
				}
				f := g.Generate(mine)
				r := &operations.Runner{Device: name}
				err := watched(r, f)
				lock.Lock()
				sum.Operations += r.Operations
				sum.Refused += r.Refused
				sum.Full += r.Full
				if err != nil {
					findings++
				}
				lock.Unlock()
				if err != nil {
					if long > 0 {
						lock.Lock()
						reductions++
						lock.Unlock()
					}
					t.Errorf("WARPMAP_SEED=%d of %s, %s: %v\n%v", mine, g.Kind, length, err, f) // first: reducing takes long
					if text := reduced(t, f, name, mine, long); text != "" {
						t.Log(text)
					}
				}
			}
		})
	}
	all.Wait()
	testenv.Tried(t, files, "programs")
	testenv.Tried(t, sum.Operations, "operations")
	testenv.Tried(t, reductions, "reductions")
	t.Logf("%d operations refused in part, %d grounds whose options are refused", sum.Full, sum.Refused)
}

// reduced makes a file that fails smaller, where there is time, and writes it to the folder that WARPMAP_FOUND names.
func reduced(t *testing.T, f *operations.File, name string, seed uint64, long time.Duration) string {
	if long == 0 {
		return ""
	}
	small, runs := operations.Reduce(f, mostRuns, func(f *operations.File) error {
		return watched(&operations.Runner{Device: name}, f)
	})
	if dir := os.Getenv("WARPMAP_FOUND"); dir != "" {
		must(t, os.WriteFile(filepath.Join(dir, fmt.Sprintf("%s-%d.ops", f.Kind, seed)), []byte(small.String()), 0o644))
	}
	return fmt.Sprintf("%d runs reduce it to\n%v", runs, small)
}

// The files that WARPMAP_FILE names, one or all of a folder, hold.
func TestFile(t *testing.T) {
	name := os.Getenv("WARPMAP_FILE")
	if name == "" {
		t.Skip("WARPMAP_FILE names no file of operations")
	}
	names := []string{name}
	if info, err := os.Stat(name); err == nil && info.IsDir() {
		names, err = filepath.Glob(filepath.Join(name, "*.ops"))
		must(t, err)
	}
	for _, name := range names {
		if err := watched(&operations.Runner{}, read(t, os.DirFS(filepath.Dir(name)), filepath.Base(name))); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// What is printed is what is read, and the rest is told with its line.
func TestFormat(t *testing.T) {
	for _, kind := range operations.Kinds {
		for seed := range uint64(200) {
			f := operations.Generator{Kind: kind}.Generate(seed)
			text := f.String()
			again, err := operations.Parse(text)
			if err != nil || again.String() != text {
				t.Fatalf("%v:\n%s\nis read as\n%v", err, text, again)
			}
		}
	}
}
