package files

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/warpmap/warpmap/internal/testenv"
)

// FuzzText: a text is the same whether BGZF is unpacked on several goroutines or as the gzip that it is, where its
// members are as long as they say. What is cut off or damaged is an error of one line. Of members, the sums are what
// counts: the library takes data that ends within a distance for whole, and no text is missing then.
func FuzzText(f *testing.F) {
	z, err := zstd.NewWriter(nil)
	if err != nil {
		f.Fatal(err)
	}
	for _, text := range []string{"", "a", "\x1f\x8b", gzipped(""), gzipped("abc"), gzipped("abc") + gzipped("d") + "\x00\x00",
		gzipped("abc") + "x", bgzfed("", "abc", "", "d"), bgzfed("", "abc") + gzipped("d"), gzipped("abc")[:12],
		string(z.EncodeAll([]byte("abc"), nil)), string(z.EncodeAll(nil, nil)) + "\x28\xb5\x2f\xfd"} {
		f.Add([]byte(text), true)
		f.Add([]byte(text), false)
	}
	f.Fuzz(func(t *testing.T, packed []byte, bounded bool) {
		testenv.Bounded(t, len(packed), func() {
			all := func(u Unpacking) (string, error) {
				text, err := NewText(io.NopCloser(bytes.NewReader(packed)), u)
				if err != nil {
					return "", err
				}
				defer text.Close()
				got, err := io.ReadAll(io.LimitReader(text, 8<<20))
				return string(got), err
			}
			one, err := all(Unpacking{Bounded: bounded})
			two, other := all(Unpacking{Bounded: bounded, Threads: 2, Work: make(chan struct{}, 4), Ahead: 2})
			members := peekMember(bufio.NewReaderSize(bytes.NewReader(packed), unpackBytes)) > 0
			if (err == nil) != (other == nil) && !members || err == nil && other == nil && one != two {
				t.Errorf("%d bytes, %v; on several goroutines %d, %v", len(one), err, len(two), other)
			}
			for _, err := range []error{err, other} {
				if err != nil && (strings.Contains(err.Error(), "\n") || len(err.Error()) > 500) {
					t.Errorf("an error that is no line: %q", err)
				}
			}
			if err == nil && PackingOf(packed) == "" && one != string(packed) {
				t.Errorf("%q is read as %q", packed, one)
			}
		})
	})
}

// FuzzExpand: what a name stands for are files below the folder that it names, in order, each once.
func FuzzExpand(f *testing.F) {
	dir := f.TempDir()
	for _, name := range []string{"a.fa", "b.fa.gz", ".hidden", "sub/c.fa", "sub/.d", "[x].fa", "{y}"} {
		at := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
			f.Fatal(err)
		}
		if err := os.WriteFile(at, nil, 0o600); err != nil {
			f.Fatal(err)
		}
	}
	for _, name := range []string{"*", "**", "**/*.fa", "{a,b}.fa*", "[x].fa", "[a-", "{a", "", "sub", "?", "\\*", "**/**/**", "{y}"} {
		f.Add(name)
	}
	f.Fuzz(func(t *testing.T, name string) {
		testenv.Bounded(t, len(name), func() {
			if strings.Contains(name, "..") { // which leads elsewhere
				return
			}
			found, as, err := Expand(dir+"/"+name, ".", func(string) bool { return true })
			if err != nil && strings.Contains(err.Error(), "\n") && !strings.Contains(name, "\n") {
				t.Errorf("an error that is no line: %q", err)
			}
			if as == ByPattern && err == nil && len(found) == 0 {
				t.Error("a pattern that matches nothing is no error")
			}
			for i, file := range found {
				if about, err := os.Stat(file); err != nil || about.IsDir() || !strings.HasPrefix(file, dir) ||
					as == InFolder && slices.Contains(found[:i], file) {
					t.Errorf("%q stands for %q: %v", name, found, err)
				}
			}
		})
	})
}
