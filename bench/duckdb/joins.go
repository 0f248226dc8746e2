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
	on           on
	sql          string   // of b and p, the two sides
	args         []string // of warpmap
	out          string   // the output's suffix; empty where there is no output but a number
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

	numbers = on{{"o_orderkey", "l_orderkey"}}
	texts   = on{{"o_letters", "l_letters"}}
	pairs   = on{{"o_orderkey", "l_orderkey"}, {"o_rest", "l_rest"}}

	joins = slices.Concat([]join{
		{"inner", orders, lineitem, numbers, allColumns, nil, ".parquet"},
		{"semi", half, lineitem, numbers, "SELECT p.* FROM p SEMI JOIN b ON $on", []string{"--how", "semi"}, ".parquet"},
		{"anti", half, lineitem, numbers, "SELECT p.* FROM p ANTI JOIN b ON $on", []string{"--how", "anti"}, ".parquet"},
		count("count", orders, lineitem, numbers),
		{"strings", ordersLetters, lineitemLetters, texts, allColumns, nil, ".parquet"},
		{"csv", ordersCSV, lineitemCSV, numbers, allColumns, nil, ".csv"},
	}, anyKeys())
)

// on are the pairs of columns that are to be equal: of the build side, and of the probe side.
type on [][2]string

func (o on) flag() string {
	var pairs []string
	for _, p := range o {
		pairs = append(pairs, p[0]+"="+p[1])
	}
	return strings.Join(pairs, ",")
}

func (o on) sql() string {
	var pairs []string
	for _, p := range o {
		pairs = append(pairs, "b."+p[0]+" = p."+p[1])
	}
	return strings.Join(pairs, " AND ")
}

// keys are the names of the build side's columns, which SQL leaves out.
func (o on) keys() string {
	var keys []string
	for _, p := range o {
		keys = append(keys, p[0])
	}
	return strings.Join(keys, ", ")
}

func count(name string, build, probe file, o on) join {
	return join{name, build, probe, o, "SELECT count(*) FROM p JOIN b ON $on", []string{"--count"}, ""}
}

// TPC-H's keys lie close together; those of most data do not. anyKeys are joins of the same rows by other keys, each with a count and with all
// columns.
func anyKeys() (out []join) {
	hashed := func(key string) string { return "CAST(hash(" + key + ") >> 1 AS BIGINT)" }
	ordered := "(SELECT *, row_number() OVER () - 1 AS rn FROM %s)"
	sides := []struct {
		name         string
		build, probe string // statements, or expressions of the key $k
		on           on
	}{
		{"hashed", hashed("$k"), hashed("$k"), numbers},
		{"uuid", "CAST(md5($k::VARCHAR) AS UUID)", "CAST(md5($k::VARCHAR) AS UUID)", numbers},
		{"text", "'order-' || hash($k)::VARCHAR", "'order-' || hash($k)::VARCHAR", numbers},
		{"two-columns", "SELECT * REPLACE (" + hashed("o_orderkey // 8") + " AS o_orderkey), (o_orderkey % 8)::INTEGER AS o_rest FROM $orders",
			"SELECT * REPLACE (" + hashed("l_orderkey // 8") + " AS l_orderkey), (l_orderkey % 8)::INTEGER AS l_rest FROM $lineitem", pairs},
		// The order of rank r comes 1/r times as often as the first: Zipf's law with the exponent 1.
		{"skewed", hashed("$k"), "SELECT * EXCLUDE (rank) REPLACE (" + hashed("rank // 8 * 32 + rank % 8 + 1") + " AS l_orderkey) FROM (SELECT *, " +
			"least((SELECT count(*) FROM $orders), exp(hash(l_orderkey, l_linenumber) / 18446744073709551616 * " +
			"ln((SELECT count(*) FROM $orders))))::BIGINT - 1 AS rank FROM $lineitem)", numbers},
		// Ten rows of each side have one key.
		{"many-to-many", "SELECT * EXCLUDE (rn) REPLACE (" + hashed("rn // 10") + " AS o_orderkey) FROM " + fmt.Sprintf(ordered, "$orders"),
			"SELECT * EXCLUDE (rn) REPLACE (" + hashed("rn % ((SELECT count(*) FROM $orders) // 10)") + " AS l_orderkey) FROM " +
				fmt.Sprintf(ordered, "$lineitem") + " WHERE rn < (SELECT count(*) FROM $orders)", numbers},
		{"few-match", hashed("$k"), "CASE WHEN hash(l_orderkey, l_linenumber) % 100 = 0 THEN " + hashed("$k") + " ELSE " + hashed("$k, 7") + " END",
			numbers},
	}
	statement := func(x, table, key string) string {
		if !strings.HasPrefix(x, "SELECT") {
			x = "SELECT * REPLACE (" + x + " AS " + key + ") FROM $" + table
		}
		return strings.ReplaceAll(x, "$k", key)
	}
	for _, s := range sides {
		build := file{"orders-" + s.name + ".parquet", statement(s.build, "orders", "o_orderkey")}
		probe := file{"lineitem-" + s.name + ".parquet", statement(s.probe, "lineitem", "l_orderkey")}
		out = append(out, count(s.name+"-count", build, probe, s.on), join{s.name, build, probe, s.on, allColumns, nil, ".parquet"})
	}
	return out
}

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
	format := strings.TrimPrefix(suffix, ".")
	if format == "jsonl" {
		format = "json"
	}
	return fmt.Sprintf("COPY (%s) TO %s (FORMAT %s)", sql, quote(path), format)
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
	switch filepath.Ext(path) {
	case ".csv":
		return "(FROM read_csv(" + quote(path) + "))"
	case ".jsonl":
		return "(FROM read_json(" + quote(path) + ", format = 'newline_delimited'))"
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
		strings.NewReplacer("$on", j.on.sql(), "$key", j.on.keys()).Replace(j.sql)
	args := append([]string{"join", "--json", j.build.path(o), j.probe.path(o), "--on", j.on.flag()}, j.args...)
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
