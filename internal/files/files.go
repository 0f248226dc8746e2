// Package files has what those share who write files under names that people gave.
package files

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
)

var errRemoved = errors.New("leads to an open file that was removed: want the name of a file")

// mostLinks is how many links a name may lead through, as on Linux.
const mostLinks = 40

// Target is where a file of this name comes to stand: where links lead, be it that nothing is there yet, as a shell's > has it. Errors: a folder that is not
// there; links that lead in a circle, or to an open file that was removed.
func Target(name string) (string, error) {
	path := name
	for range mostLinks {
		dir, base := filepath.Split(path)
		if dir == "" {
			dir = "."
		}
		real, err := filepath.EvalSymlinks(dir)
		if err != nil {
			return "", &fs.PathError{Op: "open", Path: name, Err: reason(err)}
		}
		path = filepath.Join(real, base)
		to, err := os.Readlink(path)
		if err != nil { // no link
			_, there := os.Stat(name)
			if _, err := os.Lstat(path); there == nil && errors.Is(err, fs.ErrNotExist) { // of /proc, to what has no name
				return "", &fs.PathError{Op: "open", Path: name, Err: errRemoved}
			}
			return path, nil
		}
		if path = strings.TrimRight(to, "/"); !filepath.IsAbs(path) {
			path = real + "/" + path // not cleaned: what .. leaves may be a link
		}
	}
	return "", &fs.PathError{Op: "open", Path: name, Err: syscall.ELOOP}
}

func reason(err error) error {
	if of := (*fs.PathError)(nil); errors.As(err, &of) {
		return of.Err
	}
	return err
}

// Rename gives a file or a folder another name, also that of an empty folder, and returns when its folder has that on disk. The contents are the caller's
// to sync, before.
func Rename(from, to string) error {
	if err := syscall.Rename(from, to); err != nil { // os.Rename refuses an empty folder that is there
		return &os.LinkError{Op: "rename", Old: from, New: to, Err: err}
	}
	return Sync(filepath.Dir(to))
}

// Sync brings a folder's names to disk, where its file system can do that and the folder may be read.
func Sync(dir string) error {
	d, err := os.Open(dir)
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	defer d.Close()
	if err = d.Sync(); errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}

// Within tells whether a path is a folder, or lies in it. Both lead through no links. A folder that is there is known also
// where it has two names, as one that is mounted twice.
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

// Same gives the first of files that is the regular file about: by whatever name. "-" is standard input.
func Same(about fs.FileInfo, files []string) (name string, is bool) {
	if !about.Mode().IsRegular() {
		return "", false
	}
	for _, name := range files {
		other, err := os.Stat(name)
		if name == "-" {
			other, err = os.Stdin.Stat()
		}
		if err == nil && os.SameFile(about, other) {
			return name, true
		}
	}
	return "", false
}
