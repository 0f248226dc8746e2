package inflate

import (
	"bytes"
	"compress/gzip"
	"fmt"
	"hash/crc32"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	library "github.com/klauspost/compress/gzip"

	"github.com/warpmap/warpmap/internal/testenv"
)

// reads are lines of FASTQ.
func reads(seed uint64, n int) string {
	r := rand.New(rand.NewPCG(seed, 3))
	var b strings.Builder
	for i := 0; b.Len() < n; i++ {
		fmt.Fprintf(&b, "@r%d:%d\n", i, r.IntN(9999))
		for range 100 {
			b.WriteByte("ACGT"[r.IntN(4)])
		}
		b.WriteString("\n+\n")
		for left := 100; left > 0; {
			k := min(1+r.IntN(20), left)
			b.WriteString(strings.Repeat(string("IF:,#"[r.IntN(5)]), k))
			left -= k
		}
		b.WriteByte('\n')
	}
	return b.String()[:n]
}

func noise(seed uint64, n int) string {
	r, b := rand.New(rand.NewPCG(seed, 4)), make([]byte, n)
	for i := range b {
		b[i] = byte(r.Uint32())
	}
	return string(b)
}

// packed is gzip data of a member, by two encoders.
func packed(level int, text string) string {
	var b bytes.Buffer
	z, err := gzip.NewWriterLevel(&b, level)
	if err != nil {
		panic(err)
	}
	if level%2 == 0 {
		io.WriteString(z, text)
		z.Close()
		return b.String()
	}
	l, err := library.NewWriterLevel(&b, level)
	if err != nil {
		panic(err)
	}
	for at := 0; at < len(text); at += 100_000 { // empty stored blocks between others
		io.WriteString(l, text[at:min(len(text), at+100_000)])
		l.Flush()
	}
	l.Close()
	return b.String()
}

// samples are texts of all kinds, packed in all ways.
func samples() map[string][2]string {
	all := map[string][2]string{}
	for name, text := range map[string]string{"reads": reads(1, 200_000), "two": strings.Repeat("ab", 50_000),
		"noise": noise(1, 100_000), "one": strings.Repeat("A", 200_000), "few": "abc", "none": "",
		"mixed": reads(2, 80_000) + noise(2, 40_000) + reads(3, 80_000) + strings.Repeat("xyz", 9_000)} {
		for _, level := range []int{gzip.HuffmanOnly, 0, 1, 2, 5, 6, 9} {
			all[fmt.Sprint(name, " ", level)] = [2]string{packed(level, text), text}
		}
	}
	text := reads(4, 60_000)
	all["members"] = [2]string{packed(6, text[:90]) + packed(1, text) + packed(6, "") + packed(9, text[:7000]) +
		"\x00\x00" + packed(2, text), text[:90] + text + text[:7000] + text}
	all["many members"] = [2]string{strings.Repeat(packed(6, text[:9000]), 60), strings.Repeat(text[:9000], 60)}
	return all
}

// inRow unpacks with a room for text, from input in pieces of random lengths up to most.
func inRow(packed string, room, most int, r *rand.Rand) (string, error) {
	s, check, out, at := NewSequence(room), Check{}, []byte(nil), int64(0)
	for {
		why, err := s.Next(Rest, at == int64(len(packed)))
		text := s.Text()
		n, wrong := check.Add(text)
		if out = append(out, text.Parts[0][:n]...); wrong != nil {
			return string(out), wrong
		}
		if err != nil {
			return string(out), err
		}
		if why == Starved {
			at = min(at+int64(1+r.IntN(most)), int64(len(packed)))
			s.Input([]byte(packed[s.Needs():at]), s.Needs())
		}
	}
}

// byChunks unpacks pieces by themselves, as far as that can be done, and tells how much of the text came so.
func byChunks(packed string, piece int) (text string, chunked int, err error) {
	s, check, out, c := NewSequence(4<<10), Check{}, []byte(nil), new(Chunk)
	add := func(t *Text) (err error) {
		n, wrong := check.Add(t)
		out = append(append(out, t.Parts[0]...), t.Parts[1]...)
		out = out[:len(out)-t.Len()+n]
		return wrong
	}
	for base := 0; ; base += piece {
		in, last := []byte(packed[base:min(len(packed), base+2*piece)]), base+2*piece >= len(packed)
		s.Input(in, int64(base))
		c.Decode(in, min(piece, len(in)), new(atomic.Bool))
		for taken := false; ; {
			at, upTo := 0, 8*piece
			if last {
				upTo = Rest
			}
			if !taken {
				if at, taken = s.Take(c); taken {
					t := c.Text()
					chunked += t.Len()
					if err := add(t); err != nil {
						return string(out), chunked, err
					}
					continue
				} else if at > 0 {
					upTo = at
				}
			}
			why, err := s.Next(upTo, last)
			if wrong := add(s.Text()); wrong != nil {
				return string(out), chunked, wrong
			}
			if err != nil {
				return string(out), chunked, err
			}
			if why == Starved || why == Placed && at == 0 {
				break
			}
		}
		if s.Needs() < int64(base+piece) {
			return string(out), chunked, errStarved // the piece is too short for a test
		}
	}
}

func TestUnpack(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 1))
	for name, s := range samples() {
		for _, most := range []int{1 << 20, 3000, 20} {
			if most == 20 && len(s[0]) > 60_000 && !testenv.Long() {
				continue
			}
			if got, err := inRow(s[0], 1000+r.IntN(100_000), most, r); err != io.EOF || got != s[1] {
				t.Errorf("%s, read by %d: %d bytes, %v, want %d", name, most, len(got), err, len(s[1]))
			}
		}
	}
}

// Most of a text comes from chunks, which are decoded without what is before, and all of it is right.
func TestChunks(t *testing.T) {
	for name, s := range samples() {
		for _, piece := range []int{7_000, 30_000} {
			got, chunked, err := byChunks(s[0], piece)
			if err != io.EOF || got != s[1] {
				t.Errorf("%s, pieces of %d: %d bytes, %v, want %d", name, piece, len(got), err, len(s[1]))
			}
			if piece == 30_000 && strings.HasPrefix(name, "reads") && name != "reads 0" && chunked < len(s[1])*3/5 {
				t.Errorf("%s, pieces of %d: %d bytes of %d come from chunks", name, piece, chunked, len(s[1]))
			}
		}
	}
	text := noise(7, 1_000_000)
	got, chunked, err := byChunks(packed(0, text), 150_000)
	if got != text || err != io.EOF || chunked < len(text)/2 {
		t.Errorf("stored: %d bytes, %d of them from chunks, %v, want %d", len(got), chunked, err, len(text))
	}
}

// The finder finds all blocks with codes of their own but the last of a member, all stored ones, and all members.
func TestFinder(t *testing.T) {
	blocks := 0
	for name, s := range samples() {
		in := []byte(s[0])
		var found []int
		for f := newFinder(in, len(in)); ; {
			bit, _, ok := f.find()
			if !ok {
				break
			}
			found = append(found, bit)
		}
		if !slices.IsSorted(found) {
			t.Errorf("%s: places are not found in order", name)
		}
		n, err := header(in)
		if err != nil {
			t.Fatal(err)
		}
		d, text := new(decoder), make([]byte, len(s[1])+turnOut)
		d.reset(in, 8*n)
		for p, why := 0, atBlock; why == atBlock; blocks++ {
			bit := settled(in, d.bit)
			if w := peek(in, bit) & 7; w == 0 || w == 4 {
				if _, ok := slices.BinarySearch(found, bit); !ok {
					t.Errorf("%s: block %d, at bit %d, is not found", name, blocks, bit)
				}
			}
			p, why = d.bytes(text, p, 0)
			if why != atBlock && why != atEnd {
				t.Fatal(name, why)
			}
		}
	}
	if blocks < 100 {
		t.Errorf("%d blocks", blocks)
	}
}

// A chunk whose match reaches back behind the begin of its member is refused, although it can be decoded.
func TestReachingBehindAMember(t *testing.T) {
	text := reads(1, 300_000)
	whole := packed(6, text)
	in := []byte(whole)
	first := new(Chunk)
	first.Decode(in, 15_000, new(atomic.Bool)) // the member's first blocks
	if !first.sound || first.here.place != atBlockHeader {
		t.Fatalf("%+v", first.here)
	}
	// The next block, behind a header of a member.
	cut := first.here.bit / 8
	shifted := append([]byte("\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"), in[cut:]...)
	s := NewSequence(1 << 20)
	s.Input(shifted, 0)
	s.place, s.d.bit = atBlockHeader, 80+first.here.bit%8
	c := new(Chunk)
	c.Decode(shifted[10:], 15_000, new(atomic.Bool))
	c.first.bit += 80
	if at, ok := s.Take(c); ok || at != 0 || !c.sound || c.d.low == history {
		t.Errorf("a chunk is taken that reaches back %d bytes", history-c.d.low)
	}
	s.text, s.p = append([]byte(text[:history]), s.text...), history
	if _, ok := s.Take(c); !ok {
		t.Error("a chunk is not taken with its window")
	}
}

func TestSums(t *testing.T) {
	text := []byte(noise(9, 5000))
	r := rand.New(rand.NewPCG(5, 5))
	for range 200 {
		a := r.IntN(len(text))
		b := a + r.IntN(len(text)-a)
		first, second := crc32.ChecksumIEEE(text[:a]), crc32.ChecksumIEEE(text[a:b])
		if got, want := combined(first, second, b-a), crc32.ChecksumIEEE(text[:b]); got != want {
			t.Fatalf("sums of %d and %d bytes make %x, want %x", a, b-a, got, want)
		}
	}
	if got, want := combined(7, 0, 5<<30), combined(combined(7, 0, 4<<30), 0, 1<<30); got != want {
		t.Errorf("a sum over 5 GiB is %x, want %x", got, want)
	}
}

// In a row, in pieces, and by the library, whatever the input is: the same text, and an error or none.
func FuzzInflate(f *testing.F) {
	for _, level := range []int{gzip.HuffmanOnly, 0, 1, 6} {
		f.Add([]byte(packed(level, reads(1, 3000))), uint16(900))
	}
	f.Add([]byte(packed(6, "")+packed(6, strings.Repeat("ab", 400))+"\x00"), uint16(600))
	f.Add([]byte(packed(6, noise(1, 900))), uint16(700))
	f.Fuzz(func(t *testing.T, in []byte, piece uint16) {
		testenv.Bounded(t, len(in), func() {
			const most = 4 << 20
			r := rand.New(rand.NewPCG(uint64(len(in)), uint64(piece)))
			var want []byte
			z, wantErr := library.NewReader(bytes.NewReader(in))
			if wantErr == nil {
				want, wantErr = io.ReadAll(io.LimitReader(z, most))
			}
			if len(want) == most {
				return
			}
			row, err := inRow(string(in), 1000+r.IntN(70_000), 1+r.IntN(5000), r)
			switch {
			case wantErr == nil && (row != string(want) || err != io.EOF && err != io.ErrUnexpectedEOF):
				// the library takes a header that ends within a name for the end
				t.Errorf("in a row: %d bytes, %v, the library has %d", len(row), err, len(want))
			case wantErr != nil && err == io.EOF && !zerosBehind(wantErr):
				t.Errorf("in a row: no error, the library has %v", wantErr)
			}
			pieces, _, other := byChunks(string(in), 512+int(piece))
			if other != errStarved && (pieces != row || fmt.Sprint(err) != fmt.Sprint(other)) {
				t.Errorf("in pieces: %d bytes, %v, in a row %d, %v", len(pieces), other, len(row), err)
			}
		})
	})
}

// zerosBehind tells that an error of the library may be that of zeros behind the last member, which are none here.
func zerosBehind(err error) bool {
	return err == gzip.ErrHeader || err == io.ErrUnexpectedEOF || err == io.EOF
}

func BenchmarkInflate(b *testing.B) {
	for _, kind := range []string{"FASTQ", "FASTA"} {
		text := reads(1, 8<<20)
		if kind == "FASTA" {
			var lines []byte
			for i, line := range bytes.Split([]byte(text), []byte("\n")) {
				if i%4 < 2 {
					lines = append(append(lines, line...), '\n')
				}
			}
			text = string(lines)
		}
		in := []byte(packed(6, text))
		b.Run(kind+"/row", func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			for b.Loop() {
				s := NewSequence(256 << 10)
				s.Input(in, 0)
				for err := error(nil); err == nil; s.Text() {
					_, err = s.Next(Rest, true)
				}
			}
		})
		b.Run(kind+"/chunk", func(b *testing.B) {
			const piece = 512 << 10
			c, s := new(Chunk), NewSequence(4<<10)
			for b.Loop() {
				c.Decode(in[100:], piece, new(atomic.Bool))
				b.SetBytes(int64(c.here.length()))
				s.spare = c.follow(s.text[:history], s.spare[:0])
				c.Text()
			}
		})
		b.Run(kind+"/library", func(b *testing.B) {
			b.SetBytes(int64(len(text)))
			z := new(library.Reader)
			for b.Loop() {
				z.Reset(bytes.NewReader(in))
				io.Copy(io.Discard, z)
			}
		})
	}
}
