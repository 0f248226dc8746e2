package sketch

import (
	"bytes"
	"cmp"
	"context"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strings"
	"unsafe"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/snapshot"
)

// kindTop is what files of one say.
const kindTop = "top"

// TopOptions are the options of NewTop. The zero value is good.
type TopOptions struct {
	// Counters is how many keys have counts, at least: 1 to 2^24. Zero means 1000. Every key that comes more often than
	// a share of 1/Counters of all is among them, and no count is off by more than that share.
	Counters int
	// Seed chooses the hash function of the sketch's table. Zero means a random seed, so that nobody can choose keys
	// that make it slow.
	Seed uint64
}

const defaultCounters = 1000

// TopKey is a key, and how often it came: Count times at least, and Count+Error at most.
type TopKey[K any] struct {
	Key   K      `json:"key"`
	Count uint64 `json:"count"`
	Error uint64 `json:"error"`
}

// TopStats is what a Top measures of itself.
type TopStats struct {
	Counters int    `json:"counters"`
	Keys     int64  `json:"keys"`  // that have counts now
	Added    uint64 `json:"added"` // how often keys came, all together
	// Error is how much too low a count is at most. It is less than Added/Counters; 0 where every key has its count.
	Error uint64 `json:"error"`
	Bytes int64  `json:"bytes"` // device memory of the sketch itself

	StagingBytes int64 `json:"staging_bytes"` // see table.Stats
	ScratchBytes int64 `json:"scratch_bytes"`
}

// Top finds the keys that come most often, from memory for few. K is plain data of 1, 2, 4, 8, 16 or 32 bytes, without
// padding or pointers. Keys are equal if their bits are. TextTop counts texts. The package's comment says how this one
// works.
//
// All methods are safe for use by several goroutines. Errors of all methods: table.ErrClosed in an error that names the
// sketch; device.ErrClosed; those of the device; a Top that NewTop has not made.
type Top[K any] struct{ topHandle }

// topHandle is what users hold of a sketch: see handle.
type topHandle struct{ s *top }

// top is what works in addresses and bytes under Top.
type top struct {
	frame   frame.Frame
	form    topForm
	seed    uint64
	summary int64 // bytes of a block's summary
	all     bool  // blocks hand on all keys, for a summary has no room for as many as there are counters
	part    int64 // keys that come into the table before it is looked at again, at most
	blocks  int64 // that summarise, at most
	whole   int64 // of a batch of so many keys blocks hand on all: the table has room, and counts stay exact
	add     device.Kernel[topAddParams]
	put     device.Kernel[topPutParams]
	exports [5]device.Kernel[topExportParams] // begin, count, pick, list, clear
	keyRoom int64                             // bytes of the list's keys

	// Guarded by the frame's lock, as what they point to.
	head, bins device.Slice[uint64]
	slots      device.Slice[byte]
	listed     device.Slice[byte] // keys, and their counts behind them
	bound      int64              // keys in the table, at most
	most       uint64             // what was added, at most
	words      []uint64           // that SetWords has until it has all
}

// topForm is FilterForm.Make of a Top.
type topForm struct {
	Sketch   string `json:"sketch"`
	KeyBytes int    `json:"key_bytes"`
	Counters int    `json:"counters"`
}

// Kernels of an export.
const (
	topBegin = iota
	topCount
	topPick
	topList
	topClear
)

const (
	// topPartAll is what part is at least on a GPU whose blocks hand on all keys.
	topPartAll, topPartStress = 1 << 20, 1 << 9
	// topStressBytes has a block of few rows, and topLeastTwo is shared memory that two summaries share.
	topStressBytes, topLeastTwo = 16 << 10, 128 << 10
	cpuTopBlock                 = 1 << 12
)

// topPartCPU and topPartGPU are what part is at least, and topBlocks is how many blocks of a GPU summarise at most, but
// in tests.
var topPartCPU, topPartGPU, topBlocks int64 = 1 << 16, 1 << 16, 1 << 20

// NewTop makes an empty sketch on the device. It takes memory for twice as many keys as may come into its table at
// once: for 1000 counters and keys of 4 bytes 3 MiB on the CPU device, and 13 MiB on an H200, whose 264 blocks bring
// 1000 keys each.
//
// Errors: K of another width, or with pointers or padding; options out of range; *device.OutOfMemoryError. If kernels
// must be compiled: device.ErrNoCompiler (CPU device) or device.ErrNoNVRTC (GPU), if there is nothing to compile them
// with. Cost: nothing beside the memory. The first call of a method on a machine compiles its kernels.
func NewTop[K any](d *device.Device, o TopOptions) (*Top[K], error) {
	if o.Counters == 0 {
		o.Counters = defaultCounters
	}
	if o.Counters < 1 || o.Counters > mostCounters {
		return nil, fmt.Errorf("sketch: %d counters (want 1 to %d, or 0 for %d)", o.Counters, mostCounters,
			defaultCounters)
	}
	width, err := frame.WidthOf[K]("key of a sketch", 1, 2, 4, 8, 16, 32)
	if err != nil {
		return nil, err
	}
	for o.Seed == 0 {
		o.Seed = rand.Uint64()
	}
	s := &top{form: topForm{kindTop, width, o.Counters}, seed: o.Seed}
	return frame.Made(&Top[K]{topHandle{s}}, s.frame.Open(family, d, s.begin, s.free))
}

func (s *top) begin() error {
	s.measure(s.frame.Device.Info())
	m, err := s.frame.Device.CompileApart(topProgram(s.form.KeyBytes, s.summary))
	if err != nil {
		return err
	}
	err = errors.Join(device.Bind(m, "top_add", &s.add), device.Bind(m, "top_put", &s.put))
	for i, name := range []string{"top_begin", "top_count", "top_pick", "top_list", "top_clear"} {
		err = errors.Join(err, device.Bind(m, name, &s.exports[i]))
	}
	if err != nil {
		return err
	}
	counters := int64(s.form.Counters)
	s.keyRoom = frame.Align(counters * int64(s.form.KeyBytes))
	if s.head, err = frame.Make[uint64](&s.frame, headWords); err != nil {
		return err
	}
	if s.bins, err = frame.Make[uint64](&s.frame, bins); err != nil {
		return err
	}
	if s.slots, err = frame.Make[byte](&s.frame, s.slotCount()*slotBytes(s.form.KeyBytes)); err != nil {
		return err
	}
	if s.listed, err = frame.Make[byte](&s.frame, s.keyRoom+counters*wordBytes); err != nil {
		return err
	}
	return s.clear(nil)
}

// measure chooses how large a block's summary is, and how many keys come into the table at once.
func (s *top) measure(info device.Info) {
	counters, each := int64(s.form.Counters), int64(1)
	switch {
	case info.Stress:
		s.summary = topStressBytes
	case !info.CUDA():
		s.summary = info.Shared
	case info.Shared >= topLeastTwo:
		each = 2
		s.summary = (info.Shared-sharedKept)/2 - sharedKept
	default:
		s.summary = info.Shared - 2*sharedKept
	}
	s.summary &^= 1<<10 - 1
	s.all = counters > topRows(s.form.KeyBytes, s.summary)/keptShare
	s.blocks = min(each*int64(info.Multiprocessors), topBlocks)
	switch {
	case info.Stress:
		s.part = max(counters, topPartStress)
	case !info.CUDA():
		s.part = max(counters, topPartCPU)
	case s.all:
		s.part = max(counters, topPartAll)
	default:
		s.part = max(s.blocks*counters, topPartGPU)
	}
	s.blocks, s.whole = max(1, min(s.blocks, s.part/counters)), s.part/4
}

// slotCount is how many slots the table has: of eight, five are taken at most.
func (s *top) slotCount() int64 { return 2*s.part*8/5 + 32 }

func (s *top) free() error { return s.frame.Free(s.head, s.bins, s.slots, s.listed) }

// made gives the sketch, if NewTop has made it.
func (h *topHandle) made() (*top, error) {
	if h.s == nil {
		return nil, errors.New("sketch: a Top that NewTop has not made")
	}
	return h.s, nil
}

// Add counts each key of a batch. Keys are read once. After an error of a device a part of the batch may be counted.
func (t *Top[K]) Add(keys []K) error { return t.batch(len(keys), nil, frame.In(keys)) }

// AddCounts does what Add does, with key i having come counts[i] times. All counts together must be less than 2^64.
// Cost: a random access to device memory for each key, so where most counts are 1, Add is faster.
func (t *Top[K]) AddCounts(keys []K, counts []uint64) error {
	if err := family.CheckNamed("counts", len(keys), len(counts)); err != nil {
		return err
	}
	return t.batch(len(keys), counts, frame.In(keys), frame.In(counts))
}

// batch counts keys in Go's memory, as often as counts say, which the second column has, or once without.
func (h *topHandle) batch(n int, counts []uint64, columns ...frame.Column) error {
	s, err := h.made()
	if err != nil {
		return err
	}
	return s.frame.Batch(n, columns, func(st *device.Stream, first, n int, addr []uint64) error {
		sum := uint64(0)
		for _, c := range counts[min(first, len(counts)):min(first+n, len(counts))] {
			sum = saturated(sum, c)
		}
		return s.frame.Writing(st, func(st *device.Stream) error { return s.queue(st, int64(n), sum, addr...) })
	})
}

// saturated is a + b, or the largest number there is.
func saturated(a, b uint64) uint64 {
	if sum, over := bits.Add64(a, b, 0); over == 0 {
		return sum
	}
	return math.MaxUint64
}

// AddOn does what Add does, with keys on the device. It queues its work and returns.
func (t *Top[K]) AddOn(st *device.Stream, keys device.Slice[K]) error {
	s, err := t.made()
	if err != nil {
		return err
	}
	if err := s.frame.CheckOn("", st, keys); err != nil {
		return err
	}
	return s.frame.Writing(st, func(st *device.Stream) error { return s.queue(st, int64(keys.Len()), 0, keys.Addr()) })
}

// AddCountsOn does what AddCounts does, with keys and counts on the device. It queues its work and returns.
func (t *Top[K]) AddCountsOn(st *device.Stream, keys device.Slice[K], counts device.Slice[uint64]) error {
	s, err := t.made()
	if err != nil {
		return err
	}
	if err := s.frame.CheckOn("counts", st, keys, counts); err != nil {
		return err
	}
	return s.frame.Writing(st, func(st *device.Stream) error {
		return s.queue(st, int64(keys.Len()), math.MaxUint64, keys.Addr(), counts.Addr())
	})
}

// queue counts n keys at a device address, as often as those at a second say, which are `sum` together at most. The
// caller is in Writing.
func (s *top) queue(st *device.Stream, n int64, sum uint64, at ...uint64) error {
	info := s.frame.Device.Info()
	part, alone := s.part, !info.CUDA() && !info.Stress
	if !s.all && !alone && len(at) == 1 {
		part = mostBatch // blocks bring no more than their summaries
	}
	for first := int64(0); first < n; first += part {
		keys, some := at[0]+uint64(first)*uint64(s.form.KeyBytes), min(part, n-first)
		var err error
		if len(at) > 1 {
			s.most, sum = saturated(s.most, sum), 0
			err = s.enter(st, &topPutParams{Table: s.table(), Keys: keys, Counts: at[1] + uint64(first)*wordBytes,
				N: uint64(some), Sum: 1})
		} else {
			err = s.addPart(st, keys, some, alone)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// addPart counts n keys in one launch.
func (s *top) addPart(st *device.Stream, keys uint64, n int64, alone bool) error {
	p := topAddParams{Table: s.table(), Keys: keys, N: uint64(n), Most: uint64(s.form.Counters)}
	grid, come := device.Grid{Threads: s.threads(alone)}, n
	switch rows := topRows(s.form.KeyBytes, s.summary); {
	case alone:
		grid.Blocks = max(1, min(n/cpuTopBlock, cpuBlocks*int64(s.frame.Device.Info().Multiprocessors)))
	case s.all || n <= s.whole:
		p.All = 1
		grid.Blocks = max(1, min((n+rows-1)/rows, int64(s.frame.Device.Info().Multiprocessors)*waves))
	default:
		grid.Blocks = max(1, min((n+rows-1)/rows, s.blocks))
		come = min(n, grid.Blocks*int64(s.form.Counters))
	}
	if err := s.room(st, come); err != nil {
		return err
	}
	p.Share = uint64((n + grid.Blocks - 1) / grid.Blocks)
	s.bound += come
	s.most = saturated(s.most, uint64(n))
	return s.add.Launch(st, grid, &p)
}

// threads is how many threads a block has that summarises.
func (s *top) threads(alone bool) int {
	switch {
	case alone:
		return cpuThreads
	case s.frame.Device.Info().CUDA():
		return topThreads
	}
	return frame.Threads
}

// enter counts pairs.
func (s *top) enter(st *device.Stream, p *topPutParams) error {
	if err := s.room(st, int64(p.N)); err != nil {
		return err
	}
	s.bound += int64(p.N)
	return s.put.Launch(st, s.frame.Grid(int64(max(1, p.N)), waves), p)
}

// room sees to it that so many keys find room in the table, of which it has half as many, at most, if it must. The
// device knows whether it must.
func (s *top) room(st *device.Stream, come int64) error {
	if s.bound+come <= 2*s.part {
		return nil
	}
	if err := device.Ahead(s.exports[topClear], s.put); err != nil {
		return err
	}
	p := s.export(uint64(s.part), uint64(s.form.Counters))
	if err := s.find(st, &p); err != nil {
		return err
	}
	s.bound = s.part
	again := topPutParams{Table: s.table(), Keys: p.Keys, Counts: p.Counts, Listed: 1}
	return frame.InTurn(
		func() error { return s.over(st, topList, &p) },
		func() error { return s.over(st, topClear, &p) },
		func() error { return s.put.Launch(st, s.frame.Grid(int64(s.form.Counters), waves), &again) },
	)
}

// table is where the sketch is.
func (s *top) table() topTable {
	return topTable{Head: s.head.Addr(), Slots: s.slots.Addr(), Count: uint64(s.slotCount()), Seed: s.seed}
}

// export is that of a table with more than `when` keys, of the first `rank` of them.
func (s *top) export(when, rank uint64) topExportParams {
	return topExportParams{Table: s.table(), Bins: s.bins.Addr(), When: when, Rank: rank, Keys: s.listed.Addr(),
		Counts: s.listed.Addr() + uint64(s.keyRoom), Limit: uint64(s.form.Counters)}
}

// over launches a kernel that goes over all slots.
func (s *top) over(st *device.Stream, kernel int, p *topExportParams) error {
	return s.exports[kernel].Launch(st, s.frame.Grid(s.slotCount(), 2*waves), p)
}

// find queues the search for the count with the export's rank.
func (s *top) find(st *device.Stream, p *topExportParams) error {
	for _, k := range s.exports[:topClear] { // beside one another
		if err := device.Ahead(k); err != nil {
			return err
		}
	}
	one := s.frame.Grid(1, 1)
	if err := s.exports[topBegin].Launch(st, one, p); err != nil {
		return err
	}
	for shift := (bits.Len64(s.most|1) - 1) / binBits * binBits; shift >= 0; shift -= binBits {
		p.Shift = uint64(shift)
		if err := s.over(st, topCount, p); err != nil {
			return err
		}
		if err := s.exports[topPick].Launch(st, one, p); err != nil {
			return err
		}
	}
	return nil
}

// entries are keys with their counts, the largest first, and those that count the same in the order of their bytes.
type entries struct {
	keyBytes int
	keys     []byte
	counts   []uint64
}

func (e *entries) key(i int) []byte { return e.keys[i*e.keyBytes : (i+1)*e.keyBytes] }

// compare orders two of them.
func (e *entries) compare(i, j int) int {
	return cmp.Or(cmp.Compare(e.counts[j], e.counts[i]), bytes.Compare(e.key(i), e.key(j)))
}

// sort brings them in order.
func (e *entries) sort() {
	order := make([]int, len(e.counts))
	for i := range order {
		order[i] = i
	}
	slices.SortFunc(order, e.compare)
	keys, counts := make([]byte, 0, len(e.keys)), make([]uint64, 0, len(order))
	for _, i := range order {
		keys, counts = append(keys, e.key(i)...), append(counts, e.counts[i])
	}
	e.keys, e.counts = keys, counts
}

// first brings the first n keys from the device, by counts, at most: with all that they count, or with what they count
// more than the key behind them. head is what it was then.
func (s *top) first(n int, whole bool) (e entries, head topHead, err error) {
	e.keyBytes = s.form.KeyBytes
	err = s.frame.Alone(nil, func(st *device.Stream) error {
		p := s.export(0, uint64(n))
		p.Limit = uint64(n)
		if err := s.find(st, &p); err != nil {
			return err
		}
		if whole {
			p.Whole = 1
		}
		if err := s.over(st, topList, &p); err != nil {
			return err
		}
		if p.Ties = p.Whole; whole {
			if err := s.over(st, topList, &p); err != nil {
				return err
			}
		}
		if head, err = s.look(st); err != nil {
			return err
		}
		listed := min(n, int(head.Listed+head.Ties))
		if !whole {
			listed = int(head.Listed)
		}
		if e.keys, err = frame.Host(st, s.listed.Slice(0, listed*e.keyBytes)); err != nil {
			return err
		}
		e.counts, err = frame.Host(st, device.View[uint64](s.listed, int(s.keyRoom), listed))
		return err
	})
	if err == nil {
		e.sort()
	}
	return e, head, err
}

// look reads the head, once all that is queued is done.
func (s *top) look(st *device.Stream) (topHead, error) {
	w, err := frame.Host(st, s.head)
	if err != nil {
		return topHead{}, err
	}
	return *(*topHead)(unsafe.Pointer(unsafe.SliceData(w))), nil
}

// Top gives the k keys that came most often, by their counts, the most frequent first, or all that have counts if there
// are fewer. k is 1 to Counters. A key that is not told came no more often than the last one's Count + Error; of keys
// that count the same, any are told. Top waits for what is queued. Cost: some passes over the sketch's table, and k
// keys come from the device.
func (t *Top[K]) Top(k int) ([]TopKey[K], error) {
	s, err := t.made()
	if err != nil {
		return nil, err
	}
	if k < 1 || k > s.form.Counters {
		return nil, fmt.Errorf("sketch: the %d most frequent keys of %d counters (want 1 to %d)", k, s.form.Counters,
			s.form.Counters)
	}
	e, head, err := s.first(k, true)
	if err != nil {
		return nil, err
	}
	out := make([]TopKey[K], len(e.counts))
	for i := range out {
		out[i] = TopKey[K]{Count: e.counts[i], Error: head.Less}
		copy(unsafe.Slice((*byte)(unsafe.Pointer(&out[i].Key)), e.keyBytes), e.key(i))
	}
	return out, nil
}

// Merge counts what another sketch has counted, which stays as it is: Counters keys of it, so that its bound holds for
// both together. The other may be of another device, or come from a file; of a sketch itself, everything counts twice.
// All counts of both must add up to less than 2⁶⁴. Both must have one Form. Cost: as Top of all Counters, and these go
// to the device.
func (t *Top[K]) Merge(other *Top[K]) error {
	s, err := t.made()
	if err != nil {
		return err
	}
	if other == nil || other.s == nil {
		return errors.New("sketch: Merge with no sketch")
	}
	if s.form != other.s.form {
		return fmt.Errorf("sketch: Merge of sketches of different make: %s, and %s (make both with as many counters)",
			t.Form().Make, other.Form().Make)
	}
	if err := s.frame.Usable(); err != nil {
		return err
	}
	e, head, err := other.s.first(s.form.Counters, false)
	if err != nil {
		return err
	}
	return s.take(e, head.Added, head.Less+head.Cut)
}

// take counts the keys of another sketch.
func (s *top) take(e entries, added, less uint64) error {
	return s.frame.Writing(nil, func(st *device.Stream) error {
		room := frame.Align(int64(len(e.keys)))
		from, err := s.frame.Scratch(max(wordBytes, room+int64(len(e.counts))*wordBytes))
		if err != nil {
			return err
		}
		defer from.Done()
		counts := device.View[uint64](from.Mem, int(room), len(e.counts))
		s.most = saturated(s.most, added)
		return frame.InTurn(
			func() error { return from.Mem.Slice(0, len(e.keys)).Write(st, e.keys) },
			func() error { return counts.Write(st, e.counts) },
			func() error {
				return s.enter(st, &topPutParams{Table: s.table(), Keys: from.Mem.Addr(), Counts: counts.Addr(),
					N: uint64(len(e.counts)), Added: added, Less: less})
			},
		)
	})
}

// Stats measures the sketch. It waits for what is queued. Cost: some words come from the device.
func (h *topHandle) Stats() (TopStats, error) {
	s, err := h.made()
	if err != nil {
		return TopStats{}, err
	}
	var head topHead
	if err := s.frame.Reading(nil, func(st *device.Stream) error {
		head, err = s.look(st)
		return err
	}); err != nil {
		return TopStats{}, err
	}
	memory := table.Stats{Capacity: 1}
	s.frame.Guard(func() { s.frame.Tell(&memory, nil) })
	return TopStats{
		Counters: s.form.Counters, Keys: int64(head.Used), Added: head.Added, Error: head.Less,
		Bytes:        s.head.Bytes() + s.bins.Bytes() + s.slots.Bytes() + s.listed.Bytes(),
		StagingBytes: memory.StagingBytes, ScratchBytes: memory.ScratchBytes,
	}, nil
}

// Used tells whether a key was added. Cost: as Stats.
func (h *topHandle) Used() (bool, error) {
	s, err := h.Stats()
	return s.Added > 0, err
}

// Check downloads the sketch and checks its invariants: see the package's comment.
func (h *topHandle) Check() error {
	s, err := h.made()
	if err != nil {
		return err
	}
	return s.frame.Reading(nil, func(st *device.Stream) error {
		head, err := s.look(st)
		if err != nil {
			return err
		}
		slots, err := frame.Host(st, s.slots)
		if err != nil {
			return err
		}
		return s.walk(head, slots)
	})
}

// walk walks the invariants.
func (s *top) walk(head topHead, slots []byte) error {
	keys, sum := map[string]bool{}, uint64(0)
	width := int(slotBytes(s.form.KeyBytes))
	count, key := 0, wordBytes
	if s.form.KeyBytes > wordBytes {
		count, key = s.form.KeyBytes, 0
	}
	tag := max(count, key) + wordBytes
	if s.form.KeyBytes <= 4 {
		tag = wordBytes + 4
	}
	for ; len(slots) > 0; slots = slots[width:] {
		switch tag := binary.LittleEndian.Uint32(slots[tag:]); tag {
		case 0:
		case slotTaken:
			keys[string(slots[key:key+s.form.KeyBytes])] = true
			sum += binary.LittleEndian.Uint64(slots[count:])
		default:
			return fmt.Errorf("sketch: a slot has tag %d", tag)
		}
	}
	switch {
	case uint64(len(keys)) != head.Used:
		return fmt.Errorf("sketch: %d distinct keys in the table, which should have %d", len(keys), head.Used)
	case head.Used > uint64(2*s.part):
		return fmt.Errorf("sketch: %d keys in a table for %d", head.Used, 2*s.part)
	case head.Lost != 0:
		return fmt.Errorf("sketch: the table has lost %d keys", head.Lost)
	}
	return bounded(s.form.Counters, sum, head.Less, head.Added)
}

// bounded tells whether counts and the error are those of so many keys: what is taken from one count has been taken
// from more than Counters.
func bounded(counters int, sum, less, added uint64) error {
	high, taken := bits.Mul64(less, uint64(counters)+1)
	if all, over := bits.Add64(taken, sum, 0); high != 0 || over != 0 || all > added || less == 0 && all != added {
		return fmt.Errorf("sketch: counts of %d together, an error of %d, and %d counters, of %d keys", sum, less,
			counters, added)
	}
	return nil
}

// Clear takes all keys out. It queues its work and returns.
func (h *topHandle) Clear() error {
	s, err := h.made()
	if err != nil {
		return err
	}
	return s.frame.Writing(nil, s.clear)
}

// clear takes all keys out. The caller is in Writing.
func (s *top) clear(st *device.Stream) error {
	s.bound, s.most, s.words = 0, 0, nil
	return frame.InTurn(
		func() error { return s.slots.Fill(st, 0) },
		func() error { return s.head.Fill(st, 0) },
	)
}

// Close frees the sketch's memory. A second call does nothing.
func (h *topHandle) Close() error {
	if h.s == nil {
		return nil
	}
	return h.s.frame.Close()
}

// Family is what errors and files name the sketch by.
func (*topHandle) Family() table.Family { return family }

// Kind is what files name the sketch by.
func (*topHandle) Kind() string { return kindTop }

// Form says how many counters there are. Sketches of one Form can be merged, and take each other's words.
func (h *topHandle) Form() table.FilterForm {
	s, err := h.made()
	if err != nil {
		return table.FilterForm{}
	}
	make, err := json.Marshal(s.form)
	if err != nil {
		panic(err) // numbers
	}
	return table.FilterForm{Words: sketchedWords + int64(s.form.Counters)*s.entryWords(), Make: string(make)}
}

// entryWords is how many words a key and its count have in a file.
func (s *top) entryWords() int64 { return 1 + int64(s.form.KeyBytes+wordBytes-1)/wordBytes }

// sketchedWords are before the keys of a file: all that was added, the error, and how many keys follow.
const sketchedWords = 3

// Words gives the sketch to do, as Merge takes it: how much was added, the error, how many keys there are, and for each
// its count and its bytes, the largest count first, and zeros where there are fewer keys than counters. See Words of
// table.Filter.
func (h *topHandle) Words(ctx context.Context, do func(words []uint64) error) error {
	s, err := h.made()
	if err != nil {
		return err
	}
	e, head, err := s.first(s.form.Counters, false)
	if err != nil {
		return err
	}
	words := make([]uint64, h.Form().Words)
	words[0], words[1], words[2] = head.Added, head.Less+head.Cut, uint64(len(e.counts))
	each := int(s.entryWords())
	for i, n := range e.counts {
		entry := words[sketchedWords+i*each:][:each]
		entry[0] = n
		var key [32]byte
		copy(key[:], e.key(i))
		for j := range entry[1:] {
			entry[1+j] = binary.LittleEndian.Uint64(key[j*wordBytes:])
		}
	}
	for part := range slices.Chunk(words, mostWords) {
		if err := crash.Ended(ctx); err != nil {
			return err
		}
		if err := do(part); err != nil {
			return err
		}
	}
	return nil
}

// mostWords is how many words Words gives at once.
const mostWords = 1 << 20

// SetWords takes words of a sketch of the same Form, in their order: those from word number 0 on come first. With the
// last of them, they replace what the sketch has counted. Errors: words out of order, or that no sketch has.
func (h *topHandle) SetWords(first int64, words []uint64) error {
	s, err := h.made()
	if err != nil {
		return err
	}
	var all []uint64
	want := h.Form().Words
	if err := s.frame.Locked(func() error {
		if first == 0 {
			s.words = nil
		}
		if have := int64(len(s.words)); first != have || int64(len(words)) > want-have {
			return fmt.Errorf("sketch: words %d to %d of a sketch that has %d, behind %d", first,
				first+int64(len(words)), want, have)
		}
		if s.words = append(s.words, words...); int64(len(s.words)) == want {
			all, s.words = s.words, nil
		}
		return nil
	}); err != nil || all == nil {
		return err
	}
	e, err := s.parse(all)
	if err != nil {
		return err
	}
	return cmp.Or(h.Clear(), s.take(e, all[0], all[1]))
}

// parse takes the words of a sketch apart. There is one way to write one.
func (s *top) parse(words []uint64) (e entries, err error) {
	n, each := words[2], int(s.entryWords())
	if n > uint64(s.form.Counters) {
		return e, fmt.Errorf("sketch: %d keys, and %d counters", n, s.form.Counters)
	}
	e.keyBytes = s.form.KeyBytes
	sum := uint64(0)
	for i := range int(n) {
		entry := words[sketchedWords+i*each:][:each]
		var key []byte
		for _, w := range entry[1:] {
			key = binary.LittleEndian.AppendUint64(key, w)
		}
		e.keys, e.counts = append(e.keys, key[:e.keyBytes]...), append(e.counts, entry[0])
		all, over := bits.Add64(sum, entry[0], 0)
		if sum = all; over != 0 || entry[0] == 0 || i > 0 && e.compare(i-1, i) >= 0 ||
			len(bytes.Trim(key[e.keyBytes:], "\x00")) > 0 {
			return e, fmt.Errorf("sketch: key %d of %d is none that a sketch has", i, n)
		}
	}
	for _, w := range words[sketchedWords+int(n)*each:] {
		if w != 0 {
			return e, fmt.Errorf("sketch: words behind the last of %d keys", n)
		}
	}
	seen := map[string]bool{}
	for i := range e.counts {
		if seen[string(e.key(i))] {
			return e, fmt.Errorf("sketch: key %d of %d is there twice", i, n)
		}
		seen[string(e.key(i))] = true
	}
	return e, bounded(s.form.Counters, sum, words[1], words[0])
}

// Save writes the sketch to w, with no more keys than counters: if the sketch has more for the moment, counts in the
// file are less by what Merge would make them. See package snapshot, whose Sketch[K](t).SaveFile writes a file.
func (t *Top[K]) Save(ctx context.Context, w io.Writer) error {
	if _, err := t.made(); err != nil {
		return err
	}
	return snapshot.Sketch[K](t).Save(ctx, w)
}

// LoadTop makes a sketch of what Save wrote, on any device. It reads r to its end. K must be the type that was saved:
// see warpmap.LoadMap.
//
// Errors: a file that is damaged, cut off, of another kind or of other keys; those of NewTop; context.Cause(ctx).
func LoadTop[K any](ctx context.Context, r io.Reader, d *device.Device) (*Top[K], error) {
	file, err := snapshot.NewReader(r)
	if err != nil {
		return nil, err
	}
	if file.Header.Kind != kindTop || file.Header.Form == nil {
		return nil, fmt.Errorf("sketch: the file is of a %s, and not of a %s: load it as what it is", file.Header.Kind,
			kindTop)
	}
	t, err := topOf[K](d, *file.Header.Form)
	if err != nil {
		return nil, err
	}
	if err := file.Load(ctx, snapshot.Sketch[K](t)); err != nil {
		return nil, errors.Join(err, t.Close())
	}
	return t, nil
}

// topOf makes an empty sketch with the Form of another.
func topOf[K any](d *device.Device, want table.FilterForm) (*Top[K], error) {
	var f topForm
	in := json.NewDecoder(strings.NewReader(want.Make))
	in.DisallowUnknownFields()
	if err := in.Decode(&f); err != nil {
		return nil, fmt.Errorf("sketch: a sketch of form %q: %w", want.Make, err)
	}
	if f.Counters < 1 || want.Words < int64(f.Counters) {
		return nil, fmt.Errorf("sketch: a sketch of form %v (want what Form gives)", want)
	}
	t, err := NewTop[K](d, TopOptions{Counters: f.Counters})
	if err == nil && t.Form() != want {
		return nil, errors.Join(fmt.Errorf("sketch: a sketch of form %v has form %v", want, t.Form()), t.Close())
	}
	return t, err
}

// CompileAheadTop compiles the kernels of a Top of such keys, on a device of device.OpenAhead. Errors: those of NewTop;
// *device.CompileError.
func CompileAheadTop[K any](d *device.Device) error {
	t, err := NewTop[K](d, TopOptions{})
	if err != nil {
		return err
	}
	err = device.Ahead(t.s.add, t.s.put)
	for _, k := range t.s.exports {
		err = errors.Join(err, device.Ahead(k))
	}
	return errors.Join(err, t.Close(), d.Ready())
}
