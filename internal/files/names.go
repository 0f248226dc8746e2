package files

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/bmatcuk/doublestar/v4"
)

var errRemoved = errors.New("leads to an open file that was removed: want the name of a file")

// mostLinks is how many links a name may lead through, as on Linux.
const mostLinks = 40

// Target tells where a file of this name will stand, as a path from the root. It follows links, even to a file that is
// not there yet, as a shell's > does. Errors: *fs.PathError for a folder that is not there, and for links that lead in
// a circle or to an open file that was removed.
func Target(name string) (string, error) {
	fail := func(err error) (string, error) { return "", &fs.PathError{Op: "create", Path: name, Err: Cause(err)} }
	path := name
	for range mostLinks {
		dir, base := filepath.Split(path)
		if dir == "" {
			dir = "."
		}
		real, err := filepath.EvalSymlinks(dir)
		if err == nil {
			real, err = filepath.Abs(real)
		}
		if err != nil {
			return fail(err)
		}
		path = filepath.Join(real, base)
		to, err := os.Readlink(path)
		if err != nil { // no link
			_, there := os.Stat(name)
			// of /proc, to what has no name
			if _, err := os.Lstat(path); there == nil && errors.Is(err, fs.ErrNotExist) {
				return fail(errRemoved)
			}
			return path, nil
		}
		if path = strings.TrimRight(to, "/"); !filepath.IsAbs(path) {
			path = real + "/" + path // not cleaned: what .. leaves may be a link
		}
	}
	return fail(syscall.ELOOP)
}

// Cause is the error of the system, without the name of the file that the error concerns.
func Cause(err error) error {
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path):
		return path.Err
	case errors.As(err, &link):
		return link.Err
	}
	return err
}

// As says what a name stands for.
type As int

// What names stand for.
const (
	Nothing   As = iota // a file that is not there
	Itself              // a file, or standard input
	InFolder            // the files of a folder
	ByPattern           // the files that a pattern matches
)

// Expand finds the files that a name stands for. If a file has the name, or the name is "-", that is the name itself.
// For a folder, it finds the files in it and in the folders below it that wanted accepts. For a pattern (*, ?, [a-z],
// {a,b}, and ** for folders within folders), it finds the files that match. The files of folders and patterns come in
// the order of their names. In folders, Expand passes over names that begin with one of the letters of pass. A pattern
// matches no name that begins with a dot, unless the pattern has that dot itself.
//
// Errors: the system's, for what is not there or cannot be looked into; a pattern that no file matches. A folder may
// have no files.
func Expand(name, pass string, wanted func(path string) bool) (found []string, as As, err error) {
	if name == "-" {
		return []string{name}, Itself, nil
	}
	about, err := os.Stat(name)
	switch {
	case err == nil && !about.IsDir():
		return []string{name}, Itself, nil
	case err == nil:
		root := name + string(filepath.Separator) // through a link
		err = filepath.WalkDir(root, func(path string, e fs.DirEntry, err error) error {
			switch {
			case err != nil:
				return err
			case path != root && strings.ContainsRune(pass, rune(e.Name()[0])):
				if e.IsDir() {
					return fs.SkipDir
				}
			case !e.IsDir() && wanted(path):
				found = append(found, path)
			}
			return nil
		})
		return found, InFolder, err
	case !strings.ContainsAny(name, "*?[{"):
		return nil, Nothing, Cause(err)
	}
	found, err = doublestar.FilepathGlob(name, doublestar.WithFailOnIOErrors(), doublestar.WithFilesOnly(),
		doublestar.WithNoHidden())
	if err == nil && found == nil {
		err = errors.New("a pattern that no file matches")
	}
	slices.Sort(found)
	return found, ByPattern, err
}

// Once tells which of the files is named twice although it can be read only once: standard input, or a pipe.
func Once(names []string) (again string, err error) {
	stdin := false
	var pipes []fs.FileInfo
	for _, name := range names {
		if name == "-" && stdin {
			return name, errors.New(
				"is given twice, and standard input can be read once: copy it to a file first, or name another input")
		}
		stdin = stdin || name == "-"
		about, err := stat(name)
		if err != nil || about.Mode()&(fs.ModeNamedPipe|fs.ModeSocket) == 0 {
			continue
		}
		if slices.ContainsFunc(pipes, func(p fs.FileInfo) bool { return os.SameFile(p, about) }) {
			return name, errors.New(
				"is given twice, and a pipe can be read once: copy it to a file first, or name another input")
		}
		pipes = append(pipes, about)
	}
	return "", nil
}

// Twice looks for regular files that are named more than once, by whatever names. It returns the first such name, the
// earlier name of its file, and the number of names whose files have earlier ones.
func Twice(names []string) (again, earlier string, n int) {
	type named struct {
		name  string
		about fs.FileInfo
	}
	bySize := map[int64][]named{} // files of different sizes are different files
	for _, name := range names {
		about, err := stat(name)
		if err != nil || !about.Mode().IsRegular() {
			continue
		}
		others := bySize[about.Size()]
		same := slices.IndexFunc(others, func(x named) bool { return os.SameFile(x.about, about) })
		if same < 0 {
			bySize[about.Size()] = append(others, named{name, about})
			continue
		}
		if n++; n == 1 {
			again, earlier = name, others[same].name
		}
	}
	return again, earlier, n
}

// stat is os.Stat of an input.
func stat(name string) (fs.FileInfo, error) {
	if name == "-" {
		return os.Stdin.Stat()
	}
	return os.Stat(name)
}

// CutPacking gives a file's name in small letters without the ending of a packing, and what that ending names: gzip,
// zstd, or nothing.
func CutPacking(name string) (rest, packing string) {
	name = strings.ToLower(name)
	ending := filepath.Ext(name)
	if packing = map[string]string{".gz": "gzip", ".gzip": "gzip", ".bgz": "gzip", ".zst": "zstd",
		".zstd": "zstd"}[ending]; packing != "" {
		name = strings.TrimSuffix(name, ending)
	}
	return name, packing
}

// NotRead returns an error if the output would be written over one of the inputs, by whatever names. "-" is standard
// output as the output, and standard input among the inputs.
func NotRead(output string, inputs []string) error {
	about, err := os.Stat(output)
	if output == "-" {
		about, err = os.Stdout.Stat()
	}
	if err != nil || !about.Mode().IsRegular() {
		return nil
	}
	for _, name := range inputs {
		if other, err := stat(name); err != nil || !os.SameFile(about, other) {
			continue
		}
		if output == "-" {
			return fmt.Errorf("standard output goes to %s, which is read: want another file", name)
		}
		return fmt.Errorf("%s: is read, as %s, and would be written: want another name to write to", output, name)
	}
	return nil
}

// CheckOutput tells, before any work is done for it, why a file of this name cannot be made, or that one of the inputs
// is that file: see NotRead. Errors: an empty name, a folder, a name in a folder that is not there; an input.
func CheckOutput(name string, inputs ...string) error {
	if name == "" {
		return errors.New("a file to write without a name: want one")
	}
	about, err := os.Stat(name)
	switch {
	case name == "-":
	case err == nil && about.IsDir():
		return &fs.PathError{Op: "create", Path: name, Err: errFolder}
	case errors.Is(err, fs.ErrNotExist):
		_, err := Target(name)
		return err
	case err != nil:
		return &fs.PathError{Op: "create", Path: name, Err: Cause(err)}
	}
	return NotRead(name, inputs)
}

var errFolder = errors.New("a folder: want the name of a file to write")

// CheckRegular returns an error if the output is there and is a pipe or a device: such an output can only be written
// from its beginning to its end.
func CheckRegular(name string) error {
	if about, err := os.Stat(name); err == nil && !about.Mode().IsRegular() && !about.IsDir() {
		return fmt.Errorf("%s: a pipe or a device: want the name of a file, which is written here and there", name)
	}
	return nil
}

// OpenRegular opens a file that is to be read at several places. Errors: the system's; a pipe, a folder or a device. It
// does not open a pipe, because opening one waits for its writer.
func OpenRegular(name string) (*os.File, error) {
	if about, err := os.Stat(name); err == nil && !about.Mode().IsRegular() {
		return nil, errors.New("a pipe, a folder or a device: want a file, which is read here and there")
	}
	f, err := os.Open(name)
	return f, Cause(err)
}

// Within tells whether a path is a folder, or lies in it. Both must lead through no links. It recognizes a folder that
// is there even if it has two names, such as one that is mounted twice.
func Within(path, folder string) bool {
	below, err := filepath.Rel(folder, path)
	if err == nil && below != ".." && !strings.HasPrefix(below, "../") {
		return true
	}
	about, err := os.Stat(folder)
	if err != nil {
		return false
	}
	for {
		if i, err := os.Stat(path); err == nil && os.SameFile(about, i) {
			return true
		}
		up := filepath.Dir(path)
		if up == path {
			return false
		}
		path = up
	}
}
