package files

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/klauspost/compress/gzip"

	"github.com/warpmap/warpmap/internal/testenv"
)

// bgzfed packs pieces as members of BGZF, with other fields before theirs.
func bgzfed(fields string, pieces ...string) string {
	var out bytes.Buffer
	for _, piece := range pieces {
		from := out.Len()
		z := gzip.NewWriter(&out)
		z.Extra = []byte(fields + "BC\x02\x00\x00\x00")
		z.Write([]byte(piece))
		z.Close()
		member := out.Bytes()[from:]
		binary.LittleEndian.PutUint16(member[memberHead+len(fields)+4:], uint16(len(member)-1))
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

// letters is a text that packs as sequences do.
func letters(seed uint64, n int) string {
	r, b := rand.New(rand.NewPCG(seed, 1)), make([]byte, n)
	for i := range b {
		b[i] = "ACGT\n"[r.IntN(5)]
	}
	return string(b)
}

func gzipped(text string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Write([]byte(text))
	z.Close()
	return b.String()
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
	text := letters(5, 300_000)
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

// A damaged file is an error, or what gzip makes of it, or the text as it was: cut anywhere, or with a byte that is
// another.
func TestDamagedMembers(t *testing.T) {
	text := letters(6, 1500)
	packed := bgzfed("", cutUp(text, 400)...)
	same := func(name, packed string) {
		got, err, want, wantErr := unpackedBoth(t, packed)
		switch {
		case err == errNoMember:
		case err == nil && got != text && (wantErr != nil || got != want):
			// bits behind the last of a text may be others: its sum is right
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
	for _, tail := range []string{"\x1f", "\x00", "\x1f\x8b\x08\x04\x00\x00\x00\x00\x00\xff\x06\x00BC\x02\x00\x01\x00",
		"garbage behind the last member"} {
		if got, err, _, wantErr := unpackedBoth(t, packed+tail); got != text || (err == nil) != (tail == "\x00") ||
			wantErr == nil {
			t.Errorf("with %q behind: %d bytes and %v, gzip says %v", tail, len(got), err, wantErr)
		}
	}
}

// Close waits for the goroutines that unpack members, and those that wait for a place end, though there be none.
func TestClosingMembers(t *testing.T) {
	before := runtime.NumGoroutine()
	work := make(chan struct{}, 1)
	work <- struct{}{} // somebody else has it
	x, err := NewText(io.NopCloser(strings.NewReader(bgzfed("", cutUp(letters(1, 100_000), 50)...))),
		Unpacking{Work: work, Ahead: 3})
	if err != nil {
		t.Fatal(err)
	}
	time.Sleep(20 * time.Millisecond)
	if err := x.Close(); err != nil {
		t.Error(err)
	}
	for wait := 0; runtime.NumGoroutine() > before; wait++ {
		if wait == 500 {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// What passes for BGZF has the text that gzip finds there, or is an error.
func FuzzMembers(f *testing.F) {
	f.Add([]byte(bgzfed("", ">a\nACGT\n", "")))
	f.Add([]byte(bgzfed("XY\x00\x00", ">a\nACGT\n", ">b\n") + gzipped("C")))
	f.Fuzz(func(t *testing.T, packed []byte) {
		testenv.Bounded(t, len(packed), func() {
			got, err, want, wantErr := unpackedBoth(t, string(packed))
			if err == nil && wantErr == nil && got != want {
				t.Errorf("%q: gzip gives %q", got, want)
			}
		})
	})
}
