package genome

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"
)

// bgzfed packs pieces as members of BGZF.
func bgzfed(pieces ...string) string {
	var out bytes.Buffer
	for _, piece := range pieces {
		from := out.Len()
		z := gzip.NewWriter(&out)
		z.Extra = []byte("BC\x02\x00\x00\x00")
		z.Write([]byte(piece))
		z.Close()
		member := out.Bytes()[from:]
		binary.LittleEndian.PutUint16(member[16:], uint16(len(member)-1))
	}
	return out.String()
}

// cutUp cuts a text, with an empty piece now and then, and one at the end as bgzip writes it.
func cutUp(text string, most int) (out []string) {
	r := rand.New(rand.NewPCG(uint64(most), 2))
	for len(text) > 0 {
		n := min(len(text), r.IntN(most+1))
		out = append(out, text[:n])
		text = text[n:]
	}
	return append(out, "")
}

// Files of BGZF are read as others are, and errors tell the line; who ends early leaves nobody reading.
func TestReadMembers(t *testing.T) {
	dir := t.TempDir()
	a, q, want := sample(9, 500)
	for name, text := range map[string]string{"a": a, "q": q} {
		file := put(t, filepath.Join(dir, name), bgzfed(cutUp(text, 7000)...))
		for _, o := range []Options{{}, {BlockBytes: 1000, Threads: 1}, {BlockBytes: 5000, Threads: 4}, {Threads: 1 << 50}} {
			got, _, err := read([]string{file}, o)
			if err != nil || got != want {
				t.Fatalf("%s, %+v: %d bytes, %v: want %d", name, o, len(got), err, len(want))
			}
		}
		if err := os.Truncate(file, 15000); err != nil {
			t.Fatal(err)
		}
		if _, _, err := read([]string{file}, Options{}); err == nil ||
			!strings.Contains(err.Error(), "the gzip data ends too early") {
			t.Errorf("%s, cut: %v", name, err)
		}
	}
	broken := put(t, filepath.Join(dir, "broken"), bgzfed(cutUp(q+"@x\nACGT\n+\nII\n", 7000)...))
	if _, _, err := read([]string{broken}, Options{}); err == nil ||
		!strings.Contains(err.Error(), fmt.Sprintf(":%d: ", strings.Count(q, "\n")+4)) {
		t.Errorf("a broken record: %v", err)
	}
	s, err := newStream(t.Context(), []string{broken}, Options{})
	if err != nil {
		t.Fatal(err)
	}
	f, err := s.open(&input{name: broken})
	if err != nil {
		t.Fatal(err)
	}
	if f.text.Packing != "gzip" {
		t.Errorf("%q reads a file of BGZF", f.text.Packing)
	}
	f.close()
	s.stop()
	enough, before := errors.New("enough"), runtime.NumGoroutine()
	for range 5 {
		file := put(t, filepath.Join(dir, "long"), bgzfed(cutUp(strings.Repeat(q, 5), 3000)...))
		_, err := Read(t.Context(), []string{file}, Options{BlockBytes: 100}, func(b *Block) error { return enough })
		if err != enough {
			t.Fatal(err)
		}
	}
	for wait := 0; runtime.NumGoroutine() > before; wait++ { // those that unpack and parse end by themselves
		if wait == 500 {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
		time.Sleep(10 * time.Millisecond)
	}
}
