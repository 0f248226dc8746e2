package files

import (
	"cmp"
	"encoding/hex"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"
)

// A process that is killed leaves its hidden files and folders. While it lives, it has a lock on each. So the next
// output of the same name removes those that nobody has locked.

// settled is how long nothing was written to what is removed: it may be so new that its lock is still to come.
const settled = time.Minute

const hiddenDigits = 8

// hiddenName is the name of a hidden file or folder that becomes base.
func hiddenName(base string, number uint32) string {
	return fmt.Sprintf(".%s.%0*x.tmp", base, hiddenDigits, number)
}

// isHidden reports whether a name is one that hiddenName gives for base.
func isHidden(name, base string) bool {
	rest, begins := strings.CutPrefix(name, ".")
	rest, ends := strings.CutSuffix(rest, ".tmp")
	dot := strings.LastIndexByte(rest, '.')
	if !begins || !ends || dot < 0 {
		return false
	}
	digits := rest[dot+1:]
	_, err := hex.DecodeString(digits)
	return rest[:dot] == base && len(digits) == hiddenDigits && err == nil && digits == strings.ToLower(digits)
}

// removeLeft removes what processes that were killed have left of outputs of this name. What it cannot remove stays:
// the output does not depend on it.
func removeLeft(dir, base string) {
	d, err := os.Open(cmp.Or(dir, "."))
	if err != nil {
		return
	}
	defer d.Close()
	var left []string
	for {
		names, err := d.Readdirnames(1000)
		for _, name := range names {
			if isHidden(name, base) {
				left = append(left, filepath.Join(dir, name))
			}
		}
		if err != nil {
			break
		}
	}
	for _, name := range left {
		removeUnlocked(name)
	}
}

// removeUnlocked removes a file or a folder, if nobody has locked it and it has settled.
func removeUnlocked(name string) {
	about, err := os.Lstat(name)
	if err != nil || time.Since(about.ModTime()) < settled {
		return
	}
	var f *os.File
	switch {
	case about.IsDir():
		f, err = os.OpenFile(name, os.O_RDONLY|noLink, 0)
	case about.Mode().IsRegular():
		// NFS locks only what is open for writing, and some files may only be read
		if f, err = os.OpenFile(name, os.O_RDWR|noLink, 0); err != nil {
			f, err = os.OpenFile(name, os.O_RDONLY|noLink, 0)
		}
	default:
		return
	}
	if err != nil {
		return
	}
	defer f.Close()
	if !tryLock(f) {
		return
	}
	// Meanwhile its process may have finished it, and then the name is free.
	locked, err := f.Stat()
	if about, e := os.Lstat(name); err == nil && e == nil && os.SameFile(about, locked) {
		os.RemoveAll(name)
	}
}
