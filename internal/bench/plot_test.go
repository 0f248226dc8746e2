package bench

import (
	"bytes"
	"encoding/json"
	"image/color"
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
	for _, text := range []string{"Look-ups, Random", "keys looked up, billions a second (G/s)", "GB", ">a<", ">b<", "1.25"} {
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
// Numbers are written alike, and short.
func TestAmounts(t *testing.T) {
	for x, want := range map[float64]string{0: "0", 0.25: "0.25", 1.0 / 3: "0.3333", 12: "12", 999.5: "999.5", 1024: "1,024", 131072: "131,072", 999_600: "1 M",
		67108864: "67.1 M", 100_000_000: "100 M", 1.5e9: "1.5 G", 0.00002: "2e-05", -3: "-3"} {
		if got := amount(x); got != want {
			t.Errorf("%v is %q, want %q", x, got, want)
		}
	}
	if got := grouped("of 67108864 pairs of 4+4 bytes at 0.853, 1000, sm_90"); got != "of 67,108,864 pairs of 4+4 bytes at 0.853, 1,000, sm_90" {
		t.Error(got)
	}
}

// What is measured on a CPU is drawn in millions, and every axis names its unit.
func TestMillions(t *testing.T) {
	fig := &Fig{Columns: []string{"load", "find G/s", "note"}, Rows: [][]any{{0.5, 0.0015, ""}, {0.6, nil, "no"}}, Plots: []Plot{{X: "load", Y: "find G/s"}}}
	fig.inMillions()
	if fig.Columns[1] != "find M/s" || fig.Rows[0][1] != 1.5 || fig.Rows[1][1] != nil || fig.Plots[0].Y != "find M/s" {
		t.Errorf("%+v", fig)
	}
	if got := axis("find M/s"); got != "keys looked up, millions a second (M/s)" {
		t.Error(got)
	}
}

// A figure that was kept is drawn as it was when it was measured.
func TestKeptFigureIsDrawnAlike(t *testing.T) {
	fig := &Fig{
		Name: "kept/1", Title: "look-ups of 1000000 pairs", Columns: []string{"n", "way", "K/s", "least", "most"},
		Rows:   [][]any{{1000000, "a", 5.0, 4.0, 6.5}, {2000000, "a", 7.5, 7.0, 8.0}, {1000000, "b", 1.0, 1.0, 1.0}, {2000000, "b", nil, nil, nil}},
		Spread: &Spread{0.02, 0.3, 4},
		Plots:  []Plot{{X: "n", Y: "K/s", Series: "way", Least: "least", Most: "most", LogX: true, LogY: true}, {Name: "one", X: "way", Y: "K/s", Facet: "n", Only: map[string]any{"n": 1000000}}},
	}
	before, err := fig.Files()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(fig)
	if err != nil {
		t.Fatal(err)
	}
	var kept Fig
	if err := json.Unmarshal(text, &kept); err != nil {
		t.Fatal(err)
	}
	after, err := kept.Files()
	if err != nil || len(after) != len(before) || len(before) != 5 {
		t.Fatalf("%d files, and %d, %v", len(before), len(after), err)
	}
	for i := range before {
		if before[i].Name != after[i].Name || strings.HasSuffix(before[i].Name, "csv") && !bytes.Equal(before[i].Data, after[i].Data) {
			t.Errorf("%s is not %s:\n%s\n%s", after[i].Name, before[i].Name, after[i].Data, before[i].Data)
		}
	}
	for _, said := range []string{"1 M", "2 M", "look-ups of 1,000,000 pairs", "2.0 % apart", "30 % at most"} {
		if !bytes.Contains(after[1].Data, []byte(said)) {
			t.Errorf("the plot does not say %q", said)
		}
	}
}

func TestSlug(t *testing.T) {
	for in, want := range map[string]string{"gph/10": "gph-10", "µs a call": "s-a-call", "GB/s": "gb-s", "../x": "x"} {
		if got := slug(in); got != want {
			t.Errorf("slug(%q) = %q, want %q", in, got, want)
		}
	}
}

// said is all that the first picture of a figure says.
func said(t *testing.T, fig *Fig) (all string) {
	t.Helper()
	files, err := fig.Files()
	if err != nil {
		t.Fatal(err)
	}
	lines, _ := texts(t, files[1].Data)
	return strings.Join(lines, "\n") + "\n"
}

// Colours come once, but for those of peers, which are grey: of all the figures that are kept, too.
func TestColours(t *testing.T) {
	names := []string{"cuckoo", "Go map", "hybrid 8"}
	for i := range 24 {
		names = append(names, string(rune('a'+i)))
	}
	seen := map[color.Color]bool{}
	for i, l := range looks(names) {
		r, g, b, _ := l.color.RGBA()
		if isGrey := r == g && g == b; isGrey != (i < 3) {
			t.Errorf("%s has colour %v", names[i], l.color)
		}
		if seen[l.color] {
			t.Errorf("%s has a colour that was before", names[i])
		}
		seen[l.color] = true
	}
}

// Of two numbers, bars; what was not measured says why, in its place and above; a limit is grey and named.
func TestBarsOfTwoNumbers(t *testing.T) {
	fig := &Fig{Name: "two/1", Columns: []string{"devices", "way", "G/s", "note"}, Rows: [][]any{
		{1, "one", 1.0, ""}, {2, "both", 1.8, ""}, {2, "none", nil, "none: no memory left"}},
		Plots: []Plot{{Title: "Two", X: "devices", Y: "G/s", Series: "way"}}}
	all := said(t, fig)
	for _, want := range []string{"devices 1", "devices 2", "no figure", "No figure: none at devices 2 (no memory left)", "one", "both"} {
		if !strings.Contains(all, want) {
			t.Errorf("it does not say %q:\n%s", want, all)
		}
	}
	fig.Rows = append(fig.Rows, []any{3, "both", 2.5, ""})
	if all := said(t, fig); strings.Contains(all, "devices 2\n") {
		t.Errorf("of three numbers:\n%s", all)
	}
	fig.Rows = fig.Rows[2:3]
	if all := said(t, fig); !strings.Contains(all, "There are no figures to draw here.") || !strings.Contains(all, "no memory left") {
		t.Errorf("of none:\n%s", all)
	}
}

// What spans decades has a logarithmic axis, lines and bars alike; what does not, or has a 0, has none.
func TestDecades(t *testing.T) {
	for _, c := range []struct {
		least any
		want  bool
	}{{0.02, true}, {0.5, false}, {0.0, false}, {nil, false}} {
		for _, bars := range []bool{true, false} {
			x := []any{1, 2, 3}
			if bars {
				x = []any{"a", "b", "c"}
			}
			fig := &Fig{Name: "far/1", Columns: []string{"x", "G/s"}, Rows: [][]any{{x[0], c.least}, {x[1], 10.0}, {x[2], 40.0}},
				Plots: []Plot{{Title: "Far", X: "x", Y: "G/s"}}}
			all := said(t, fig)
			if got := strings.Contains(all, "0.1\n"); got != c.want {
				t.Errorf("from %v, bars %v: logarithmic %v, want %v:\n%s", c.least, bars, got, c.want, all)
			}
		}
	}
}
