package main

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/genome"
	"github.com/warpmap/warpmap/genome/classify"
	"github.com/warpmap/warpmap/genome/kmers"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/internal/witness"
	"github.com/warpmap/warpmap/join"
)

// first runs a command for the first time, and gives the kernels that it compiles. It fails if the first is done before
// another begins, of several that it should compile.
func first(t *testing.T, want string, command func()) (kernels []string) {
	t.Helper()
	var mu sync.Mutex
	beside := make(chan struct{})
	witness.Compiles = func(program, kernel string) func() {
		mu.Lock()
		defer mu.Unlock()
		if kernel == "" {
			program += " as a whole"
		}
		kernels = append(kernels, program)
		if len(kernels) == 2 {
			close(beside)
		}
		alone := len(kernels) == 1
		return func() {
			if !alone || !strings.Contains(want, " ") || runtime.NumCPU() == 1 {
				return
			}
			select {
			case <-beside:
			case <-time.After(10 * time.Second):
				t.Errorf("%s is compiled, and nothing beside it", program)
			}
		}
	}
	defer func() { witness.Compiles = nil }()
	command()
	mu.Lock()
	defer mu.Unlock()
	slices.Sort(kernels)
	return kernels
}

// firstInputs are genomes, reads of them, and the files of a join, all in a folder.
func firstInputs(t *testing.T) (dir string) {
	dir = t.TempDir()
	r := rand.New(rand.NewPCG(1, 2))
	var genomes, reads, build, probe strings.Builder
	build.WriteString("k,v\n")
	probe.WriteString("k,w\n")
	for i := range 4 {
		letters := make([]byte, 5000)
		for j := range letters {
			letters[j] = "ACGT"[r.IntN(4)]
		}
		fmt.Fprintf(&genomes, ">g%d taxid|%d\n%s\n", i, 10+i, letters)
		fmt.Fprintf(&reads, ">r%d\n%s\n", i, letters[100:200])
	}
	for i := range 500 {
		fmt.Fprintf(&build, "%d,%d\n", r.Uint64()>>20, i)
		fmt.Fprintf(&probe, "%d,%d\n", r.Uint64()>>20, i)
	}
	for name, text := range map[string]string{"genomes.fa": genomes.String(), "reads.fa": reads.String(),
		"build.csv": build.String(), "probe.csv": probe.String(),
		"names.dmp": "1\t|\troot\t|\t\t|\tscientific name\t|\n",
		"nodes.dmp": "1\t|\t1\t|\tno rank\t|\n10\t|\t1\t|\tspecies\t|\n11\t|\t1\t|\tspecies\t|\n" +
			"12\t|\t1\t|\tspecies\t|\n13\t|\t1\t|\tspecies\t|\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

// The first run of a command compiles the kernels that it launches, no others, and side by side.
func TestFirstRuns(t *testing.T) {
	testenv.UsersKernels(t)
	dir := firstInputs(t)
	t.Chdir(dir)
	for _, c := range []struct {
		command string
		kernels string
	}{
		{"kmers count genomes.fa -k 31 -C --out counts.wk",
			"kmers-cores.add_stretches kmers-cores.deal_stretches kmers-cores.part_stretches " +
				"kmers-cores.part_table kmers-cores.sort_part"},
		{"classify build refs.db genomes.fa --taxonomy .", "classify.pairs classify.sketch"},
		{"classify query refs.db reads.fa", "classify-reads.reads"},
		{"join build.csv probe.csv --on k --out j.csv --table warpcore --filter off",
			"warpcore.find warpcore.insert_new"},
	} {
		t.Setenv("WARPMAP_CACHE", t.TempDir())
		args := strings.Fields(c.command)
		got := first(t, c.kernels, func() { must(t, args...) })
		if strings.Join(got, " ") != c.kernels {
			t.Errorf("warpmap %s compiles %q, want %s", c.command, got, c.kernels)
		}
		witness.Compiles = func(program, _ string) func() {
			t.Errorf("warpmap %s compiles %s the second time", c.command, program)
			return func() {}
		}
		if c.kernels != "classify.pairs classify.sketch" { // whose output is there
			must(t, args...)
		}
		witness.Compiles = nil
	}
}

// The same for GPUs. No kernel runs, so that counts and rows are none; but a run comes by most of its launches.
func TestFirstRunsOnGPU(t *testing.T) {
	witness.AsOnGPU = true
	t.Cleanup(func() { witness.AsOnGPU = false })
	dir := firstInputs(t)
	t.Chdir(dir)
	must(t, "classify", "build", "refs.db", "genomes.fa", "--taxonomy", ".")
	check := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	for _, c := range []struct {
		name    string
		run     func(d *device.Device)
		kernels string
	}{
		{"kmers count", func(d *device.Device) {
			_, err := kmers.Count(t.Context(), d, []string{"genomes.fa"}, kmers.Options{K: 31}, "counts.wk")
			check(err)
		}, "kmers.all_kmers update.update warpcore.export_pairs"},
		{"classify query", func(d *device.Device) {
			db, err := classify.Open("refs.db")
			check(err)
			c, err := classify.NewClassifier(d, db, classify.QueryOptions{})
			check(err)
			w, err := c.NewWorker()
			check(err)
			_, err = c.Run(t.Context(), []string{"reads.fa"}, nil, genome.Options{},
				func(r *classify.Result) error { return w.Classify(r) }, func(*classify.Result) error { return nil })
			w.Close()
			check(err)
			check(c.Close())
		}, "classify.decide classify.sketch warpcore.find warpcore.insert"},
		{"join", func(d *device.Device) {
			on, err := join.ParseOn("k")
			check(err)
			// It finds that the table has none of the keys that no kernel put in.
			join.Run(t.Context(), d, join.Options{Build: "build.csv", Probe: "probe.csv", On: on,
				Out: "j.csv", Table: warpmap.WarpCore, Filter: join.FilterOff})
		}, "warpcore.find warpcore.insert_new"},
	} {
		d, err := device.OpenAhead("sm_90", device.WithCache(t.TempDir()))
		testenv.Require(t, "nvrtc", err)
		got := first(t, c.kernels, func() {
			c.run(d)
			check(d.Close())
		})
		if strings.Join(got, " ") != c.kernels {
			t.Errorf("%s compiles %q, want %s", c.name, got, c.kernels)
		}
	}
}
