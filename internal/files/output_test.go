package files

import (
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/warpmap/warpmap/internal/testenv"
)

func put(t testing.TB, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
}

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
	if err := errors.Join(os.Mkdir(at("folder"), 0o700), os.Symlink("../absent", at("folder/dangling")),
		WriteFile(at("folder/dangling"), write("d"))); err != nil {
		t.Fatal(err)
	}
	is(at("absent"), "d", 0o644)
	if err := errors.Join(os.Symlink("old", at("link")), testenv.Mkfifo(at("pipe"), 0o600),
		WriteFile(at("new"), write("a")), WriteFile(at("link"), write("b"))); err != nil {
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
	if err := WriteFile(at("new"), func(f *os.File) error { f.WriteString("half"); return enough }); !errors.Is(err,
		enough) {
		t.Error(err)
	}
	is(at("new"), "a", 0o644)
	for _, c := range []struct{ name, input, says string }{
		{"", "", "without a name"}, {dir, "", "a folder"}, {at("none/x"), "", "no such file"}, {at("old"), at("link"), "is read, as"},
		{at("link"), at("old"), "is read, as"}, {at("new"), at("old"), ""}, {at("pipe"), at("pipe"), ""}, {at("other"), at("old"), ""},
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

// New files have the mode that the umask leaves, and what takes the place of another has its mode, before and behind.
func TestModes(t *testing.T) {
	dir := t.TempDir()
	at := func(name string) string { return filepath.Join(dir, name) }
	for _, mask := range []int{0o077, 0o002, 0o022, 0} {
		func() {
			defer testenv.Umask(testenv.Umask(mask))
			os.Remove(at("new"))
			put(t, at("old"), "x")
			if err := errors.Join(os.Chmod(at("old"), 0o664), WriteFile(at("new"), func(*os.File) error { return nil }),
				WriteFile(at("old"), func(*os.File) error { return nil })); err != nil {
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
	if err := WriteFile(filepath.Join(dir, "none"), func(f *os.File) error {
		return nil
	}); !errors.Is(err, syscall.EIO) {
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
	f, err := CreateFolder(filepath.Join(dir, "f"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Create("part"); err != nil {
		t.Fatal(err)
	}
	if _, err := MakeFolder(filepath.Join(dir, "m/n"), 0o777); err != nil {
		t.Fatal(err)
	}
	RemoveHidden()
	if _, err := Create(filepath.Join(dir, "b")); err == nil {
		t.Error("an output begins behind the end")
	}
	if _, err := Temporary(dir); err == nil {
		t.Error("a temporary file is made behind the end")
	}
	if err := f.Close(true); err == nil {
		t.Error("a folder that was removed is whole")
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
	err := errors.Join(os.MkdirAll(at("real/deep"), 0o700), os.Symlink("real/deep", at("d")),
		os.Symlink("../x", at("real/deep/l")))
	if err != nil {
		t.Fatal(err)
	}
	put(t, at("x"), "input")
	for _, text := range []string{"new", "again"} {
		if err := WriteFile(at("d/l"), func(f *os.File) error {
			_, err := f.WriteString(text)
			return err
		}); err != nil {
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

// A folder appears with all its files, in the place of an empty one, and also where a link leads.
func TestFolder(t *testing.T) {
	defer testenv.Umask(testenv.Umask(0o027))
	t.Chdir(t.TempDir())
	if err := errors.Join(os.Mkdir("empty", 0o700), os.Mkdir("full", 0o700), os.Symlink("far", "link")); err != nil {
		t.Fatal(err)
	}
	put(t, "full/x", "")
	put(t, "file", "")
	for name, to := range map[string]string{"new/": "new", "empty": "empty", "link/": "far"} {
		f, err := CreateFolder(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, part := range []string{"a", "b"} {
			o, err := f.Create(part)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := o.WriteString(part); err != nil {
				t.Fatal(err)
			}
			if err := o.Close(true); err != nil {
				t.Fatal(err)
			}
		}
		if left, _ := os.ReadDir(to); len(left) > 0 {
			t.Errorf("%s has %v before it is whole", name, left)
		}
		if err := errors.Join(f.Close(true), f.Close(false)); err != nil {
			t.Fatal(err)
		}
		text, err := os.ReadFile(to + "/b")
		i, _ := os.Stat(to)
		if p, _ := os.Stat(to + "/b"); err != nil || string(text) != "b" || p.Mode() != 0o640 ||
			i.Mode().Perm() != 0o750 {
			t.Errorf("%s: %q, %v, %v in %v", name, text, err, p.Mode(), i.Mode())
		}
	}
	for name, want := range map[string]string{"full": "the folder is not empty", "file": "not a folder",
		"no/where": "no such file"} {
		if _, err := CreateFolder(name); err == nil || !strings.Contains(err.Error(), name+": "+want) {
			t.Errorf("%s: %v, want %q", name, err, want)
		}
	}
	f, err := CreateFolder("gone")
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Create("a"); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(false); err != nil {
		t.Error(err)
	}
	if left, _ := filepath.Glob(".*"); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
}

// What others have done to a name meanwhile is told by that name, and what they made stays.
func TestNameIsTakenMeanwhile(t *testing.T) {
	t.Chdir(t.TempDir())
	o, err := Create("x")
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir("x", 0o777); err != nil {
		t.Fatal(err)
	}
	var path *fs.PathError
	if err := o.Close(true); !errors.As(err, &path) || path.Path != "x" || strings.Contains(err.Error(), ".tmp") {
		t.Error(err)
	}
	if left, _ := os.ReadDir("."); len(left) != 1 || !left[0].IsDir() {
		t.Errorf("left: %v", left)
	}
}

// A panic while a file is written leaves the old one, and nothing beside it.
func TestPanicLeavesNothing(t *testing.T) {
	t.Chdir(t.TempDir())
	put(t, "x", "old")
	func() {
		defer func() { recover() }()
		WriteFile("x", func(*os.File) error { panic("planted") })
	}()
	text, err := os.ReadFile("x")
	if left, _ := os.ReadDir("."); err != nil || string(text) != "old" || len(left) != 1 {
		t.Errorf("%q, %v, left: %v", text, err, left)
	}
}

// Devices are written to, never replaced, and so is the file that standard output goes to.
func TestWhatIsNotReplaced(t *testing.T) {
	t.Chdir(t.TempDir())
	before, err := os.Lstat(os.DevNull)
	if err != nil {
		t.Skip(err)
	}
	if err := errors.Join(os.Symlink(os.DevNull, "null"), WriteFile("null", func(f *os.File) error {
		_, err := f.WriteString("x")
		return err
	})); err != nil {
		t.Fatal(err)
	}
	if after, err := os.Lstat(os.DevNull); err != nil || !os.SameFile(before, after) {
		t.Errorf("the device is another: %v", err)
	}
	if to, err := os.Readlink("null"); err != nil || to != os.DevNull {
		t.Errorf("the link leads to %q, %v", to, err)
	}
	stdout := os.Stdout
	defer func() { os.Stdout = stdout }()
	if os.Stdout, err = os.Create("out"); err != nil {
		t.Fatal(err)
	}
	defer os.Stdout.Close()
	os.Stdout.WriteString("a")
	for _, name := range []string{"-", "out"} {
		o, err := Create(name)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := o.WriteString("b"); err != nil {
			t.Error(err)
		}
		if err := o.Close(true); err != nil {
			t.Error(err)
		}
	}
	os.Stdout.WriteString("c")
	if text, err := os.ReadFile("out"); err != nil || string(text) != "abbc" {
		t.Errorf("%q, %v", text, err)
	}
	if err := CheckRegular("null"); err == nil || !strings.Contains(err.Error(), "a pipe or a device") {
		t.Error(err)
	}
	if _, err := OpenRegular("null"); err == nil || !strings.Contains(err.Error(), "a pipe, a folder or a device") {
		t.Error(err)
	}
}

// A temporary file has no name, and nobody else can read it.
func TestTemporary(t *testing.T) {
	dir := t.TempDir()
	f, err := Temporary(dir)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if i, err := f.Stat(); err != nil || i.Mode() != 0o600 {
		t.Errorf("%v, %v", i.Mode(), err)
	}
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
	if _, err := Temporary(filepath.Join(dir, "none")); !errors.Is(err, fs.ErrNotExist) {
		t.Error(err)
	}
	t.Setenv("TMPDIR", dir)
	folder, remove, err := TemporaryFolder()
	if err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(folder, "x"), "")
	remove()
	t.Chdir(dir)
	t.Setenv("TMPDIR", ".")
	if folder, remove, err = TemporaryFolder(); err != nil || !filepath.IsAbs(folder) {
		t.Errorf("%q, %v", folder, err)
	}
	t.Chdir("/") // others look for it from elsewhere
	put(t, filepath.Join(folder, "x"), "")
	remove()
	if left, _ := os.ReadDir(dir); len(left) > 0 {
		t.Errorf("left: %v", left)
	}
}

// A name that is perhaps not on the disk is told, also where the cause alone is taken of an error.
func TestWrittenButPerhapsNotNamed(t *testing.T) {
	defer func(was func(*os.File) error) { syncFile = was }(syncFile)
	syncFile = func(f *os.File) error {
		if about, err := f.Stat(); err == nil && about.IsDir() {
			return &fs.PathError{Op: "sync", Path: f.Name(), Err: syscall.EIO}
		}
		return nil
	}
	name := filepath.Join(t.TempDir(), "out")
	err := WriteFile(name, func(f *os.File) error { _, err := f.WriteString("all"); return err })
	if err == nil || !strings.Contains(Cause(err).Error(), "it is written") || !errors.Is(err, syscall.EIO) {
		t.Errorf("%v", err)
	}
	if text, err := os.ReadFile(name); err != nil || string(text) != "all" {
		t.Errorf("%q, %v", text, err)
	}
}

// A library's file may be called "-".
func TestFileOfAName(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := WriteFile("-", func(f *os.File) error { _, err := f.WriteString("all"); return err }); err != nil {
		t.Fatal(err)
	}
	if text, err := os.ReadFile("-"); err != nil || string(text) != "all" {
		t.Errorf("%q, %v", text, err)
	}
}
