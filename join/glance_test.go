package join

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/internal/testenv"
)

// A field behind those of the glance makes a join what it is where all fields are looked at before: the same output or the
// same error, whatever the keys were till then, whatever the field is, and in whichever input. With a limit nothing is
// glanced at.
func TestGlance(t *testing.T) {
	cutInto(t, 64)
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	kinds := map[string]func(i int) string{
		"integers": func(i int) string { return fmt.Sprint(i%20 - 3) },
		"floats":   func(i int) string { return fmt.Sprintf("%.1f", float64(i%20)) },
		"dates":    func(i int) string { return fmt.Sprintf("2024-01-%02d", 1+i%20) },
		"stamps":   func(i int) string { return fmt.Sprintf("2024-01-02 03:04:%02d", i%20) },
		"booleans": func(i int) string { return []string{"true", "FALSE"}[i%2] },
		"texts":    func(i int) string { return fmt.Sprintf("key %d", i%20) },
		"nulls":    func(int) string { return "" },
	}
	odd := []string{"", "7", "-2", "007", "-07", "-0", "+1", "1.5", "1e2", "1e400", "18446744073709551615", "9007199254740993",
		"x", `"5"`, `""`, "2024-01-09", "2024-02-30", "2024-01-02 03:04:05.000000001", "2024-01-02 03:04:05Z",
		"9999-01-02 03:04:05", "true", "\xff", "1,2", `"open`}
	run := func(o Options, limit int64) string {
		o.Limit = limit
		s, err := runWith(t.Context(), nil, tuned{onCores(o), tuning{}})
		if err != nil {
			return err.Error()
		}
		if o.Count {
			return fmt.Sprint(s.OutRows)
		}
		text, err := os.ReadFile(o.Out)
		if err != nil {
			t.Fatal(err)
		}
		return string(text)
	}
	different := map[string]bool{}
	for kind, key := range kinds {
		for j, other := range odd {
			for i, in := range []string{"b", "p", "bp"} {
				if !testenv.Long() && j%3 != i { // one of the three
					continue
				}
				o := Options{Out: filepath.Join(dir, "o.csv"), On: []Pair{{"k", "k"}}, How: Full}
				for _, side := range []string{"b", "p"} {
					var text strings.Builder
					text.WriteString("k," + side + "\n")
					for i := range 60 {
						k := key(i)
						if i == 50 && strings.Contains(in, side) {
							k = other
						}
						fmt.Fprintf(&text, "%s,%s%d\n", k, side, i)
					}
					path := put(t, filepath.Join(dir, side+".csv"), text.String())
					if side == "b" {
						o.Build = path
					} else {
						o.Probe = path
					}
				}
				want := run(o, 1<<40)
				if got := run(o, 0); got != want {
					t.Errorf("%s, and %s in %s:\n%s\nwant\n%s", kind, other, in, got, want)
				}
				different[kind+want] = true
				o.Count, o.How = true, Inner
				want = run(o, 1<<40)
				if got := run(o, 0); got != want {
					t.Errorf("%s, and %s in %s: counted are %s, want %s", kind, other, in, got, want)
				}
			}
		}
	}
	if len(different) < 60 {
		t.Errorf("only %d outputs and errors differ", len(different))
	}
}

// Where the types of all columns matter, they are those of all rows: in outputs that have types, and where one side is
// several files.
func TestNoGlanceWhereTypesMatter(t *testing.T) {
	cutInto(t, 64)
	dir := t.TempDir()
	var text strings.Builder
	text.WriteString("k,v\n")
	for i := range 60 {
		fmt.Fprintf(&text, "%d,%d\n", i, 2*i)
	}
	one := put(t, dir+"/one.csv", text.String())
	two := put(t, dir+"/two.csv", text.String()+"60,1.50\n")
	for _, c := range []struct{ probe, out, want string }{
		{one, "o.jsonl", `{"k":3,"v":6,"v_build":6}` + "\n"},
		{two, "o.jsonl", `{"k":3,"v":6.0,"v_build":6}` + "\n"},
		{two, "o.csv", "3,6,6\n"},
		{one + "," + two, "o.csv", "3,6.0,6\n"},
	} {
		o := onCores(Options{Build: one, Probe: c.probe, Out: filepath.Join(dir, c.out), On: []Pair{{"k", "k"}}})
		if _, err := runWith(t.Context(), nil, tuned{o, tuning{}}); err != nil {
			t.Fatal(err)
		}
		if got, _ := os.ReadFile(o.Out); !strings.Contains(string(got), "\n"+c.want) {
			t.Errorf("%s to %s: no line %q in\n%s", c.probe, c.out, c.want, got)
		}
	}
}
