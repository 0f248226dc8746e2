package kmers

import (
	"encoding/binary"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"testing"

	"github.com/warpmap/warpmap/internal/testenv"
)

// openCounts opens a file with this content, which tells all that it has, in every way, as the same; or what is wrong
// is a *FileError.
func openCounts(t *testing.T, dir string, content []byte) {
	name := filepath.Join(dir, "x")
	must(t, os.WriteFile(name, content, 0o600))
	x, err := Open(name)
	if err == nil {
		defer x.Close()
		bins, seen := make([]uint64, 5), uint64(0)
		var all []Kmer
		var counts []uint32
		err = x.Each(func(kmer Kmer, n uint32) error {
			bins[min(n, 4)]++
			seen++
			if len(all) < 50 {
				all, counts = append(all, kmer), append(counts, n)
			}
			return nil
		})
		if got, other := x.Histogram(5); err == nil && (other != nil || [5]uint64(got) != [5]uint64(bins)) {
			t.Fatalf("%d k-mers, by their counts %v: Histogram gives %v, %v", seen, bins, got, other)
		}
		if err == nil && !x.Canonical {
			// Where parts are not in order, k-mers need not be found, but nothing else is.
			if _, other := x.Find(all); other != nil {
				t.Fatalf("%v: Find gives %v", counts, other)
			}
		}
	}
	if file := new(FileError); err != nil && !errors.As(err, &file) {
		t.Fatalf("%T %v: want a FileError", err, err)
	}
}

// FuzzFile opens any bytes, whose header has the right checksum.
func FuzzFile(f *testing.F) {
	for _, version := range []string{"0.1.0", "0.2.0"} {
		names, err := filepath.Glob(filepath.Join("testdata", version, "*"))
		if err != nil || len(names) == 0 {
			f.Fatal(names, err)
		}
		for _, name := range names {
			content, err := os.ReadFile(name)
			if err != nil {
				f.Fatal(err)
			}
			if len(content) > 1<<17 {
				continue
			}
			f.Add(content, true)
			f.Add(content[:len(content)/2], false)
		}
	}
	f.Add(fileMagic[:], false)
	f.Add(append(fileMagic[:], 2, 0, 0, 0, 40, 0, 0, 0), true)
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, content []byte, seal bool) {
		testenv.Bounded(t, len(content), func() {
			if begin := binary.Size(fileHeader{}); seal && len(content) > begin {
				each := binary.Size(partHeader{})
				if content[8] < fileVersion {
					each = binary.Size(plainHeader{})
				}
				if size := begin + parts*each; len(content) >= size+4 {
					binary.LittleEndian.PutUint32(content[size:], crc32.Checksum(content[:size], castagnoli))
				}
			}
			openCounts(t, dir, content)
		})
	})
}

// FuzzPlainPart opens files of versions 1 and 2, with a part of any bytes whose checksums are right.
func FuzzPlainPart(f *testing.F) {
	f.Add(false, uint32(20), uint64(1), uint16(3), make([]byte, 12))
	f.Add(true, uint32(40), uint64(2), uint16(2047), make([]byte, 40))
	f.Add(false, uint32(32), uint64(1)<<62, uint16(0), make([]byte, 24))
	f.Add(true, uint32(33), uint64(1), uint16(0), []byte{255, 255, 255, 255, 255})
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, wide bool, k uint32, n uint64, part uint16, text []byte) {
		testenv.Bounded(t, len(text), func() {
			h := fileHeader{Magic: fileMagic, Version: 1, K: k}
			if wide {
				h.Version = 2
			}
			head, err := binary.Append(nil, binary.LittleEndian, h)
			must(t, err)
			all := make([]plainHeader, parts)
			all[part%parts] = plainHeader{N: n, Sum: crc32.Checksum(text, castagnoli)}
			head, err = binary.Append(head, binary.LittleEndian, all)
			must(t, err)
			head = binary.LittleEndian.AppendUint32(head, crc32.Checksum(head, castagnoli))
			openCounts(t, dir, append(append(head, make([]byte, headerBytes-len(head))...), text...))
		})
	})
}
