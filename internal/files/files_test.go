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
	for name, to := range map[string]string{"there": "c/x", "far": "there", "abs": dir + "/c/y", "b": "a/b", "a/b/up": "../z", "gone": "no/where/x", "one": "two", "two": "one", "slash": "c/new/"} {
		if err := os.Symlink(to, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	t.Chdir(dir)
	for name, want := range map[string]string{"plain": "plain", "./c/../plain": "plain", dir + "/plain": dir + "/plain", "there": "c/x", "far": "c/x", "abs": dir + "/c/y",
		"b/n": "a/b/n", "b/up": "a/z", "slash": "c/new", "c": "c"} {
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

func TestRename(t *testing.T) {
	dir := t.TempDir()
	for _, d := range []string{"full", "empty"} {
		if err := os.Mkdir(filepath.Join(dir, d), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.WriteFile(filepath.Join(dir, "full", "x"), nil, 0o666); err != nil {
		t.Fatal(err)
	}
	if err := Rename(filepath.Join(dir, "full"), filepath.Join(dir, "empty")); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat(filepath.Join(dir, "empty", "x")); err != nil {
		t.Error(err)
	}
	if err := Rename(filepath.Join(dir, "full"), filepath.Join(dir, "empty")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
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
	// A folder may have two names without a link: one that is mounted twice, or in another case. A link stands for that here.
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

func TestSame(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, name := range []string{"x", "y"} {
		if err := os.WriteFile(name, nil, 0o666); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(os.Symlink("x", "soft"), os.Link("x", "hard")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"x", "./x", "soft", "hard"} {
		about, err := os.Stat(name)
		if err != nil {
			t.Fatal(err)
		}
		if got, is := Same(about, []string{"no", "y", "hard"}); !is || got != "hard" {
			t.Errorf("%s is %q, %v", name, got, is)
		}
		if got, is := Same(about, []string{"y", "-"}); is {
			t.Errorf("%s is %q", name, got)
		}
	}
}
