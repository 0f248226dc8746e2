package operations_test

import (
	"errors"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/internal/operations"
)

// A file is reduced to what a failure needs, here to a key that is inserted and deleted later, on slab, with a bound.
func TestReduce(t *testing.T) {
	f := operations.Generator{Kind: "map"}.Generate(7)
	f.Table = f.Table.With("maxbytes", 5000)
	f.Grounds = append(f.Grounds, operations.Settings{}.With("family", "slab").With("stress", 77).With("shards", 3))
	must(t, f.Add("insert n=500 keys=seq:100 values=from:9"))
	must(t, f.Add("insert n=500 keys=some:5:3000 values=from:9"))
	must(t, f.Add("delete n=300 keys=seq:80 on=device"))
	must(t, f.Add("grow n=80"))
	fails := func(f *operations.File) error {
		inserted, deleted := false, false
		for _, op := range f.Ops {
			rows, err := op.Batch()
			must(t, err)
			for _, r := range rows {
				inserted = inserted || op.Name == "insert" && r.Key == 377
				deleted = deleted || inserted && op.Name == "delete" && r.Key == 377
			}
		}
		for _, g := range f.Grounds {
			if deleted && g.Get("family") == "slab" && f.Table.Get("maxbytes") != "" {
				return errors.New("found")
			}
		}
		return nil
	}
	small, runs := operations.Reduce(f, 1000, fails)
	want := "ground family=slab\ninsert 377=1\ndelete 377\n"
	if text := small.String(); !strings.HasSuffix(text, want) || !strings.Contains(text, "maxbytes") || runs > 1000 {
		t.Errorf("%d runs reduce it to\n%vwant at the end\n%s", runs, text, want)
	}
	if same, _ := operations.Reduce(f, 1000, func(*operations.File) error { return nil }); same != f {
		t.Error("a file that does not fail became another")
	}
}

// What is no file is told with its line.
func TestParseRefuses(t *testing.T) {
	const head = "operations 1\ntable map key=u32 value=u32\n"
	for text, want := range map[string]string{
		"":                                  "no line says which table",
		"table map\n":                       "line 1: \"table\" comes before the version",
		"operations 2\n":                    "line 1: operations of another version",
		"operations 1\ntable heap\n":        "line 2: a second table, or one of no kind",
		head + "table map\n":                "line 3: a second table",
		head + "table\n":                    "line 3: a second table",
		head + "# a comment\n\nshout\n":     "line 5: no operation \"shout\"",
		head + "insert n=many\n":            "line 3: \"n=many\" is no number",
		head + "insert n=5 n=6\n":           "line 3: \"n=6\" is no number, or is set twice",
		head + "insert n=-1\n":              "line 3: -1 rows",
		head + "insert n=99999999999\n":     "line 3: 99999999999 rows",
		head + "insert n=5 7=8\n":           "line 3: rows by a rule and rows beside it",
		head + "insert n=5 keys=some:1\n":   "line 3: \"some:1\" is no rule",
		head + "insert n=5 keys=some:1:0\n": "of no keys",
		head + "insert n=5 load=0.5\n":      "\"load\" is no setting of this line",
		head + "insert 7=x\n":               "line 3: ",
		head + "mixed 7=8:q\n":              "a row marked \"q\"",
		head + "ground 7=8\n":               "a ground with rows",
	} {
		if _, err := operations.Parse(text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}
