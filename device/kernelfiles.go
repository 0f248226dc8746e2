package device

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"
)

// kernelFiles are the compiled programs that WithKernels gives: files of a cache, by whichever compiler.
type kernelFiles struct {
	fs    fs.FS
	names map[string]string // a key and an extension → the file
}

// keyDigits is the length of source.key's names.
const keyDigits = 32

// openKernels finds the programs in all folders of the file system: an embedded one begins with the folder's name.
func openKernels(files fs.FS) (*kernelFiles, error) {
	if files == nil {
		return nil, errors.New("WithKernels: no file system")
	}
	k := &kernelFiles{fs: files, names: map[string]string{}}
	err := fs.WalkDir(files, ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		key, rest, _ := strings.Cut(e.Name(), "-")
		if _, extension, ok := strings.Cut(rest, "."); ok && len(key) == keyDigits {
			k.names[key+"."+extension] = path
		}
		return nil
	})
	switch {
	case err != nil:
		return nil, fmt.Errorf("WithKernels: %w", err)
	case len(k.names) == 0:
		return nil, errors.New("WithKernels: no compiled kernels are there: `warpmap compile` makes them")
	}
	return k, nil
}

// find gives the image of a program, or nil. A damaged file is none.
func (k *kernelFiles) find(key, extension string) []byte {
	name, ok := k.names[key+"."+extension]
	if !ok {
		return nil
	}
	data, err := fs.ReadFile(k.fs, name)
	if err != nil {
		return nil
	}
	image, _ := wholeImage(name, data)
	return image
}
