package genome

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
)

// New files have the mode that the umask leaves, and what takes the place of another has its mode, before and behind.
func TestModes(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, mask := range []int{0o077, 0o002, 0o022, 0} {
		func() {
			defer syscall.Umask(syscall.Umask(mask))
			os.Remove(at("new"))
			put(t, at("old"), "x")
			if err := errors.Join(os.Chmod(at("old"), 0o664), WriteFile(at("new"), func(*os.File) error { return nil }), WriteFile(at("old"), func(*os.File) error { return nil })); err != nil {
				t.Fatal(err)
			}
			for name, want := range map[string]os.FileMode{"new": 0o666 &^ os.FileMode(mask), "old": 0o664} {
				if i, err := os.Stat(at(name)); err != nil || i.Mode() != want {
					t.Errorf("umask %o: %s has %v, want %v, %v", mask, name, i.Mode(), want, err)
				}
			}
		}()
	}
	put(t, at("secret"), "x")
	err := WriteFile(at("secret"), func(f *os.File) error {
		if i, err := f.Stat(); err != nil || i.Mode() != 0o600 {
			t.Errorf("while it is written, the file that takes the place of one with 0600 has %v, %v", i.Mode(), err)
		}
		return nil
	})
	if err != nil {
		t.Error(err)
	}
}

// What is written is on the disk, and its name is, before Close says so.
func TestOutputsAreSynced(t *testing.T) {
	dir := t.TempDir()
	var order []string
	before := syncFile
	defer func() { syncFile = before }()
	syncFile = func(f *os.File) error {
		i, err := f.Stat()
		_, there := os.Stat(filepath.Join(dir, "new"))
		switch {
		case err != nil:
			t.Error(err)
		case i.IsDir() && there == nil:
			order = append(order, "folder")
		case !i.IsDir() && there != nil && i.Size() == 4:
			order = append(order, "file")
		}
		return before(f)
	}
	err := WriteFile(filepath.Join(dir, "new"), func(f *os.File) error { _, err := f.WriteString("text"); return err })
	if err != nil || len(order) != 2 || order[0] != "file" || order[1] != "folder" {
		t.Errorf("%v, %v", order, err)
	}
	syncFile = func(*os.File) error { return syscall.EIO }
	if err := WriteFile(filepath.Join(dir, "none"), func(f *os.File) error { return nil }); !errors.Is(err, syscall.EIO) {
		t.Error(err)
	}
	if left, _ := os.ReadDir(dir); len(left) != 1 {
		t.Errorf("left: %v", left)
	}
}

// After RemoveHidden, which is for a process that ends, nothing appears any more.
func TestNothingAppearsBehindTheEnd(t *testing.T) {
	dir := t.TempDir()
	defer func() { unfinished.ended = false }()
	o, err := Create(filepath.Join(dir, "a"))
	if err != nil {
		t.Fatal(err)
	}
	RemoveHidden()
	if _, err := Create(filepath.Join(dir, "b")); err == nil {
		t.Error("an output begins behind the end")
	}
	if err := o.Close(true); err == nil {
		t.Error("an output that was removed is whole")
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// A link in a folder that is a link itself leads where the system says, not where its text does.
func TestLinksInLinkedFolders(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	err := errors.Join(os.MkdirAll(at("real/deep"), 0o700), os.Symlink("real/deep", at("d")), os.Symlink("../x", at("real/deep/l")))
	if err != nil {
		t.Fatal(err)
	}
	put(t, at("x"), "input")
	for _, text := range []string{"new", "again"} {
		if err := WriteFile(at("d/l"), func(f *os.File) error { _, err := f.WriteString(text); return err }); err != nil {
			t.Fatal(err)
		}
		if got, err := os.ReadFile(at("real/x")); err != nil || string(got) != text {
			t.Errorf("written there is %q, %v; want %q", got, err, text)
		}
		if got, err := os.ReadFile(at("x")); err != nil || string(got) != "input" {
			t.Errorf("the file beside it is %q now, %v", got, err)
		}
	}
}
