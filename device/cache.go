package device

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// key names a program: a hash of its sources, its target and its options. Whichever compiler has made code of them, the
// code may be run.
func (s *source) key(c compiler) string {
	h := sha256.New()
	fmt.Fprintf(h, "warpmap kernel cache 2\n%q\n%q\n%q\n%v\n", c.target(), c.options(s.mode), s.program, s.mode != fast)
	for _, f := range s.files {
		fmt.Fprintf(h, "%q %d\n%s\n", f.Name, len(f.Text), f.Text)
	}
	return hex.EncodeToString(h.Sum(nil)[:16])
}

// cache is the folder of compiled programs, or "" for none: a path without links, whose files nobody but this user and
// root can change or put there. Its code runs in this process.
type cache string

// openCache makes the folder where it is missing. An error says why there is no cache, and what to do.
func openCache(dir string) (cache, error) {
	dir, err := filepath.Abs(dir)
	if err != nil {
		return "", err
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return "", err
	}
	real, err := filepath.EvalSymlinks(dir)
	if err != nil {
		return "", err
	}
	for _, path := range []string{dir, real} { // the links to it, then where it is
		if err := private(path); err != nil {
			return "", err
		}
	}
	return cache(real), nil
}

// private tells why a folder could be changed or replaced by another user than root, or nil. That takes every folder on
// the way to it. In a sticky one, such as /tmp, others can add names but change none.
func private(path string) error {
	for ; ; path = filepath.Dir(path) {
		info, err := os.Lstat(path)
		if err != nil {
			return err
		}
		mode := info.Mode()
		switch {
		case !ours(info):
			return fmt.Errorf("%s belongs to another user: name another folder in WARPMAP_CACHE", path)
		case mode.IsDir() && mode.Perm()&0o022 != 0 && mode&os.ModeSticky == 0:
			return fmt.Errorf("others may write in %s: chmod go-w it, or name another folder in WARPMAP_CACHE", path)
		case path == filepath.Dir(path):
			return nil
		}
	}
}

// path is the file of a program as this compiler makes it.
func (c cache) path(key string, comp compiler) string {
	id := sha256.Sum256([]byte(comp.ident()))
	return filepath.Join(string(c), key+"-"+hex.EncodeToString(id[:8])+"."+comp.extension())
}

// files are those that may hold the program: one where there is a compiler, else any compiler's, newest first.
func (c cache) files(key string, comp compiler) []string {
	switch {
	case c == "":
		return nil
	case comp.ident() != "":
		return []string{c.path(key, comp)}
	}
	return c.list(key+"-", "."+comp.extension())
}

// list gives the files whose names begin and end so, newest first.
func (c cache) list(prefix, suffix string) (files []string) {
	entries, _ := os.ReadDir(string(c))
	age := map[string]int64{}
	for _, e := range entries {
		if info, err := e.Info(); err == nil && strings.HasPrefix(e.Name(), prefix) && strings.HasSuffix(e.Name(), suffix) {
			file := filepath.Join(string(c), e.Name())
			files = append(files, file)
			age[file] = -info.ModTime().UnixNano()
		}
	}
	slices.SortFunc(files, func(a, b string) int { return int(min(1, max(-1, age[a]-age[b]))) })
	return files
}

// holds tells whether there are programs at all.
func (c cache) holds(extension string) bool { return c != "" && len(c.list("", "."+extension)) > 0 }

// lockLimit is how long a process waits for another that compiles: one that is stopped must not hold others up for ever.
var lockLimit = compileLimit

// lock waits until no other process compiles the program for this cache, and returns what ends that for others. It is a lock on one byte of a file that
// all programs share, which goes with the process. Where there is no lock to be had, the program may be compiled twice.
func (c cache) lock(ctx context.Context, key string) (unlock func()) {
	if c == "" {
		return func() {}
	}
	f, err := os.OpenFile(filepath.Join(string(c), "lock"), os.O_RDWR|os.O_CREATE|atOnce, 0o600)
	if err != nil {
		return func() {}
	}
	sum := sha256.Sum256([]byte(key))
	at := int64(binary.LittleEndian.Uint64(sum[:]) >> 2)
	for end := time.Now().Add(lockLimit); time.Now().Before(end) && ctx.Err() == nil; time.Sleep(5 * time.Millisecond) {
		if !lockedElsewhere(f, at) {
			break
		}
	}
	return func() { f.Close() }
}

// keep writes the program, and returns its file, or "" where it cannot be kept.
func (c cache) keep(key string, comp compiler, image []byte) string {
	if c == "" {
		return ""
	}
	file := c.path(key, comp)
	if writeCached(file, image) != nil {
		return ""
	}
	return file
}

// A file of the cache is the image, then a SHA-256 of its name and the image, then cacheMagic: loaders of both kinds ignore
// what follows an image.
const cacheMagic = "warpmap-kernel-2"

func cacheSum(file string, image []byte) []byte {
	h := sha256.New()
	fmt.Fprintf(h, "%s\n", filepath.Base(file))
	h.Write(image)
	return h.Sum(nil)
}

// readCached reads a file that is whole, a plain file, and only this user's or root's to write.
func readCached(file string) (image []byte, ok bool) {
	// A pipe's reader would wait for a writer, and a link leads out of the folder.
	f, err := os.OpenFile(file, os.O_RDONLY|atOnce, 0)
	if err != nil {
		return nil, false
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil || !info.Mode().IsRegular() || info.Mode().Perm()&0o022 != 0 || !ours(info) {
		return nil, false
	}
	data, err := io.ReadAll(f)
	if err != nil {
		return nil, false
	}
	return wholeImage(file, data)
}

// wholeImage gives the image in a file, and whether the file is as it was written.
func wholeImage(file string, data []byte) (image []byte, ok bool) {
	n := len(data) - len(cacheMagic) - sha256.Size
	if n < 0 || string(data[n+sha256.Size:]) != cacheMagic || !bytes.Equal(cacheSum(file, data[:n]), data[n:n+sha256.Size]) {
		return nil, false
	}
	return data[:n], true
}

// writeCached leaves the whole file or none under its name, whenever the process is killed.
func writeCached(file string, image []byte) error {
	tmp, err := os.CreateTemp(filepath.Dir(file), filepath.Base(file)+".tmp-*")
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name()) // fails once renamed
	for _, part := range [][]byte{image, cacheSum(file, image), []byte(cacheMagic)} {
		if _, err := tmp.Write(part); err != nil {
			tmp.Close()
			return err
		}
	}
	if err := tmp.Chmod(0o755); err != nil {
		tmp.Close()
		return err
	}
	if err := tmp.Close(); err != nil {
		return err
	}
	return os.Rename(tmp.Name(), file)
}
