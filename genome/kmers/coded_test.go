package kmers

import (
	"bytes"
	"encoding/binary"
	"errors"
	"hash/crc32"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/warpmap/warpmap/internal/testenv"
)

// some makes a part of n k-mers, some of which have the same first word, and whose counts are of a spread.
func some(r *rand.Rand, part, words, n int, count func() uint32) counted {
	x := newCounted(words, n)
	seen := map[[2]uint64]bool{}
	var all [][2]uint64
	for len(all) < n {
		m := [2]uint64{uint64(part)<<(64-partBits) | r.Uint64()>>partBits}
		if words > 1 {
			if m[1] = r.Uint64(); len(all) > 0 && r.IntN(4) == 0 {
				m[0] = all[len(all)-1][0]
			}
		}
		if r.IntN(8) == 0 { // the ends
			m[0] = uint64(part)<<(64-partBits) | (math.MaxUint64>>partBits)*uint64(r.IntN(2))
		}
		if !seen[m] {
			seen[m] = true
			all = append(all, m)
		} else if words == 1 && n == 1 {
			break
		}
	}
	slices.SortFunc(all, func(a, b [2]uint64) int { return slices.Compare(a[:], b[:]) })
	for i, m := range all {
		copy(x.mix(i), m[:words])
		x.counts[i] = count()
	}
	return x
}

// What a part is coded to has as many bytes as its header says, and gives the part again.
func TestCodedParts(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 7))
	for name, count := range map[string]func() uint32{
		"ones":  func() uint32 { return 1 },
		"few":   func() uint32 { return 1 + uint32(r.ExpFloat64()) },
		"reads": func() uint32 { return 20 + uint32(r.IntN(40)) },
		"large": func() uint32 { return r.Uint32N(1<<20) + 1 },
		"ends": func() uint32 {
			return []uint32{1, math.MaxUint32, math.MaxUint32 - 1, 65536, 65535, 4, 3, 2}[r.IntN(8)]
		},
		"at max": func() uint32 { return math.MaxUint32 },
	} {
		for _, words := range []int{1, 2} {
			for _, n := range []int{0, 1, 2, 3, 31, 64, 65, 1000, 5000} {
				part := r.IntN(parts)
				x := some(r, part, words, n, count)
				var s spread
				for _, c := range x.counts {
					s.add(c, 1)
				}
				text, h := x.code([]byte("before"), 1, &s)
				text = text[len("before"):]
				if bytes, err := h.bytes(words, int64(len(text))); err != nil || bytes != int64(len(text)) {
					t.Fatalf("%s, %d of %d words: %d bytes, its header says %d (%v)", name, n, words, len(text), bytes, err)
				}
				if n == 0 {
					continue
				}
				y, err := h.decode(part, words, text, true)
				if err != nil || !slices.Equal(x.mixes, y.mixes) || !slices.Equal(x.counts, y.counts) {
					t.Fatalf("%s, %d of %d words: %v; want what was coded", name, n, words, err)
				}
				if y, err := h.decode(part, words, text, false); err != nil || !slices.Equal(x.counts, y.counts) {
					t.Fatalf("%s, %d of %d words: counts alone: %v", name, n, words, err)
				}
			}
		}
	}
}

// Hashes that are sorted take as many bits as they tell; counts of which nearly all are small, hardly any.
func TestCodedSize(t *testing.T) {
	r := rand.New(rand.NewPCG(2, 9))
	const n = 20000
	x := some(r, 5, 1, n, func() uint32 { return 1 + uint32(r.ExpFloat64()/4) })
	var s spread
	for _, c := range x.counts {
		s.add(c, 1)
	}
	if text, _ := x.code(nil, 1, &s); len(text) > 5*n+n/2 {
		t.Errorf("%.2f bytes a k-mer, want 5.5 at most", float64(len(text))/n)
	}
}

// A file whose checksums are right may say anything: it is an error, or as many k-mers in order as it says.
func FuzzPart(f *testing.F) {
	r := rand.New(rand.NewPCG(2, 8))
	for _, words := range []int{1, 2} {
		x := some(r, 3, words, 9, func() uint32 { return 1 + uint32(r.IntN(3))*100 })
		var s spread
		for _, c := range x.counts {
			s.add(c, 1)
		}
		text, h := x.code(nil, 1, &s)
		f.Add(h.N, h.Large, h.Least, h.Width, words == 2, text)
		f.Add(uint64(1)<<63, h.Large, h.Least, h.Width, words == 2, text)
		f.Add(h.N, h.Large, uint32(math.MaxUint32), uint32(16), words == 2, text)
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, n uint64, large, least, width uint32, wide bool, text []byte) {
		testenv.Bounded(t, len(text), func() {
			k := 20
			if wide {
				k = 40
			}
			head, err := binary.Append(nil, binary.LittleEndian, fileHeader{Magic: fileMagic, Version: fileVersion, K: uint32(k)})
			must(t, err)
			all := make([]partHeader, parts)
			all[3] = partHeader{N: n, Sum: crc32.Checksum(text, castagnoli), Large: large, Least: least, Width: width}
			head, err = binary.Append(head, binary.LittleEndian, all)
			must(t, err)
			head = binary.LittleEndian.AppendUint32(head, crc32.Checksum(head, castagnoli))
			name := filepath.Join(dir, "x")
			must(t, os.WriteFile(name, append(append(head, make([]byte, headerBytes-len(head))...), text...), 0o600))
			x, err := Open(name)
			if err == nil {
				defer x.Close()
				seen := uint64(0)
				if err = x.Each(func(Kmer, uint32) error { seen++; return nil }); err == nil && seen != n {
					t.Fatalf("%d k-mers, and its header says %d", seen, n)
				}
				if _, other := x.Histogram(10); err == nil && other != nil {
					t.Fatal(other)
				}
			}
			if of := (*FileError)(nil); err != nil && !errors.As(err, &of) {
				t.Fatal(err)
			}
		})
	})
}

// A file of a later version is refused by its number, and one that ends within its header, too.
func TestVersionOfFile(t *testing.T) {
	dir := t.TempDir()
	out := filepath.Join(dir, "out")
	w, err := create(out, Options{K: 21})
	must(t, err)
	must(t, w.close(true))
	whole, err := os.ReadFile(out)
	must(t, err)
	later := bytes.Clone(whole)
	later[8] = fileVersion + 1
	for says, text := range map[string][]byte{"is of version 4, and this program reads versions 1 to 3": later,
		"ends within its header": whole[:len(whole)-10], "not a file of warpmap kmers count": whole[1:]} {
		must(t, os.WriteFile(out, text, 0o600))
		if _, err := Open(out); err == nil || !bytes.Contains([]byte(err.Error()), []byte(says)) {
			t.Errorf("%v; want %s", err, says)
		}
	}
}
