package kmers

import (
	"bufio"
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"unsafe"

	"github.com/warpmap/warpmap/kernel"
)

// A file of counts is a header and parts. All numbers are little-endian.
//
//	header   fileHeader, then for each part partHeader, then the CRC-32C of what is before it, padded to headerBytes
//	part     n mixes of 8 bytes, ascending, then n counts of 4
type fileHeader struct {
	Magic          [8]byte
	Version, K     uint32
	Canonical, Min uint32
	Stats          Stats
}

type partHeader struct {
	N   uint64
	Sum uint32 // CRC-32C
	_   uint32
}

var (
	fileMagic  = [8]byte{'w', 'k', 'm', 'e', 'r', 's', '\r', '\n'}
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// Stats are sums over all k-mers of a file.
type Stats struct {
	Unique   uint64 `json:"unique"`    // k-mers that came once
	Distinct uint64 `json:"distinct"`  // k-mers
	Total    uint64 `json:"total"`     // sum of their counts
	MaxCount uint64 `json:"max_count"` // the largest count
}

// writer writes a file of counts beside its name, and gives it its name when it is whole.
type writer struct {
	path   string
	file   *os.File
	w      *bufio.Writer
	header fileHeader
	stats  Stats
	parts  [parts]partHeader
}

func create(path string, o Options) (*writer, error) {
	f, err := os.CreateTemp(filepath.Dir(path), "."+filepath.Base(path)+".*")
	if err != nil {
		return nil, err
	}
	w := &writer{path: path, file: f, w: bufio.NewWriterSize(f, 1<<20), header: fileHeader{Magic: fileMagic, Version: fileVersion, K: uint32(o.K), Min: o.Min}}
	if o.Canonical {
		w.header.Canonical = 1
	}
	if _, err := f.Seek(headerBytes, io.SeekStart); err != nil {
		return nil, errors.Join(err, w.close(false))
	}
	return w, nil
}

// bytesOf is the memory of a slice.
func bytesOf[T uint32 | uint64](x []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(*new(T))))
}

// put writes the next part. It may change both slices.
func (w *writer) put(part int, mixes []uint64, counts []uint32) error {
	if w.header.Min > 1 {
		n := 0
		for i, c := range counts {
			if c >= w.header.Min {
				mixes[n], counts[n] = mixes[i], c
				n++
			}
		}
		mixes, counts = mixes[:n], counts[:n]
	}
	most := uint32(0)
	for _, c := range counts {
		w.stats.Total += uint64(c)
		if c == 1 {
			w.stats.Unique++
		}
		most = max(most, c)
	}
	w.stats.Distinct += uint64(len(counts))
	w.stats.MaxCount = max(w.stats.MaxCount, uint64(most))
	a, b := bytesOf(mixes), bytesOf(counts)
	w.parts[part] = partHeader{N: uint64(len(mixes)), Sum: crc32.Update(crc32.Checksum(a, castagnoli), castagnoli, b)}
	_, err := w.w.Write(a)
	if err == nil {
		_, err = w.w.Write(b)
	}
	return err
}

// close ends the file; whole says that all parts are in.
func (w *writer) close(whole bool) (err error) {
	if whole {
		w.header.Stats = w.stats
		head, err := binary.Append(nil, binary.LittleEndian, w.header)
		if err == nil {
			head, err = binary.Append(head, binary.LittleEndian, w.parts[:])
		}
		head = binary.LittleEndian.AppendUint32(head, crc32.Checksum(head, castagnoli))
		err = errors.Join(err, w.w.Flush())
		if err == nil {
			_, err = w.file.WriteAt(head, 0)
		}
		if err = errors.Join(err, w.file.Chmod(0o644), w.file.Close()); err == nil {
			err = os.Rename(w.file.Name(), w.path)
		}
		if err == nil {
			return nil
		}
		return errors.Join(err, os.Remove(w.file.Name()))
	}
	return errors.Join(w.file.Close(), os.Remove(w.file.Name()))
}

// File is an open file of counts. Its methods are safe for use by several goroutines.
type File struct {
	K         int
	Canonical bool
	Min       uint32 // k-mers that came less often were left out
	Stats     Stats
	path      string
	file      *os.File
	parts     [parts]partHeader
	at        [parts + 1]int64
}

// FileError is what is wrong with a file of counts.
type FileError struct {
	Path string
	Err  error
}

func (e *FileError) Error() string { return fmt.Sprintf("%s: %v", e.Path, e.Err) }
func (e *FileError) Unwrap() error { return e.Err }

// Open opens a file that Count wrote. Its header is checked here, and each part when it is read.
//
// Errors: *FileError for what is no such file, is damaged, or is of another version.
func Open(path string) (*File, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, &FileError{path, err.(*os.PathError).Err}
	}
	x := &File{path: path, file: f}
	if err := x.head(); err != nil {
		f.Close()
		return nil, &FileError{path, err}
	}
	return x, nil
}

func (f *File) head() error {
	var h fileHeader
	size := binary.Size(h) + binary.Size(f.parts[:])
	head := make([]byte, size+4)
	n, err := f.file.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return err
	}
	if n < len(fileMagic) || [8]byte(head[:8]) != fileMagic {
		return errors.New("not a file of warpmap kmers count")
	}
	if n < len(head) {
		return errors.New("ends within its header: the file is damaged")
	}
	if _, err := binary.Decode(head, binary.LittleEndian, &h); err != nil {
		return err
	}
	if h.Version != fileVersion {
		return fmt.Errorf("is of version %d, and this program reads version %d: count again", h.Version, fileVersion)
	}
	if binary.LittleEndian.Uint32(head[size:]) != crc32.Checksum(head[:size], castagnoli) || h.K < 1 || h.K > MaxK {
		return errors.New("the checksum of its header is wrong: the file is damaged")
	}
	if _, err := binary.Decode(head[binary.Size(h):], binary.LittleEndian, f.parts[:]); err != nil {
		return err
	}
	f.K, f.Canonical, f.Min, f.Stats = int(h.K), h.Canonical != 0, h.Min, h.Stats
	f.at[0] = headerBytes
	for i, p := range f.parts {
		f.at[i+1] = f.at[i] + int64(p.N)*countedBytes
	}
	s, err := f.file.Stat()
	if err == nil && f.Stats.Distinct > 0 && s.Size() != f.at[parts] {
		err = fmt.Errorf("has %d bytes, and should have %d: the file is damaged", s.Size(), f.at[parts])
	}
	return err
}

// Close closes the file.
func (f *File) Close() error { return f.file.Close() }

// part reads a part.
func (f *File) part(i int) (x counted, err error) {
	n := f.parts[i].N
	x = counted{make([]uint64, n), make([]uint32, n)}
	a, b := bytesOf(x.mixes), bytesOf(x.counts)
	if _, err = f.file.ReadAt(a, f.at[i]); err == nil {
		_, err = f.file.ReadAt(b, f.at[i]+int64(len(a)))
	}
	if err == nil && f.parts[i].Sum != crc32.Update(crc32.Checksum(a, castagnoli), castagnoli, b) {
		err = fmt.Errorf("the checksum of part %d is wrong: the file is damaged", i)
	}
	if err != nil {
		return x, &FileError{f.path, err}
	}
	return x, nil
}

// Each calls do for all k-mers, packed, with their counts, in the order of the file, which is the same for the same k-mers.
func (f *File) Each(do func(kmer uint64, count uint32) error) error {
	for i := range parts {
		x, err := f.part(i)
		if err != nil {
			return err
		}
		for j, m := range x.mixes {
			if err := do(unmix(m), x.counts[j]); err != nil {
				return err
			}
		}
	}
	return nil
}

// Find gives how often each packed k-mer came, 0 for those that are not in; where the file is of canonical k-mers, how often it and its
// reverse complement did. Cost: each part that has one of them is read.
func (f *File) Find(kmers []uint64) ([]uint32, error) {
	order, out := make([]int, len(kmers)), make([]uint32, len(kmers))
	mixes := make([]uint64, len(kmers))
	for i, x := range kmers {
		if f.Canonical {
			x = Canonical(x, f.K)
		}
		order[i], mixes[i] = i, kernel.Fmix64(x)
	}
	slices.SortFunc(order, func(a, b int) int { return cmp.Compare(mixes[a], mixes[b]) })
	last, x := -1, counted{}
	for _, i := range order {
		if part := int(mixes[i] >> (64 - partBits)); part != last {
			var err error
			if x, err = f.part(part); err != nil {
				return nil, err
			}
			last = part
		}
		if at, found := slices.BinarySearch(x.mixes, mixes[i]); found {
			out[i] = x.counts[at]
		}
	}
	return out, nil
}

// Histogram gives how many k-mers have each count: n of them with count i at index i, at the last index, bins-1, those with that or more.
func (f *File) Histogram(bins int) ([]uint64, error) {
	if bins < 1 || bins > math.MaxInt32 {
		return nil, fmt.Errorf("a histogram of %d bins (want 1 to 2³¹)", bins)
	}
	out := make([]uint64, bins)
	for i := range parts {
		x, err := f.part(i)
		if err != nil {
			return nil, err
		}
		for _, c := range x.counts {
			out[min(int(c), bins-1)]++
		}
	}
	return out, nil
}
