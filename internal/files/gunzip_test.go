package files

import (
	"bufio"
	"bytes"
	"compress/flate"
	stdlib "compress/gzip"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"runtime"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	klauspost "github.com/klauspost/compress/flate"
	"github.com/klauspost/compress/gzip"

	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/internal/inflate"
	"github.com/warpmap/warpmap/internal/testenv"
)

// libraryText is the text of gzip's members in a row, unpacked by a library.
type libraryText struct {
	from *bufio.Reader
	z    interface {
		io.Reader
		Reset(io.Reader) error
		Multistream(bool)
	}
	in bool // a member
}

func (g *libraryText) Read(to []byte) (int, error) {
	for {
		if !g.in {
			if err := g.next(); err != nil {
				return 0, err
			}
		}
		n, err := g.z.Read(to)
		if err != io.EOF {
			return n, err
		}
		if g.in = false; n > 0 {
			return n, nil
		}
	}
}

func (g *libraryText) next() error {
	head, err := g.from.Peek(1)
	for ; err == nil && head[0] == 0; head, err = g.from.Peek(1) {
		g.from.Discard(1)
	}
	if err != nil {
		return err
	}
	if more, err := g.from.Peek(2); head[0] != 0x1f || err == nil && PackingOf(more) != "gzip" {
		return inflate.ErrBehind
	}
	if err := g.z.Reset(g.from); err == io.EOF { // within the header: something is there
		return io.ErrUnexpectedEOF
	} else if err != nil {
		return err
	}
	g.z.Multistream(false)
	g.in = true
	return nil
}

func allOf(from io.Reader) (string, error) {
	all, err := io.ReadAll(from)
	return string(all), err
}

func byLibrary(packed string) (string, error) {
	return allOf(&libraryText{from: bufio.NewReader(strings.NewReader(packed)), z: new(gzip.Reader)})
}

// damagedAt is how many bytes of damaged data the standard library has looked at. That of klauspost counts bytes twice
// that it holds when a stored block begins, so that its offsets run ahead with each.
func damagedAt(packed string) (at flate.CorruptInputError, is bool) {
	_, err := io.Copy(io.Discard, &libraryText{from: bufio.NewReader(strings.NewReader(packed)), z: new(stdlib.Reader)})
	return at, errors.As(err, &at)
}

func byPieces(packed string, length int) (string, error) {
	g, stop, wait := newGunzip(strings.NewReader(packed), length, 3, make(chan struct{}, 3))
	defer wait()
	defer stop()
	return allOf(g)
}

// alike tells whether an error is the library's. Of damaged data each says how many bytes were looked at. Here, as in
// klauspost's, no fewer bits are looked at than the shortest that may follow takes, which is up to 2 bytes more than in
// the standard library.
func alike(packed string, own, library error) bool {
	var damaged flate.CorruptInputError
	if errors.As(own, &damaged) && (errors.As(library, new(flate.CorruptInputError)) || errors.As(library, new(klauspost.InternalError))) {
		at, is := damagedAt(packed)
		return is && damaged >= at && damaged <= at+2
	}
	return fmt.Sprint(own) == fmt.Sprint(library)
}

func gzippedAt(level int, text string) string {
	var b bytes.Buffer
	z, err := stdlib.NewWriterLevel(&b, level)
	if err != nil {
		panic(err)
	}
	io.WriteString(z, text)
	z.Close()
	return b.String()
}

// reads are lines of FASTQ.
func reads(seed uint64, n int) string {
	r := rand.New(rand.NewPCG(seed, 3))
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "@r%d:%d\n%s\n+\n", i, r.IntN(9999), strings.ReplaceAll(letters(seed+uint64(i), 100), "\n", "N"))
		for left := 100; left > 0; {
			k := min(1+r.IntN(20), left)
			b.WriteString(strings.Repeat(string("IF:,#"[r.IntN(5)]), k))
			left -= k
		}
		b.WriteByte('\n')
	}
	return b.String()[:n]
}

// What is unpacked in a row, and what is unpacked in pieces, is what the library has, text and error: of whole files,
// of files that are cut, and of files with a bit that is another.
func TestGunzip(t *testing.T) {
	text := reads(1, 150_000)
	noise := make([]byte, 70_000)
	r := rand.New(rand.NewPCG(1, 9+testenv.FirstSeed()))
	for i := range noise {
		noise[i] = byte(r.Uint32())
	}
	files := map[string]string{
		"members":       gzipped(text[:100]) + gzippedAt(1, text) + gzippedAt(9, text[:50]) + gzipped(text),
		"small members": strings.Repeat(gzipped(text[:3000]), 40),
		"zeros":         gzipped(text[:5000]) + "\x00\x00\x00" + gzipped(text[:1000]) + "\x00\x00",
		"behind":        gzipped(text[:5000]) + "garbage",
		"little behind": gzipped(text[:5000]) + "\x1f",
	}
	levels := []int{flate.HuffmanOnly, 0, 1, 2, 6, 9}
	if testing.Short() { // beside the race detector, which goroutines alone concern
		levels = levels[1:3]
	}
	for name, text := range map[string]string{"reads": text, "two": strings.Repeat("ab", 70_000), "noise": string(noise),
		"one": strings.Repeat("A", 100_000), "few": "abc", "none": "", "mixed": text[:60_000] + string(noise) + text} {
		for _, level := range levels {
			files[fmt.Sprint(name, " ", level)] = gzippedAt(level, text)
		}
	}
	same := func(name, packed string) {
		want, wantErr := byLibrary(packed)
		for _, length := range []int{0, 1000 + r.IntN(8000), 30_000} {
			var got string
			var err error
			if length == 0 {
				got, err = allOf(newRow(strings.NewReader(packed)))
			} else {
				got, err = byPieces(packed, length)
			}
			if got != want || !alike(packed, err, wantErr) {
				t.Fatalf("%s, pieces of %d: %d bytes, %v, the library has %d, %v", name, length, len(got), err, len(want),
					wantErr)
			}
		}
	}
	var between bytes.Buffer // stored blocks between others
	z := stdlib.NewWriter(&between)
	for i := range 20 {
		io.WriteString(z, text[1000*i:][:1000])
		z.Flush()
		z.Write(noise[1000*i:][:1000])
		z.Flush()
	}
	z.Close()
	files["stored between"] = between.String()
	some, header := 3, 12
	switch {
	case testenv.Long():
		some, header = 200, 60
	case testing.Short():
		some = 1
	}
	for name, packed := range files {
		same(name, packed)
		for range some {
			n, flipped := r.IntN(len(packed)), []byte(packed)
			same(fmt.Sprintf("%s, cut at %d", name, n), packed[:n])
			bit := r.IntN(8 * len(packed))
			flipped[bit/8] ^= 1 << (bit % 8)
			same(fmt.Sprintf("%s, bit %d", name, bit), string(flipped))
		}
		for _, bit := range []int{8*len(packed) - 90, 8*len(packed) - 100, 8*len(packed) - 120} { // behind all that one may miscount
			flipped := []byte(packed)
			if bit > 0 {
				flipped[bit/8] ^= 1 << (bit % 8)
				same(fmt.Sprintf("%s, bit %d", name, bit), string(flipped))
			}
		}
		for range header {
			bit, flipped := r.IntN(8*min(len(packed), 60)), []byte(packed)
			flipped[bit/8] ^= 1 << (bit % 8)
			same(fmt.Sprintf("%s, bit %d", name, bit), string(flipped))
		}
	}
}

// The header of a stored block may begin in the last bits of a piece, and go on in the next.
func TestGunzipHeaderAcrossPieces(t *testing.T) {
	text, tried := reads(5, 12_000), 0
	for n := 2000; n < 2100; n++ {
		var b bytes.Buffer
		z := stdlib.NewWriter(&b)
		io.WriteString(z, text[:n])
		z.Flush() // an empty stored block: its lengths are the last four bytes
		at := b.Len() - 5
		io.WriteString(z, text[n:])
		z.Close()
		for parts := 2; parts < 5; parts++ {
			if at%parts > 0 {
				continue
			}
			tried++
			if got, err := byPieces(b.String(), at/parts); got != text || err != nil {
				t.Fatalf("%d bytes before it, pieces of %d: %d bytes, %v", n, at/parts, len(got), err)
			}
		}
	}
	if tried < 20 {
		t.Errorf("%d pieces that end so", tried)
	}
}

// Most pieces are unpacked beside one another, and what takes no more than its share of memory is so, too.
func TestGunzipInPieces(t *testing.T) {
	packed := gzipped(reads(3, 3_000_000))
	g, stop, wait := newGunzip(strings.NewReader(packed), 100_000, 3, make(chan struct{}, 3))
	defer wait()
	defer stop()
	of, pieces := map[bool]int{}, 0
	for ; g.err == nil; pieces++ {
		if g.next(); g.now != nil && g.now.text != nil {
			of[g.now.chunk != nil] += g.now.text.Len()
		}
	}
	if g.err != io.EOF || of[true] < 2_800_000 {
		t.Errorf("%v; %d bytes are of chunks, and %d are not", g.err, of[true], of[false])
	}
	// Text that is a thousand times as long as its data takes no more memory.
	bomb := gzipped(strings.Repeat("\x00", 40<<20))
	n := int64(0)
	took := allocated(func() {
		g, stop, wait := newGunzip(strings.NewReader(bomb), 10_000, 3, make(chan struct{}, 3))
		defer wait()
		defer stop()
		var err error
		if n, err = io.CopyBuffer(struct{ io.Writer }{io.Discard}, struct{ io.Reader }{g}, make([]byte, 1<<16)); err != nil {
			t.Error(err)
		}
	})
	if n != 40<<20 || took > 60<<20 { // each text that is given is a copy
		t.Errorf("%d bytes, and %d of memory in all", n, took)
	}
}

// allocated is how many bytes do has allocated.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// Who ends early leaves no goroutine, whether they wait for a pipe, for a place to work, or for who reads.
func TestGunzipEnds(t *testing.T) {
	packed := gzipped(reads(5, 1_000_000))
	before := runtime.NumGoroutine()
	read, write, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	io.WriteString(write, packed[:40_000])
	for name, c := range map[string]struct {
		from io.ReadCloser
		work int
		read int64
	}{"not read": {io.NopCloser(strings.NewReader(packed)), 3, 0}, "read": {io.NopCloser(strings.NewReader(packed)), 3, 9000},
		"no place": {io.NopCloser(strings.NewReader(packed)), 0, 0}, "a pipe": {read, 3, 0}} {
		g, stop, wait := newGunzip(c.from, 10_000, 3, make(chan struct{}, c.work))
		if n, err := io.CopyN(io.Discard, g, c.read); n != c.read || err != nil {
			t.Errorf("%s: %d bytes, %v", name, n, err)
		}
		stop()
		c.from.Close()
		wait()
	}
	write.Close()
	for wait := 0; runtime.NumGoroutine() > before; wait++ { // those that have done their work are still to be gone
		if wait == 500 {
			t.Fatalf("%d goroutines, %d before", runtime.NumGoroutine(), before)
		}
		time.Sleep(10 * time.Millisecond)
	}
}

// Of an input whose Read does not end when it is closed, Close leaves the goroutine that reads.
func TestGunzipOfInputsThatWait(t *testing.T) {
	read, write := io.Pipe()
	packed := gzipped(reads(5, 900_000))
	sent := make(chan struct{})
	go func() {
		io.WriteString(write, packed[:len(packed)/2])
		close(sent)
	}()
	x, err := NewText(io.NopCloser(read), Unpacking{Work: make(chan struct{}, 4), Ahead: 2, Waits: true})
	if err != nil {
		t.Fatal(err)
	}
	<-sent
	if err := x.Close(); err != nil { // and returns
		t.Error(err)
	}
	write.Close()
}

// A panic in any of the goroutines is an error of Read, and all end.
func TestGunzipPanics(t *testing.T) {
	packed := gzipped(reads(6, 200_000))
	defer func() { crash.Plant = nil }()
	for after := range int64(20) {
		var calls atomic.Int64
		crash.Plant = func() {
			if calls.Add(1) > after {
				panic("planted")
			}
		}
		_, err := byPieces(packed, 20_000)
		var of *crash.Error
		if errors.As(err, &of) != (calls.Load() > after) {
			t.Errorf("panics behind %d of %d calls: %v", after, calls.Load(), err)
		}
	}
}

// What an input cannot give is its error, behind the text before it.
func TestGunzipOfBrokenInputs(t *testing.T) {
	text := reads(7, 300_000)
	packed, failed := gzipped(text), errors.New("the disk is gone")
	for n := 1000; n < len(packed); n += 9000 {
		from := func() io.Reader {
			return io.MultiReader(strings.NewReader(packed[:n]), errorReader{failed})
		}
		g, stop, wait := newGunzip(from(), 20_000, 3, make(chan struct{}, 3))
		got, err := allOf(g)
		stop()
		wait()
		row, other := allOf(newRow(from()))
		if err != failed || other != failed || got != row || !strings.HasPrefix(text, got) || len(got) < n {
			t.Errorf("%d bytes packed: %d, %v; in a row %d, %v", n, len(got), err, len(row), other)
		}
	}
}

type errorReader struct{ err error }

func (r errorReader) Read([]byte) (int, error) { return 0, r.err }

// What the library has, in a row and in pieces, whatever the input is.
func FuzzGunzip(f *testing.F) {
	f.Add([]byte(gzipped(reads(1, 3000))), uint16(700))
	f.Add([]byte(gzipped("abc")+gzipped(reads(2, 900))+"\x00\x00"), uint16(90))
	f.Add([]byte(gzippedAt(0, reads(3, 2000))+"x"), uint16(1))
	f.Fuzz(func(t *testing.T, packed []byte, length uint16) {
		testenv.Bounded(t, len(packed), func() {
			const most = 4 << 20
			row, err := allOf(io.LimitReader(newRow(bytes.NewReader(packed)), most))
			if len(row) == most {
				return
			}
			if got, other := byPieces(string(packed), 1+int(length)); got != row || fmt.Sprint(err) != fmt.Sprint(other) {
				t.Errorf("pieces of %d: %d bytes, %v, in a row %d, %v", 1+int(length), len(got), other, len(row), err)
			}
			if want, other := byLibrary(string(packed)); (err == nil) != (other == nil) || err == nil && want != row {
				t.Errorf("the library has %d bytes, %v, in a row %d, %v", len(want), other, len(row), err)
			}
		})
	})
}

// A small file takes little memory to open: databases are made of thousands of them.
func TestSmallGzipFile(t *testing.T) {
	path := t.TempDir() + "/small.gz"
	if err := os.WriteFile(path, []byte(gzipped("a text")), 0o600); err != nil {
		t.Fatal(err)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	f, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	x, err := NewText(f, Unpacking{Work: make(chan struct{}, 16), Ahead: 16})
	if err != nil {
		t.Fatal(err)
	}
	got, err := allOf(x)
	runtime.ReadMemStats(&after)
	if got != "a text" || err != nil || x.Close() != nil {
		t.Errorf("%q, %v", got, err)
	}
	if took := after.TotalAlloc - before.TotalAlloc; took > 600<<10 {
		t.Errorf("a file of some bytes takes %d bytes", took)
	}
}

// idle is an input that gives nothing, and no error.
type idle struct{}

func (idle) Read([]byte) (int, error) { return 0, nil }

// An input that gives nothing more, and no end, is an error as it is for bufio.
func TestGunzipNoProgress(t *testing.T) {
	part := gzipped(reads(6, 50_000))[:900]
	for _, u := range []Unpacking{{}, {Work: make(chan struct{}, 8), Ahead: 3}} {
		x, err := NewText(io.NopCloser(io.MultiReader(strings.NewReader(part), idle{})), u)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := allOf(x); !errors.Is(err, io.ErrNoProgress) {
			t.Errorf("%d places: %v", cap(u.Work), err)
		}
		x.Close()
	}
}
