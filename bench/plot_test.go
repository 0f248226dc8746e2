package bench

import (
	"bytes"
	"image/png"
	"slices"
	"strings"
	"testing"
)

func TestFiles(t *testing.T) {
	fig := &Fig{
		Name:    "some/1",
		Columns: []string{"data", "GB", "table", "find G/s"},
		Rows: [][]any{
			{"Random", 1.25, "a", 3.5}, {"Random", 1.25, "b", nil}, {"Random", 2.0, "a", 4}, {"Random", 2.0, "b", 5.5},
			{"Tao, Bench", 1.25, "a", nil}, {"Tao, Bench", 1.25, "b", nil},
		},
		Plots: []Plot{
			{Name: "By size", Title: "Look-ups", X: "GB", Y: "find G/s", Series: "table", Facet: "data", LogX: true},
			{Name: "bars", Title: "By data", X: "data", Y: "find G/s", Series: "table", Only: map[string]any{"GB": 1.25}},
			{Name: "plain", Title: "Alone", X: "GB", Y: "find G/s"},
			{Name: "none", Title: "Nothing", X: "GB", Y: "find G/s", Only: map[string]any{"GB": 7.0}},
		},
	}
	files, err := fig.Files()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, f := range files {
		names = append(names, f.Name)
		switch {
		case strings.HasSuffix(f.Name, ".png"):
			if _, err := png.Decode(bytes.NewReader(f.Data)); err != nil {
				t.Errorf("%s: %v", f.Name, err)
			}
		case strings.HasSuffix(f.Name, ".svg") && !bytes.Contains(f.Data, []byte("</svg>")):
			t.Errorf("%s has no end", f.Name)
		}
	}
	want := []string{"some-1.csv", "some-1-by-size-random.svg", "some-1-by-size-random.png", "some-1-by-size-tao--bench.svg", "some-1-by-size-tao--bench.png",
		"some-1-bars.svg", "some-1-bars.png", "some-1-plain.svg", "some-1-plain.png", "some-1-none.svg", "some-1-none.png"}
	if !slices.Equal(names, want) {
		t.Errorf("files %q, want %q", names, want)
	}
	if csv := string(files[0].Data); !strings.HasPrefix(csv, "data,GB,table,find G/s\nRandom,1.25,a,3.5\nRandom,1.25,b,\n") || !strings.Contains(csv, "\"Tao, Bench\",1.25,b,\n") {
		t.Errorf("CSV:\n%s", csv)
	}
	// Axes, legend and title are there to read.
	for _, text := range []string{"Look-ups, Random", "find G/s", "GB", ">a<", ">b<", "1.25"} {
		if !bytes.Contains(files[1].Data, []byte(text)) {
			t.Errorf("%s does not say %q", files[1].Name, text)
		}
	}
	fig.Plots = []Plot{{X: "GB", Y: "nosuch"}}
	if _, err := fig.Files(); err == nil {
		t.Error("a column that is not there is plotted")
	}
}

// Every figure's plots name columns that it has: found by the command's tests, which draw them all.
func TestSlug(t *testing.T) {
	for in, want := range map[string]string{"gph/10": "gph-10", "µs a call": "s-a-call", "GB/s": "gb-s", "../x": "x"} {
		if got := slug(in); got != want {
			t.Errorf("slug(%q) = %q, want %q", in, got, want)
		}
	}
}
