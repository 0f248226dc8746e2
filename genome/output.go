package genome

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
)

// Output is a file that is being made. It appears under its name when it is whole; pipes and devices are written to as they are.
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

// CheckOutput tells, before any work is done for it, why a file of this name cannot be made; or that it would take the place of one of the inputs. An
// empty name, a folder, a name in a folder that is not there.
func CheckOutput(name string, inputs ...string) error {
	if name == "" {
		return errors.New("a file to write without a name: want one")
	}
	i, err := os.Stat(name)
	switch {
	case err == nil && i.IsDir():
		return fmt.Errorf("%s: a folder: want the name of a file to write", name)
	case errors.Is(err, fs.ErrNotExist):
		if _, err := os.Stat(filepath.Dir(name)); err != nil {
			return fmt.Errorf("%s: no file can be made there: %w", name, plainError(err))
		}
		return nil
	case err != nil:
		return err
	}
	if !i.Mode().IsRegular() {
		return nil
	}
	for _, input := range inputs {
		if other, err := os.Stat(input); err == nil && os.SameFile(i, other) {
			return fmt.Errorf("%s: is read and would be written: want another name to write to", name)
		}
	}
	return nil
}

// Create begins an output. What stands there keeps its mode, and a link goes on to lead to it. Close ends it. Errors: as of CheckOutput; what the system says.
func Create(name string) (*Output, error) {
	if err := CheckOutput(name); err != nil {
		return nil, err
	}
	o := &Output{path: name, mode: 0o644, Regular: true}
	if i, err := os.Stat(name); err == nil {
		if !i.Mode().IsRegular() {
			o.path, o.Regular = "", false
			o.File, err = os.OpenFile(name, os.O_WRONLY, 0)
			return o, err
		}
		o.mode = i.Mode().Perm()
		if o.path, err = filepath.EvalSymlinks(name); err != nil {
			return nil, err
		}
	}
	var err error
	if o.File, err = os.CreateTemp(filepath.Dir(o.path), "."+filepath.Base(o.path)+"-*"); err != nil {
		return nil, fmt.Errorf("%s: no file can be made there: %w", name, plainError(err))
	}
	unfinished.Store(o.Name(), true)
	return o, nil
}

// Close ends the output; whole says that all is written. Without it, nothing is left of it.
func (o *Output) Close(whole bool) (err error) {
	if o.path == "" {
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
