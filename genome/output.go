package genome

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"

	"github.com/warpmap/warpmap/internal/files"
)

// Output is a file that is being made. It appears under its name when it is whole. Pipes, devices, and what standard output goes to, are written to as they are.
type Output struct {
	*os.File
	path    string // what it becomes; empty: it is there
	mode    fs.FileMode
	replace bool // a file whose mode it keeps
	Regular bool // it may be written anywhere
}

// unfinished are the outputs that are being written.
var unfinished struct {
	sync.Mutex
	names map[string]bool
	ended bool
}

var errEnded = errors.New("the process ends")

// RemoveHidden removes the outputs that are not whole, and lets none begin or become whole: for a process that ends before they are closed.
func RemoveHidden() {
	unfinished.Lock()
	defer unfinished.Unlock()
	unfinished.ended = true
	for name := range unfinished.names {
		os.Remove(name)
	}
}

// hidden makes the file that becomes path. It is never open to more users than the mode says, or the umask allows.
func hidden(path string, mode fs.FileMode) (*os.File, error) {
	unfinished.Lock()
	defer unfinished.Unlock()
	for {
		if unfinished.ended {
			return nil, errEnded
		}
		base := filepath.Base(path)
		base = base[:min(len(base), 200)] // names have 255 bytes at most
		name := filepath.Join(filepath.Dir(path), fmt.Sprintf(".%s-%08x", base, rand.Uint32()))
		f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err == nil {
			if unfinished.names == nil {
				unfinished.names = map[string]bool{}
			}
			unfinished.names[name] = true
		}
		return f, err
	}
}

// syncFile brings a file to the disk, or the names that a folder has.
var syncFile = (*os.File).Sync

// syncFolder brings the names of a folder to the disk, where the file system does that.
func syncFolder(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return nil // one may write there, and not read
	}
	err = syncFile(f)
	if errors.Is(err, syscall.EINVAL) || errors.Is(err, syscall.ENOTSUP) {
		err = nil
	}
	return errors.Join(err, f.Close())
}

// OutputPath is where a file of this name comes to stand: where links lead, be it that nothing is there yet.
func OutputPath(name string) (string, error) {
	path, err := files.Target(name)
	if err == nil {
		path, err = filepath.Abs(path)
	}
	if err != nil {
		return "", fmt.Errorf("%s: no file can be made there: %w", name, plainError(err))
	}
	return path, nil
}

// CheckOutput tells, before any work is done for it, why a file of this name cannot be made, or that it would take the place of one of the inputs, of which
// "-" is standard input. Errors: an empty name, a folder, a name in a folder that is not there; an input.
func CheckOutput(name string, inputs ...string) error {
	if name == "" {
		return errors.New("a file to write without a name: want one")
	}
	i, err := os.Stat(name)
	switch {
	case err == nil && i.IsDir():
		return fmt.Errorf("%s: a folder: want the name of a file to write", name)
	case errors.Is(err, fs.ErrNotExist):
		_, err := OutputPath(name)
		return err
	case err != nil:
		return err
	}
	if !i.Mode().IsRegular() {
		return nil
	}
	for _, input := range inputs {
		other, err := os.Stat(input)
		if input == "-" {
			other, err = os.Stdin.Stat()
		}
		if err == nil && os.SameFile(i, other) {
			return fmt.Errorf("%s: is read and would be written: want another name to write to", name)
		}
	}
	return nil
}

// Create begins an output. What stands there keeps its mode, and links go on to lead where they led. Close ends it. Errors: as of CheckOutput; what the system says.
func Create(name string) (*Output, error) {
	if err := CheckOutput(name); err != nil {
		return nil, err
	}
	o := &Output{mode: 0o666, Regular: true}
	if i, err := os.Stat(name); err == nil {
		own, err := os.Stdout.Stat()
		switch o.mode, o.replace = i.Mode().Perm(), true; {
		case err == nil && os.SameFile(i, own): // a shell writes there, too: at its own place, before and behind
			o.File, o.Regular = os.Stdout, false
			return o, nil
		case !i.Mode().IsRegular():
			o.Regular = false
			o.File, err = os.OpenFile(name, os.O_WRONLY, 0)
			return o, err
		}
	}
	var err error
	if o.path, err = OutputPath(name); err != nil {
		return nil, err
	}
	if o.File, err = hidden(o.path, o.mode); err != nil {
		return nil, fmt.Errorf("%s: no file can be made there: %w", name, plainError(err))
	}
	return o, nil
}

// Close ends the output; whole says that all is written: it is on the disk, under its name, when Close returns. Without it, nothing is left of it. Cost: the disk's
// time. Errors: the system's, and nothing is left then.
func (o *Output) Close(whole bool) (err error) {
	switch {
	case o.File == os.Stdout:
		return nil
	case o.path == "":
		return o.File.Close()
	}
	if !whole {
		err = o.File.Close()
	} else {
		if o.replace {
			err = o.Chmod(o.mode) // the umask may have taken bits of it
		}
		err = cmp.Or(err, syncFile(o.File))
		err = o.Named(cmp.Or(err, o.File.Close()))
	}
	unfinished.Lock()
	defer unfinished.Unlock()
	delete(unfinished.names, o.Name())
	if whole && err == nil {
		if unfinished.ended {
			return errEnded
		}
		if err = os.Rename(o.Name(), o.path); err == nil {
			return syncFolder(filepath.Dir(o.path))
		}
	}
	os.Remove(o.Name())
	return err
}

// WriteFile makes a file of what write writes: see Output.
func WriteFile(name string, write func(*os.File) error) error {
	o, err := Create(name)
	if err != nil {
		return err
	}
	err = o.Named(write(o.File))
	return errors.Join(err, o.Close(err == nil))
}

// Named has an error tell the output by its name, not by the hidden file's.
func (o *Output) Named(err error) error {
	var of *fs.PathError
	if o.path != "" && errors.As(err, &of) && of.Path == o.Name() {
		of.Path = o.path
	}
	return err
}
