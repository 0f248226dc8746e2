package genome

import (
	"errors"
	"io"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

func TestWriteFile(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	write := func(text string) func(*os.File) error {
		return func(f *os.File) error { _, err := f.WriteString(text); return err }
	}
	is := func(name, text string, mode os.FileMode) {
		t.Helper()
		got, err := os.ReadFile(name)
		i, _ := os.Lstat(name)
		if err != nil || string(got) != text || i.Mode() != mode {
			t.Errorf("%s: %q, %v, %v: want %q, %v", name, got, err, i.Mode(), text, mode)
		}
	}
	put(t, at("old"), "before")
	if err := errors.Join(os.Mkdir(at("folder"), 0o700), os.Symlink("../absent", at("folder/dangling")), WriteFile(at("folder/dangling"), write("d"))); err != nil {
		t.Fatal(err)
	}
	is(at("absent"), "d", 0o644)
	if err := errors.Join(os.Symlink("old", at("link")), syscall.Mkfifo(at("pipe"), 0o600), WriteFile(at("new"), write("a")), WriteFile(at("link"), write("b"))); err != nil {
		t.Fatal(err)
	}
	is(at("new"), "a", 0o644)
	is(at("old"), "b", 0o600)
	if to, err := os.Readlink(at("link")); err != nil || to != "old" {
		t.Errorf("the link leads to %q, %v", to, err)
	}
	got := make(chan string)
	go func() {
		f, err := os.Open(at("pipe"))
		if err != nil {
			got <- err.Error()
			return
		}
		defer f.Close()
		text, _ := io.ReadAll(f)
		got <- string(text)
	}()
	if err := WriteFile(at("pipe"), write("c")); err != nil {
		t.Error(err)
	}
	if text := <-got; text != "c" {
		t.Errorf("through a pipe: %q", text)
	}
	enough := errors.New("enough")
	if err := WriteFile(at("new"), func(f *os.File) error { f.WriteString("half"); return enough }); !errors.Is(err, enough) {
		t.Error(err)
	}
	is(at("new"), "a", 0o644)
	for _, c := range []struct{ name, input, says string }{
		{"", "", "without a name"}, {dir, "", "a folder"}, {at("none/x"), "", "no file can be made there"}, {at("old"), at("link"), "is read and would be written"},
		{at("link"), at("old"), "is read and would be written"}, {at("new"), at("old"), ""}, {at("pipe"), at("pipe"), ""}, {at("other"), at("old"), ""},
	} {
		err := CheckOutput(c.name, c.input)
		if c.says == "" && err != nil || c.says != "" && (err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%q beside %q: %v, want %q", c.name, c.input, err, c.says)
		}
	}
	if left, _ := filepath.Glob(at(".*")); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}
