// Command caches measures package cache, on the CPU device, beside caches that are written in Go: ristretto, otter and
// bigcache. It is a module of its own, so that nobody who uses warpmap depends on them. go test ./... does not see it.
//
//	go run . --keys 2000000 --percent 1,10 --runs 5 --keep ../results/xeon-2-cores/caches.json
//
// Goroutines make requests by Zipf's law with an exponent of 0.99. A request looks its key up, and puts the pair if it
// was not there, as a program does that has a slower store behind its cache. Before the time runs there are as many
// requests as are measured behind it. A goroutine of warpmap brings a batch of requests: one Find, and one Insert of
// what was missing, of the cache itself or through a Batcher. The peers have no batches, so theirs go one by one in the
// same loop. A value that is found is compared with the one that was put.
//
// Keys and values have 8 bytes. bigcache has bytes: its keys are read where they lie, and its values are copied, as it
// does by itself. It is given a whole number of MB, so with few pairs it holds more than the others: see "pairs".
//
// All ways run once in each round, and rounds follow each other, so that what else the machine does meets all alike. The
// median of the rounds counts, of requests a second by the clock, and for each second of CPU time, user and system,
// which other work changes less.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"text/tabwriter"
	"time"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/workload"
)

// options are the command's flags.
type options struct {
	keys     int
	percent  []int
	threads  []int
	requests int
	runs     int
	only     string
	commit   string
	keep     string
}

func main() {
	o := options{}
	percent, threads := "", ""
	flag.IntVar(&o.keys, "keys", 2_000_000, "keys that are asked for")
	flag.StringVar(&percent, "percent", "1,10", "sizes of the cache, of these")
	flag.StringVar(&threads, "threads", "1,2", "goroutines that ask")
	flag.IntVar(&o.requests, "requests", 2_000_000, "requests that are measured, of batches of a key an eighth")
	flag.IntVar(&o.runs, "runs", 5, "rounds; the median counts")
	flag.StringVar(&o.only, "only", "", "ways whose names have this")
	flag.StringVar(&o.commit, "commit", "", "the commit that is measured, for the file")
	flag.StringVar(&o.keep, "keep", "", "a file for the table")
	flag.Parse()
	var err error
	if o.percent, err = numbers(percent); err == nil {
		o.threads, err = numbers(threads)
	}
	if err == nil && (o.keys < 100 || o.requests < 1 || o.runs < 1 || flag.NArg() > 0) {
		err = fmt.Errorf("%d keys, %d requests, %d runs, and %q (want 100 or more, 1 or more of each, and nothing)", o.keys,
			o.requests, o.runs, flag.Args())
	}
	if err == nil {
		err = o.measure()
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func numbers(list string) (n []int, err error) {
	for s := range strings.SplitSeq(list, ",") {
		x, err := strconv.Atoi(s)
		if err != nil || x < 1 {
			return nil, fmt.Errorf("%q in %q is no number from 1 on", s, list)
		}
		n = append(n, x)
	}
	return n, nil
}

// way is how requests are made: of which cache, by how many goroutines, and how many at once.
type way struct {
	cache          string
	open           func(pairs int) (opened, error)
	percent, batch int
	threads        int
}

// opened is a cache. ask makes what a goroutine asks with: a function that makes a batch of requests, and tells how many
// keys were there.
type opened struct {
	ask   func() func(keys []uint64) (hits int, err error)
	pairs func() (int, error)
	close func() error
}

// run is one measurement.
type run struct{ hits, wall, cpu float64 } // a share; and requests a second, in millions

// valueOf is the value of a key.
func valueOf(key uint64) uint64 { return key*0x9e3779b97f4a7c15 + 1 }

func (o *options) measure() error {
	d, err := device.Open("cpu")
	if err != nil {
		return err
	}
	defer d.Close()
	requests, err := zipf(o.keys, 2*o.requests)
	if err != nil {
		return err
	}
	ways := o.ways(d)
	if len(ways) == 0 {
		return fmt.Errorf("no way has %q in its name", o.only)
	}
	runs, pairs := make([][]run, len(ways)), make([]int, len(ways))
	for round := range o.runs {
		for i, w := range ways {
			fmt.Fprintf(os.Stderr, "\rround %d of %d: %-60s", round+1, o.runs, w)
			r, n, err := w.measure(o.keys, requests)
			if err != nil {
				return fmt.Errorf("%v: %w", w, err)
			}
			runs[i], pairs[i] = append(runs[i], r), n
		}
	}
	fmt.Fprintf(os.Stderr, "\r%-80s\r", "")
	t := figure{Name: "caches", Title: fmt.Sprintf("Caches in Go: %d keys by Zipf's law, exponent 0.99", o.keys),
		Columns: []string{"cache %", "threads", "batch", "cache", "pairs", "hits %", "M/s", "M/s of CPU time"},
		Notes: []string{
			"a request looks a key up, and puts it if it was not there; 8+8 bytes; the median of " +
				strconv.Itoa(o.runs) + " rounds, in each of which all rows were measured once",
			"M/s: million requests a second. Of CPU time: for each second of it, user and system, of all threads",
			"batch: how many requests come at once; the peers have no batches, and get them one by one",
			"pairs: that the cache held in the end",
		}}
	for i, w := range ways {
		t.Rows = append(t.Rows, []any{w.percent, w.threads, w.batch, w.cache, pairs[i],
			round(100*median(runs[i], func(r run) float64 { return r.hits }), 1),
			round(median(runs[i], func(r run) float64 { return r.wall }), 2),
			round(median(runs[i], func(r run) float64 { return r.cpu }), 2)})
	}
	t.print()
	return t.keep(o.keep, o.commit, d)
}

// zipf are n requests for so many keys.
func zipf(keys, n int) ([]uint64, error) {
	kinds, err := workload.NewKeys("zipf:0.99", 8, 1)
	requests := make([]uint64, n)
	if err == nil {
		workload.Pick(kinds, uint64(keys), 1, 0, n, func(i int, index uint64) { requests[i] = index })
	}
	return requests, err
}

// ways are the rows of the table.
func (o *options) ways(d *device.Device) (ways []way) {
	for _, percent := range o.percent {
		for _, threads := range o.threads {
			for _, p := range peers {
				ways = append(ways, way{p.name, p.open, percent, 1, threads})
			}
			for _, batch := range []int{1, 100, 10_000} {
				for _, w := range ours(d) {
					ways = append(ways, way{w.name, w.open, percent, batch, threads})
				}
			}
		}
	}
	return slices.DeleteFunc(ways, func(w way) bool { return !strings.Contains(w.String(), o.only) })
}

func (w way) String() string {
	return fmt.Sprintf("%s, %d%%, batches of %d, %d goroutines", w.cache, w.percent, w.batch, w.threads)
}

// measure has the goroutines make the first half of the requests, and then the second, which counts.
func (w way) measure(keys int, requests []uint64) (r run, pairs int, err error) {
	c, err := w.open(max(1, keys*w.percent/100))
	if err != nil {
		return r, 0, err
	}
	defer func() {
		if e := c.close(); err == nil {
			err = e
		}
	}()
	half := len(requests) / 2
	// The warm-up need not be of small batches.
	warm := max(w.batch, 1000)
	if _, err := w.ask(c, requests[:half], warm, 1); err != nil {
		return r, 0, err
	}
	counted := requests[half:]
	if w.batch == 1 && len(counted) > 8*w.threads {
		counted = counted[:len(counted)/8]
	}
	runtime.GC()
	start, cpu := time.Now(), cpuTime()
	hits, err := w.ask(c, counted, w.batch, w.threads)
	wall, used := time.Since(start), cpuTime()-cpu
	if err != nil {
		return r, 0, err
	}
	n := float64(len(counted))
	pairs, err = c.pairs()
	return run{float64(hits) / n, n / wall.Seconds() / 1e6, n / used.Seconds() / 1e6}, pairs, err
}

// ask has so many goroutines make requests, each the batches that it gets next.
func (w way) ask(c opened, requests []uint64, batch, threads int) (hits int, err error) {
	var all sync.WaitGroup
	var mu sync.Mutex
	for g := range threads {
		all.Go(func() {
			ask, found := c.ask(), 0
			var failed error
			for from := g * batch; from < len(requests) && failed == nil; from += threads * batch {
				var n int
				n, failed = ask(requests[from:min(from+batch, len(requests))])
				found += n
			}
			mu.Lock()
			defer mu.Unlock()
			hits += found
			if err == nil {
				err = failed
			}
		})
	}
	all.Wait()
	return hits, err
}

// cpuTime is what the process has used, user and system.
func cpuTime() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func median(runs []run, of func(run) float64) float64 {
	var x []float64
	for _, r := range runs {
		x = append(x, of(r))
	}
	slices.Sort(x)
	return x[len(x)/2]
}

func round(x float64, digits int) float64 {
	y, err := strconv.ParseFloat(strconv.FormatFloat(x, 'f', digits, 64), 64)
	if err != nil {
		panic(err)
	}
	return y
}

// figure is what is kept, in the form of the other files in bench/results.
type figure struct {
	Where   map[string]string `json:"where"`
	Name    string            `json:"name"`
	Title   string            `json:"title"`
	Columns []string          `json:"columns"`
	Rows    [][]any           `json:"rows"`
	Notes   []string          `json:"notes"`
}

func (t *figure) print() {
	fmt.Println(t.Title)
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, strings.Join(t.Columns, "\t"))
	for _, row := range t.Rows {
		for _, cell := range row {
			fmt.Fprintf(w, "%v\t", cell)
		}
		fmt.Fprintln(w)
	}
	w.Flush()
}

// keep writes the table to a file, a row a line.
func (t *figure) keep(file, commit string, d *device.Device) error {
	if file == "" {
		return nil
	}
	load, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(load), " ")
	t.Where = map[string]string{"device": "cpu", "arch": runtime.GOARCH, "commit": commit, "load": first,
		"model": fmt.Sprintf("%s, %d cores", d.Info().Model, runtime.NumCPU()), "go": runtime.Version(),
		"date": time.Now().UTC().Format(time.RFC3339), "peers": peerVersions()}
	rows := t.Rows
	t.Rows = [][]any{}
	text, err := json.MarshalIndent(t, "", "  ")
	if err != nil {
		return err
	}
	lines := make([]string, len(rows))
	for i, r := range rows {
		line, err := json.Marshal(r)
		if err != nil {
			return err
		}
		lines[i] = "    " + strings.ReplaceAll(string(line), ",", ", ")
	}
	out := strings.Replace(string(text), `"rows": []`, "\"rows\": [\n"+strings.Join(lines, ",\n")+"\n  ]", 1)
	return os.WriteFile(file, append([]byte(out), '\n'), 0o644)
}
