package files

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// TestMakesAndWaits is the other process of TestLeft: it makes outputs, and does not finish them.
func TestMakesAndWaits(t *testing.T) {
	dir := os.Getenv("WARPMAP_TEST_LEAVES")
	if dir == "" {
		t.Skip("TestLeft runs it")
	}
	t.Chdir(dir)
	o, err := Create("x[1]")
	if err != nil {
		t.Fatal(err)
	}
	f, err := CreateFolder("folder")
	if err != nil {
		t.Fatal(err)
	}
	part, err := f.Create("part")
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := TemporaryFolder(); err != nil {
		t.Fatal(err)
	}
	for _, f := range []*os.File{o.File, part.File} {
		if _, err := f.WriteString("half"); err != nil {
			t.Fatal(err)
		}
	}
	fmt.Println("made")
	io.Copy(io.Discard, os.Stdin)
	if err := errors.Join(part.Close(true), f.Close(true), o.Close(true)); err != nil {
		t.Fatal(err)
	}
}

// other starts a process that makes outputs in a folder, and waits until it has them.
func other(t *testing.T, dir string) (cmd *exec.Cmd, finish io.Closer) {
	t.Helper()
	cmd = exec.Command(os.Args[0], "-test.run=^TestMakesAndWaits$")
	cmd.Env = append(os.Environ(), "WARPMAP_TEST_LEAVES="+dir, "TMPDIR="+dir)
	cmd.Stderr = os.Stderr
	in, err := cmd.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	if line, err := bufio.NewReader(out).ReadString('\n'); line != "made\n" {
		t.Fatalf("the other process says %q, %v", line, err)
	}
	return cmd, in
}

// hiddenIn are the hidden names of a folder. They are an hour old then.
func hiddenIn(t *testing.T, dir string) (names []string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(dir, ".*.tmp"))
	if err != nil {
		t.Fatal(err)
	}
	hour := time.Now().Add(-time.Hour)
	for _, name := range names {
		if about, err := os.Lstat(name); err == nil && about.Mode().Type()&os.ModeSymlink == 0 {
			if err := os.Chtimes(name, hour, hour); err != nil {
				t.Fatal(err)
			}
		}
	}
	return names
}

// makeAll makes the outputs that the other process makes, and tells which were hidden meanwhile.
func makeAll(t *testing.T, dir string) (hidden []string) {
	t.Helper()
	t.Setenv("TMPDIR", dir)
	o, err := Create(filepath.Join(dir, "x[1]"))
	if err != nil {
		t.Fatal(err)
	}
	f, err := CreateFolder(filepath.Join(dir, "folder"))
	if err != nil {
		t.Fatal(err)
	}
	_, remove, err := TemporaryFolder()
	if err != nil {
		t.Fatal(err)
	}
	hidden = hiddenIn(t, dir)
	remove()
	if err := errors.Join(o.Close(false), f.Close(false)); err != nil {
		t.Fatal(err)
	}
	return hidden
}

// What a process that is killed leaves is removed by the next output of its name. What a process has that lives stays,
// and so does what was made this minute.
func TestLeft(t *testing.T) {
	dir := t.TempDir()
	cmd, _ := other(t, dir)
	made := hiddenIn(t, dir)
	if len(made) != 3 {
		t.Fatalf("the other process made %q", made)
	}
	makeAll(t, dir)
	if got := hiddenIn(t, dir); !slices.Equal(got, made) {
		t.Errorf("the other process lives, and of %q are there %q", made, got)
	}
	cmd.Process.Kill()
	cmd.Wait()
	now := time.Now()
	for _, name := range made {
		if err := os.Chtimes(name, now, now); err != nil {
			t.Fatal(err)
		}
	}
	makeAll(t, dir)
	if got := hiddenIn(t, dir); !slices.Equal(got, made) {
		t.Errorf("they are of this minute, and of %q are there %q", made, got)
	}
	if hidden := makeAll(t, dir); len(hidden) != 3 || slices.ContainsFunc(hidden, func(name string) bool {
		return slices.Contains(made, name)
	}) {
		t.Errorf("while there are three new ones: %q; the process that was killed left %q", hidden, made)
	}
	if got := hiddenIn(t, dir); len(got) > 0 {
		t.Errorf("left: %q", got)
	}
}

// Two processes that make outputs of the same name side by side both finish them.
func TestSideBySide(t *testing.T) {
	dir := t.TempDir()
	cmd, finish := other(t, dir)
	hiddenIn(t, dir)
	if err := WriteFile(filepath.Join(dir, "x[1]"), func(f *os.File) error {
		hiddenIn(t, dir)
		finish.Close()
		if err := cmd.Wait(); err != nil {
			t.Errorf("the other process: %v", err)
		}
		_, err := f.WriteString("whole")
		return err
	}); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "x[1]"))
	part, partErr := os.ReadFile(filepath.Join(dir, "folder", "part"))
	if err := errors.Join(err, partErr); err != nil || string(text) != "whole" || string(part) != "half" {
		t.Errorf("%q, %q, %v", text, part, err)
	}
}

// Files of other names and of other kinds stay, and what links lead to.
func TestOthersStay(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	goes := []string{".x.0123abcd.tmp", ".x.deadbeef.tmp"}
	stay := []string{".x.0123abc.tmp", ".x.0123abcde.tmp", ".x.0123abcg.tmp", ".x.0123ABCD.tmp", ".x..0123abcd.tmp",
		".xy.0123abcd.tmp", ".y.0123abcd.tmp", ".x.y.0123abcd.tmp", "x.0123abcd.tmp", ".x.0123abcd.tmp2", "x.tmp",
		".x.0123abcd", "..x.0123abcd.tmp", ".x.0123abcd.0123abcd.tmp", ".x.tmp"}
	hour := time.Now().Add(-time.Hour)
	for _, name := range append(slices.Clone(stay), goes[0], "far/inside") {
		os.MkdirAll(filepath.Dir(at(name)), 0o700)
		put(t, at(name), "")
	}
	if err := errors.Join(os.Mkdir(at(goes[1]), 0o700), os.Symlink(at("far"), at(goes[1]+"/link")),
		os.Symlink("far", at(".x.00000001.tmp")), os.Symlink("x.tmp", at(".x.00000002.tmp")),
		os.Chmod(at(goes[0]), 0o400)); err != nil {
		t.Fatal(err)
	}
	for _, name := range append(slices.Clone(stay), append(goes, "far", "far/inside")...) {
		if err := os.Chtimes(at(name), hour, hour); err != nil {
			t.Fatal(err)
		}
	}
	for range 2 {
		o, err := Create(at("x"))
		if err != nil {
			t.Fatal(err)
		}
		defer o.Close(false)
	}
	for _, name := range append(stay, ".x.00000001.tmp", ".x.00000002.tmp", "far/inside") {
		if _, err := os.Lstat(at(name)); err != nil {
			t.Error(err)
		}
	}
	for _, name := range goes {
		if _, err := os.Lstat(at(name)); err == nil {
			t.Errorf("%s is there", name)
		}
	}
}
