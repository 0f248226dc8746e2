package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// join is one line of the table.
type join struct {
	name         string
	build, probe file
	on           [2]string // the key's column on the build side, and on the probe side
	sql          string    // of b and p, the two sides
	args         []string  // of warpmap
	out          string    // the output's suffix; empty where there is no output but a number
}

// file is an input: given, or made from those given.
type file struct {
	name string // in the folder --work; of those given, what they are
	sql  string // makes it
}

var (
	orders   = file{name: "orders"}
	lineitem = file{name: "lineitem"}
	half     = file{"half.parquet", "SELECT * FROM $orders WHERE hash(o_orderkey) % 2 = 0"}
	// Keys of 16 letters.
	letters         = "translate(substr(md5(%s::VARCHAR), 1, 16), '0123456789', 'ghijklmnop')"
	ordersLetters   = file{"orders-letters.parquet", "SELECT *, " + fmt.Sprintf(letters, "o_orderkey") + " AS o_letters FROM $orders"}
	lineitemLetters = file{"lineitem-letters.parquet", "SELECT *, " + fmt.Sprintf(letters, "l_orderkey") + " AS l_letters FROM $lineitem"}
	ordersCSV       = file{"orders.csv", "SELECT * FROM $orders"}
	lineitemCSV     = file{"lineitem.csv", "SELECT * FROM $lineitem"}

	numbers = [2]string{"o_orderkey", "l_orderkey"}
	texts   = [2]string{"o_letters", "l_letters"}

	joins = []join{
		{"inner", orders, lineitem, numbers, allColumns, nil, ".parquet"},
		{"semi", half, lineitem, numbers, "SELECT p.* FROM p SEMI JOIN b ON $on", []string{"--how", "semi"}, ".parquet"},
		{"anti", half, lineitem, numbers, "SELECT p.* FROM p ANTI JOIN b ON $on", []string{"--how", "anti"}, ".parquet"},
		{"count", orders, lineitem, numbers, "SELECT count(*) FROM p JOIN b ON $on", []string{"--count"}, ""},
		{"strings", ordersLetters, lineitemLetters, texts, allColumns, nil, ".parquet"},
		{"csv", ordersCSV, lineitemCSV, numbers, allColumns, nil, ".csv"},
	}
)

const allColumns = "SELECT p.*, b.* EXCLUDE ($key) FROM p JOIN b ON $on"

func names() (out []string) {
	for _, j := range joins {
		out = append(out, j.name)
	}
	return out
}

// path is where a file lies.
func (f file) path(o options) string {
	switch f {
	case orders:
		return o.orders
	case lineitem:
		return o.lineitem
	}
	return filepath.Join(o.work, f.name)
}

// make makes a file that is not there, and brings one that is into the page cache.
func (f file) make(o options) error {
	path := f.path(o)
	if _, err := os.Stat(path); os.IsNotExist(err) && f.sql != "" {
		from := strings.NewReplacer("$orders", quote(o.orders), "$lineitem", quote(o.lineitem)).Replace(f.sql)
		tmp := path + ".tmp"
		if _, err := query(o, copyTo(from, tmp, filepath.Ext(path))); err != nil {
			return err
		}
		if err := os.Rename(tmp, path); err != nil {
			return err
		}
	}
	return touch(path)
}

func copyTo(sql, path, suffix string) string {
	return fmt.Sprintf("COPY (%s) TO %s (FORMAT %s)", sql, quote(path), strings.TrimPrefix(suffix, "."))
}

func touch(path string) error {
	f, err := os.Open(path)
	if err != nil {
		return err
	}
	defer f.Close()
	b := make([]byte, 1<<20)
	for err == nil {
		_, err = f.Read(b)
	}
	return nil
}

// scan is a file in SQL.
func scan(path string) string {
	if filepath.Ext(path) == ".csv" {
		return "(FROM read_csv(" + quote(path) + "))"
	}
	return quote(path)
}

// measure runs a join with both, in turn, and compares their rows.
func measure(o options, j join) (r result) {
	r.Join = j.name
	defer func() {
		if r.Error != "" {
			r.Speed = 0
		}
	}()
	for _, f := range []file{j.build, j.probe} {
		if err := f.make(o); err != nil {
			r.Error = err.Error()
			return r
		}
	}
	theirs, ours := filepath.Join(o.work, "out-duckdb"+j.out), filepath.Join(o.work, "out-warpmap"+j.out)
	statement := "WITH b AS (FROM " + scan(j.build.path(o)) + "), p AS (FROM " + scan(j.probe.path(o)) + ") " +
		strings.NewReplacer("$on", "b."+j.on[0]+" = p."+j.on[1], "$key", j.on[0]).Replace(j.sql)
	args := append([]string{"join", "--json", j.build.path(o), j.probe.path(o), "--on", j.on[0] + "=" + j.on[1]}, j.args...)
	if j.out != "" {
		defer os.Remove(theirs)
		defer os.Remove(ours)
		statement = copyTo(statement, theirs, j.out)
		args = append(args, "--out", ours)
	}
	var a, b []cost
	var said string
	phases := map[cost]string{}
	var failed error
	for range o.runs {
		c, out, err := duckdb(o, statement)
		if err != nil {
			r.Error = err.Error()
			return r
		}
		a, said = append(a, c), out
		os.Remove(ours) // a file that is written over costs more
		if failed == nil {
			var did string
			if c, did, failed = warpmap(o, args...); failed == nil {
				b = append(b, c)
				phases[c] = did
			}
		}
		if len(a) < o.runs {
			os.Remove(theirs)
		}
	}
	r.DuckDB = median(a)
	if failed != nil {
		r.Error = failed.Error()
		return r
	}
	r.Warpmap = median(b)
	r.Phases = json.RawMessage(phases[*r.Warpmap])
	var counted struct {
		Rows int64 `json:"out_rows"`
	}
	if err := json.Unmarshal(r.Phases, &counted); err != nil {
		r.Error = err.Error()
		return r
	}
	answered := strconv.FormatInt(counted.Rows, 10)
	r.Speed = r.DuckDB.Wall / r.Warpmap.Wall
	if j.out != "" {
		var err error
		if said, err = sum(o, theirs); err == nil {
			answered, err = sum(o, ours)
		}
		if err != nil {
			r.Error = err.Error()
			return r
		}
	}
	if said != answered {
		r.Error = fmt.Sprintf("DuckDB's rows: %s; warpmap's: %s", said, answered)
	}
	return r
}

// sum tells a file's rows, whatever their order, by their number and the sum of their hashes.
func sum(o options, path string) (string, error) {
	return query(o, "SELECT count(*) || ' with the sum ' || coalesce(sum(hash(t)::HUGEINT), 0) FROM "+scan(path)+" t")
}

// median is the run with the median of the times.
func median(c []cost) *cost {
	slices.SortFunc(c, func(a, b cost) int { return int((a.Wall - b.Wall) * 1e9) })
	return &c[len(c)/2]
}
