package files

import (
	"cmp"
	"errors"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"sync"
	"syscall"
	"time"
)

// Output is a file that is being made: see the package's comment.
type Output struct {
	*os.File
	Regular bool // whether any place of the file can be written

	name    string // as the caller knows it
	path    string // what it becomes; empty where it is that already
	mode    fs.FileMode
	replace bool         // a file whose mode it keeps
	rest    func() error // ends what brings it to the disk while it is written
}

// Create begins an output; "-" is standard output. Close ends it. Errors: those of CheckOutput, and the system's, with
// this name.
func Create(name string) (*Output, error) {
	if err := CheckOutput(name); err != nil {
		return nil, err
	}
	o := &Output{name: name, mode: 0o666}
	fail := func(err error) (*Output, error) { return nil, &fs.PathError{Op: "create", Path: name, Err: Cause(err)} }
	about, err := os.Stat(name)
	own, ownErr := os.Stdout.Stat()
	switch {
	case name == "-", err == nil && ownErr == nil && os.SameFile(about, own): // a shell has its own place in it
		o.File = os.Stdout
		return o, nil
	case err == nil && !about.Mode().IsRegular():
		if o.File, err = os.OpenFile(name, os.O_WRONLY, 0); err != nil {
			return fail(err)
		}
		return o, nil
	case err == nil:
		o.mode, o.replace = about.Mode().Perm(), true
	}
	o.Regular = true
	if o.path, err = Target(name); err != nil {
		return nil, err
	}
	_, err = hide(o.path, func(hidden string) (lock *os.File, err error) {
		if o.File, err = create(hidden, o.mode); err != nil {
			return nil, err
		}
		return again(o.File), nil // the output's own is closed before it has its name
	})
	if err != nil {
		return fail(err)
	}
	o.rest = ahead(o.File)
	return o, nil
}

func create(name string, mode fs.FileMode) (*os.File, error) {
	return os.OpenFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL, mode)
}

// Close ends the output. whole says that everything is written: then, when Close returns, the output is on the disk,
// under its name. Otherwise, and on an error, nothing is left of the output, and what had its name before is as it was;
// one error alone says that the output has its name, but perhaps not on the disk. What was written to a pipe or a
// device stays written. Cost: the disk's time. Errors: the system's.
func (o *Output) Close(whole bool) (err error) {
	if o.File == os.Stdout {
		return nil
	}
	if o.rest != nil {
		err = o.rest()
	}
	if whole && o.Regular {
		if o.replace {
			err = cmp.Or(err, keepMode(o.File, o.mode))
		}
		err = cmp.Or(err, syncFile(o.File))
	}
	err = o.Named(cmp.Or(err, o.File.Close()))
	if o.path == "" {
		return err
	}
	return cmp.Or(err, o.Named(finish(o.File.Name(), o.path, whole && err == nil)))
}

// keepMode gives a file the mode of the one that it replaces, of which the umask may have taken bits. Some file systems
// have no modes to change, so nothing is changed that is so already.
func keepMode(f *os.File, mode fs.FileMode) error {
	about, err := f.Stat()
	if err != nil || about.Mode().Perm() == mode {
		return err
	}
	return f.Chmod(mode)
}

// Named makes an error name the output by its own name, not by the hidden file's.
func (o *Output) Named(err error) error {
	var path *fs.PathError
	var link *os.LinkError
	switch {
	case errors.As(err, &path) && path.Path == o.File.Name():
		path.Path = o.name
	case errors.As(err, &link):
		return &fs.PathError{Op: link.Op, Path: o.name, Err: link.Err}
	}
	return err
}

// WriteFile makes a file of what write writes: see Output. "-" is a file of this name.
func WriteFile(name string, write func(*os.File) error) error {
	if name == "-" {
		name = "./-"
	}
	o, err := Create(name)
	if err != nil {
		return err
	}
	whole := false
	defer func() {
		if !whole { // for an error, or a panic
			o.Close(false)
		}
	}()
	if err := write(o.File); err != nil {
		return o.Named(err)
	}
	whole = true
	return o.Close(true)
}

// MakeFolder makes a folder, and those above it, where they are missing. tidy takes away those of them that are empty,
// when all is written or has failed. Errors: the system's.
func MakeFolder(name string, mode fs.FileMode) (tidy func(), err error) {
	var made []string
	for dir := filepath.Clean(name); ; dir = filepath.Dir(dir) {
		if _, err := os.Lstat(dir); !errors.Is(err, fs.ErrNotExist) {
			break
		}
		made = append(made, dir)
	}
	unfinished.Lock()
	unfinished.made = append(unfinished.made, made...)
	unfinished.Unlock()
	tidy = func() {
		for _, dir := range made {
			os.Remove(dir) // which does nothing to one that is not empty
		}
	}
	if err := os.MkdirAll(name, mode); err != nil {
		tidy()
		return nil, err
	}
	return tidy, nil
}

// Folder is a folder of files that is being made.
type Folder struct{ hidden, path string }

// CreateFolder begins a folder. If there is an empty folder of this name, the new one takes its place. Errors:
// *fs.PathError for a folder that is not empty, for a file, and for what the system says.
func CreateFolder(name string) (*Folder, error) {
	f := &Folder{}
	entries, err := os.ReadDir(name)
	switch {
	case err == nil && len(entries) > 0:
		err = errors.New("the folder is not empty")
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		err = errors.New("not a folder")
	default:
		if f.path, err = Target(filepath.Clean(name)); err == nil {
			f.hidden, err = hide(f.path, mkdir(0o777))
		}
	}
	if err != nil {
		return nil, &fs.PathError{Op: "create", Path: name, Err: Cause(err)}
	}
	return f, nil
}

// mkdir makes a hidden folder, and opens it, for the lock.
func mkdir(mode fs.FileMode) func(hidden string) (*os.File, error) {
	return func(hidden string) (*os.File, error) {
		if err := os.Mkdir(hidden, mode); err != nil {
			return nil, err
		}
		f, _ := os.Open(hidden)
		return f, nil
	}
}

// Create begins a file of the folder. The file's Close brings it to the disk.
func (f *Folder) Create(name string) (*Output, error) {
	file, err := create(filepath.Join(f.hidden, name), 0o666)
	if err != nil {
		return nil, &fs.PathError{Op: "create", Path: name, Err: Cause(err)}
	}
	return &Output{File: file, Regular: true, name: name, rest: ahead(file)}, nil
}

// Close ends the folder. whole says that it has all its files, and that they are closed: then the folder has its name
// when Close returns. Otherwise, and on an error, nothing is left of it.
func (f *Folder) Close(whole bool) error {
	if f.hidden == "" {
		return nil
	}
	hidden, err := f.hidden, error(nil)
	f.hidden = ""
	if whole {
		err = syncFolder(hidden)
	}
	return cmp.Or(err, finish(hidden, f.path, whole && err == nil))
}

// unfinished are the files and folders of this process that are not whole, and temporary folders, each with what holds
// its lock, or nil.
var unfinished = struct {
	sync.Mutex
	names map[string]*os.File
	ended bool
	made  []string // folders of MakeFolder, the inner ones first
}{names: map[string]*os.File{}}

var errEnded = errors.New("the process ends")

// RemoveHidden removes the outputs of this process that are not whole, its temporary folders, and those folders of
// MakeFolder that are empty. From then on no
// output can begin or become whole. It is for a process that ends while work that cannot be interrupted goes on.
func RemoveHidden() {
	unfinished.Lock()
	defer unfinished.Unlock()
	unfinished.ended = true
	for name := range unfinished.names {
		for range 100 { // in a folder others may still create files
			if os.RemoveAll(name) == nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	for _, dir := range unfinished.made {
		os.Remove(dir)
	}
}

// hide makes what becomes path: beside it, under a name that is free. What make returns is locked until finish.
func hide(path string, make func(hidden string) (lock *os.File, err error)) (hidden string, err error) {
	dir, base := filepath.Split(path)
	base = base[:min(len(base), 200)] // names have at most 255 bytes
	removeLeft(dir, base)
	unfinished.Lock()
	defer unfinished.Unlock()
	for {
		if unfinished.ended {
			return "", errEnded
		}
		hidden = dir + hiddenName(base, rand.Uint32())
		lock, err := make(hidden)
		if errors.Is(err, fs.ErrExist) {
			continue
		}
		if err != nil {
			return "", err
		}
		if lock != nil {
			tryLock(lock)
		}
		unfinished.names[hidden] = lock
		return hidden, nil
	}
}

// finish gives what is hidden its name, also that of an empty folder, or removes it.
func finish(hidden, path string, whole bool) (err error) {
	if whole {
		err = rename(hidden, path)
	}
	if !whole || err != nil {
		os.RemoveAll(hidden)
	}
	unfinished.Lock()
	lock := unfinished.names[hidden]
	delete(unfinished.names, hidden)
	unfinished.Unlock()
	if lock != nil {
		lock.Close()
	}
	if !whole || err != nil {
		return err
	}
	if err := syncFolder(filepath.Dir(path)); err != nil {
		return &NameError{Cause(err)}
	}
	return nil
}

// NameError says that an output is whole and has its name, but perhaps not on the disk.
type NameError struct{ Err error }

func (e *NameError) Error() string {
	return "it is written, but perhaps its name is not on the disk: " + e.Err.Error()
}

func (e *NameError) Unwrap() error { return e.Err }

func rename(hidden, path string) error {
	unfinished.Lock()
	defer unfinished.Unlock()
	if unfinished.ended {
		return errEnded
	}
	if err := syscall.Rename(hidden, path); err != nil { // os.Rename refuses an empty folder that is there
		return &os.LinkError{Op: "rename", Old: hidden, New: path, Err: err}
	}
	return nil
}

// syncFile brings a file to the disk, or the names that a folder has.
var syncFile = (*os.File).Sync

// syncFolder brings a folder's names to the disk, where its file system can do that and the folder may be read.
func syncFolder(dir string) error {
	d, err := os.Open(dir)
	if errors.Is(err, fs.ErrPermission) {
		return nil
	}
	if err != nil {
		return err
	}
	defer d.Close()
	if err = syncFile(d); errors.Is(err, syscall.EINVAL) || errors.Is(err, errors.ErrUnsupported) {
		return nil
	}
	return err
}

// Temporary opens a file without a name in a folder, or in the folder that TMPDIR names if dir is empty. Only this user
// can read it.
func Temporary(dir string) (*os.File, error) {
	unfinished.Lock() // the process does not end between both calls
	defer unfinished.Unlock()
	if unfinished.ended {
		return nil, errEnded
	}
	if f := unnamed(cmp.Or(dir, os.TempDir())); f != nil {
		return f, nil
	}
	f, err := os.CreateTemp(dir, "warpmap-*")
	if err != nil {
		return nil, err
	}
	if err := os.Remove(f.Name()); err != nil {
		f.Close()
		return nil, err
	}
	return f, nil
}

// TemporaryFolder makes a folder where TMPDIR says. Its path is absolute: who runs in another folder finds it, too. The
// caller removes it; RemoveHidden removes it, too.
func TemporaryFolder() (dir string, remove func(), err error) {
	path, err := filepath.Abs(filepath.Join(os.TempDir(), "warpmap"))
	if err == nil {
		dir, err = hide(path, mkdir(0o700))
	}
	return dir, func() { finish(dir, "", false) }, err
}
