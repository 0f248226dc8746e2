package genome

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"
)

// bgzfed packs pieces as members of BGZF, with other fields beside theirs.
func bgzfed(fields string, pieces ...string) string {
	var out, b bytes.Buffer
	z, _ := flate.NewWriter(nil, 6)
	for _, piece := range pieces {
		b.Reset()
		z.Reset(&b)
		z.Write([]byte(piece))
		z.Close()
		out.WriteString("\x1f\x8b\x08\x04\x00\x00\x00\x00\x00\xff")
		n := 12 + len(fields) + 6 + b.Len() + 8
		binary.Write(&out, binary.LittleEndian, uint16(len(fields)+6))
		out.WriteString(fields + "BC\x02\x00")
		binary.Write(&out, binary.LittleEndian, uint16(n-1))
		out.Write(b.Bytes())
		binary.Write(&out, binary.LittleEndian, crc32.ChecksumIEEE([]byte(piece)))
		binary.Write(&out, binary.LittleEndian, uint32(len(piece)))
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

// unpackedBoth are what members, and what gzip alone, make of a file.
func unpackedBoth(t *testing.T, packed string) (text string, err error, want string, wantErr error) {
	t.Helper()
	b := bufio.NewReaderSize(strings.NewReader(packed), unpackBytes)
	if peekMember(b) == 0 {
		return "", errNoMember, "", nil
	}
	m, stop, wait := unpackMembers(b, 2, make(chan struct{}, 2))
	got, err := io.ReadAll(m)
	stop()
	wait()
	z, wantErr := gzip.NewReader(strings.NewReader(packed))
	var all []byte
	if wantErr == nil {
		all, wantErr = io.ReadAll(z)
	}
	return string(got), err, string(all), wantErr
}

var errNoMember = errors.New("no member of BGZF")

func TestMembers(t *testing.T) {
	_, text, _ := sample(5, 400)
	many := strings.Repeat(text, 3)
	for name, packed := range map[string]string{
		"one":             bgzfed("", text[:100]),
		"few":             bgzfed("", cutUp(text, memberText)...),
		"many":            bgzfed("", cutUp(many, 900)...),
		"without the end": bgzfed("", text[:50000], text[50000:100000]),
		"other fields":    bgzfed("XX\x03\x00abcBD\x00\x00", cutUp(text, 5000)...),
		"then gzip":       bgzfed("", cutUp(text, 3000)...) + gzipped(text) + bgzfed("", text[:1000], ""),
		"then gzip soon":  bgzfed("", "") + gzipped(text),
	} {
		got, err, want, wantErr := unpackedBoth(t, packed)
		if err != nil || wantErr != nil || got != want || want == "" {
			t.Errorf("%s: %d bytes, %v: want %d, %v", name, len(got), err, len(want), wantErr)
		}
	}
	if b := bufio.NewReaderSize(strings.NewReader(gzipped(text)), unpackBytes); peekMember(b) != 0 {
		t.Error("gzip that is no BGZF is taken for it")
	}
}

// A damaged file is an error, or what gzip makes of it, or the text as it was: cut anywhere, or with a byte that is another.
func TestDamagedMembers(t *testing.T) {
	_, text, _ := sample(6, 5)
	packed := bgzfed("", cutUp(text, 400)...)
	same := func(name, packed string) {
		got, err, want, wantErr := unpackedBoth(t, packed)
		switch {
		case err == errNoMember:
		case err == nil && got != text && (wantErr != nil || got != want): // bits behind the last of a text may be others: its sum is right
			t.Errorf("%s: %d bytes without an error: gzip gives %d and %v", name, len(got), len(want), wantErr)
		case err != nil && !strings.HasPrefix(text, got) && got != want:
			t.Errorf("%s: %d bytes before the error %v are not of the text", name, len(got), err)
		}
	}
	for n := 0; n < len(packed); n += 3 {
		same(fmt.Sprintf("cut at %d", n), packed[:n])
	}
	r := rand.New(rand.NewPCG(7, 7))
	for i := 0; i < len(packed); i += 2 {
		b := []byte(packed)
		b[i] ^= byte(1 + r.IntN(255))
		same(fmt.Sprintf("byte %d", i), string(b))
	}
	for _, tail := range []string{"\x1f", "\x00", "\x1f\x8b\x08\x04\x00\x00\x00\x00\x00\xff\x06\x00BC\x02\x00\x01\x00", "garbage behind the last member"} {
		if got, err, _, wantErr := unpackedBoth(t, packed+tail); got != text || (err == nil) != (tail == "\x00") || wantErr == nil {
			t.Errorf("with %q behind: %d bytes and %v, gzip says %v", tail, len(got), err, wantErr)
		}
	}
}

// What passes for BGZF has the text that gzip finds there, or is an error.
func FuzzMembers(f *testing.F) {
	f.Add([]byte(bgzfed("", ">a\nACGT\n", "")))
	f.Add([]byte(bgzfed("XY\x00\x00", ">a\nACGT\n", ">b\n") + gzipped("C")))
	f.Fuzz(func(t *testing.T, packed []byte) {
		got, err, want, wantErr := unpackedBoth(t, string(packed))
		if err == nil && wantErr == nil && got != want {
			t.Errorf("%q: gzip gives %q", got, want)
		}
	})
}

// Files of BGZF are read as others are, and errors tell the line; who ends early leaves nobody reading.
func TestReadMembers(t *testing.T) {
	dir := t.TempDir()
	a, q, want := sample(9, 500)
	for name, text := range map[string]string{"a": a, "q": q} {
		file := put(t, filepath.Join(dir, name), bgzfed("", cutUp(text, 7000)...))
		for _, o := range []Options{{}, {BlockBytes: 1000, Threads: 1}, {BlockBytes: 5000, Threads: 4}} {
			got, _, err := read([]string{file}, o)
			if err != nil || got != want {
				t.Fatalf("%s, %+v: %d bytes, %v: want %d", name, o, len(got), err, len(want))
			}
		}
		if err := os.Truncate(file, 15000); err != nil {
			t.Fatal(err)
		}
		if _, _, err := read([]string{file}, Options{}); err == nil || !strings.Contains(err.Error(), "the gzip data ends too early") {
			t.Errorf("%s, cut: %v", name, err)
		}
	}
	broken := put(t, filepath.Join(dir, "broken"), bgzfed("", cutUp(q+"@x\nACGT\n+\nII\n", 7000)...))
	if _, _, err := read([]string{broken}, Options{}); err == nil || !strings.Contains(err.Error(), fmt.Sprintf(":%d: ", strings.Count(q, "\n")+4)) {
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
	if p, is := f.text.(packed); !is {
		t.Errorf("%T reads a file of BGZF", f.text)
	} else if _, is := p.text.(*members); !is {
		t.Errorf("%T unpacks a file of BGZF", p.text)
	}
	f.stop()
	s.stop()
	enough, before := errors.New("enough"), runtime.NumGoroutine()
	for range 5 {
		file := put(t, filepath.Join(dir, "long"), bgzfed("", cutUp(strings.Repeat(q, 5), 3000)...))
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
