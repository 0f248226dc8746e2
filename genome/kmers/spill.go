package kmers

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"runtime"
	"sync"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/genome"
	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/internal/files"
	"github.com/warpmap/warpmap/internal/frame"
)

// Where memory does not hold all k-mers, they are counted in rounds:
//
//	storing    text is cut into stretches (bins.cu), and these go to a temporary file, those of a bin together for
//	           each piece of text
//	counting   a round takes as many bins as memory holds. Their stretches become text again, whose k-mers are counted
//	           as always. What comes too seldom is left out, for no other bin has it; the rest goes to another
//	           temporary file
//	merging    each part is put together from what the rounds have of it
//
// temporary is a file without a name.
type temporary struct {
	*os.File
	dir string
	n   int64 // bytes
}

func newTemporary(dir string) (*temporary, error) {
	if dir == "" {
		dir = os.TempDir()
	}
	f, err := files.Temporary(dir)
	if err != nil {
		return nil, temporaryError(dir, err)
	}
	return &temporary{File: f, dir: dir}, nil
}

// Write appends.
func (t *temporary) Write(b []byte) (int, error) {
	n, err := t.File.WriteAt(b, t.n)
	t.n += int64(n)
	if err != nil {
		err = temporaryError(t.dir, err)
	}
	return n, err
}

func temporaryError(dir string, err error) error {
	return fmt.Errorf("temporary files in %s: %w: make room there, name another folder, or allow more memory", dir,
		files.Cause(err))
}

// stored counts by way of temporary files.
func (j *job) stored(w *writer) (err error) {
	s := &stretches{k: j.o.K}
	if s.file, err = newTemporary(j.o.Temporary); err != nil {
		return err
	}
	defer s.file.Close()
	if err := j.store(s); err != nil {
		return err
	}
	rounds := s.rounds(rawRoom(j.devices, j.o.MaxMemory, wordsOf(j.o.K)))
	j.s.Rounds, j.s.Stored = len(rounds), s.file.n
	if len(rounds) == 1 {
		return j.round(s, 1, rounds[0], w.put)
	}
	sums := &sums{words: wordsOf(j.o.K)}
	if sums.file, err = newTemporary(j.o.Temporary); err != nil {
		return err
	}
	defer sums.file.Close()
	for i, bins := range rounds {
		if err := sums.begin(); err != nil {
			return err
		}
		put := func(_ int, x counted) error { return sums.put(x.atLeast(j.o.Min)) }
		if err := j.round(s, i+1, bins, put); err != nil {
			return err
		}
	}
	if err := sums.begin(); err != nil {
		return err
	}
	j.s.Stored += sums.file.n
	return sums.merge(func(part int, x counted) error {
		if err := j.ctx.Err(); err != nil {
			return err
		}
		j.o.Progress(Progress{Merging, 0, int64(part + 1), parts})
		return w.put(part, x)
	})
}

// store brings the inputs' stretches to the file: each device takes a block of text after the other.
func (j *job) store(s *stretches) error {
	blocks := make(chan *genome.Block)
	work, ctx := crash.WithContext(j.ctx)
	for _, d := range j.devices {
		work.Go(func() (err error) {
			b, err := newBinner(d, j.o.K, roomFor(j.o.MaxMemory/int64(len(j.devices))), s)
			if err != nil {
				return err
			}
			defer func() { err = errors.Join(err, b.close()) }()
			for block := range blocks {
				err := b.fill(block.Text, b.flush)
				block.Release()
				if err != nil {
					return err
				}
			}
			return b.flush()
		})
	}
	work.Go(func() error {
		defer close(blocks)
		return j.read(Storing, func(b *genome.Block) error {
			select {
			case blocks <- b:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		})
	})
	return work.Wait()
}

// round counts the k-mers of some bins: all parts at once, or, where a bin alone is too large, some parts after the
// other.
func (j *job) round(s *stretches, round int, bins [2]int, put func(part int, x counted) error) error {
	width := parts
	for first := 0; first < parts; {
		end := min(first+width, parts)
		err := j.count(first, end, round, func(add func(text []byte, done func()) error) error {
			return s.each(j.ctx.Err, bins, add)
		}, put)
		switch {
		case errors.Is(err, errNarrow) && width == len(j.devices):
			return fmt.Errorf("one part in %d of the k-mers of a bin takes more than %s of memory: allow more", parts,
				device.Bytes(j.o.MaxMemory))
		case errors.Is(err, errNarrow):
			width = max(width/2, len(j.devices))
			continue
		case err != nil:
			return err
		}
		first = end
	}
	return nil
}

// stretches are those of all text, in a file, by bins within each piece of text.
type stretches struct {
	k      int
	file   *temporary
	mu     sync.Mutex
	pieces []piece
	free   sync.Pool // of *[]byte
	kmers  [bins]uint64
}

// piece is where the stretches of a piece of text lie.
type piece struct {
	at   int64
	bins [bins + 1]uint64 // from at, and the end
}

// put appends a piece.
func (s *stretches) put(packed []byte, p piece, kmers []uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	p.at = s.file.n
	s.pieces = append(s.pieces, p)
	for i, n := range kmers {
		s.kmers[i] += n
	}
	_, err := s.file.Write(packed)
	return err
}

// rounds are bins in a row, each round with no more k-mers than there is room for, or one bin.
func (s *stretches) rounds(room uint64) (out [][2]int) {
	from, n := 0, uint64(0)
	for i, more := range s.kmers {
		if i > from && n+more > room {
			out = append(out, [2]int{from, i})
			from, n = i, 0
		}
		n += more
	}
	return append(out, [2]int{from, bins})
}

// each gives the text of some bins' stretches, a piece after the other, while those to come are unpacked. stop tells
// whether to end.
func (s *stretches) each(stop func() error, bins [2]int, do func(text []byte, done func()) error) error {
	type unpacked struct {
		text []byte
		err  error
	}
	ahead := make(chan chan unpacked, runtime.GOMAXPROCS(0))
	done := make(chan struct{})
	defer close(done)
	crash.Go(func() {
		defer close(ahead)
		for i := range s.pieces {
			one := make(chan unpacked, 1)
			select {
			case ahead <- one:
			case <-done:
				return
			}
			go func() {
				var x unpacked
				x.err = crash.Catch(func() (err error) { x.text, err = s.text(&s.pieces[i], bins); return err })
				one <- x
			}()
		}
	})
	for one := range ahead {
		x := <-one
		if err := errors.Join(stop(), x.err); err != nil {
			return err
		}
		if err := do(x.text, func() { s.free.Put(&x.text) }); err != nil {
			return err
		}
	}
	return nil
}

// memory is so many bytes, of a slice that was put back where there is one.
func (s *stretches) memory(n int) []byte {
	if m, ok := s.free.Get().(*[]byte); ok && cap(*m) >= n {
		return (*m)[:n]
	}
	return make([]byte, n)
}

// text unpacks the stretches of some bins of a piece, each a line.
func (s *stretches) text(p *piece, bins [2]int) ([]byte, error) {
	packed := s.memory(int(p.bins[bins[1]] - p.bins[bins[0]]))
	defer s.free.Put(&packed)
	if _, err := s.file.ReadAt(packed, p.at+int64(p.bins[bins[0]])); err != nil {
		return nil, temporaryError(s.file.dir, err)
	}
	text := s.memory(4 * len(packed)) // of n bytes 4 (n-1) letters at most, and the end of the line
	to := 0
	for rest := packed; len(rest) > 0; {
		letters := s.k - 1 + int(rest[0])
		bytes := (letters + 3) / 4
		for i, b := range rest[1 : 1+bytes] {
			binary.LittleEndian.PutUint32(text[to+4*i:], fours[b])
		}
		to += letters
		text[to] = '\n'
		to++
		rest = rest[1+bytes:]
	}
	return text[:to], nil
}

// fours are the letters of a byte.
var fours = func() (out [256]uint32) {
	for i := range out {
		for shift := 6; shift >= 0; shift -= 2 {
			out[i] = out[i]>>8 | uint32("ACGT"[i>>shift&3])<<24
		}
	}
	return out
}()

// binner packs the stretches of text on a device.
type binner struct {
	texts
	sizes, pack  device.Kernel[binParams]
	p            binParams
	bytes, kmers device.Slice[uint64]
	out          device.Slice[byte]
	to           *stretches
}

func newBinner(d *device.Device, k, room int, to *stretches) (b *binner, err error) {
	m, err := d.CompileApart(binProgram())
	if err != nil {
		return nil, err
	}
	b = &binner{texts: texts{wanted: wanted{d: d, k: k}, room: room}, to: to}
	if err := errors.Join(device.Bind(m, "bin_sizes", &b.sizes), device.Bind(m, "bin_stretches", &b.pack)); err != nil {
		return nil, err
	}
	if err := device.Ahead(b.sizes, b.pack); err != nil {
		return nil, err
	}
	if b.bytes, err = device.Make[uint64](d, bins); err == nil {
		b.kmers, err = device.Make[uint64](d, bins)
	}
	b.p = binParams{K: uint64(k), Minimizer: uint64(min(k, minimizerLetters)), Bytes: b.bytes.Addr(),
		Kmers: b.kmers.Addr()}
	if err != nil {
		return nil, errors.Join(err, b.close())
	}
	return b, nil
}

func (b *binner) flush() error {
	if b.n == 0 {
		return nil
	}
	st := b.d.Stream()
	b.p.Text, b.p.N = b.memory.Addr(), uint64(b.n)
	b.n = 0
	grid := device.GridFor(int64(b.p.N/stretchLetters+1), 32)
	if err := frame.InTurn(
		func() error { return b.bytes.Fill(st, 0) },
		func() error { return b.kmers.Fill(st, 0) },
		func() error { return b.sizes.Launch(st, grid, &b.p) },
	); err != nil {
		return err
	}
	sizes, err := b.bytes.Host(st)
	if err != nil {
		return err
	}
	kmers, err := b.kmers.Host(st)
	if err != nil {
		return err
	}
	var p piece
	for i, n := range sizes {
		p.bins[i+1] = p.bins[i] + n
	}
	all := int(p.bins[bins])
	if all == 0 {
		return nil
	}
	if all > b.out.Len() {
		if err := b.out.Free(); err != nil {
			return err
		}
		if b.out, err = device.Make[byte](b.d, all+all/8); err != nil {
			return err
		}
	}
	b.p.Out = b.out.Addr()
	if err := frame.InTurn(
		func() error { return b.bytes.Write(st, p.bins[:bins]) },
		func() error { return b.pack.Launch(st, grid, &b.p) },
	); err != nil {
		return err
	}
	packed, err := b.out.Slice(0, all).Host(st)
	if err != nil {
		return err
	}
	return b.to.put(packed, p, kmers)
}

func (b *binner) close() error {
	return errors.Join(b.memory.Free(), b.bytes.Free(), b.kmers.Free(), b.out.Free())
}

// sums are what the rounds have counted, in a file.
type sums struct {
	words  int
	file   *temporary
	w      *bufio.Writer
	rounds [][]int // how many k-mers of each part
}

// begin begins a round, or ends the last.
func (s *sums) begin() error {
	if s.w != nil {
		if err := s.w.Flush(); err != nil {
			return err
		}
	}
	s.w = bufio.NewWriterSize(s.file, 1<<20)
	s.rounds = append(s.rounds, nil)
	return nil
}

// put appends the next part.
func (s *sums) put(x counted) error {
	last := &s.rounds[len(s.rounds)-1]
	*last = append(*last, len(x.counts))
	return x.write(s.w)
}

// merge gives each part, some of them put together beside one another.
func (s *sums) merge(put func(part int, x counted) error) error {
	rounds := s.rounds[:len(s.rounds)-1]
	at := make([]int64, len(rounds)) // of the next part
	n := int64(0)
	for r, sizes := range rounds {
		at[r] = n
		for _, k := range sizes {
			n += int64(k) * countedBytes(s.words)
		}
	}
	width := runtime.GOMAXPROCS(0)
	for first := 0; first < parts; first += width {
		whole := make([]counted, min(width, parts-first))
		var work crash.Group
		for i := range whole {
			of := make([]int64, len(rounds))
			copy(of, at)
			for r := range rounds {
				at[r] += int64(rounds[r][first+i]) * countedBytes(s.words)
			}
			work.Go(func() error {
				all := make([]counted, len(rounds))
				for r := range rounds {
					var err error
					if all[r], err = readCounted(s.file, of[r], s.words, rounds[r][first+i]); err != nil {
						return temporaryError(s.file.dir, err)
					}
				}
				whole[i] = sumAll(all)
				return nil
			})
		}
		if err := work.Wait(); err != nil {
			return err
		}
		for i, x := range whole {
			if err := put(first+i, x); err != nil {
				return err
			}
		}
	}
	return nil
}
