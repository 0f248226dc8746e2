package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/warpmap/warpmap/internal/testenv"
)

// Names lead where links do, also where nothing is yet, and also where the links' own folders are links.
func TestTarget(t *testing.T) {
	dir, err := filepath.EvalSymlinks(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range []string{"a/b", "c"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	for name, to := range map[string]string{"there": "c/x", "far": "there", "abs": dir + "/c/y", "b": "a/b",
		"a/b/up": "../z", "gone": "no/where/x", "one": "two", "two": "one", "slash": "c/new/"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	for name, want := range map[string]string{"plain": "plain", "./c/../plain": "plain", dir + "/plain": dir + "/plain",
		"there": "c/x", "far": "c/x", "abs": dir + "/c/y",
		"b/n": "a/b/n", "b/up": "a/z", "slash": "c/new", "c": "c"} {
		if !filepath.IsAbs(want) {
			want = filepath.Join(dir, want)
		}
		got, err := Target(name)
		if err != nil || got != want {
			t.Errorf("%s leads to %s, %v; want %s", name, got, err, want)
		}
	}
	if got, err := Target("gone"); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), "gone") {
		t.Error(got, err)
	}
	if got, err := Target("one"); !errors.Is(err, syscall.ELOOP) {
		t.Error(got, err)
	}
}

// An open file that was removed has a link in /proc that leads to a name of the system's making.
func TestTargetOfRemovedFile(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "x"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	name := fmt.Sprintf("/proc/self/fd/%d", f.Fd())
	if _, err := os.Stat(name); err != nil {
		t.Skip(err)
	}
	if got, err := Target(name); err != nil || filepath.Base(got) != "x" {
		t.Error(got, err)
	}
	if err := os.Remove(f.Name()); err != nil {
		t.Fatal(err)
	}
	if got, err := Target(name); err == nil || !strings.Contains(err.Error(), "removed") {
		t.Errorf("%s, %v", got, err)
	}
}

func TestWithin(t *testing.T) {
	for _, c := range []struct {
		path, folder string
		want         bool
	}{{"/a/b", "/a", true}, {"/a", "/a", true}, {"/a", "/a/b", false}, {"/ab", "/a", false}, {"/a/..b", "/a", true}, {"/x", "/", true}} {
		if got := Within(c.path, c.folder); got != c.want {
			t.Errorf("%s in %s: %v", c.path, c.folder, got)
		}
	}
	// A folder may have two names without a link: one that is mounted twice, or in another case. A link stands for that
	// here.
	dir := t.TempDir()
	if err := os.Mkdir(filepath.Join(dir, "a"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink("a", filepath.Join(dir, "again")); err != nil {
		t.Fatal(err)
	}
	for path, want := range map[string]bool{"again": true, "again/new/x": true, "b": false, ".": false} {
		if got := Within(filepath.Join(dir, path), filepath.Join(dir, "a")); got != want {
			t.Errorf("%s in the folder of two names: %v", path, got)
		}
	}
}

// A file is known by any of its names, and so is what standard output goes to.
func TestNotRead(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"x", "y"} {
		put(t, name, "")
	}
	if err := errors.Join(os.Symlink("x", "soft"), os.Link("x", "hard")); err != nil {
		t.Fatal(err)
	}
	out, err := os.OpenFile("x", os.O_WRONLY|os.O_APPEND, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer out.Close()
	stdout, stdin := os.Stdout, os.Stdin
	defer func() { os.Stdout, os.Stdin = stdout, stdin }()
	os.Stdout = out
	for _, name := range []string{"x", "./x", "soft", "hard", "-"} {
		err := NotRead(name, []string{"no", "y", "hard"})
		if err == nil || !strings.Contains(err.Error(), "hard") || name != "-" &&
			!strings.HasPrefix(err.Error(), name+": is read") {
			t.Errorf("%s: %v", name, err)
		}
		if err := NotRead(name, []string{"y"}); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if os.Stdin, err = os.Open("y"); err != nil {
		t.Fatal(err)
	}
	defer os.Stdin.Close()
	if err := NotRead("y", []string{"-"}); err == nil || !strings.Contains(err.Error(), "as -") {
		t.Error(err)
	}
	if err := NotRead(os.DevNull, []string{os.DevNull}); err != nil {
		t.Error(err)
	}
}

// A folder is searched also where a link leads to it, and names that are passed over hide what is below them.
func TestExpand(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, d := range []string{"d/e", "d/.git", "d/_old", "empty"} {
		if err := os.MkdirAll(d, 0o777); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"d/b.fa", "d/a.fa", "d/e/c.fa", "d/e/notes", "d/.a.fa", "d/._b.fa", "d/_f.fa",
		"d/.git/g.fa", "d/_old/h.fa", "d/[x].fa"} {
		put(t, name, "")
	}
	if err := os.Symlink("d", "link"); err != nil {
		t.Fatal(err)
	}
	wanted := func(path string) bool { return strings.HasSuffix(path, ".fa") }
	for _, c := range []struct {
		name, pass, want string
		as               As
	}{
		{"-", "", "-", Itself},
		{"d/.a.fa", ".", "d/.a.fa", Itself},
		{"d/[x].fa", ".", "d/[x].fa", Itself},
		{"d", ".", "d/[x].fa d/_f.fa d/_old/h.fa d/a.fa d/b.fa d/e/c.fa", InFolder},
		{"d", "._", "d/[x].fa d/a.fa d/b.fa d/e/c.fa", InFolder},
		{"link", "._", "link/[x].fa link/a.fa link/b.fa link/e/c.fa", InFolder},
		{"empty", ".", "", InFolder},
		{"d/[ab].fa", ".", "d/a.fa d/b.fa", ByPattern},
		{"d/**/c*", ".", "d/e/c.fa", ByPattern},
		{"d/.*.fa", ".", "d/._b.fa d/.a.fa", ByPattern},
		{"d/{b,a}.fa", ".", "d/a.fa d/b.fa", ByPattern},
	} {
		found, as, err := Expand(c.name, c.pass, wanted)
		if err != nil || as != c.as || strings.Join(found, " ") != c.want {
			t.Errorf("%s without %q: %q, %v, %v; want %s", c.name, c.pass, found, as, err, c.want)
		}
	}
	if _, as, err := Expand("absent", "", wanted); as != Nothing || !errors.Is(err, fs.ErrNotExist) {
		t.Error(as, err)
	}
	if _, as, err := Expand("d/*.fq", "", wanted); as != ByPattern || err == nil {
		t.Error(as, err)
	}
}

func TestOnce(t *testing.T) {
	t.Chdir(t.TempDir())
	put(t, "x", "")
	if err := testenv.Mkfifo("pipe", 0o600); err != nil {
		t.Skip(err)
	}
	for _, c := range []struct {
		names []string
		want  string
	}{{[]string{"-", "x", "x", "pipe"}, ""}, {[]string{"x", "-", "-"}, "-"}, {[]string{"pipe", "x", "./pipe"}, "./pipe"}} {
		if again, err := Once(c.names); again != c.want || (err != nil) != (c.want != "") {
			t.Errorf("%q: %q, %v", c.names, again, err)
		}
	}
}

func TestTwice(t *testing.T) {
	t.Chdir(t.TempDir())
	put(t, "x", "1")
	put(t, "y", "2") // of the same size
	put(t, "z", "")
	if err := os.Link("y", "link"); err != nil {
		t.Skip(err)
	}
	for _, c := range []struct {
		names          []string
		again, earlier string
		n              int
	}{{[]string{"x", "y", "z", "absent", "absent", os.DevNull, os.DevNull}, "", "", 0},
		{[]string{"x", "y", "link", "./x", "z"}, "link", "y", 2}} {
		if again, earlier, n := Twice(c.names); again != c.again || earlier != c.earlier || n != c.n {
			t.Errorf("%q: %q, %q, %d", c.names, again, earlier, n)
		}
	}
}

func TestCutPacking(t *testing.T) {
	for name, want := range map[string][2]string{"A.FA.GZ": {"a.fa", "gzip"}, "x.bgz": {"x", "gzip"},
		"x.csv.zstd": {"x.csv", "zstd"}, "gz": {"gz", ""}} {
		if rest, packing := CutPacking(name); rest != want[0] || packing != want[1] {
			t.Errorf("%s: %q, %q", name, rest, packing)
		}
	}
}
