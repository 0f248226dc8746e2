package device

import (
	"io/fs"
	"strings"
	"sync"
)

// kernelFiles are compiled programs that WithKernels gives: files of a cache, by whichever compiler.
type kernelFiles struct {
	fs    fs.FS
	once  sync.Once
	names map[string]string // a key and an extension → the file
	err   error
}

// find gives the image of a program, or nil. A damaged file is none.
func (k *kernelFiles) find(key, extension string) []byte {
	if k == nil {
		return nil
	}
	k.once.Do(k.list)
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

// list finds the programs in all folders of the file system: an embedded one begins with the folder's name.
func (k *kernelFiles) list() {
	k.names = map[string]string{}
	k.err = fs.WalkDir(k.fs, ".", func(path string, e fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if base, ext, ok := cutLast(e.Name(), "."); ok && !e.IsDir() {
			if key, _, ok := strings.Cut(base, "-"); ok && len(key) == keyDigits {
				k.names[key+"."+ext] = path
			}
		}
		return nil
	})
}

// keyDigits is the length of source.key's names.
const keyDigits = 32

func cutLast(s, sep string) (before, after string, ok bool) {
	if i := strings.LastIndex(s, sep); i >= 0 {
		return s[:i], s[i+len(sep):], true
	}
	return s, "", false
}
