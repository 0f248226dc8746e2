package kmers

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/genome"
)

// Options say what is counted, and with how much memory.
type Options struct {
	K         int    // letters of a k-mer, 1 to MaxK
	Canonical bool   // a k-mer and its reverse complement count as one
	Min       uint32 // k-mers that come less often are left out; 0 and 1: none are
	// MaxMemory bounds the memory for k-mers, in bytes; 0 is half of what the device has free. It is not the whole process's: blocks of text come on top, about
	// 32 MiB a thread. With less than all k-mers take, inputs are read several times, so standard input cannot be among them.
	MaxMemory int64
	Read      genome.Options
	Progress  func(Progress) // called from time to time, from one goroutine; may be nil
}

// Progress is how far counting has come.
type Progress struct {
	Pass    int   // times that the inputs are read, this one included
	Letters int64 // read in this pass
	Part    int   // parts that are done
	Parts   int
}

// Summary is what was read and counted.
type Summary struct {
	Read   genome.Counts `json:"read"`
	Passes int           `json:"passes"`
	Stats
}

// complete checks the options.
func (o *Options) complete(d *device.Device) error {
	if o.K < 1 || o.K > MaxK {
		return fmt.Errorf("k-mers of %d letters: want 1 to %d", o.K, MaxK)
	}
	if o.MaxMemory < 0 || o.MaxMemory > 0 && o.MaxMemory < leastMemory {
		return fmt.Errorf("memory of %s: want %s or more, or 0 for half of what is free", device.Bytes(o.MaxMemory), device.Bytes(leastMemory))
	}
	if o.MaxMemory == 0 {
		free, _, err := d.Memory()
		if err != nil {
			return err
		}
		o.MaxMemory = max(free/2, leastMemory)
	}
	if o.Progress == nil {
		o.Progress = func(Progress) {}
	}
	return nil
}

// errNarrow says that the k-mers of the wanted parts take more memory than there is.
var errNarrow = errors.New("more k-mers than memory")

// counter counts the k-mers of some parts on a device.
type counter interface {
	// add takes text, whose records end in '\n'.
	add(text []byte) error
	// finish gives the k-mers of each part, in the order of parts, and in each by their mixes. They are good until emit returns.
	finish(emit func(part int, mixes []uint64, counts []uint32) error) error
	close() error
}

// Count counts the k-mers of inputs (see genome.Expand) and writes them to the file out, which appears when it is whole.
//
// Errors: *genome.InputError; those of the device, and ctx's.
func Count(ctx context.Context, d *device.Device, inputs []string, o Options, out string) (s Summary, err error) {
	if err := o.complete(d); err != nil {
		return s, err
	}
	w, err := create(out, o)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, w.close(err == nil)) }()
	width := parts
	for first := 0; first < parts; {
		end := min(first+width, parts)
		s.Passes++
		s.Read, err = pass(ctx, d, inputs, o, first, end, func(read genome.Counts, part int) {
			o.Progress(Progress{s.Passes, read.Letters, part, parts})
		}, w.put)
		switch {
		case errors.Is(err, errNarrow) && width == 1:
			return s, fmt.Errorf("one part in %d of the k-mers takes more than %s of memory: allow more", parts, device.Bytes(o.MaxMemory))
		case errors.Is(err, errNarrow) && slices.Contains(inputs, "-"):
			return s, fmt.Errorf("the k-mers of standard input, which can be read once only, take more than %s of memory: allow more, or read a file", device.Bytes(o.MaxMemory))
		case errors.Is(err, errNarrow):
			width /= 2
			continue
		case err != nil:
			return s, err
		}
		first = end
	}
	s.Stats = w.stats
	return s, nil
}

// pass reads the inputs, and writes the k-mers of some parts.
func pass(ctx context.Context, d *device.Device, inputs []string, o Options, first, end int, progress func(read genome.Counts, part int),
	put func(part int, mixes []uint64, counts []uint32) error) (read genome.Counts, err error) {
	c, err := newCounter(d, o, first, end)
	if err != nil {
		return read, err
	}
	defer func() { err = errors.Join(err, c.close()) }()
	var done genome.Counts
	read, err = genome.Read(ctx, inputs, o.Read, func(b *genome.Block) error {
		defer b.Release()
		done.Letters += int64(len(b.Text) - len(b.Records))
		progress(done, first)
		return c.add(b.Text)
	})
	if err != nil {
		return read, err
	}
	err = c.finish(func(part int, mixes []uint64, counts []uint32) error {
		if err := ctx.Err(); err != nil {
			return err
		}
		progress(done, part+1)
		return put(part, mixes, counts)
	})
	return read, err
}

func newCounter(d *device.Device, o Options, first, end int) (counter, error) {
	m, err := d.Compile(program())
	if err != nil {
		return nil, err
	}
	t := texts{d: d, k: o.K, room: int(min(textBytes, o.MaxMemory/textShare)), p: textParams{K: uint64(o.K), First: uint64(first), End: uint64(end)}}
	if o.Canonical {
		t.p.Canonical = 1
	}
	if d.Info().CUDA() {
		return newTabled(m, t, o)
	}
	return newSorted(m, t, o)
}

// texts brings text to the device, and has its k-mers made piece by piece.
type texts struct {
	d      *device.Device
	k      int
	room   int // bytes of text at a time
	p      textParams
	memory device.Slice[byte]
	n      int // bytes that are there
}

// fill takes text, and calls flush where the memory is full.
func (t *texts) fill(text []byte, flush func() error) error {
	if t.memory.Len() == 0 {
		var err error
		if t.memory, err = device.Make[byte](t.d, t.room); err != nil {
			return err
		}
		t.p.Text = t.memory.Addr()
	}
	for from := 0; from < len(text); {
		n := min(t.room-t.n, len(text)-from)
		if err := t.memory.Slice(t.n, t.n+n).Write(t.d.Stream(), text[from:from+n]); err != nil {
			return err
		}
		t.n += n
		from += n
		if t.n == t.room {
			if err := flush(); err != nil {
				return err
			}
			if from < len(text) { // the k-mers that begin here and end there
				from = max(from-(t.k-1), 0)
			}
		}
	}
	return nil
}
