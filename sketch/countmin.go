package sketch

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"strings"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/snapshot"
	"github.com/warpmap/warpmap/table/text"
)

// kindCountMin is what files of one say.
const kindCountMin = "countmin"

// CountMinOptions are the options of NewCountMin. The zero value is good.
type CountMinOptions struct {
	// Epsilon bounds the error of an estimate, as a share of all keys that were added: over 0 and below 1. Zero means
	// 0.0005. A row has e/Epsilon counters.
	Epsilon float64
	// Delta is how probable a larger error of a key is, at most: over 0 and below 1. Zero means 0.01. There are
	// ln(1/Delta) rows, 32 at most.
	Delta float64
	// Conservative has an update raise no counter further than its key needs. Estimates then are never larger, and
	// mostly nearer, but adding takes longer: see the package's comment.
	Conservative bool
	// Seed chooses the hash function. Zero means a random seed, so that nobody can choose keys that are estimated
	// wrongly. Only sketches with one Seed can be merged.
	Seed uint64
}

const (
	defaultEpsilon, defaultDelta = 0.0005, 0.01
)

// CountMinStats is what a CountMin measures of itself.
type CountMinStats struct {
	Rows  int   `json:"rows"`
	Width int64 `json:"width"` // counters of a row
	// Added is how often keys came, all together.
	Added uint64 `json:"added"`
	// Bound is what an estimate is too large by, with a probability of 1-Delta at least. It is e/Width of Added.
	Bound float64 `json:"bound"`
	Delta float64 `json:"delta"` // e^-Rows
	Bytes int64   `json:"bytes"` // device memory of the sketch itself

	StagingBytes int64 `json:"staging_bytes"` // see table.Stats
	ScratchBytes int64 `json:"scratch_bytes"`
}

// CountMin estimates how often each key came: never too low, and seldom much too high. K is plain data of 1, 2, 4, 8,
// 16 or 32 bytes, without padding or pointers, or string. Keys are equal if their bits are. The package's comment says
// how it works.
//
// All methods are safe for use by several goroutines. Errors of all methods: table.ErrClosed in an error that names the
// sketch; device.ErrClosed; those of the device; a CountMin that NewCountMin has not made.
type CountMin[K any] struct{ countMinHandle }

// countMinHandle is what users hold of a sketch: see handle.
type countMinHandle struct{ s *countMin }

// countMin is what works in addresses and bytes under CountMin.
type countMin struct {
	frame    frame.Frame
	form     countMinForm
	own      device.Kernel[countMinParams]
	tiles    device.Kernel[countMinParams]
	counted  device.Kernel[countMinParams]
	estimate device.Kernel[estimateParams]
	merge    device.Kernel[mergeParams]
	ownFrom  int64 // a batch of so many keys has each block count in counters of its own

	mem   device.Slice[uint64] // guarded by the frame's lock, as what it points to
	locks device.Slice[uint32] // of a conservative sketch
}

// countMinForm is FilterForm.Make of a CountMin.
type countMinForm struct {
	Sketch       string `json:"sketch"`
	KeyBytes     int    `json:"key_bytes"` // 0: text
	Rows         int    `json:"rows"`
	Width        int64  `json:"width"`
	Conservative bool   `json:"conservative"`
	Hash         int    `json:"hash"`
	Seed         uint64 `json:"seed"`
}

const (
	// mostBatch is how many keys a launch has at most: a block's own counters have 32 bits.
	mostBatch = 1 << 31
	// cpuOwnBytes is what a block's own counters have on the CPU device at most, so that its core's cache holds them.
	cpuOwnBytes = 1 << 20
	// cpuBlocks is how many blocks a worker of the CPU device has, so that all end at about one time.
	cpuBlocks = 2
)

// NewCountMin makes an empty sketch on the device. It takes 8 bytes a counter: 212 KiB by default.
//
// Errors: K of another width, or with pointers or padding; options out of range; *device.OutOfMemoryError. If kernels
// must be compiled: device.ErrNoCompiler (CPU device) or device.ErrNoNVRTC (GPU), if there is nothing to compile them
// with. Cost: nothing beside the memory. The first call of a method on a machine compiles its kernel.
func NewCountMin[K any](d *device.Device, o CountMinOptions) (*CountMin[K], error) {
	rows, width, err := o.geometry()
	if err != nil {
		return nil, err
	}
	return newCountMin[K](d, countMinForm{Rows: rows, Width: width, Conservative: o.Conservative, Seed: o.Seed})
}

// geometry is how many rows the bounds take, and how many counters in each.
func (o CountMinOptions) geometry() (rows int, width int64, err error) {
	if o.Epsilon == 0 {
		o.Epsilon = defaultEpsilon
	}
	if o.Delta == 0 {
		o.Delta = defaultDelta
	}
	if !(o.Epsilon >= math.E/mostWidth && o.Epsilon < 1) {
		return 0, 0, fmt.Errorf("sketch: an Epsilon of %v (want %.2g or more, below 1, or 0 for %v)", o.Epsilon,
			math.E/mostWidth, defaultEpsilon)
	}
	if least := math.Exp(-mostRows); !(o.Delta >= least && o.Delta < 1) {
		return 0, 0, fmt.Errorf("sketch: a Delta of %v (want %.2g or more, below 1, or 0 for %v)", o.Delta, least,
			defaultDelta)
	}
	rows = min(mostRows, max(1, int(math.Ceil(-math.Log(o.Delta)-1e-9))))
	return rows, min(mostWidth, int64(math.Ceil(math.E/o.Epsilon-1e-9))), nil
}

// newCountMin makes a sketch of such rows.
func newCountMin[K any](d *device.Device, f countMinForm) (*CountMin[K], error) {
	var err error
	if f.KeyBytes, err = textOrWidth[K](); err != nil {
		return nil, err
	}
	for f.Seed == 0 {
		f.Seed = rand.Uint64()
	}
	f.Sketch, f.Hash = kindCountMin, kernel.HashMurmur
	s := &countMin{form: f}
	return frame.Made(&CountMin[K]{countMinHandle{s}}, s.frame.Open(family, d, s.begin, s.free))
}

func (s *countMin) begin() error {
	s.ownFrom = ownKeys * s.counters()
	m, err := s.frame.Device.CompileApart(countMinProgram(inDevice(s.form.KeyBytes), s.form.Rows))
	if err != nil {
		return err
	}
	if err := errors.Join(device.Bind(m, "count_min_own", &s.own), device.Bind(m, "count_min_tiles", &s.tiles),
		device.Bind(m, "count_min_counted", &s.counted), device.Bind(m, "count_min_estimate", &s.estimate),
		device.Bind(m, "count_min_merge", &s.merge)); err != nil {
		return err
	}
	if s.mem, err = frame.Make[uint64](&s.frame, s.words()); err != nil {
		return err
	}
	if s.form.Conservative {
		if s.locks, err = frame.Make[uint32](&s.frame, countLocks); err != nil {
			return err
		}
		if err := s.locks.Fill(nil, 0); err != nil {
			return err
		}
	}
	return s.mem.Fill(nil, 0)
}

func (s *countMin) free() error { return s.frame.Free(s.mem, s.locks) }

// counters is how many counters there are, and words how many words with the sum before them.
func (s *countMin) counters() int64 { return int64(s.form.Rows) * s.form.Width }
func (s *countMin) words() int64    { return sumWords + s.counters() }

// made gives the sketch, if NewCountMin has made it.
func (h *countMinHandle) made() (*countMin, error) {
	if h.s == nil {
		return nil, errors.New("sketch: a CountMin that NewCountMin has not made")
	}
	return h.s, nil
}

// Add counts each key of a batch. Keys are read once. Strings are hashed by the host's cores, and 8 bytes of each go to
// the device. After an error of a device a part of the batch may be counted.
func (h *CountMin[K]) Add(keys []K) error {
	if keys, is := any(keys).([]string); is {
		return h.addText(len(keys), ofStrings(keys), nil)
	}
	return h.add(len(keys), frame.In(keys), frame.Column{}, false)
}

// AddCounts does what Add does, with key i having come counts[i] times. All counts together must be less than 2^64.
func (h *CountMin[K]) AddCounts(keys []K, counts []uint64) error {
	if err := family.CheckNamed("counts", len(keys), len(counts)); err != nil {
		return err
	}
	if keys, is := any(keys).([]string); is {
		return h.addText(len(keys), ofStrings(keys), counts)
	}
	return h.add(len(keys), frame.In(keys), frame.In(counts), true)
}

// AddText does what Add does for a sketch of strings, with keys in the form of package text, which need not be UTF-8.
// counts may be nil; else key i came counts[i] times. Errors: also a sketch of other keys; what is no list of keys.
func (h *CountMin[K]) AddText(keys text.Keys, counts []uint64) error {
	if s, err := h.made(); err != nil {
		return err
	} else if err := checkText[K]("AddText", s.form.KeyBytes, keys); err != nil {
		return err
	}
	if err := family.CheckNamed("counts", keys.Len(), frame.OptionalLen(counts)); err != nil {
		return err
	}
	return h.addText(keys.Len(), keys.At, counts)
}

// addText counts n texts, which at gives, by their hashes.
func (h *countMinHandle) addText(n int, at func(i int) []byte, counts []uint64) error {
	s, err := h.made()
	if err != nil {
		return err
	}
	if err := s.frame.Usable(); err != nil {
		return err
	}
	return hashes(s.form.Seed, n, at, func(first int, part []uint64) error {
		if counts == nil {
			return h.add(len(part), frame.In(part), frame.Column{}, false)
		}
		return h.add(len(part), frame.In(part), frame.In(counts[first:first+len(part)]), true)
	})
}

// add counts keys in Go's memory.
func (h *countMinHandle) add(n int, keys, counts frame.Column, counted bool) error {
	s, err := h.made()
	if err != nil {
		return err
	}
	columns := []frame.Column{keys, counts}
	if !counted {
		columns = columns[:1]
	}
	return s.frame.Batch(n, columns, func(st *device.Stream, _, n int, addr []uint64) error {
		addr = append(addr, 0) // without counts
		return s.frame.Writing(st, func(st *device.Stream) error { return s.queue(st, addr[0], addr[1], int64(n)) })
	})
}

// AddOn does what Add does, with keys on the device. It queues its work and returns. Errors: also a sketch of strings,
// which lie in no device slice: see AddText.
func (h *CountMin[K]) AddOn(st *device.Stream, keys device.Slice[K]) error {
	return h.addOn(st, keys)
}

// AddCountsOn does what AddCounts does, with keys and counts on the device. It queues its work and returns.
func (h *CountMin[K]) AddCountsOn(st *device.Stream, keys device.Slice[K], counts device.Slice[uint64]) error {
	return h.addOn(st, keys, counts)
}

// addOn counts keys of a device slice, as often as the second says, if there is one.
func (h *countMinHandle) addOn(st *device.Stream, columns ...frame.DeviceSlice) error {
	s, err := h.made()
	if err != nil {
		return err
	}
	counts := uint64(0)
	if len(columns) == 1 {
		err = s.frame.CheckOn("", st, columns[0])
	} else {
		err = s.frame.CheckOn("counts", st, columns[0], columns[1])
		counts = columns[1].Addr()
	}
	if err == nil && s.form.KeyBytes == 0 {
		err = noText("AddOn", "AddText, or Add")
	}
	if err != nil {
		return err
	}
	return s.frame.Writing(st, func(st *device.Stream) error {
		return s.queue(st, columns[0].Addr(), counts, int64(columns[0].Len()))
	})
}

// queue counts n keys at a device address. The caller is in Writing.
func (s *countMin) queue(st *device.Stream, keys, counts uint64, n int64) error {
	for first := int64(0); first < n; first += mostBatch {
		p := countMinParams{Keys: keys + uint64(first)*uint64(inDevice(s.form.KeyBytes)),
			N: uint64(min(mostBatch, n-first)), Words: s.mem.Addr(), Locks: s.locks.Addr(),
			Width: uint64(s.form.Width), Seed: s.form.Seed}
		if counts != 0 {
			p.Counts = counts + uint64(first)*wordBytes
		}
		if err := s.launch(st, &p); err != nil {
			return err
		}
	}
	return nil
}

// launch counts the keys of one launch.
func (s *countMin) launch(st *device.Stream, p *countMinParams) error {
	info, n := s.frame.Device.Info(), int64(p.N)
	alone := !info.CUDA() && !info.Stress
	room := info.Shared - sharedKept
	if alone {
		room = cpuOwnBytes
	}
	if ownBytes := 4 * s.counters(); p.Counts == 0 && p.Locks == 0 && n >= s.ownFrom && ownBytes <= room {
		if alone {
			return s.launchAlone(st, p, ownBytes)
		}
		most := int64(info.Multiprocessors) * max(1, min(waves, info.Shared/(ownBytes+sharedKept)))
		blocks := max(1, min(n/max(tileThreads, s.counters()), most))
		return s.own.Launch(st, device.Grid{Blocks: blocks, Threads: s.threads(), Shared: int(ownBytes)}, p)
	}
	kernel := s.tiles
	if p.Counts != 0 {
		kernel = s.counted
	}
	if alone {
		blocks := max(1, min(n/cpuBlock, cpuBlocks*int64(info.Multiprocessors)))
		return kernel.Launch(st, device.Grid{Blocks: blocks, Threads: cpuThreads}, p)
	}
	rows := int64(tileBytes / (inDevice(s.form.KeyBytes) + 2*wordBytes)) // at least
	blocks := min((n+rows-1)/rows, int64(info.Multiprocessors)*waves)
	return kernel.Launch(st, device.Grid{Blocks: blocks, Threads: s.threads()}, p)
}

// launchAlone counts on the CPU device, where a block's own counters are scratch memory.
func (s *countMin) launchAlone(st *device.Stream, p *countMinParams, ownBytes int64) error {
	most := cpuBlocks * int64(s.frame.Device.Info().Multiprocessors)
	blocks := max(1, min(int64(p.N)/max(cpuBlock, 2*s.counters()), most))
	own, err := s.frame.Scratch(blocks * ownBytes)
	if err != nil {
		return err
	}
	defer own.Done()
	p.Own = own.Mem.Addr()
	return s.own.Launch(st, device.Grid{Blocks: blocks, Threads: cpuThreads}, p)
}

// threads is how many threads a block has that counts.
func (s *countMin) threads() int {
	if s.frame.Device.Info().CUDA() {
		return tileThreads
	}
	return frame.Threads
}

// Estimate writes how often each key came, at most, to counts, which is as long as keys. No estimate is too low. Of a
// key, it is too high by more than a share of Epsilon of all keys with a probability of Delta at most. Cost: as many
// random reads of 8 bytes as there are rows, for each key.
func (h *CountMin[K]) Estimate(keys []K, counts []uint64) error {
	s, err := h.made()
	if err != nil {
		return err
	}
	if err := family.CheckNamed("counts", len(keys), len(counts)); err != nil {
		return err
	}
	if keys, is := any(keys).([]string); is {
		return s.estimateText(len(keys), ofStrings(keys), counts)
	}
	return s.estimates(len(keys), frame.In(keys), counts)
}

// EstimateText does what Estimate does for a sketch of strings: see AddText.
func (h *CountMin[K]) EstimateText(keys text.Keys, counts []uint64) error {
	s, err := h.made()
	if err != nil {
		return err
	}
	if err := checkText[K]("EstimateText", s.form.KeyBytes, keys); err != nil {
		return err
	}
	if err := family.CheckNamed("counts", keys.Len(), len(counts)); err != nil {
		return err
	}
	return s.estimateText(keys.Len(), keys.At, counts)
}

// estimateText estimates n texts, which at gives.
func (s *countMin) estimateText(n int, at func(i int) []byte, counts []uint64) error {
	if err := s.frame.Usable(); err != nil {
		return err
	}
	return hashes(s.form.Seed, n, at, func(first int, part []uint64) error {
		return s.estimates(len(part), frame.In(part), counts[first:first+len(part)])
	})
}

// estimates estimates n keys in Go's memory.
func (s *countMin) estimates(n int, keys frame.Column, counts []uint64) error {
	columns := []frame.Column{keys, frame.Out(counts)}
	return s.frame.Batch(n, columns, func(st *device.Stream, _, n int, addr []uint64) error {
		return s.frame.Reading(st, func(st *device.Stream) error { return s.look(st, addr[0], addr[1], int64(n)) })
	})
}

// EstimateOn does what Estimate does, with device slices. It queues its work and returns.
func (h *CountMin[K]) EstimateOn(st *device.Stream, keys device.Slice[K], counts device.Slice[uint64]) error {
	s, err := h.made()
	if err != nil {
		return err
	}
	if err := s.frame.CheckOn("counts", st, keys, counts); err != nil {
		return err
	}
	if s.form.KeyBytes == 0 {
		return noText("EstimateOn", "EstimateText, or Estimate")
	}
	return s.frame.Reading(st, func(st *device.Stream) error {
		return s.look(st, keys.Addr(), counts.Addr(), int64(keys.Len()))
	})
}

// look estimates n keys at a device address. The caller is in Reading.
func (s *countMin) look(st *device.Stream, keys, out uint64, n int64) error {
	if n == 0 {
		return nil
	}
	p := estimateParams{Keys: keys, N: uint64(n), Out: out, Words: s.mem.Addr(), Width: uint64(s.form.Width),
		Seed: s.form.Seed}
	return s.estimate.Launch(st, s.frame.Grid(n, 2*waves), &p)
}

// Merge counts what another sketch has counted, which stays as it is. The other may be of another device, or come from
// a file; of a sketch itself, everything counts twice. All counts of both must add up to less than 2⁶⁴. Both must have
// one Form. Cost: the other's counters are read, once. Merge queues its work where both are of one device.
func (h *CountMin[K]) Merge(other *CountMin[K]) error {
	s, err := h.made()
	if err != nil {
		return err
	}
	if other == nil || other.s == nil {
		return errors.New("sketch: Merge with no sketch")
	}
	o := other.s
	if s == o {
		return s.frame.Writing(nil, func(st *device.Stream) error { return s.addWords(st, s.mem.Addr()) })
	}
	if s.form != o.form {
		return fmt.Errorf("sketch: Merge of sketches of different make: %s, and %s (make both with one Epsilon, Delta "+
			"and Seed, which by default is random)", h.Form().Make, other.Form().Make)
	}
	if s.frame.Device == o.frame.Device {
		return s.frame.WritingFrom(&o.frame, func(st *device.Stream) error {
			return s.addWords(st, o.mem.Addr())
		})
	}
	var words []uint64
	if err := o.frame.Reading(nil, func(st *device.Stream) error {
		words, err = frame.Host(st, o.mem)
		return err
	}); err != nil {
		return err
	}
	return s.frame.Writing(nil, func(st *device.Stream) error {
		from, err := s.frame.Scratch(s.words() * wordBytes)
		if err != nil {
			return err
		}
		defer from.Done()
		return frame.InTurn(
			func() error { return device.View[uint64](from.Mem, 0, len(words)).Write(st, words) },
			func() error { return s.addWords(st, from.Mem.Addr()) },
		)
	})
}

// addWords adds the words of another sketch, at a device address. The caller is in Writing.
func (s *countMin) addWords(st *device.Stream, from uint64) error {
	p := mergeParams{To: s.mem.Addr(), From: from, Words: uint64(s.words())}
	return s.merge.Launch(st, s.frame.Grid(s.words(), waves), &p)
}

// Stats measures the sketch. It waits for what is queued. Cost: a word comes from the device.
func (h *countMinHandle) Stats() (CountMinStats, error) {
	s, err := h.made()
	if err != nil {
		return CountMinStats{}, err
	}
	sum := make([]uint64, sumWords)
	if err := s.frame.Reading(nil, func(st *device.Stream) error {
		return s.mem.Slice(0, sumWords).Read(st, sum)
	}); err != nil {
		return CountMinStats{}, err
	}
	memory := table.Stats{Capacity: 1}
	s.frame.Guard(func() { s.frame.Tell(&memory, nil) })
	return CountMinStats{
		Rows: s.form.Rows, Width: s.form.Width, Added: sum[0], Bound: math.E / float64(s.form.Width) * float64(sum[0]),
		Delta: math.Exp(-float64(s.form.Rows)), Bytes: s.mem.Bytes() + s.locks.Bytes(),
		StagingBytes: memory.StagingBytes, ScratchBytes: memory.ScratchBytes,
	}, nil
}

// Used tells whether a key was added. Cost: as Stats.
func (h *countMinHandle) Used() (bool, error) {
	s, err := h.Stats()
	return s.Added > 0, err
}

// Check downloads the sketch and checks its invariants: the counters of a row are, together, how often keys came, or
// with conservative updates no more.
func (h *countMinHandle) Check() error {
	s, err := h.made()
	if err != nil {
		return err
	}
	return s.frame.Reading(nil, func(st *device.Stream) error {
		words, err := frame.Host(st, s.mem)
		if err != nil {
			return err
		}
		for row := range int64(s.form.Rows) {
			sum := uint64(0)
			for _, c := range words[sumWords+row*s.form.Width:][:s.form.Width] {
				sum += c
			}
			if sum != words[0] && !(s.form.Conservative && sum < words[0]) {
				return fmt.Errorf("sketch: the counters of row %d are %d together, and keys came %d times", row, sum,
					words[0])
			}
		}
		return nil
	})
}

// Clear takes all keys out. It queues its work and returns.
func (h *countMinHandle) Clear() error {
	s, err := h.made()
	if err != nil {
		return err
	}
	return s.frame.Writing(nil, func(st *device.Stream) error { return s.mem.Fill(st, 0) })
}

// Close frees the sketch's memory. A second call does nothing.
func (h *countMinHandle) Close() error {
	if h.s == nil {
		return nil
	}
	return h.s.frame.Close()
}

// Family is what errors and files name the sketch by.
func (*countMinHandle) Family() table.Family { return family }

// Kind is what files name the sketch by.
func (*countMinHandle) Kind() string { return kindCountMin }

// Form says what the counters mean. Sketches of one Form can be merged, and take each other's words.
func (h *countMinHandle) Form() table.FilterForm {
	s, err := h.made()
	if err != nil {
		return table.FilterForm{}
	}
	make, err := json.Marshal(s.form)
	if err != nil {
		panic(err) // numbers
	}
	return table.FilterForm{Words: s.words(), Make: string(make)}
}

// Words gives the sum of all counts, and the counters row by row, to do: see Words of table.Filter.
func (h *countMinHandle) Words(ctx context.Context, do func(words []uint64) error) error {
	s, err := h.made()
	if err != nil {
		return err
	}
	return frame.Words(ctx, &s.frame, s.mem, do)
}

// SetWords replaces words by those of a sketch of the same Form, from word number first on. It waits until that is
// done. Errors: words that the sketch does not have. Whether all words together are those of a sketch Check tells.
func (h *countMinHandle) SetWords(first int64, words []uint64) error {
	s, err := h.made()
	if err != nil {
		return err
	}
	return s.frame.Writing(nil, func(st *device.Stream) error {
		if all := s.words(); first < 0 || first > all || int64(len(words)) > all-first {
			return fmt.Errorf("sketch: words %d to %d of a sketch that has %d", first, first+int64(len(words)), all)
		}
		return s.mem.Slice(int(first), int(first)+len(words)).Write(st, words)
	})
}

// Save writes the sketch to w: 8 bytes a counter, and some 300 more. See package snapshot, whose Sketch[K](h).SaveFile
// writes a file.
func (h *CountMin[K]) Save(ctx context.Context, w io.Writer) error {
	if _, err := h.made(); err != nil {
		return err
	}
	return snapshot.Sketch[K](h).Save(ctx, w)
}

// LoadCountMin makes a sketch of what Save wrote, on any device. It reads r to its end. K must be the type that was
// saved: see warpmap.LoadMap.
//
// Errors: a file that is damaged, cut off, of another kind or of other keys; those of NewCountMin; context.Cause(ctx).
func LoadCountMin[K any](ctx context.Context, r io.Reader, d *device.Device) (*CountMin[K], error) {
	file, err := snapshot.NewReader(r)
	if err != nil {
		return nil, err
	}
	if file.Header.Kind != kindCountMin || file.Header.Form == nil {
		return nil, fmt.Errorf("sketch: the file is of a %s, and not of a %s: load it as what it is", file.Header.Kind,
			kindCountMin)
	}
	h, err := countMinOf[K](d, *file.Header.Form)
	if err != nil {
		return nil, err
	}
	err = file.Load(ctx, snapshot.Sketch[K](h))
	if err == nil {
		err = h.Check()
	}
	if err != nil {
		return nil, errors.Join(err, h.Close())
	}
	return h, nil
}

// countMinOf makes an empty sketch with the Form of another.
func countMinOf[K any](d *device.Device, want table.FilterForm) (*CountMin[K], error) {
	var f countMinForm
	in := json.NewDecoder(strings.NewReader(want.Make))
	in.DisallowUnknownFields()
	if err := in.Decode(&f); err != nil {
		return nil, fmt.Errorf("sketch: a sketch of form %q: %w", want.Make, err)
	}
	if f.Rows < 1 || f.Rows > mostRows || f.Width < 1 || f.Width > mostWidth || f.Seed == 0 ||
		want.Words != sumWords+int64(f.Rows)*f.Width {
		return nil, fmt.Errorf("sketch: a sketch of form %v (want what Form gives)", want)
	}
	h, err := newCountMin[K](d, f)
	if err == nil && h.Form() != want {
		return nil, errors.Join(fmt.Errorf("sketch: a sketch of form %v has form %v", want, h.Form()), h.Close())
	}
	return h, err
}

// CompileAheadCountMin compiles the kernels of a CountMin of such keys with as many rows as the options have, on a
// device of device.OpenAhead. Errors: those of NewCountMin; *device.CompileError.
func CompileAheadCountMin[K any](d *device.Device, o CountMinOptions) error {
	h, err := NewCountMin[K](d, o)
	if err != nil {
		return err
	}
	s := h.s
	return errors.Join(device.Ahead(s.own, s.tiles, s.counted, s.estimate, s.merge), h.Close(), d.Ready())
}
