package genome

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// Output is a file that is being made. It appears under its name when it is whole. Pipes, devices, and what standard output goes to, are written to as they are.
type Output struct {
	*os.File
	path    string // what it becomes; empty: it is there
	mode    fs.FileMode
	Regular bool // it may be written anywhere
}

// unfinished are the outputs that are being written.
var unfinished sync.Map

// RemoveHidden removes the outputs that are not whole: for a process that ends before they are closed.
func RemoveHidden() {
	unfinished.Range(func(name, _ any) bool { os.Remove(name.(string)); return true })
}

// OutputPath is where a file of this name comes to stand: where links lead, be it that nothing is there yet.
func OutputPath(name string) (string, error) {
	path := name
	for range 40 {
		to, err := os.Readlink(path)
		if err != nil {
			break
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(path), to)
		}
		path = to
	}
	folder, err := filepath.EvalSymlinks(filepath.Dir(path))
	if err == nil {
		folder, err = filepath.Abs(folder)
	}
	if err != nil {
		return "", fmt.Errorf("%s: no file can be made there: %w", name, plainError(err))
	}
	return filepath.Join(folder, filepath.Base(path)), nil
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
	o := &Output{mode: 0o644, Regular: true}
	if i, err := os.Stat(name); err == nil {
		own, err := os.Stdout.Stat()
		switch o.mode = i.Mode().Perm(); {
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
	if o.File, err = os.CreateTemp(filepath.Dir(o.path), "."+filepath.Base(o.path)+"-*"); err != nil {
		return nil, fmt.Errorf("%s: no file can be made there: %w", name, plainError(err))
	}
	unfinished.Store(o.Name(), true)
	return o, nil
}

// Close ends the output; whole says that all is written. Without it, nothing is left of it.
func (o *Output) Close(whole bool) (err error) {
	switch {
	case o.File == os.Stdout:
		return nil
	case o.path == "":
		return o.File.Close()
	}
	defer unfinished.Delete(o.Name())
	if !whole {
		return errors.Join(o.File.Close(), os.Remove(o.Name()))
	}
	if err = errors.Join(o.Chmod(o.mode), o.File.Close()); err == nil {
		err = os.Rename(o.Name(), o.path)
	}
	if err != nil {
		os.Remove(o.Name())
	}
	return err
}

// WriteFile makes a file of what write writes: see Output.
func WriteFile(name string, write func(*os.File) error) error {
	o, err := Create(name)
	if err != nil {
		return err
	}
	err = write(o.File)
	return errors.Join(err, o.Close(err == nil))
}
