package kmers

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/genome"
	"github.com/warpmap/warpmap/internal/crash"
)

// Options say what is counted, and with how much memory.
type Options struct {
	K         int    // letters of a k-mer, 1 to MaxK
	Canonical bool   // a k-mer and its reverse complement count as one
	Min       uint32 // k-mers that come less often are left out; 0 and 1 leave out none
	// MaxMemory bounds the memory for k-mers, in bytes, of all devices together. 0 means half of what the devices have
	// free, and of what the host has. It does not bound the memory of the whole process: blocks of text come on top,
	// about 32 MiB for each thread and 20 more for packed inputs, or less with little memory. If all k-mers take more
	// than MaxMemory, the rest goes to temporary files.
	MaxMemory int64
	Temporary string           // the folder for temporary files; empty: the system's
	Beside    []*device.Device // more devices, each of which counts its share of the k-mers
	Read      genome.Options
	Progress  func(Progress) // called from time to time, from one goroutine at a time; may be nil
}

// Progress tells how far counting has come.
type Progress struct {
	Step Step
	// Round is the number, from 1, of the round that counts k-mers in temporary files. 0 means that k-mers are counted
	// as they are read.
	Round int
	Done  int64 // letters in Reading and Storing, parts in Counting and Merging
	Total int64 // -1 where nobody knows it
}

// Step names what is being done.
type Step string

// The steps. If there is enough memory, they are Reading and Counting. Otherwise they are Storing in temporary files,
// then Counting round by round, and Merging what the rounds gave.
const (
	Reading  Step = "reading"
	Storing  Step = "storing"
	Counting Step = "counting"
	Merging  Step = "merging"
)

// Summary tells what was read and counted.
type Summary struct {
	Read   genome.Counts `json:"read"`
	Rounds int           `json:"rounds"` // how many rounds counted k-mers; 1: all at once
	Stored int64         `json:"stored"` // bytes that went to temporary files
	Stats
}

var errNoDevice = errors.New("kmers: no device (see device.Open)")

// complete checks the options.
func (o *Options) complete(devices []*device.Device) error {
	if slices.Contains(devices, nil) {
		return &genome.OptionError{Err: errNoDevice}
	}
	if o.K < 1 || o.K > MaxK {
		return &genome.OptionError{Err: fmt.Errorf("k-mers of %d letters: want 1 to %d", o.K, MaxK)}
	}
	least := leastMemory * int64(len(devices))
	if o.MaxMemory < 0 || o.MaxMemory > 0 && o.MaxMemory < least {
		return &genome.OptionError{Err: fmt.Errorf("memory of %s: want %s or more, or 0 for half of what is free",
			device.Bytes(o.MaxMemory), device.Bytes(least))}
	}
	room := int64(0) // of GPUs; CPU devices have one memory
	for _, d := range devices {
		free, _, err := d.Memory()
		if err != nil {
			return err
		}
		if room = max(room, free); d.Info().CUDA() {
			room = max(room, free*int64(len(devices)))
		}
	}
	if host, _ := device.HostMemory(); host > 0 {
		room = min(room, host)
	}
	if o.MaxMemory == 0 {
		o.MaxMemory = room / 2
	}
	o.MaxMemory = max(min(o.MaxMemory, room/4*3), least)
	if o.Read.BlockBytes == 0 && o.MaxMemory < 1<<30 {
		o.Read.BlockBytes = int(max(1<<16, o.MaxMemory/textShare/4))
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
	// add takes text, whose records end in '\n'. The text must not change until done is called. If add fails, done
	// may never be called.
	add(text []byte, done func()) error
	// settle counts what was added. Until then it may turn out that k-mers take more memory than there is.
	settle() error
	// finish settles, and gives the k-mers of each part, in the order of parts, and in each by their mixes. They are
	// good until emit returns.
	finish(emit func(part int, x counted) error) error
	close() error
}

// job is one Count.
type job struct {
	ctx      context.Context
	devices  []*device.Device
	inputs   []string
	o        Options
	s        Summary
	expected int64 // bytes of inputs; 0: nobody knows
}

// Count counts the k-mers of inputs (see genome.Expand) and writes them to the file out, which appears when it is
// whole. If MaxMemory does not hold the k-mers, Count drops what it has counted, and reads the inputs once more, into
// temporary files. Inputs that can be read only once, such as standard input and pipes, go to temporary files at once.
// The output file is the same. Temporary files have no names: none is left, however the process ends. They take about
// 1.5 bytes for each k-mer, and then 12 bytes, or 20 if k-mers have more than 32 letters, for each k-mer that comes Min
// times.
//
// Errors: *genome.OptionError; *genome.InputError; errors of the devices and of temporary files; the context's error.
func Count(ctx context.Context, d *device.Device, inputs []string, o Options, out string) (s Summary, err error) {
	j := &job{ctx: ctx, devices: append([]*device.Device{d}, o.Beside...), o: o}
	if err := j.o.complete(j.devices); err != nil {
		return s, err
	}
	if j.inputs, err = genome.Expand(inputs); err != nil {
		return s, err
	}
	w, err := create(out, j.o)
	if err != nil {
		return s, err
	}
	defer func() { err = errors.Join(err, w.close(err == nil)) }()
	err = errNarrow
	if !slices.ContainsFunc(j.inputs, onceOnly) {
		err = j.whole(w)
	}
	if errors.Is(err, errNarrow) {
		err = j.stored(w)
	}
	j.s.Stats = w.stats
	return j.s, err
}

// onceOnly tells whether an input cannot be read a second time.
func onceOnly(input string) bool {
	i, err := os.Stat(input)
	return input == "-" || err == nil && !i.Mode().IsRegular()
}

// whole counts all k-mers at once, in memory.
func (j *job) whole(w *writer) error {
	j.s.Rounds = 1
	for _, input := range j.inputs {
		if i, err := os.Stat(input); err == nil {
			j.expected += i.Size()
		}
	}
	defer func() { j.expected = 0 }()
	return j.count(0, parts, 0, func(add func(text []byte, done func()) error) error {
		return j.read(Reading, func(b *genome.Block) error { return add(b.Text, b.Release) })
	}, w.put)
}

// read reads the inputs.
func (j *job) read(step Step, each func(b *genome.Block) error) (err error) {
	letters := int64(0)
	j.s.Read, err = genome.Read(j.ctx, j.inputs, j.o.Read, func(b *genome.Block) error {
		letters += int64(len(b.Text) - len(b.Records))
		j.o.Progress(Progress{Step: step, Done: letters, Total: -1})
		return each(b)
	})
	return err
}

// count counts the k-mers of some parts of the text that source gives.
func (j *job) count(first, end, round int, source func(add func(text []byte, done func()) error) error,
	put func(part int, x counted) error) (err error) {
	// The source begins while the counter is made, which takes as long as reading 100 MB.
	made := sync.OnceValues(func() (counter, error) { return j.counter(first, end) })
	var making crash.WaitGroup
	making.Go(func() { made() })
	defer func() {
		making.Wait()
		if c, failed := made(); failed == nil {
			err = errors.Join(err, c.close())
		}
	}()
	err = source(func(text []byte, done func()) error {
		c, err := made()
		if err != nil {
			return err
		}
		return c.add(text, done)
	})
	making.Wait()
	c, failed := made()
	if failed != nil {
		return cmp.Or(err, failed)
	}
	if err != nil {
		return err
	}
	if err := c.settle(); err != nil {
		return err
	}
	j.o.Progress(Progress{Counting, round, 0, parts})
	return c.finish(func(part int, x counted) error { // from here on there is memory
		if err := j.ctx.Err(); err != nil {
			return err
		}
		j.o.Progress(Progress{Counting, round, int64(part + 1), parts})
		return put(part, x)
	})
}

// counter makes one for each device, of a share of the parts.
func (j *job) counter(first, end int) (counter, error) {
	all := shared{}
	n := len(j.devices)
	for i, d := range j.devices {
		from, to := first+(end-first)*i/n, first+(end-first)*(i+1)/n
		c, err := newCounter(d, j.o, j.o.MaxMemory/int64(n), from, to, j.expected/int64(n))
		if err != nil {
			return nil, errors.Join(err, all.close())
		}
		all = append(all, c)
	}
	if n == 1 {
		return all[0], nil
	}
	return all, nil
}

// shared counters each take all text, and count the k-mers of their own parts.
type shared []counter

func (s shared) add(text []byte, done func()) error {
	var left atomic.Int64
	left.Store(int64(len(s)))
	var work crash.Group
	for _, c := range s {
		work.Go(func() error {
			return c.add(text, func() {
				if left.Add(-1) == 0 {
					done()
				}
			})
		})
	}
	return work.Wait()
}

func (s shared) settle() error {
	var work crash.Group
	for _, c := range s {
		work.Go(c.settle)
	}
	return work.Wait()
}

func (s shared) finish(emit func(part int, x counted) error) error {
	if err := s.settle(); err != nil { // before any part is given away
		return err
	}
	for _, c := range s {
		if err := c.finish(emit); err != nil {
			return err
		}
	}
	return nil
}

func (s shared) close() (err error) {
	for _, c := range s {
		err = errors.Join(err, c.close())
	}
	return err
}

func newCounter(d *device.Device, o Options, memory int64, first, end int, expected int64) (counter, error) {
	w := wanted{d: d, k: o.K, words: wordsOf(o.K), least: o.Min, first: uint64(first), end: uint64(end)}
	if o.Canonical {
		w.canonical = 1
	}
	if !d.Info().CUDA() {
		return newCores(w, memory)
	}
	m, err := d.CompileApart(program(w.words))
	if err != nil {
		return nil, err
	}
	return newTabledFor(m, texts{wanted: w, room: roomFor(memory / int64(w.words))}, memory, expected)
}

// roomFor is how much text is brought to a device at a time.
func roomFor(memory int64) int { return int(min(textBytes, memory/textShare)) }

// wanted is what a counter counts: the k-mers of the parts first … end-1.
type wanted struct {
	d          *device.Device
	k, words   int
	canonical  uint64 // 1 where a k-mer and its reverse complement count as one
	first, end uint64
	least      uint32 // k-mers that come less often may be left out
}

// texts brings text to the device, and has its k-mers made piece by piece.
type texts struct {
	wanted
	room   int // bytes of text at a time
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

// rawRoom is how many k-mers a device takes for certain, however few of them are equal.
func rawRoom(devices []*device.Device, memory int64, words int) uint64 {
	share := memory / int64(len(devices))
	least := int64(math.MaxInt64)
	for _, d := range devices {
		n := share / 5 / countedBytes(words) // what is kept of them is a quarter of the memory at most
		if d.Info().CUDA() {                 // half of it is a table's, which may be filled to 40% after it has grown
			n = share / 2 / (5 * rawBytes(words))
		}
		least = min(least, n)
	}
	return uint64(least) * uint64(len(devices))
}
