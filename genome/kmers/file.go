package kmers

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"math"
	"os"
	"slices"
	"sort"
	"unsafe"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/files"
)

// A file of counts is a header and parts. All numbers are little-endian.
//
//	header   fileHeader, then for each part partHeader, then the CRC-32C of what is before it, padded to headerBytes
//	part     see coded.go
//
// In versions 1 and 2, which are read, partHeader is plainHeader, and a part is n mixes of 8 bytes, or 16 in version 2,
// whose k-mers have more than 32 letters (the high word first), ascending; then n counts of 4.
type fileHeader struct {
	Magic          [8]byte
	Version, K     uint32
	Canonical, Min uint32
	Stats          Stats
}

var (
	fileMagic  = [8]byte{'w', 'k', 'm', 'e', 'r', 's', '\r', '\n'}
	castagnoli = crc32.MakeTable(crc32.Castagnoli)
)

// Stats are sums over all k-mers of a file.
type Stats struct {
	Unique   uint64 `json:"unique"`    // k-mers that came once
	Distinct uint64 `json:"distinct"`  // different k-mers
	Total    uint64 `json:"total"`     // the sum of their counts
	MaxCount uint64 `json:"max_count"` // the largest count
}

// writer writes a file of counts beside its name, and gives it its name when it is whole.
type writer struct {
	file   *files.Output
	w      *bufio.Writer
	header fileHeader
	stats  Stats
	parts  [parts]partHeader
	coded  []byte // a part
}

func create(path string, o Options) (*writer, error) {
	if err := files.CheckRegular(path); err != nil { // to open a pipe waits for who reads it
		return nil, err
	}
	f, err := files.Create(path)
	if err != nil {
		return nil, err
	}
	if !f.Regular {
		return nil, errors.Join(fmt.Errorf("%s: standard output: a file of counts is written here and there; want "+
			"the name of a file", path), f.Close(false))
	}
	w := &writer{file: f, w: bufio.NewWriterSize(f, 1<<20),
		header: fileHeader{Magic: fileMagic, Version: fileVersion, K: uint32(o.K), Min: o.Min}}
	if o.Canonical {
		w.header.Canonical = 1
	}
	if _, err := f.Seek(headerBytes, io.SeekStart); err != nil {
		return nil, errors.Join(err, f.Close(false))
	}
	return w, nil
}

// bytesOf is the memory of a slice.
func bytesOf[T uint32 | uint64](x []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(x))), len(x)*int(unsafe.Sizeof(*new(T))))
}

// put writes the next part. It may change what it is given.
func (w *writer) put(part int, x counted) error {
	x = x.atLeast(w.header.Min)
	most, total, unique, least, all := uint32(0), uint64(0), uint64(0), max(w.header.Min, 1), spread{}
	for _, c := range x.counts {
		total += uint64(c)
		if c == 1 {
			unique++
		}
		most = max(most, c)
		all.add(c, least)
	}
	w.stats.Total += total
	w.stats.Unique += unique
	w.stats.Distinct += uint64(len(x.counts))
	w.stats.MaxCount = max(w.stats.MaxCount, uint64(most))
	w.coded, w.parts[part] = x.code(w.coded[:0], least, &all)
	_, err := w.w.Write(w.coded)
	return w.file.Named(err)
}

// write writes mixes, then counts.
func (x counted) write(w io.Writer) error {
	_, err := w.Write(bytesOf(x.mixes))
	if err == nil {
		_, err = w.Write(bytesOf(x.counts))
	}
	return err
}

// readCounted reads n k-mers that write wrote.
func readCounted(r io.ReaderAt, at int64, words, n int) (counted, error) {
	x := newCounted(words, n)
	mixes := bytesOf(x.mixes)
	_, err := r.ReadAt(mixes, at)
	if err == nil {
		_, err = r.ReadAt(bytesOf(x.counts), at+int64(len(mixes)))
	}
	return x, err
}

func (x counted) checksum() uint32 {
	return crc32.Update(crc32.Checksum(bytesOf(x.mixes), castagnoli), castagnoli, bytesOf(x.counts))
}

// close ends the file; whole says that all parts are in.
func (w *writer) close(whole bool) error {
	var err error
	if whole {
		err = w.head()
	}
	return errors.Join(w.file.Named(err), w.file.Close(whole && err == nil))
}

// head writes what is before the parts.
func (w *writer) head() error {
	w.header.Stats = w.stats
	head, err := binary.Append(nil, binary.LittleEndian, w.header)
	if err == nil {
		head, err = binary.Append(head, binary.LittleEndian, w.parts[:])
	}
	if err == nil {
		err = w.w.Flush()
	}
	if err == nil {
		_, err = w.file.WriteAt(binary.LittleEndian.AppendUint32(head, crc32.Checksum(head, castagnoli)), 0)
	}
	return err
}

// File is an open file of counts. Its methods are safe for use by several goroutines.
type File struct {
	K         int
	Canonical bool
	Min       uint32 // k-mers that came less often were left out
	Stats     Stats
	path      string
	file      *os.File
	plain     bool // of version 1 or 2
	parts     [parts]partHeader
	at        [parts + 1]int64
}

// FileError tells what is wrong with a file of counts.
type FileError struct {
	Path string
	Err  error
}

func (e *FileError) Error() string { return fmt.Sprintf("%s: %v", e.Path, e.Err) }
func (e *FileError) Unwrap() error { return e.Err }

// Open opens a file that Count wrote. It checks the file's header; each part is checked when it is read.
//
// Errors: *FileError for a file that is no file of counts, is damaged, or is of another version.
func Open(path string) (*File, error) {
	f, err := files.OpenRegular(path)
	if err != nil {
		return nil, &FileError{path, err}
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
	begin := binary.Size(h)
	head := make([]byte, begin+binary.Size(f.parts[:])+4)
	n, err := f.file.ReadAt(head, 0)
	if err != nil && err != io.EOF {
		return err
	}
	if n < len(fileMagic) || [8]byte(head[:8]) != fileMagic {
		return errors.New("not a file of warpmap kmers count")
	}
	if n < begin {
		return errors.New("ends within its header: the file is damaged")
	}
	if _, err := binary.Decode(head, binary.LittleEndian, &h); err != nil {
		return err
	}
	if h.Version < plainVersion || h.Version > fileVersion {
		return fmt.Errorf("is of version %d, and this program reads versions %d to %d: count again, or use a newer "+
			"program", h.Version, plainVersion, fileVersion)
	}
	var plain [parts]plainHeader
	if f.plain = h.Version < fileVersion; f.plain {
		head = head[:begin+binary.Size(plain[:])+4]
	}
	if n < len(head) {
		return errors.New("ends within its header: the file is damaged")
	}
	size := len(head) - 4
	if binary.LittleEndian.Uint32(head[size:]) != crc32.Checksum(head[:size], castagnoli) || h.K < 1 || h.K > MaxK ||
		f.plain && int(h.Version) != wordsOf(int(h.K)) {
		return errors.New("the checksum of its header is wrong: the file is damaged")
	}
	if f.plain {
		_, err = binary.Decode(head[begin:], binary.LittleEndian, plain[:])
		for i, p := range plain {
			f.parts[i] = partHeader{N: p.N, Sum: p.Sum}
		}
	} else {
		_, err = binary.Decode(head[begin:], binary.LittleEndian, f.parts[:])
	}
	if err != nil {
		return err
	}
	f.K, f.Canonical, f.Min, f.Stats = int(h.K), h.Canonical != 0, h.Min, h.Stats
	s, err := f.file.Stat()
	if err != nil {
		return err
	}
	f.at[0] = headerBytes
	for i := range f.parts {
		bytes, err := f.bytes(i, max(s.Size()-f.at[i], 0))
		if err == errShort {
			return fmt.Errorf("has %d bytes, too few for the %d k-mers of part %d: the file is damaged", s.Size(),
				f.parts[i].N, i)
		} else if err != nil {
			return fmt.Errorf("part %d: %w", i, err)
		}
		f.at[i+1] = f.at[i] + bytes
	}
	if f.at[parts] > headerBytes && s.Size() != f.at[parts] { // one without k-mers has a header alone
		return fmt.Errorf("has %d bytes, and should have %d: the file is damaged", s.Size(), f.at[parts])
	}
	return nil
}

// bytes is how long a part is, at most so long.
func (f *File) bytes(i int, most int64) (int64, error) {
	p := &f.parts[i]
	if !f.plain {
		return p.bytes(wordsOf(f.K), most)
	}
	each := countedBytes(wordsOf(f.K))
	if p.N > uint64(most/each) {
		return 0, errShort
	}
	return int64(p.N) * each, nil
}

// Close closes the file.
func (f *File) Close() error { return f.file.Close() }

// largePart is the bytes of a part above which memory is asked for room: a file of few bytes can declare large parts,
// for disks keep no zeros.
const largePart = 64 << 20

// part reads a part; without mixes it may have counts alone.
func (f *File) part(i int, mixes bool) (x counted, err error) {
	p, words := &f.parts[i], wordsOf(f.K)
	if bytes := f.at[i+1] - f.at[i] + int64(p.N)*countedBytes(words); bytes > largePart {
		if room, _ := device.HostMemory(); room > 0 && bytes > room {
			return x, &FileError{f.path, fmt.Errorf("has %d k-mers in part %d, for which the machine's memory has no "+
				"room: use a machine with more, "+
				"or count again, with --min; or the file is damaged", f.parts[i].N, i)}
		}
	}
	wrong := fmt.Errorf("the checksum of part %d is wrong: the file is damaged", i)
	if f.plain {
		if x, err = readCounted(f.file, f.at[i], words, int(p.N)); err == nil && p.Sum != x.checksum() {
			err = wrong
		}
	} else {
		text := make([]byte, f.at[i+1]-f.at[i])
		if _, err = f.file.ReadAt(text, f.at[i]); err == nil && p.Sum != crc32.Checksum(text, castagnoli) {
			err = wrong
		}
		if err == nil && p.N > 0 {
			if x, err = p.decode(i, words, text, mixes); err != nil {
				err = fmt.Errorf("part %d: %w", i, err)
			}
		}
	}
	if err != nil {
		return counted{}, &FileError{f.path, err}
	}
	return x, nil
}

// Each calls do for all k-mers, packed, with their counts, in the order of the file. The order is the same for the same
// k-mers.
func (f *File) Each(do func(kmer Kmer, count uint32) error) error {
	for i := range parts {
		x, err := f.part(i, true)
		if err != nil {
			return err
		}
		for j, n := range x.counts {
			if err := do(unmix(x.mix(j)), n); err != nil {
				return err
			}
		}
	}
	return nil
}

// Find tells how often each packed k-mer came, and 0 for those that are not in the file. If the file holds canonical
// k-mers, Find tells how often the k-mer and its reverse complement came. Cost: each part that has one of the k-mers is
// read.
func (f *File) Find(kmers []Kmer) ([]uint32, error) {
	words := wordsOf(f.K)
	order, out := make([]int, len(kmers)), make([]uint32, len(kmers))
	wanted := newCounted(words, len(kmers))
	for i, x := range kmers {
		if f.Canonical {
			x = Canonical(x, f.K)
		}
		m := mix(x, words)
		order[i] = i
		copy(wanted.mix(i), m[:words])
	}
	slices.SortFunc(order, func(a, b int) int { return wanted.compare(a, wanted, b) })
	last, x := -1, counted{}
	for _, i := range order {
		if part := wanted.part(i); part != last {
			var err error
			if x, err = f.part(part, true); err != nil {
				return nil, err
			}
			last = part
		}
		at := sort.Search(len(x.counts), func(j int) bool { return x.compare(j, wanted, i) >= 0 })
		if at < len(x.counts) && x.compare(at, wanted, i) == 0 {
			out[i] = x.counts[at]
		}
	}
	return out, nil
}

// Histogram tells how many k-mers have each count: at index i, the number of k-mers with count i; at the last index,
// bins-1, the number of those with that count or more.
func (f *File) Histogram(bins int) ([]uint64, error) {
	if bins < 1 || bins > math.MaxInt32 {
		return nil, fmt.Errorf("a histogram of %d bins (want 1 to 2³¹)", bins)
	}
	out := make([]uint64, bins)
	for i := range parts {
		x, err := f.part(i, false)
		if err != nil {
			return nil, err
		}
		for _, c := range x.counts {
			out[min(int(c), bins-1)]++
		}
	}
	return out, nil
}
