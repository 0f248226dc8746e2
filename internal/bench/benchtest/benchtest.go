// Package benchtest is what the tests of studies share.
package benchtest

import (
	"slices"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
)

// CPU opens the CPU device for a test.
func CPU(t testing.TB) *device.Device {
	t.Helper()
	d, err := device.Open("cpu")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

// Study is the study of that name.
func Study(t testing.TB, studies []bench.Study, name string) bench.Study {
	t.Helper()
	i := slices.IndexFunc(studies, func(s bench.Study) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("there is no study %q", name)
	}
	return studies[i]
}

// Rows measures a figure with n pairs on the CPU device, wants so many rows at least, none of which has a note or a wrong
// answer, and hands each to check, by column.
func Rows(t testing.TB, studies []bench.Study, name string, n, want int, check func(at func(column string) any)) *bench.Fig {
	t.Helper()
	fig, err := Study(t, studies, name).Measure(CPU(t), bench.FigOptions{N: n})
	if err != nil {
		t.Fatal(err)
	}
	if len(fig.Rows) < want {
		t.Errorf("%s: %d rows, want %d", name, len(fig.Rows), want)
	}
	for _, r := range fig.Rows {
		if len(r) != len(fig.Columns) {
			t.Fatalf("%s: %d cells beside %d columns: %v", name, len(r), len(fig.Columns), r)
		}
		at := At(fig, r)
		if c := fig.Column("wrong"); c >= 0 && r[c] != 0 || fig.Column("note") >= 0 && at("note") != "" {
			t.Errorf("%s: %v", name, r)
		}
		check(at)
	}
	return fig
}

// At gives a row's cells by column. Rates of a CPU are in millions, whatever the study calls them.
func At(fig *bench.Fig, row []any) func(column string) any {
	return func(c string) any {
		if fig.Column(c) < 0 {
			c = strings.Replace(c, "G/s", "M/s", 1)
		}
		return row[fig.Column(c)]
	}
}

// Draw wants a CSV file, and each of the figure's plots twice at least: as SVG and PNG.
func Draw(t testing.TB, fig *bench.Fig) {
	t.Helper()
	files, err := fig.Files()
	if err != nil || len(files) < 1+2*len(fig.Plots) || len(files)%2 != 1 {
		t.Errorf("%s: %d files of %d plots, %v", fig.Name, len(files), len(fig.Plots), err)
	}
}

// AtLeast wants a number that is no smaller than least.
func AtLeast(t testing.TB, what string, x any, least float64) {
	t.Helper()
	if v, ok := bench.Number(x); !ok || !(v >= least) {
		t.Errorf("%s is %v, want %v at least", what, x, least)
	}
}
