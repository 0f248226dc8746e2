package operations_test

import (
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strconv"
	"sync"
	"sync/atomic"
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

// slow is the time after which an operation is a finding. The slowest one of a slow machine, under stress with every key
// on one path, takes a tenth of it.
const slow = 2 * time.Minute

// watched runs a file. An operation that takes far too long is told with the stacks of all goroutines, and is the end:
// nothing can stop it.
func watched(r *operations.Runner, f *operations.File) error {
	var step atomic.Pointer[string]
	var begin atomic.Int64
	r.Step = func(ground, op int) {
		text := fmt.Sprintf("ground %d, operation %d", ground+1, op+1)
		begin.Store(time.Now().UnixNano())
		step.Store(&text)
	}
	done := make(chan struct{})
	defer close(done)
	go func() {
		for {
			select {
			case <-done:
				return
			case <-time.After(time.Second):
			}
			if s := step.Load(); s != nil && time.Since(time.Unix(0, begin.Load())) > slow {
				buf := make([]byte, 1<<20)
				panic(fmt.Sprintf("%s takes more than %v:\n%v\n%s", *s, slow, f, buf[:runtime.Stack(buf, true)]))
			}
		}
	}()
	return r.Run(f)
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
	if text := os.Getenv("WARPMAP_SEED"); text != "" {
		seed, err = strconv.ParseUint(text, 10, 64)
		must(t, err)
		one = true
	}
	return long, seed, one
}

// Files of random seeds leave every table as the model says. In long runs, what fails is reduced.
func TestGenerated(t *testing.T) {
	long, seed, one := environment(t)
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			d, err := device.Open(name)
			testenv.Require(t, "cuda", err)
			defer d.Close() // open meanwhile, so that the GPU's context stays
			for _, kind := range operations.Kinds {
				t.Run(kind, func(t *testing.T) {
					g := operations.Generator{Kind: kind, Short: long == 0, GPU: name != "cpu"}
					generated(t, g, name, long, seed, one)
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
	files, findings := 0, 0
	length := "short"
	if !g.Short {
		length = "long"
	}
	for range runtime.GOMAXPROCS(0) {
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
					t.Errorf("WARPMAP_SEED=%d of %s, %s: %v\n%v%s", mine, g.Kind, length, err, f, reduced(t, f, name, mine, long))
				}
			}
		})
	}
	all.Wait()
	t.Logf("%d files, %d operations, %d refused in part, %d grounds whose options are refused", files, sum.Operations, sum.Full,
		sum.Refused)
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
