package join

import (
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/warpmap/warpmap/internal/testenv"
)

// runs joins two inputs by id into an output, with fakes for tables.
func runs(build, probe, out string, o tuned) error {
	o.Build, o.Probe, o.Out, o.makers = build, probe, out, fakeMakers
	if o.On == nil {
		o.On = []Pair{{"id", "id"}}
	}
	_, err := runWith(context.Background(), nil, o)
	return err
}

// everything is all files below the present folder, with what is in them, hidden ones too.
func everything(t *testing.T) string {
	t.Helper()
	var b strings.Builder
	err := filepath.WalkDir(".", func(path string, e os.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() {
			text, err := os.ReadFile(path)
			b.WriteString(path + ": " + string(text) + "\n")
			return err
		}
		b.WriteString(path + "\n")
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// An output does not take the place of an input, whatever its name, and no folder of one becomes a part of what is
// read.
func TestInputsAreNotReplaced(t *testing.T) {
	t.Chdir(t.TempDir())
	here, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"a.csv", "b.csv", "d/k=1/a.csv", "d/k=2/a.csv", "other/x.csv"} {
		put(t, name, "id,"+strings.NewReplacer("/", "", ".", "", "=", "").Replace(name[:1])+"\n1,2\n")
	}
	write(t, "p.parquet", reader(t, []column{{"id", arrow.PrimitiveTypes.Int64, []any{1, 2}}}))
	write(t, "q.arrow", reader(t, []column{{"id", arrow.PrimitiveTypes.Int64, []any{1, 2}}}))
	for name, to := range map[string]string{"soft.csv": "a.csv", "far.csv": "soft.csv", "e": "d",
		"soft.parquet": "p.parquet"} {
		if err := os.Symlink(to, name); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Link("b.csv", "hard.csv"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir("empty", 0o777); err != nil {
		t.Fatal(err)
	}
	before := everything(t)
	folder := Options{RowsPerFile: 1, OutFormat: CSV}
	for _, c := range []struct {
		build, probe, out string
		o                 Options
		want              string
	}{
		{"a.csv", "b.csv", "a.csv", Options{}, "a.csv: is read, as a.csv, and would be written"},
		{"a.csv", "b.csv", "b.csv", Options{}, "is read, as b.csv"},
		{"a.csv", "b.csv", "./a.csv", Options{}, "is read, as a.csv"},
		{"a.csv", "b.csv", here + "/a.csv", Options{}, "is read, as a.csv"},
		{"a.csv", "b.csv", "soft.csv", Options{}, "is read, as a.csv"},
		{"a.csv", "b.csv", "far.csv", Options{}, "is read, as a.csv"},
		{"far.csv", "b.csv", "a.csv", Options{}, "is read, as far.csv"},
		{"a.csv", "b.csv", "hard.csv", Options{}, "is read, as b.csv"},
		{"p.parquet", "b.csv", "p.parquet", Options{}, "is read, as p.parquet"},
		{"b.csv", "p.parquet", "soft.parquet", Options{}, "is read, as p.parquet"},
		{"q.arrow", "b.csv", "q.arrow", Options{}, "is read, as q.arrow"},
		{"d", "b.csv", "d/k=1/a.csv", Options{}, "is read, as d/k=1/a.csv"},
		{"d", "b.csv", "e/k=1/a.csv", Options{}, "is read, as d/k=1/a.csv"},
		{"a.csv", "d/*/*.csv", "d/k=2/a.csv", Options{}, "is read, as d/k=2/a.csv"},
		{"a.csv", "b.csv,d", "d/k=2/a.csv", Options{}, "is read, as d/k=2/a.csv"},
		{"a.csv", "b.csv", "a.csv", Options{MoreProbe: []string{"d/k=1/a.csv"}}, "is read, as a.csv"},
		{"a.csv", "d", "d", folder, "is a folder that is read"},
		{"a.csv", "d", "e/", folder, "is a folder that is read"},
		{"a.csv", "d", "d/new", folder, "lies in d, which is read"},
		{"a.csv", "d", "d/new/", Options{}, "lies in d, which is read"},
		{"a.csv", "e", here + "/d/k=1/new", folder, "lies in e, which is read"},
		{"a.csv", "d/k=1", "d/", folder, "holds d/k=1, which is read"},
		{"a.csv", "other/x.csv", "other/", folder, "holds other/x.csv, which is read"},
		{"a.csv", "d/**/*.csv", "d/new", folder, "would be found by d/**/*.csv, which is read"},
		{"a.csv", "d", "d/new.csv", Options{}, "lies in d, which is read"},
		{"a.csv", "e", "d/k=1/new.parquet", Options{}, "lies in e, which is read"},
		{"a.csv", "d/*/*.csv", "e/k=2/new.csv", Options{}, "would be found by d/*/*.csv, which is read"},
		{"a.csv", here + "/e/*/*.csv", "d/new", folder, "/e/*/*.csv, which is read"},
	} {
		c.o.Build, c.o.Probe, c.o.Out = c.build, c.probe, c.out
		if err := CheckOutput(c.o); err == nil || !strings.Contains(err.Error(), c.want) ||
			!strings.HasPrefix(err.Error(), c.out+": ") {
			t.Errorf("%s and %s to %s: %v, want %q", c.build, c.probe, c.out, err, c.want)
		}
	}
	if after := everything(t); after != before {
		t.Errorf("there was\n%s, and is\n%s", before, after)
	}
	for _, c := range []struct {
		build, probe, out string
		o                 Options
	}{
		{"a.csv", "b.csv", "c.csv", Options{}},
		{"a.csv", "d/*/*.csv", "d/c.csv", Options{}},
		{"a.csv", "d", "d/_c.csv", Options{}},
		{"a.csv", "d/*/*.csv", "c.csv", Options{}},
		{"a.csv", "d/**/*.csv", "new/", folder},
		{"a.csv", "d", "d/c.txt", Options{OutFormat: CSV}},
		{"a.csv", "d/*/*.csv", "d/k=1/c.tsv", Options{}},
		{"a.csv", "b.csv", "d/new", folder},
		{"a.csv", "d", "dd/", folder},
		{"a.csv", "other/*.csv", "other/new/", folder},
		{"a.csv", "other", "empty", folder},
		{"a.csv", "b.csv", "a.csv", Options{Count: true}},
	} {
		c.o.Build, c.o.Probe, c.o.Out = c.build, c.probe, c.out
		if err := CheckOutput(c.o); err != nil {
			t.Errorf("%s and %s to %s: %v", c.build, c.probe, c.out, err)
		}
		if err := runs(c.build, c.probe, c.out, tuned{Options: c.o}); err != nil {
			t.Errorf("%s and %s to %s: %v", c.build, c.probe, c.out, err)
		}
		if c.out == "empty" {
			c.out = "empty/part-00000.csv"
		}
		if !c.o.Count {
			os.RemoveAll(strings.TrimSuffix(c.out, "/"))
		}
	}
}

// Links lead to where the output comes to stand, also where nothing is yet; outputs have the mode that the umask
// leaves, or that was there.
func TestOutputsThroughLinks(t *testing.T) {
	defer testenv.Umask(testenv.Umask(0o027))
	t.Chdir(t.TempDir())
	put(t, "a.csv", "id\n1\n")
	for _, d := range []string{"far", "full"} {
		if err := os.Mkdir(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"l.csv": "far/new.csv", "far/back.csv": "../back.csv", "dir": "far/folder",
		"circle.csv": "circle.csv", "nowhere.csv": "no/x.csv"} {
		if err := os.Symlink(to, name); err != nil {
			t.Fatal(err)
		}
	}
	mode := func(name string) os.FileMode {
		i, err := os.Lstat(name)
		if err != nil {
			t.Error(err)
			return 0
		}
		return i.Mode()
	}
	for link, to := range map[string]string{"l.csv": "far/new.csv", "far/back.csv": "back.csv"} {
		for _, want := range []os.FileMode{0o640, 0o604} { // a new file, and one that is there
			if err := runs("a.csv", "a.csv", link, tuned{}); err != nil {
				t.Fatal(err)
			}
			if got := mode(to); got != want || mode(link)&os.ModeSymlink == 0 {
				t.Errorf("%s is %v, and %s %v; want %v", to, got, link, mode(link), want)
			}
			if err := os.Chmod(to, 0o604); err != nil {
				t.Fatal(err)
			}
		}
	}
	for range 2 { // where nothing is, and where an empty folder is
		if err := runs("a.csv", "a.csv", "dir/", tuned{Options: Options{OutFormat: CSV}}); err != nil {
			t.Fatal(err)
		}
		if got := mode("far/folder/part-00000.csv"); got != 0o640 || mode("far/folder") != os.ModeDir|0o750 ||
			mode("dir")&os.ModeSymlink == 0 {
			t.Errorf("%v in %v", got, mode("far/folder"))
		}
		if err := os.Remove("far/folder/part-00000.csv"); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{"circle.csv": "too many levels", "nowhere.csv": "no such file"} {
		if err := runs("a.csv", "a.csv", name, tuned{}); err == nil || !strings.Contains(err.Error(), name) ||
			!strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
}

// What can be read once cannot be given twice.
func TestInputsThatAreReadOnce(t *testing.T) {
	t.Chdir(t.TempDir())
	put(t, "a.csv", "id\n1\n")
	if err := testenv.Mkfifo("pipe", 0o666); err != nil {
		t.Skip(err)
	}
	for _, c := range []struct {
		build, probe string
		more         []string
		want         string
	}{
		{"-", "-", nil, "- is given twice, and standard input can be read once"},
		{"-", "a.csv", []string{"-"}, "- is given twice"},
		{"a.csv", "-,-", nil, "- is given twice"},
		{"pipe", "./pipe", nil, "./pipe is given twice, and a pipe can be read once"},
	} {
		if err := runs(c.build, c.probe, "out.csv", tuned{Options: Options{MoreBuild: c.more, BuildFormat: CSV,
			ProbeFormat: CSV}}); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s %s and %s: %v, want %q", c.build, c.more, c.probe, err, c.want)
		}
	}
	if _, err := OpenAll(CSV, "-", "-"); err == nil || !strings.Contains(err.Error(), "given twice") {
		t.Error(err)
	}
}
