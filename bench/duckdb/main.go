// Command duckdb measures warpmap's joins of files beside DuckDB's, in one run, each join in a process of its own. It is a module of its own:
// DuckDB's library comes with cgo, which nothing else here has.
//
//	go build -ldflags '-s -w -linkmode external -extldflags -static' -o duckdb-bench .
//	duckdb-bench --warpmap warpmap --orders t/orders.parquet --lineitem t/lineitem.parquet --work w --threads 2
//
// Built like this it runs on any Linux of its architecture. What it joins besides the two files (half of the orders, files with keys of strings,
// CSV) it makes from them with DuckDB, and keeps in the folder --work for the next time. Each join runs --runs times, DuckDB's and
// warpmap's in turn, after both inputs were read once. Afterwards the rows of both outputs are compared, whatever their order.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// options are the command's flags.
type options struct {
	warpmap, device  string
	orders, lineitem string
	work             string
	threads, runs    int
	only             string
	unordered, json  bool
	args             string
}

func main() {
	if len(os.Args) > 2 && os.Args[1] == sqlMode {
		if err := runSQL(os.Args[2:]); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	var o options
	flag.StringVar(&o.warpmap, "warpmap", "warpmap", "the command to measure")
	flag.StringVar(&o.device, "device", "auto", "its --device")
	flag.StringVar(&o.args, "args", "", "more of its flags, separated by blanks")
	flag.StringVar(&o.orders, "orders", "", "TPC-H's orders, as Parquet")
	flag.StringVar(&o.lineitem, "lineitem", "", "TPC-H's lineitem, as Parquet")
	flag.StringVar(&o.work, "work", "", "folder for what is made and written")
	flag.IntVar(&o.threads, "threads", runtime.NumCPU(), "threads of both")
	flag.IntVar(&o.runs, "runs", 3, "runs of each join; the median counts")
	flag.StringVar(&o.only, "only", "", "joins to run, separated by commas: "+strings.Join(names(), ", ")+"; all where empty")
	flag.BoolVar(&o.unordered, "unordered", false, "let DuckDB write rows in any order, which warpmap never does")
	flag.BoolVar(&o.json, "json", false, "print JSON")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintln(os.Stderr, "duckdb-bench:", err)
		os.Exit(1)
	}
}

// result is what was measured of one join.
type result struct {
	Join    string `json:"join"`
	DuckDB  *cost  `json:"duckdb,omitempty"`
	Warpmap *cost  `json:"warpmap,omitempty"`
	// Speed is DuckDB's seconds by warpmap's.
	Speed float64 `json:"speed,omitempty"`
	Error string  `json:"error,omitempty"`
}

// report is all that was measured, with where.
type report struct {
	Date    string   `json:"date"`
	Machine string   `json:"machine"`
	Threads int      `json:"threads"`
	Runs    int      `json:"runs"`
	Device  string   `json:"device"`
	DuckDB  string   `json:"duckdb"`
	Results []result `json:"results"`
}

func run(o options) error {
	if o.orders == "" || o.lineitem == "" || o.work == "" || o.runs < 1 || o.threads < 1 {
		return fmt.Errorf("want --orders, --lineitem and --work, and at least one run and one thread (see --help)")
	}
	if _, err := exec.LookPath(o.warpmap); err != nil {
		return fmt.Errorf("--warpmap: %w", err)
	}
	var only []string
	if o.only != "" {
		only = strings.Split(o.only, ",")
	}
	for _, name := range only {
		if !slices.Contains(names(), name) {
			return fmt.Errorf("--only %s: want some of %s", name, strings.Join(names(), ", "))
		}
	}
	if err := os.MkdirAll(o.work, 0o777); err != nil {
		return err
	}
	version, err := query(o, "SELECT version()")
	if err != nil {
		return err
	}
	rep := report{Date: time.Now().UTC().Format(time.DateOnly), Machine: machine(), Threads: o.threads, Runs: o.runs, Device: o.device, DuckDB: version}
	for _, j := range joins {
		if len(only) > 0 && !slices.Contains(only, j.name) {
			continue
		}
		fmt.Fprintf(os.Stderr, "%s …\n", j.name)
		r := measure(o, j)
		if r.Error != "" {
			fmt.Fprintf(os.Stderr, "%s: %s\n", j.name, r.Error)
		}
		rep.Results = append(rep.Results, r)
	}
	if o.json {
		e := json.NewEncoder(os.Stdout)
		e.SetIndent("", "  ")
		return e.Encode(rep)
	}
	printTable(rep)
	return nil
}

func machine() string {
	model := "unknown CPU"
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		for line := range strings.Lines(string(text)) {
			if key, value, ok := strings.Cut(line, ":"); ok && strings.TrimSpace(key) == "model name" {
				model = strings.TrimSpace(value)
				break
			}
		}
	}
	return fmt.Sprintf("%s, %d cores", model, runtime.NumCPU())
}

func printTable(rep report) {
	fmt.Printf("DuckDB %s and warpmap on %s, with %d threads, device %s; medians of %d runs\n\n", rep.DuckDB, rep.Machine, rep.Threads, rep.Device, rep.Runs)
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(t, "join\tDuckDB s\tCPU s\tMiB\twarpmap s\tCPU s\tMiB\ttimes as fast\t")
	for _, r := range rep.Results {
		fmt.Fprintf(t, "%s\t", r.Join)
		for _, c := range []*cost{r.DuckDB, r.Warpmap} {
			if c == nil {
				fmt.Fprint(t, "-\t-\t-\t")
			} else {
				fmt.Fprintf(t, "%.3f\t%.3f\t%d\t", c.Wall, c.CPU, c.Peak>>20)
			}
		}
		if r.Speed == 0 {
			fmt.Fprintln(t, "-\t")
		} else {
			fmt.Fprintln(t, strconv.FormatFloat(r.Speed, 'f', 2, 64)+"\t")
		}
	}
	t.Flush()
}
