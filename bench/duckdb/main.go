// Command duckdb measures warpmap's joins of files, and with --columns its distinct and top, beside DuckDB's, in one
// run, each in a process of its own. It is a module of its own: DuckDB's library comes with cgo, which nothing else here
// has.
//
//	go build -ldflags '-s -w -linkmode external -extldflags -static' -o duckdb-bench .
//	duckdb-bench --warpmap warpmap --orders t/orders.parquet --lineitem t/lineitem.parquet --work w --threads 2 --keep ../results/h200/join.json
//
// Without the two files it makes them with warpmap gen tpch, of the size that --sf says, in the folder --work.
//
// Built like this it runs on any Linux of its architecture. What it joins besides the two files (half of the orders, files with other keys,
// CSV) it makes from them with DuckDB, and keeps in the folder --work for the next time. Each join runs --runs times, DuckDB's and
// warpmap's in turn, after both inputs were read once. Afterwards the rows of both outputs are compared, whatever their order.
package main

import (
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
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
	columns          bool
	args             string
	sf               float64
	keep, commit     string
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
	flag.BoolVar(&o.columns, "columns", false, "instead of joins, measure warpmap distinct and top of lineitem's columns")
	flag.BoolVar(&o.json, "json", false, "print JSON")
	flag.StringVar(&o.keep, "keep", "", "write the JSON to this file, too")
	flag.StringVar(&o.commit, "commit", "", "the commit that warpmap was built from, where it does not say it itself")
	flag.Float64Var(&o.sf, "sf", 1, "scale of TPC-H, where --orders and --lineitem are not given")
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
	// Phases are warpmap's seconds by stage, on all threads together, and what else it said of that run.
	Phases json.RawMessage `json:"phases,omitempty"`
	// Speed is DuckDB's seconds by warpmap's.
	Speed float64 `json:"speed,omitempty"`
	Error string  `json:"error,omitempty"`
}

// report is all that was measured, with where.
type report struct {
	Where   where    `json:"where"`
	Rows    int64    `json:"lineitem_rows"`
	Threads int      `json:"threads"`
	Runs    int      `json:"runs"`
	DuckDB  string   `json:"duckdb"`
	Results []result `json:"results"`
}

// where it was measured, as the other results have it.
type where struct {
	Device  string   `json:"device"` // what --device said
	Model   string   `json:"model"`
	Devices []string `json:"devices"` // that warpmap can use
	Commit  string   `json:"commit"`
	Load    string   `json:"load"` // of the machine before, in processes that run: medians of a busy one are too long
	Date    string   `json:"date"`
}

// here asks warpmap for what it was built from and can use.
func here(o options) (where, error) {
	load, _ := os.ReadFile("/proc/loadavg")
	first, _, _ := strings.Cut(string(load), " ")
	w := where{Device: o.device, Model: machine(), Load: first, Commit: o.commit, Date: time.Now().UTC().Format(time.RFC3339)}
	_, said, err := spawn(nil, o.warpmap, "version", "--json")
	if err != nil {
		return w, err
	}
	var v struct {
		Commit   string
		Modified bool
		Devices  []string
	}
	if err := json.Unmarshal([]byte(said), &v); err != nil {
		return w, fmt.Errorf("warpmap version: %w", err)
	}
	w.Devices = v.Devices
	if w.Commit == "" {
		w.Commit = v.Commit
		if v.Modified {
			w.Commit += " and changes"
		}
	}
	return w, nil
}

func run(o options) error {
	if (o.orders == "") != (o.lineitem == "") || o.work == "" || o.runs < 1 || o.threads < 1 {
		return fmt.Errorf("want --work, both of --orders and --lineitem or none, and at least one run and one thread (see --help)")
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
	if o.orders == "" {
		dir := filepath.Join(o.work, "tpch")
		o.orders, o.lineitem = filepath.Join(dir, "orders.parquet"), filepath.Join(dir, "lineitem.parquet")
		if _, err := os.Stat(o.lineitem); os.IsNotExist(err) {
			if _, _, err := spawn(nil, o.warpmap, "gen", "tpch", "--sf", fmt.Sprint(o.sf), "--out", dir); err != nil {
				return err
			}
		}
	}
	rep := report{Threads: o.threads, Runs: o.runs}
	var err error
	if rep.Where, err = here(o); err != nil {
		return err
	}
	if rep.DuckDB, err = query(o, "SELECT version()"); err != nil {
		return err
	}
	rows, err := query(o, "SELECT count(*) FROM "+quote(o.lineitem))
	if err != nil {
		return err
	}
	if rep.Rows, err = strconv.ParseInt(rows, 10, 64); err != nil {
		return err
	}
	done := func(r result) error {
		fmt.Fprintf(os.Stderr, "%s: %.3g times as fast\n", r.Join, r.Speed)
		if r.Error != "" {
			fmt.Fprintf(os.Stderr, "%s: %s\n", r.Join, r.Error)
		}
		rep.Results = append(rep.Results, r)
		return keep(o, rep) // one by one: who ends the run has what was measured
	}
	if o.columns {
		if err := measureColumns(o, done); err != nil {
			return err
		}
	}
	for _, j := range joins {
		if o.columns || len(only) > 0 && !slices.Contains(only, j.name) {
			continue
		}
		if err := done(measure(o, j)); err != nil {
			return err
		}
	}
	if o.json {
		e := json.NewEncoder(os.Stdout)
		e.SetIndent("", "  ")
		return e.Encode(rep)
	}
	printTable(rep)
	return nil
}

// keep writes what was measured so far to the file that --keep names.
func keep(o options, rep report) error {
	if o.keep == "" {
		return nil
	}
	text, err := json.MarshalIndent(rep, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(o.keep), 0o777); err != nil {
		return err
	}
	return os.WriteFile(o.keep, append(text, '\n'), 0o666)
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
	fmt.Printf("DuckDB %s and warpmap on %s, with %d threads, device %s; %d rows of lineitem; medians of %d runs\n\n", rep.DuckDB, rep.Where.Model, rep.Threads,
		rep.Where.Device, rep.Rows, rep.Runs)
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
