package main

import (
	"encoding/csv"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// lineitemJSON is the file of JSON lines; lineitemCSV is a join's too.
var lineitemJSON = file{"lineitem.jsonl", "SELECT * FROM $lineitem"}

// columnWork is one line of the table of distinct and top: what both do to a column of a file.
type columnWork struct {
	name    string
	command []string // of warpmap
	sql     string   // of $f and $c
	approx  bool     // of both
}

var columnWorks = []columnWork{
	{"distinct", []string{"distinct"}, "SELECT count(DISTINCT $c) FROM $f", false},
	{"distinct --approx", []string{"distinct", "--approx"}, "SELECT approx_count_distinct($c) FROM $f", true},
	{"top", []string{"top", "-k", "100"}, topSQL, false},
}

// topSQL gives the hundred most frequent values as one text, in the order of warpmap's lines.
const topSQL = "SELECT string_agg(v::VARCHAR || ',' || n, ';' ORDER BY n DESC, v) FROM (SELECT $c AS v, count(*) AS n " +
	"FROM $f WHERE $c IS NOT NULL GROUP BY 1 ORDER BY n DESC, v LIMIT 100)"

// columnsOf are columns of lineitem: keys that come four times and thirty times, in order and not, and words.
var columnsOf = []string{"l_orderkey", "l_partkey", "l_shipmode"}

// measureColumns measures distinct and top beside DuckDB, of the formats that both read, and gives each result to done.
func measureColumns(o options, done func(r result) error) error {
	for _, f := range []file{lineitem, lineitemCSV, lineitemJSON} {
		if err := f.make(o); err != nil {
			return err
		}
		for _, column := range columnsOf {
			for _, w := range columnWorks {
				r := w.measure(o, f.path(o), column)
				format := strings.TrimPrefix(filepath.Ext(f.path(o)), ".")
				r.Join = fmt.Sprintf("%s of %s, %s", w.name, format, column)
				if err := done(r); err != nil {
					return err
				}
			}
		}
	}
	return nil
}

// measure runs both by turns, and compares what they say.
func (w columnWork) measure(o options, path, column string) (r result) {
	var duck, ours []cost
	var duckSaid, said string
	for range o.runs {
		sql := strings.NewReplacer("$c", column, "$f", scan(path)).Replace(w.sql)
		c, out, err := duckdb(o, sql)
		if err != nil {
			r.Error = err.Error()
			return r
		}
		duck, duckSaid = append(duck, c), out
		args := append(slices.Clone(w.command), path, "--column", column, "--quiet", "--threads", strconv.Itoa(o.threads))
		if c, out, err = warpmap(o, args...); err != nil {
			r.Error = err.Error()
			return r
		}
		ours, said = append(ours, c), out
	}
	r.DuckDB, r.Warpmap = median(duck), median(ours)
	if err := w.compare(said, duckSaid); err != nil {
		r.Error = err.Error()
		return r
	}
	r.Speed = r.DuckDB.Wall / r.Warpmap.Wall
	return r
}

// compare wants the same numbers, and of estimates about the same.
func (w columnWork) compare(said, duckSaid string) error {
	if w.command[0] == "distinct" {
		a, e1 := strconv.ParseFloat(said, 64)
		b, e2 := strconv.ParseFloat(duckSaid, 64)
		if e1 != nil || e2 != nil || !w.approx && a != b || a < 0.8*b-2 || a > 1.2*b+2 {
			return fmt.Errorf("%q, and DuckDB says %q", said, duckSaid)
		}
		return nil
	}
	rows, err := csv.NewReader(strings.NewReader(said)).ReadAll()
	if err != nil || len(rows) == 0 {
		return fmt.Errorf("%d rows: %v", len(rows), err)
	}
	var lines []string
	for _, row := range rows[1:] {
		lines = append(lines, strings.Join(row, ","))
	}
	if got := strings.Join(lines, ";"); got != duckSaid {
		return fmt.Errorf("%.200q, and DuckDB says %.200q", got, duckSaid)
	}
	return nil
}
