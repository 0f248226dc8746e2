package sketch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"strings"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/snapshot"
	"github.com/warpmap/warpmap/table/text"
)

// family is what errors begin with.
const family table.Family = "sketch"

// kindHyperLogLog is what files of one say.
const kindHyperLogLog = "hyperloglog"

// HyperLogLogOptions are the options of NewHyperLogLog. The zero value is good.
type HyperLogLogOptions struct {
	// Precision is how many bits of a hash name a register, 4 to 18. There are 2^Precision registers of one byte, and
	// the standard error of an estimate is 1.04/√2^Precision. Zero means 14: 16 KiB and 0.8%.
	Precision int
	// Seed chooses the hash function. Zero means a random seed, so that nobody can choose keys that are estimated
	// wrongly. Only sketches with one Seed can be merged.
	Seed uint64
}

// HyperLogLogStats is what a HyperLogLog measures of itself.
type HyperLogLogStats struct {
	Precision     int     `json:"precision"`
	Used          int64   `json:"used"`           // registers that are not 0, of 2^Precision
	Estimate      float64 `json:"estimate"`       // of distinct keys: see HyperLogLog.Estimate
	StandardError float64 `json:"standard_error"` // of the estimate, as a share of it: 0.008 is 0.8%
	Bytes         int64   `json:"bytes"`          // device memory of the sketch itself

	StagingBytes int64 `json:"staging_bytes"` // see table.Stats
	ScratchBytes int64 `json:"scratch_bytes"`
}

// HyperLogLog estimates how many distinct keys it has had. K is plain data of 1, 2, 4, 8, 16 or 32 bytes, without
// padding or pointers, or string. Keys are equal if their bits are. The package's comment says how it works.
//
// All methods are safe for use by several goroutines. Errors of all methods: table.ErrClosed in an error that names the
// sketch; device.ErrClosed; those of the device; a HyperLogLog that NewHyperLogLog has not made.
type HyperLogLog[K any] struct{ handle }

// handle is what users hold of a sketch: see warpcore's filterHandle.
type handle struct{ s *hyperLogLog }

// hyperLogLog is what works in addresses and bytes under HyperLogLog.
type hyperLogLog struct {
	frame    frame.Frame
	keyBytes int // 0: text, whose hashes are keys of 8 bytes
	opts     HyperLogLogOptions
	add      device.Kernel[addParams]
	merge    device.Kernel[mergeParams]
	ownFrom  int64 // a batch of so many keys has each block work on registers of its own

	mem device.Slice[byte] // guarded by the frame's lock, as what it points to
}

const (
	// ownKeys: blocks have registers of their own where there are so many keys for each, for they bring them together.
	ownKeys = 4
	// sharedKept is shared memory that the driver keeps of a block's.
	sharedKept = 1 << 10
	// registerWord is how many registers a lane merges at once.
	registerWord = 4
	// cpuThreads is a block's of the CPU device, of which one lane works.
	cpuThreads = 32
	// cpuBlock is how many keys a block of the CPU device has at least, so that to merge its registers costs little.
	cpuBlock = 1 << 17
	// laneKeys is how many keys a lane has at least, where blocks have no registers of their own.
	laneKeys = 4
	// waves is how many blocks a multiprocessor gets, at most.
	waves = 8
)

// NewHyperLogLog makes an empty sketch on the device.
//
// Errors: K of another width, or with pointers or padding; options out of range; *device.OutOfMemoryError. If kernels
// must be compiled: device.ErrNoCompiler (CPU device) or device.ErrNoNVRTC (GPU), if there is nothing to compile them
// with. Cost: nothing beside the memory. The first call of a method on a machine compiles its kernel.
func NewHyperLogLog[K any](d *device.Device, o HyperLogLogOptions) (*HyperLogLog[K], error) {
	width, err := textOrWidth[K]()
	if err != nil {
		return nil, err
	}
	s := &hyperLogLog{keyBytes: width, opts: o}
	return frame.Made(&HyperLogLog[K]{handle{s}}, s.frame.Open(family, d, s.begin, s.free))
}

func (s *hyperLogLog) begin() error {
	o := &s.opts
	if o.Precision == 0 {
		o.Precision = defaultPrecision
	}
	if o.Precision < leastPrecision || o.Precision > mostPrecision {
		return fmt.Errorf("sketch: a precision of %d (want %d to %d, or 0 for %d)", o.Precision, leastPrecision,
			mostPrecision, defaultPrecision)
	}
	for o.Seed == 0 {
		o.Seed = rand.Uint64()
	}
	s.ownFrom = ownKeys * s.registers()
	m, err := s.frame.Device.CompileApart(hyperLogLogProgram(inDevice(s.keyBytes)))
	if err != nil {
		return err
	}
	if err := errors.Join(device.Bind(m, "hyperloglog_add", &s.add),
		device.Bind(m, "hyperloglog_merge", &s.merge)); err != nil {
		return err
	}
	if err := device.Ahead(s.add); err != nil {
		return err
	}
	if s.mem, err = frame.Make[byte](&s.frame, s.registers()); err != nil {
		return err
	}
	return s.mem.Fill(nil, 0)
}

func (s *hyperLogLog) free() error { return s.frame.Free(s.mem) }

func (s *hyperLogLog) registers() int64 { return 1 << s.opts.Precision }

// made gives the sketch, if NewHyperLogLog has made it.
func (h *handle) made() (*hyperLogLog, error) {
	if h.s == nil {
		return nil, errors.New("sketch: a HyperLogLog that NewHyperLogLog has not made")
	}
	return h.s, nil
}

// Add takes a batch of keys in. A key that came before changes nothing, so after an error a batch may be added again.
// Cost: the keys are read once. Strings are hashed by the host's cores, and 8 bytes of each go to the device.
func (h *HyperLogLog[K]) Add(keys []K) error {
	s, err := h.made()
	if err != nil {
		return err
	}
	if keys, is := any(keys).([]string); is {
		return s.addText(len(keys), ofStrings(keys))
	}
	return s.addColumn(len(keys), frame.In(keys))
}

// AddOn does what Add does, with keys on the device. It queues its work and returns. Errors: also a sketch of strings,
// which lie in no device slice: see AddText.
func (h *HyperLogLog[K]) AddOn(st *device.Stream, keys device.Slice[K]) error {
	s, err := h.made()
	if err != nil {
		return err
	}
	f := &s.frame
	if err := f.CheckOn("", st, keys); err != nil {
		return err
	}
	if s.keyBytes == 0 {
		return noText("AddOn", "AddText, or Add")
	}
	return f.Writing(st, func(st *device.Stream) error { return s.queue(st, keys.Addr(), int64(keys.Len())) })
}

// AddText does what Add does for a sketch of strings, with keys in the form of package text, which need not be UTF-8.
// Errors: also a sketch of other keys; what is no list of keys.
func (h *HyperLogLog[K]) AddText(keys text.Keys) error {
	s, err := h.made()
	if err != nil {
		return err
	}
	if err := checkText[K]("AddText", s.keyBytes, keys); err != nil {
		return err
	}
	return s.addText(keys.Len(), keys.At)
}

// addText adds n texts, which at gives, by their hashes.
func (s *hyperLogLog) addText(n int, at func(i int) []byte) error {
	if err := s.frame.Usable(); err != nil {
		return err
	}
	return hashes(s.opts.Seed, n, at, func(_ int, part []uint64) error {
		return s.addColumn(len(part), frame.In(part))
	})
}

// addColumn adds keys in Go's memory.
func (s *hyperLogLog) addColumn(n int, keys frame.Column) error {
	return s.frame.Batch(n, []frame.Column{keys}, func(st *device.Stream, _, n int, addr []uint64) error {
		return s.frame.Writing(st, func(st *device.Stream) error { return s.queue(st, addr[0], int64(n)) })
	})
}

// queue adds n keys at a device address. The caller is in Writing.
func (s *hyperLogLog) queue(st *device.Stream, keys uint64, n int64) error {
	if n == 0 {
		return nil
	}
	p := addParams{Keys: keys, N: uint64(n), Registers: s.mem.Addr(), Seed: s.opts.Seed,
		Precision: uint64(s.opts.Precision)}
	own := n >= s.ownFrom && s.registers() <= s.frame.Device.Info().Shared-sharedKept
	grid := s.grid(n, own)
	if own {
		p.Own, grid.Shared = 1, int(max(16, s.registers()))
	}
	return s.add.Launch(st, grid, &p)
}

// grid covers n keys. Blocks with registers of their own are no more than run at once, for each brings its registers
// together with those of all.
func (s *hyperLogLog) grid(n int64, own bool) device.Grid {
	info := s.frame.Device.Info()
	blocks := int64(info.Multiprocessors)
	switch {
	case info.Stress:
		return s.frame.Grid(n, waves)
	case !info.CUDA():
		return device.Grid{Blocks: max(1, min(n/cpuBlock, 4*blocks)), Threads: cpuThreads}
	case !own:
		return s.frame.Grid((n+laneKeys-1)/laneKeys, waves)
	}
	blocks *= min(waves, max(1, info.Shared/s.registers()))
	return device.Grid{Blocks: max(1, min(n/max(frame.Threads, s.registers()), blocks)), Threads: frame.Threads}
}

// Merge takes in what another sketch has had, which stays as it is: see the package's comment. The other may be of
// another device, or come from a file. Both must have one Precision and one Seed, and keys of one width, as their Forms
// say. Cost: 2^Precision bytes are read, once. Merge queues its work where both are of one device.
func (h *HyperLogLog[K]) Merge(other *HyperLogLog[K]) error {
	s, err := h.made()
	if err != nil {
		return err
	}
	if other == nil || other.s == nil {
		return errors.New("sketch: Merge with no sketch")
	}
	o := other.s
	if s == o {
		return s.frame.Usable()
	}
	if h.Form() != other.Form() {
		return fmt.Errorf("sketch: Merge of sketches of different make: %s, and %s (make both with one Precision and "+
			"one Seed, which by default is random)", h.Form().Make, other.Form().Make)
	}
	if s.frame.Device == o.frame.Device {
		return s.frame.WritingFrom(&o.frame, func(st *device.Stream) error {
			return s.raise(st, o.mem.Addr(), s.registers())
		})
	}
	registers, err := o.download()
	if err != nil {
		return err
	}
	return s.frame.Writing(nil, func(st *device.Stream) error {
		from, err := s.frame.Scratch(s.registers())
		if err != nil {
			return err
		}
		defer from.Done()
		return frame.InTurn(
			func() error { return from.Mem.Slice(0, len(registers)).Write(st, registers) },
			func() error { return s.raise(st, from.Mem.Addr(), s.registers()) },
		)
	})
}

// raise merges registers at a device address. The caller is in Writing.
func (s *hyperLogLog) raise(st *device.Stream, from uint64, n int64) error {
	words := n / registerWord
	p := mergeParams{To: s.mem.Addr(), From: from, Words: uint64(words)}
	return s.merge.Launch(st, s.frame.Grid(words, waves), &p)
}

// download gives the registers, once all that is queued is done.
func (s *hyperLogLog) download() (registers []byte, err error) {
	err = s.frame.Reading(nil, func(st *device.Stream) error {
		registers, err = frame.Host(st, s.mem)
		return err
	})
	return registers, err
}

// counts are how many registers have each value.
func (s *hyperLogLog) counts(registers []byte) ([]int, error) {
	counts := make([]int, s.mostRank()+1)
	for i, r := range registers {
		if int(r) >= len(counts) {
			return nil, fmt.Errorf("sketch: register %d of %d is %d, and at most %d can be", i, len(registers), r,
				s.mostRank())
		}
		counts[r]++
	}
	return counts, nil
}

func (s *hyperLogLog) mostRank() int { return hashBits + 1 - s.opts.Precision }

// Estimate gives about how many distinct keys were added, with a standard error of 1.04/√2^Precision of it. It is 0
// exactly where there were none. Estimate waits for what is queued. Cost: 2^Precision bytes come from the device.
func (h *handle) Estimate() (float64, error) {
	s, err := h.Stats()
	return s.Estimate, err
}

// Stats measures the sketch. Cost: as Estimate.
func (h *handle) Stats() (HyperLogLogStats, error) {
	s, err := h.made()
	if err != nil {
		return HyperLogLogStats{}, err
	}
	registers, err := s.download()
	if err != nil {
		return HyperLogLogStats{}, err
	}
	counts, err := s.counts(registers)
	if err != nil {
		return HyperLogLogStats{}, err
	}
	memory := table.Stats{Capacity: 1}
	s.frame.Guard(func() { s.frame.Tell(&memory, nil) })
	return HyperLogLogStats{
		Precision: s.opts.Precision, Used: s.registers() - int64(counts[0]), Bytes: s.registers(),
		Estimate: estimate(counts), StandardError: standardError(s.opts.Precision),
		StagingBytes: memory.StagingBytes, ScratchBytes: memory.ScratchBytes,
	}, nil
}

// Used tells whether a key was added. Cost: as Estimate.
func (h *handle) Used() (bool, error) {
	s, err := h.Stats()
	return s.Used > 0, err
}

// Check downloads the sketch and checks its invariants: no register is larger than a rank can be.
func (h *handle) Check() error {
	_, err := h.Stats()
	return err
}

// Clear takes all keys out. It queues its work and returns.
func (h *handle) Clear() error {
	s, err := h.made()
	if err != nil {
		return err
	}
	return s.frame.Writing(nil, func(st *device.Stream) error { return s.mem.Fill(st, 0) })
}

// Close frees the sketch's memory. A second call does nothing.
func (h *handle) Close() error {
	if h.s == nil {
		return nil
	}
	return h.s.frame.Close()
}

// Family is what errors and files name the sketch by.
func (*handle) Family() table.Family { return family }

// Kind is what files name the sketch by.
func (*handle) Kind() string { return kindHyperLogLog }

// form is FilterForm.Make of a HyperLogLog.
type form struct {
	Sketch    string `json:"sketch"`
	KeyBytes  int    `json:"key_bytes"` // 0: text
	Precision int    `json:"precision"`
	Hash      int    `json:"hash"`
	Seed      uint64 `json:"seed"`
}

// Form says what the registers mean. Sketches of one Form can be merged, and take each other's words.
func (h *handle) Form() table.FilterForm {
	s, err := h.made()
	if err != nil {
		return table.FilterForm{}
	}
	make, err := json.Marshal(form{kindHyperLogLog, s.keyBytes, s.opts.Precision, kernel.HashMurmur, s.opts.Seed})
	if err != nil {
		panic(err) // numbers
	}
	return table.FilterForm{Words: s.registers() / wordBytes, Make: string(make)}
}

// Words gives the registers to do, eight in each word, the first in the lowest byte: see Words of table.Filter.
func (h *handle) Words(ctx context.Context, do func(words []uint64) error) error {
	s, err := h.made()
	if err != nil {
		return err
	}
	return frame.Words(ctx, &s.frame, s.words(), do)
}

// SetWords replaces registers by those of a sketch of the same Form, from word number first on. It waits until that is
// done. Errors: words that the sketch does not have; registers that no sketch has.
func (h *handle) SetWords(first int64, words []uint64) error {
	s, err := h.made()
	if err != nil {
		return err
	}
	return s.frame.Writing(nil, func(st *device.Stream) error {
		all := s.words()
		if first < 0 || first > int64(all.Len()) || int64(len(words)) > int64(all.Len())-first {
			return fmt.Errorf("sketch: words %d to %d of a sketch that has %d", first, first+int64(len(words)),
				all.Len())
		}
		for i, w := range words {
			for ; w != 0; w >>= 8 {
				if int(byte(w)) > s.mostRank() {
					return fmt.Errorf("sketch: word %d has a register of %d, and at most %d can be", first+int64(i),
						byte(w), s.mostRank())
				}
			}
		}
		return all.Slice(int(first), int(first)+len(words)).Write(st, words)
	})
}

func (s *hyperLogLog) words() device.Slice[uint64] {
	return device.View[uint64](s.mem, 0, s.mem.Len()/wordBytes)
}

// Save writes the sketch to w: 2^Precision bytes and some 300 more. See package snapshot, whose Sketch[K](h).SaveFile
// writes a file.
func (h *HyperLogLog[K]) Save(ctx context.Context, w io.Writer) error {
	if _, err := h.made(); err != nil {
		return err
	}
	return snapshot.Sketch[K](h).Save(ctx, w)
}

// LoadHyperLogLog makes a sketch of what Save wrote, on any device. It reads r to its end. K must be the type that was
// saved: see warpmap.LoadMap.
//
// Errors: a file that is damaged, cut off, of another kind or of other keys; those of NewHyperLogLog;
// context.Cause(ctx).
func LoadHyperLogLog[K any](ctx context.Context, r io.Reader, d *device.Device) (*HyperLogLog[K], error) {
	file, err := snapshot.NewReader(r)
	if err != nil {
		return nil, err
	}
	if file.Header.Kind != kindHyperLogLog || file.Header.Form == nil {
		return nil, fmt.Errorf("sketch: the file is of a %s, and not of a %s: load it as what it is", file.Header.Kind,
			kindHyperLogLog)
	}
	h, err := ofForm[K](d, *file.Header.Form)
	if err != nil {
		return nil, err
	}
	if err := file.Load(ctx, snapshot.Sketch[K](h)); err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

// ofForm makes an empty sketch with the Form of another.
func ofForm[K any](d *device.Device, want table.FilterForm) (*HyperLogLog[K], error) {
	var f form
	in := json.NewDecoder(strings.NewReader(want.Make))
	in.DisallowUnknownFields()
	if err := in.Decode(&f); err != nil {
		return nil, fmt.Errorf("sketch: a sketch of form %q: %w", want.Make, err)
	}
	if f.Precision == 0 || f.Seed == 0 {
		return nil, fmt.Errorf("sketch: a sketch of form %q (want what Form gives)", want.Make)
	}
	h, err := NewHyperLogLog[K](d, HyperLogLogOptions{Precision: f.Precision, Seed: f.Seed})
	if err == nil && h.Form() != want {
		return nil, errors.Join(fmt.Errorf("sketch: a sketch of form %v has form %v", want, h.Form()), h.Close())
	}
	return h, err
}

// CompileAhead compiles the kernels of a HyperLogLog of such keys, on a device of device.OpenAhead. Errors: those of
// NewHyperLogLog; *device.CompileError.
func CompileAhead[K any](d *device.Device) error {
	h, err := NewHyperLogLog[K](d, HyperLogLogOptions{})
	if err != nil {
		return err
	}
	return errors.Join(device.Ahead(h.s.add, h.s.merge), h.Close(), d.Ready())
}
