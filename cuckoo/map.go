package cuckoo

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/bits"
	"strings"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// Options are the options of New: those of table.FilterOptions, and the width of tags. With Capacity, and perhaps a
// rate of false positives, the filter has the narrowest tags that keep the rate, and room for so many keys at a load of
// 0.95. With Bytes, it has the widest tags with which that memory has room for Capacity keys.
type Options struct {
	table.FilterOptions
	// TagBits is the width of a tag: 8, 12 or 16 bits. Zero means as FalsePositives or Bytes say. At a load of 0.95
	// they take 9.6, 13.5 and 18 bits of memory a key, and 3, 0.3 and 0.03 absent keys in a hundred are told to be in.
	TagBits int
}

// Filter is a cuckoo filter: it holds a tag of each key, of 8, 12 or 16 bits, in one of two buckets. So keys can be
// taken out again, which those of a Bloom filter cannot, and a key that is put in twice is there twice. K has 4, 8 or
// 16 bytes. Every pattern of K can be a key.
//
// Filter implements table.Filter, whose comments are the contract of the methods that both have. All methods are safe
// for use by several goroutines.
type Filter[K any] struct{ handle }

func _[K any](f *Filter[K]) table.Filter[K] { return f }

// handle is what users hold of a filter: see warpcore's filterHandle.
type handle struct{ filter *filter }

// made is the filter, or one whose operations are errors, if New has not made it.
func (h *handle) made() *filter { return frame.Or(h.filter, unmade) }

var unmade = frame.Unmade(func(f *filter) *frame.Frame { return &f.frame }, family, "a Filter that New has not made")

// New makes an empty filter on the device, for Capacity keys or with Bytes of memory: see Options.
//
// Errors: K of another width, or with pointers or padding; options out of range, or a rate below 0.00044, which the
// widest tags do not keep; *device.OutOfMemoryError. If kernels must be compiled: device.ErrNoCompiler (CPU device) or
// device.ErrNoNVRTC (GPU), if there is nothing to compile them with. A compiler's own words, in a *device.CompileError,
// come from the method that needs the kernel. Cost: filling the memory. The first call of a method on a machine
// compiles its kernels.
func New[K any](d *device.Device, o Options) (*Filter[K], error) {
	width, err := frame.WidthOf[K]("key of a filter", 4, 8, 16)
	if err != nil {
		return nil, err
	}
	c := config{keyBytes: width}
	g, err := o.complete(&c)
	if err != nil {
		return nil, err
	}
	return open[K](d, o, c, g)
}

// Insert puts keys in: see table.Filter. For each key it reads a sector of 32 bytes and changes a word in it. At a load
// of 0.95, one key in nine goes to its second bucket, and one in 23 moves another. If millions of keys go into a filter
// that is larger than the L2 cache, they are first brought in the order of its windows, or of regions: see the
// package's comment.
//
// Errors: also *table.FullError. A position that it names did not go in, all others did, and no key that was in is
// lost. Each position stands for itself: of equal keys some may be in. The filter takes as many keys as it was made
// for, unless many of them are equal: one key has room 14, 20 or 30 times, by the width of tags.
func (f *Filter[K]) Insert(keys []K) error {
	column, x := frame.In(keys), f.made().insertion()
	put := func(st *device.Stream, n int64, addr []uint64) (refused []int, why, err error) {
		return x.Put(st, frame.Rows{Keys: addr[0], N: n})
	}
	return frame.InsertColumns(&f.made().frame, column, []frame.Column{column}, put, x)
}

// InsertOn does what Insert does, with slices on the device. It waits for the stream, for only the end of a batch tells
// whether all keys found room.
func (f *Filter[K]) InsertOn(st *device.Stream, keys device.Slice[K]) error {
	return frame.InsertOn(&f.made().frame, st, keys, frame.NoValues(), device.Slice[bool]{}, f.made().insertion())
}

// Contains tells for each key whether it may be in: see table.Filter. For each key it reads one bucket of up to 32
// bytes, and for one key in nine, at a load of 0.95, a second.
func (f *Filter[K]) Contains(keys []K, found []bool) error {
	return frame.Find[K, byte](&f.made().frame, keys, nil, found, f.made().contains)
}

// ContainsOn does what Contains does, with slices on the device. It queues its work and returns.
func (f *Filter[K]) ContainsOn(st *device.Stream, keys device.Slice[K], found device.Slice[bool]) error {
	return frame.FindOn(&f.made().frame, st, keys, device.Slice[byte]{}, found, f.made().contains)
}

// Delete takes keys out, each once. deleted[i] tells whether position i took one out; deleted may be nil. If a batch
// holds a key several times, as many positions take it out as it was in, at most. Delete returns how many were taken
// out, and 0 after an error, though some may be. For each key it reads one bucket or two, and changes a word.
//
// Take out only what was put in. A key that was never in, but that the filter says is in, has its tag in common with
// another key. To delete it takes that one's tag out, and then the filter may say that the other is not in.
func (f *Filter[K]) Delete(keys []K, deleted []bool) (int, error) {
	return frame.Delete(&f.made().frame, keys, deleted, f.made().erase)
}

// DeleteOn does what Delete does, with slices on the device. It queues its work and returns. Without deleted, large
// batches are brought in order, as inserts are.
func (f *Filter[K]) DeleteOn(st *device.Stream, keys device.Slice[K], deleted device.Slice[bool]) error {
	return frame.DeleteOn(&f.made().frame, st, keys, deleted, f.made().erase)
}

// Larger makes an empty filter on the same device with times as much room, which must be a power of two. It has this
// filter's tags, seed and hash function, so Merge can take this filter's keys into it. A filter does not know its keys:
// what tells them apart in the larger filter are bits of their tags. So the larger filter errs as many times more
// often.
//
// Errors: times that are no power of two from 2 on, or so many that more than one absent key in four might be told to
// be in; table.ErrClosed; those of New.
func (f *Filter[K]) Larger(times int) (*Filter[K], error) {
	x := f.made()
	if err := x.frame.Usable(); err != nil {
		return nil, err
	}
	if times < 2 || times&(times-1) != 0 {
		return nil, fmt.Errorf("cuckoo: a filter that is %d times larger (want a power of two, 2 or more)", times)
	}
	g := x.geometry
	if g.spent += bits.Len(uint(times)) - 1; g.spent >= x.cfg.tag || x.cfg.worstRate(g.spent) > mostRate {
		return nil, fmt.Errorf("cuckoo: a filter that is %d times larger errs for more than one absent key in four: "+
			"put the keys into a new filter", times<<x.geometry.spent)
	}
	return open[K](x.frame.Device, x.opts, x.cfg, g)
}

// Merge puts in all keys of another filter, which stays as it is. Both filters must have been made with the same
// options and the same Seed, or this one by Larger from such a filter; and they must be on one device. A key that is in
// both filters is then in this one twice. Merge waits. It reads the other filter once, changes a word of this one for
// each of its keys, and while it runs takes as much memory as this filter has.
//
// Errors: filters that differ, that lie on two devices, or that are the same; *device.OutOfMemoryError; not enough
// room, and then this filter is as it was before.
func (f *Filter[K]) Merge(other *Filter[K]) error {
	x := f.made()
	if err := x.frame.Usable(); err != nil {
		return err
	}
	if other == nil || other.filter == nil {
		return errors.New("cuckoo: Merge with no filter")
	}
	o := other.filter
	a, b := x.geometry, o.geometry
	switch more := a.spent - b.spent; {
	case x == o:
		return errors.New("cuckoo: Merge of a filter with itself")
	case x.cfg != o.cfg || a.windows != b.windows || a.buckets != b.buckets || more < 0:
		return fmt.Errorf("cuckoo: Merge of filters of different make: %v, and %v (make both with the same options, or "+
			"this one by the other's Larger)", f, other)
	case x.t.Seed != o.t.Seed:
		return errors.New("cuckoo: Merge of filters with different seeds (make both with one Seed, which is " +
			"random by default)")
	}
	if err := o.frame.Locked(func() error { return o.mem.On(x.frame.Device) }); err != nil {
		return fmt.Errorf("cuckoo: Merge: %w", err)
	}
	return x.frame.WritingFrom(&o.frame, func(st *device.Stream) error { return x.merge(st, o) })
}

// merge is Merge. The caller is in Writing, and in Reading of the other filter.
func (f *filter) merge(st *device.Stream, o *filter) error {
	before, err := f.frame.Scratch(int64(f.mem.Len()))
	if err != nil {
		return err
	}
	defer before.Done()
	kept := before.Mem.Slice(0, f.mem.Len())
	if err := frame.InTurn(
		func() error { return kept.CopyFrom(st, f.mem) },
		func() error { return f.counters.Clear(st) },
		func() error {
			return f.kernel.merge.Launch(st, f.grid(o.geometry.all()*o.geometry.buckets),
				&mergeParams{To: f.t, From: o.t, Failed: f.counters.Addr()})
		},
		func() error { return f.counters.Look(st) },
	); err != nil {
		return err
	}
	failed := f.counters.Seen.Failed
	if failed == 0 {
		return nil
	}
	if err := frame.InTurn(func() error { return f.mem.CopyFrom(st, kept) }, st.Sync); err != nil {
		return err
	}
	return fmt.Errorf("cuckoo: Merge: %d keys of the other filter find no room, and none were put in: %w", failed,
		errFull)
}

// Len counts the keys that are in, each as often as it was put in. Cost: all of the filter is read.
func (h *handle) Len() (int, error) {
	s, err := h.sums()
	return int(s.Tags), err
}

// sums reads all buckets, and waits.
func (h *handle) sums() (s Sums, err error) {
	f := h.made()
	err = f.frame.Alone(nil, func(st *device.Stream) error {
		s, err = f.sum(st)
		return err
	})
	return s, err
}

// Stats measures the filter: it reads all of it. Bits are those of the tags that it has room for, and BitsSet those of
// the tags that are in, so their ratio is the load. The rate is exact, for keys that were chosen without regard to what
// is in the filter: the share of all pairs of a bucket and a tag that Contains finds.
func (h *handle) Stats() (table.FilterStats, error) {
	f := h.made()
	sums, err := h.sums()
	if err != nil {
		return table.FilterStats{}, err
	}
	memory := table.Stats{Capacity: 1}
	f.frame.Guard(func() { f.frame.Tell(&memory, nil) })
	return table.FilterStats{
		Bits: f.slots() * int64(f.cfg.tag), BitsSet: int64(sums.Tags) * int64(f.cfg.tag), Bytes: int64(f.mem.Len()),
		Keys: float64(sums.Tags), Rate: f.rate(sums.Pairs), StagingBytes: memory.StagingBytes,
		ScratchBytes: memory.ScratchBytes,
	}, nil
}

// rate is the share of the pairs of a bucket and a tag that so many are.
func (f *filter) rate(pairs uint64) float64 {
	return float64(pairs) / float64(f.geometry.windows*f.geometry.buckets) / float64(f.cfg.tags())
}

// TagBits is the width of the filter's tags.
func (h *handle) TagBits() int { return h.made().cfg.tag }

// Capacity is how many keys the filter is made for: 0.95 of its slots.
func (h *handle) Capacity() int { return int(load * float64(h.made().slots())) }

func (h *handle) String() string {
	f := h.made()
	return fmt.Sprintf("%d windows of %d buckets with tags of %d bits, hash function %d", f.geometry.all(),
		f.geometry.buckets, f.cfg.tag, f.cfg.hash)
}

// Program returns a program with a kernel of your own that works on this filter. Its source is main, which includes
// "config.h" and "cuckoo.cuh", and names the filter's type `config`. Add your parameter struct, which holds a Table, to
// the program's Layouts. cuckoo.cuh says what may run beside what.
//
//	#include "config.h"
//	#include "cuckoo.cuh"
//	WARPMAP_KERNEL(count, mine::CountParams) {
//	    …cuckoo::contains<config>(p.table, key)…
//	}
func (f *Filter[K]) Program(name, main string) *device.Program {
	return f.made().cfg.program(name, main)
}

// Use runs a kernel of yours, which may insert or erase, in order with the filter's own operations. It calls queue with
// the filter as kernels take it, and queue puts work on the stream. queue must not call the filter's methods, because
// they wait for queue.
func (f *Filter[K]) Use(st *device.Stream, queue func(Table) error) error {
	return f.made().frame.Using(st, 0, nil, func(*device.Stream) error { return queue(f.made().t) })
}

// Family returns the family's name.
func (*handle) Family() table.Family { return family }

// form is FilterForm.Make of a filter.
type form struct {
	KeyBytes int    `json:"key_bytes"`
	Tag      int    `json:"tag"`
	Windows  int64  `json:"windows"`
	Buckets  int64  `json:"buckets"`
	Spent    int    `json:"spent"`
	Hash     int    `json:"hash"`
	Seed     uint64 `json:"seed"`
}

// Form says where a key's tag is: see table.Filter.
func (h *handle) Form() table.FilterForm {
	f := h.made()
	text, err := json.Marshal(form{f.cfg.keyBytes, f.cfg.tag, f.geometry.windows, f.geometry.buckets, f.geometry.spent,
		f.cfg.hash, f.t.Seed})
	if err != nil {
		panic(err) // numbers
	}
	return table.FilterForm{Words: f.cfg.wordsOf(f.geometry), Make: string(text)}
}

// NewOf makes an empty filter with the Form of another filter. Errors: a Form that no filter of such keys has; those of
// New.
func NewOf[K any](d *device.Device, want table.FilterForm) (*Filter[K], error) {
	width, err := frame.WidthOf[K]("key of a filter", 4, 8, 16)
	if err != nil {
		return nil, err
	}
	var m form
	text := json.NewDecoder(strings.NewReader(want.Make))
	text.DisallowUnknownFields()
	if err := text.Decode(&m); err != nil {
		return nil, fmt.Errorf("cuckoo: a filter of form %q: %w", want.Make, err)
	}
	c := config{keyBytes: m.KeyBytes, tag: m.Tag, hash: m.Hash}
	g := geometry{m.Windows, m.Buckets, m.Spent}
	o := Options{FilterOptions: table.FilterOptions{Capacity: 1, Hash: m.Hash, Seed: m.Seed}, TagBits: m.Tag}
	if err := o.FilterOptions.Complete(); err != nil {
		return nil, err
	}
	switch {
	case c.words() == 0 || c.keyBytes != width || m.Seed == 0,
		g.spent < 0 || g.spent >= c.tag || c.worstRate(g.spent) > max(mostRate, c.worstRate(0)),
		g.buckets < 2 || g.buckets&1 == 1 || g.buckets > int64(windowBytes/wordBytes/c.words()),
		g.windows < 1 || g.windows > mostWords>>g.spent || c.wordsOf(g) != want.Words:
		return nil, fmt.Errorf("cuckoo: a filter of %d words and form %q (want what Form gives, for keys of %d bytes)",
			want.Words, want.Make, width)
	}
	f, err := open[K](d, o, c, g)
	if err == nil && f.Form() != want {
		err = errors.Join(fmt.Errorf("cuckoo: a filter of form %v has form %v", want, f.Form()), f.Close())
		f = nil
	}
	return f, err
}

// mostWords bounds what a Form asks for, so that nothing overflows.
const mostWords = 1 << 30

// Words calls do with all words of the filter, in chunks: see table.Filter.
func (h *handle) Words(ctx context.Context, do func(words []uint64) error) error {
	f := h.made()
	return frame.Words(ctx, &f.frame, f.words(), do)
}

// SetWords copies words of another filter into this one: see table.Filter. It waits until that is done. Whatever the
// words are, they are those of some filter.
func (h *handle) SetWords(first int64, words []uint64) error {
	f := h.made()
	return f.frame.Writing(nil, func(st *device.Stream) error {
		all := f.words()
		if first < 0 || first > int64(all.Len()) || int64(len(words)) > int64(all.Len())-first {
			return fmt.Errorf("cuckoo: words %d to %d of a filter that has %d", first,
				first+int64(len(words)), all.Len())
		}
		return frame.Upload(st, all.Slice(int(first), int(first)+len(words)), words)
	})
}

// Clear takes all keys out. It queues its work and returns.
func (h *handle) Clear() error {
	f := h.made()
	return f.frame.Writing(nil, func(st *device.Stream) error { return f.mem.Fill(st, 0) })
}

// Close frees the filter's memory. A second call does nothing.
func (h *handle) Close() error { return h.made().frame.Close() }
