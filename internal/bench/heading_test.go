package bench

import (
	"encoding/json"
	"encoding/xml"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"testing"
	"time"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/vg"
)

// texts are what an SVG says from left to right, and where each begins and ends, in points.
func texts(t *testing.T, svg []byte) (all []string, spans [][2]float64) {
	t.Helper()
	style := plot.New().Title.TextStyle
	turned := 0 // groups within one that is turned
	d := xml.NewDecoder(strings.NewReader(string(svg)))
	for {
		token, err := d.Token()
		if err == io.EOF {
			return all, spans
		}
		if err != nil {
			t.Fatal(err)
		}
		switch e := token.(type) {
		case xml.EndElement:
			if turned > 0 && e.Name.Local == "g" {
				turned--
			}
		case xml.StartElement:
			at := map[string]string{}
			for _, a := range e.Attr {
				at[a.Name.Local] = a.Value
			}
			if e.Name.Local == "g" && (turned > 0 || strings.Contains(at["transform"], "rotate")) {
				turned++
			}
			if e.Name.Local != "text" || turned > 0 {
				continue
			}
			var x, size float64
			fmt.Sscan(at["x"], &x)
			_, of, _ := strings.Cut(at["style"], "font-size:")
			if fmt.Sscan(strings.TrimSuffix(strings.SplitN(of, "p", 2)[0], ";"), &size); size == 0 {
				t.Fatalf("a text without a size: %v", e.Attr)
			}
			var text string
			if err := d.DecodeElement(&text, &e); err != nil {
				t.Fatal(err)
			}
			style.Font.Size = vg.Length(size)
			all, spans = append(all, text), append(spans, [2]float64{x, x + float64(style.Width(text))})
		}
	}
}

// inside wants all texts of a figure's pictures within them.
func inside(t *testing.T, fig *Fig) (n int) {
	t.Helper()
	files, err := fig.Files()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		if !strings.HasSuffix(f.Name, ".svg") {
			continue
		}
		said, spans := texts(t, f.Data)
		for i, at := range spans {
			if n++; at[0] < 0 || at[1] > float64(plotWidth) {
				t.Errorf("%s: %q goes from %.0f to %.0f, and the picture to %.0f", f.Name, said[i], at[0], at[1], float64(plotWidth))
			}
		}
	}
	return n
}

// What a picture says stays in it, be the title, the subtitle, or one word as long as may be.
func TestHeadingsStayWithinThePicture(t *testing.T) {
	long := strings.Repeat("look-ups of keys that are wide ", 9)
	fig := &Fig{
		Name: "wide/1", Title: long, Columns: []string{"n", "G/s"}, Rows: [][]any{{1, 1.0}, {2, 2.0}},
		Where:  Where{Model: strings.Repeat("WWWWWWWWW ", 8), Commit: strings.Repeat("0123456789", 4) + WithChanges, Date: time.Now()},
		Spread: &Spread{0.02, 0.3, 4},
		Plots:  []Plot{{Title: long, X: "n", Y: "G/s"}, {Name: "word", Title: strings.Repeat("W", 200), X: "n", Y: "G/s"}},
	}
	if n := inside(t, fig); n < 20 {
		t.Errorf("%d texts", n)
	}
	files, err := fig.Files()
	if err != nil {
		t.Fatal(err)
	}
	said, _ := texts(t, files[1].Data)
	if all := strings.Join(said, " "); !strings.Contains(all, strings.TrimSpace(long)) || !strings.Contains(all, "commit 012345678 and changes, ") || !strings.Contains(all, "30 % at most") {
		t.Errorf("said is %q", all)
	}
}

// The figures that are kept are drawn within their pictures.
func TestKeptFiguresStayWithinThePicture(t *testing.T) {
	names, err := filepath.Glob("results/*/fig-*.json")
	if err != nil {
		t.Fatal(err)
	}
	n := 0
	for _, name := range names {
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		var fig Fig
		if err := json.Unmarshal(data, &fig); err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		for _, p := range fig.Plots {
			for _, line := range headingOf(p.Title+"\n"+fig.subtitle(p, fig.Rows), plot.New().Title.TextStyle) {
				if n++; line.style.Width(line.text) > plotWidth {
					t.Errorf("%s: %q has %.0f points", name, line.text, float64(line.style.Width(line.text)))
				}
			}
		}
	}
	if len(names) > 0 && n == 0 {
		t.Errorf("of %d files none is a figure", len(names))
	}
}

// The commit is that of this module, as the build has noted it, whatever the folder that the program runs in and the module that it is a part of.
func TestCommitOfTheBuild(t *testing.T) {
	vcs := []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "false"}}
	changed := []debug.BuildSetting{{Key: "vcs.revision", Value: "abc"}, {Key: "vcs.modified", Value: "true"}}
	own := debug.Module{Path: module, Version: "(devel)"}
	for _, c := range []struct {
		info *debug.BuildInfo
		want string
	}{
		{nil, ""},
		{&debug.BuildInfo{Main: own}, ""},
		{&debug.BuildInfo{Main: own, Settings: vcs}, "abc"},
		{&debug.BuildInfo{Main: own, Settings: changed}, "abc and changes"},
		{&debug.BuildInfo{Main: debug.Module{Path: module, Version: "v1.2.3"}}, "v1.2.3"},
		{&debug.BuildInfo{Main: debug.Module{Path: "other"}, Settings: vcs}, ""},
		{&debug.BuildInfo{Main: debug.Module{Path: "other"}, Settings: vcs, Deps: []*debug.Module{{Path: module, Version: "v1.2.3"}}}, "v1.2.3"},
		{&debug.BuildInfo{Main: debug.Module{Path: "other"}, Settings: vcs, Deps: []*debug.Module{{Path: module, Version: "v1.2.3", Replace: &debug.Module{Path: "../w"}}}}, ""},
	} {
		if got := built(c.info); got != c.want {
			t.Errorf("%+v: %q, want %q", c.info, got, c.want)
		}
	}
	t.Setenv("WARPMAP_COMMIT", "")
	if got := Commit(); got != "unknown" { // tests have no commit noted, and this folder's is another matter
		t.Errorf("%q", got)
	}
	t.Setenv("WARPMAP_COMMIT", "said")
	if got := Commit(); got != "said" {
		t.Errorf("%q", got)
	}
}

// What is kept obeys the umask, and goes through links, also where they lead to nothing yet.
func TestKeptThroughLinks(t *testing.T) {
	dir := t.TempDir()
	if err := os.Symlink("far.json", filepath.Join(dir, "link.json")); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := Write(filepath.Join(dir, "link.json"), []byte("{}\n")); err != nil {
			t.Fatal(err)
		}
	}
	if i, err := os.Lstat(filepath.Join(dir, "far.json")); err != nil || !i.Mode().IsRegular() {
		t.Error(i, err)
	}
	if i, err := os.Lstat(filepath.Join(dir, "link.json")); err != nil || i.Mode().IsRegular() {
		t.Error(i, err)
	}
	if all, _ := os.ReadDir(dir); len(all) != 2 {
		t.Error(all)
	}
}
