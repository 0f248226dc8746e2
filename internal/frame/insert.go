package frame

import (
	"errors"
	"slices"
	"unsafe"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// How a batch goes into a table that may have to grow for it.
//
//	batch      ┌─────────────┬──────────────────────┬─────┐
//	           │ part        │ part                 │ …   │   each is tried whole, then again and again where it was refused
//	           └─────────────┴──────────────────────┴─────┘
//	bitmap      0010000001000   bit i: position First+i is refused (found no room)
//
// A table that may have too little room takes a batch in parts: each fits for sure, or is small enough to learn from it how many
// of its keys are new. Its kernel sets the bit of every position that finds no room. Then the table grows, and the kernel is
// launched again for the positions whose bits are set, and clears those that got in: until none is left, or the table can grow no
// more. Every position is tried, however little memory there is: leastPart of them always have a bitmap.
//
// One rule says which positions a batch is told that are not in: those that found no room and whose key is not in the table when
// the batch ends. So of equal keys all are named or none.

// Part is a stretch of a batch, and which of its positions a kernel tries.
type Part struct {
	First, N uint64 // positions of the batch
	// Attempt is 0 for the first attempt. A later attempt is only at those positions whose bit is set in the bitmap.
	Attempt uint64
	Refused uint64 // address of the bitmap
}

const (
	// leastPart is how many positions there is always a bitmap for.
	leastPart = 1 << 15
	// largestPart bounds the bitmap.
	largestPart = 1 << 30
	// furthest is the Furthest of an Inserter, unless it says.
	furthest = 4
)

// Inserter takes batches into a table. Its functions are called with the lock held, in order.
type Inserter struct {
	// Try is the least number of positions that are tried at once, before it is known how many of the keys are new.
	Try int64
	// Keys, if not 0, is the address of the batch's keys, each of KeyBytes. Then, if a batch alone may be too large for
	// the table, Run first estimates how many distinct keys the batch has, and the table grows to that at once. It will
	// have no fewer.
	Keys     uint64
	KeyBytes int
	// Share means that one operation in so many is expected to add a pair. 0 means each.
	Share int64
	// Launch queues the kernel for a part. Before a later attempt than the first, it sets the count of the refused to
	// 0.
	Launch func(p Part) error
	// Look waits for the stream. It tells how many positions the last launch refused, and how many pairs are in.
	Look func() (refused, live int64, err error)
	// Room is how many more pairs the table should take as it is, so far as the host knows. It is negative if the table
	// has too many already. With bound, the table will not grow: then Room is how many pairs it takes easily, and 0 or
	// less means that it takes the rest as it can.
	Room func(want int64, bound bool) (int64, error)
	// Grow makes room after so many positions were refused, of a batch that brings the table to `need` pairs in all. It
	// is to make room for `pairs`, which may be less if there was no memory for more. why says what forbids it. If no
	// positions were refused, the table has more pairs than it should.
	Grow func(refused, need, pairs int64) (why, err error)
	// After, which may be nil, is called when a part is taken in, or as much of it as there is room for.
	After func() error
	// Furthest bounds how far the table grows for pairs that are only expected, in multiples of what it holds. 0 means
	// 4.
	Furthest int64
	// Settle, which may be nil, is called when positions are left and the table may not grow. It may do what it can,
	// and names the attempt to make, or 0 for none.
	Settle func(refused int64) (attempt uint64, err error)
}

// Run takes in a batch of n. live is the number of pairs so far as the host knows. The positions that were refused come back
// with the reason, ascending. It waits for the stream. The caller is in Writing.
func (x Inserter) Run(f *Frame, st *device.Stream, n, live int64) (refused []int, why, err error) {
	share, boost, expected := max(1, x.Share), int64(1), int64(0)
	if x.Furthest == 0 {
		x.Furthest = furthest
	}
	if x.Keys != 0 && n > x.Try {
		if why, err = x.ahead(f, st, n, live); err != nil {
			return nil, nil, err
		}
	}
	for first := int64(0); first < n; {
		count := min(n-first, largestPart)
		room, err := x.Room(count/share, why != nil)
		switch {
		case err != nil:
			return nil, nil, err
		case count/share > room && (why == nil || room > 0):
			count = min(count, max(share*room, boost*x.Try, expected))
		}
		if count, err = f.bitmap(st, count); err != nil {
			return nil, nil, err
		}
		part := Part{First: uint64(first), N: uint64(count), Refused: f.refused.Addr()}
		lost, after, err := x.part(f, st, part, n-first-count, live, &why)
		if err != nil {
			return nil, nil, err
		}
		refused = append(refused, lost...)
		if x.After != nil {
			if err := x.After(); err != nil {
				return nil, nil, err
			}
		}
		if after-live < count/8 {
			boost = min(4*boost, max(1, largestPart/x.Try))
		}
		if expected = 0; after > live { // half as many as would fill it, with as many new keys among them
			room, err := x.Room(0, why != nil)
			if err != nil {
				return nil, nil, err
			}
			expected = int64(float64(max(0, room)) * float64(count) / float64(after-live) / 2)
		}
		first, live = first+count, after
	}
	return refused, why, nil
}

// Tries is what a family tries at once that tries n on a GPU, where a launch costs as much as thousands of rows. On the CPU rows that are refused, and
// those that fill a table beyond what it should have, cost more than launches.
func (f *Frame) Tries(n int64) int64 {
	if f.Device.Info().CUDA() {
		return n
	}
	return max(1, n/16)
}

// ahead makes room for as many pairs as there are distinct keys in the batch, if that is more than the table has room for in all.
func (x Inserter) ahead(f *Frame, st *device.Stream, n, live int64) (why, err error) {
	room, err := x.Room(0, false)
	if err != nil || n <= live+room {
		return nil, err
	}
	distinct, _, err := f.Distinct(st, x.Keys, x.KeyBytes, n)
	if device.IsOutOfMemory(err) {
		return nil, nil
	} else if err != nil {
		return nil, err
	}
	// An estimate that is a little too small would have the table grow twice.
	if distinct = min(n, distinct+distinct/32); distinct <= live+room {
		return nil, nil
	}
	if why, err = x.Grow(0, distinct, distinct); device.IsOutOfMemory(why) {
		why = nil // the parts make do with less
	}
	return why, err
}

// part takes in one part; more positions follow. live is the number of pairs before, and is so after.
func (x Inserter) part(f *Frame, st *device.Stream, p Part, more, live int64, why *error) (lost []int, after int64, err error) {
	defer func() {
		if err != nil {
			f.refused.Fill(st, 0)
		}
	}()
	attempt := func() (refused int64, err error) {
		if err := x.Launch(p); err != nil {
			return 0, err
		}
		refused, after, err = x.Look()
		return refused, err
	}
	refused, err := attempt()
	if err != nil {
		return nil, 0, err
	}
	// As many new keys are expected among the rest as among these.
	expected := int64(float64(more) * float64(max(0, after-live)) / float64(max(1, int64(p.N)-refused)))
	grow := func() (err error) {
		need := after + refused
		pairs := max(need, min(need+expected, x.Furthest*max(after, x.Try)))
		// Where memory is short, for those that are here; or as little as the table grows at once.
		for _, n := range []int64{pairs, need, after + 1} {
			if *why, err = x.Grow(refused, need, n); !device.IsOutOfMemory(*why) {
				break
			}
		}
		return err
	}
	for refused > 0 {
		if *why == nil {
			if err := grow(); err != nil {
				return nil, 0, err
			}
		}
		p.Attempt = 1
		if *why != nil {
			if x.Settle == nil {
				break
			}
			if p.Attempt, err = x.Settle(refused); err != nil {
				return nil, 0, err
			}
			if p.Attempt == 0 {
				break
			}
		}
		if refused, err = attempt(); err != nil {
			return nil, 0, err
		}
	}
	if refused > 0 {
		lost, err = f.takeBitmap(st, p)
		return lost, after, err
	}
	if room, err := x.Room(0, *why != nil); err != nil || room >= 0 || *why != nil {
		return nil, after, err
	}
	return nil, after, grow()
}

// bitmap makes the bitmap large enough for n positions, or for as many as there is memory for, and tells for how many. All its
// bits are clear, but while a part is taken in.
func (f *Frame) bitmap(st *device.Stream, n int64) (int64, error) {
	for bytes := (n + 31) / 32 * 4; bytes > int64(f.refused.Len()); bytes = bytes / 8 * 4 {
		s, err := device.MakePooled[byte](f.Device, int(bytes))
		if device.IsOutOfMemory(err) {
			continue
		} else if err != nil {
			return 0, err
		}
		if err := errors.Join(s.Fill(st, 0), f.release(&f.refused)); err != nil {
			return 0, errors.Join(err, f.Free(s))
		}
		f.refused = s
	}
	return min(n, 8*int64(f.refused.Len())), nil
}

// takeBitmap gives the positions whose bits are set, and clears them.
func (f *Frame) takeBitmap(st *device.Stream, p Part) (list []int, err error) {
	bits := device.View[uint32](f.refused, 0, int((p.N+31)/32))
	words, err := bits.Host(st)
	if err != nil {
		return nil, err
	}
	for i, w := range words {
		for j := 0; w != 0; j, w = j+1, w>>1 {
			if w&1 == 1 {
				list = append(list, int(p.First)+32*i+j)
			}
		}
	}
	return list, bits.Fill(st, 0)
}

// Rows are the rows of a batch, by columns at device addresses. A column that is left out is at address 0.
type Rows struct {
	Keys, Values uint64
	Flags        uint64 // bytes: added, found or deleted
	N            int64
	Out          uint64  // values, of FindOrInsert
	When         uint64  // bytes: only those rows are done whose byte is not 0; see Chooser
	Sorted       *Sorted // of rows that are sorted by regions; nil of others
}

// Part gives the rows of a part.
func (b Rows) Part(p Part, keyBytes, valueBytes int) Rows {
	at := func(column uint64, bytes int) uint64 {
		if column == 0 {
			return 0
		}
		return column + p.First*uint64(bytes)
	}
	part := Rows{Keys: at(b.Keys, keyBytes), Values: at(b.Values, valueBytes), Flags: at(b.Flags, 1), N: int64(p.N),
		Out: at(b.Out, valueBytes), When: at(b.When, 1), Sorted: b.Sorted}
	if b.Sorted != nil && part.N < b.N {
		part.Sorted = &Sorted{Regions: b.Sorted.Regions}
	}
	return part
}

// InPieces calls do with no more than so many rows at a time, because kernels number the rows of a launch with 32 bits.
func (b Rows) InPieces(most int64, keyBytes, valueBytes int, do func(b Rows) error) error {
	for first := int64(0); first < b.N; first += most {
		if err := do(b.Part(Part{First: uint64(first), N: uint64(min(b.N-first, most))}, keyBytes, valueBytes)); err != nil {
			return err
		}
	}
	return nil
}

// Placing is a batch to be inserted, as kernels take it: a field of a family's own parameter struct.
type Placing struct {
	Keys    uint64
	Values  uint64
	Added   uint64 // bytes, one a position; may be 0
	Refused uint64 // bitmap of the positions that found no room; 0 where each finds some for sure
	N       uint64
	Attempt uint64 // see Part
	// Positions, if not 0, are u32, the positions of the pairs. The pairs are then not in the batch's order.
	Positions uint64
	// Span, if not 0, is how many items in a row a block takes, a multiple of Threads. The grid then goes through the
	// batch in order; otherwise it goes in strides.
	Span uint64
	Out  uint64 // of FindOrInsert: values
}

// Of gives the placing of a batch, or of a piece of it in the order of regions.
func (p Placing) Of(o Ordered) Placing {
	p.Keys, p.Values, p.Added, p.N, p.Out = o.Rows.Keys, o.Rows.Values, o.Rows.Flags, uint64(o.Rows.N), o.Rows.Out
	p.Positions, p.Span = o.Positions, uint64(o.Span)
	return p
}

// Insertion says how a table takes a batch in. Put and Find are called with the lock held, in order, and with at least
// one row. Size is called with the lock held.
type Insertion struct {
	// Put takes pairs in. The positions that found no room come back with the reason.
	Put func(st *device.Stream, b Rows) (refused []int, why, err error)
	// Find looks keys up. If it is nil, equal keys are pairs of their own.
	Find func(st *device.Stream, b Rows) error
	// Size gives the slots and the pairs in them, for an error.
	Size func() (capacity, live int64)

	keeps   bool   // a key that is in is left as it is, so that its position is as good as done
	untried func() // is called where no memory brings a batch to the device, once its outputs are clear; may be nil
}

// Loading gives an insertion that first loads its kernels.
func (x Insertion) Loading(load func() error) Insertion {
	put := x.Put
	x.Put = func(st *device.Stream, b Rows) ([]int, error, error) {
		if err := load(); err != nil {
			return nil, nil, err
		}
		return put(st, b)
	}
	return x
}

// Exactly lets one or several inserts of an operation say exactly which positions had no effect. Other inserts are
// content if the key is in, with one of the values. A position may be refused, and another position of its key may be
// let in later, when there is more room. The operation is over when a position was refused for good. From then on the
// family sees to it that no position gets in whose key was refused. nil stands for an insert like others.
type Exactly struct {
	refused bool
	why     error // what forbids more room
}

// Over tells whether a position was refused for good.
func (x *Exactly) Over() bool { return x != nil && x.refused }

// Refused notes that positions were refused for good, if any were.
func (x *Exactly) Refused(any bool) {
	if x != nil {
		x.refused = x.refused || any
	}
}

// Grow does what Grow of an Inserter does, but once the operation is over, the table does not grow for it.
func (x *Exactly) Grow(grow func() (why, err error)) (why, err error) {
	if x.Over() {
		return x.why, nil
	}
	if why, err = grow(); x != nil {
		x.why = why
	}
	return why, err
}

// ExactInsertion makes an insertion by a kernel that is asked for with the lock held. It serves one call.
func ExactInsertion[P any](size func() (capacity, live int64), kernel func() (device.Kernel[P], error),
	put func(st *device.Stream, k device.Kernel[P], b Rows, exact *Exactly) (refused []int, why, err error)) Insertion {
	exact := new(Exactly)
	return Insertion{Size: size, Put: func(st *device.Stream, b Rows) (refused []int, why, err error) {
		k, err := kernel()
		if err != nil {
			return nil, nil, err
		}
		return put(st, k, b, exact)
	}}
}

// full is the error for the positions that are not in; nil if there are none. The caller holds the lock.
func (x Insertion) full(refused []int, why error) error {
	capacity, live := x.Size()
	return Full(refused, int(capacity), int(live), why)
}

// Insert implements Insert of a map or a multimap.
func Insert[K, V any](f *Frame, keys []K, values []V, x Insertion) error {
	return insert(f, In(keys), In(values), len(values), nil, x)
}

// InsertNew implements InsertNew of a map: it tells, and counts, what was added.
func InsertNew[K, V any](f *Frame, keys []K, values []V, added []bool, x Insertion) (int, error) {
	return insertCounted(f, In(keys), In(values), len(values), added, x)
}

// InsertKeys implements Insert of a set.
func InsertKeys[K any](f *Frame, keys []K, added []bool, x Insertion) (int, error) {
	return insertCounted(f, In(keys), Column{}, -1, added, x)
}

func insertCounted(f *Frame, keys, values Column, valuesLen int, added []bool, x Insertion) (int, error) {
	x.keeps = true
	return counted(keys.n, added, func(added []bool) error { return insert(f, keys, values, valuesLen, added, x) })
}

func insert(f *Frame, keys, values Column, valuesLen int, added []bool, x Insertion) error {
	if err := f.Family.CheckNamed("values added", keys.n, valuesLen, OptionalLen(added)); err != nil {
		return err
	}
	put := func(st *device.Stream, n int64, addr []uint64) (refused []int, why, err error) {
		return x.Put(st, Rows{Keys: addr[0], Values: addr[1], Flags: addr[2], N: n})
	}
	return InsertColumns(f, keys, []Column{keys, values, Out(added)}, put, x)
}

// counted runs an operation on n keys with flags, of its own if there are none, and counts those that it set.
func counted(n int, flags []bool, op func(flags []bool) error) (int, error) {
	if flags == nil {
		flags = make([]bool, n)
	}
	err := op(flags)
	if full := (*table.FullError)(nil); err != nil && !errors.As(err, &full) {
		return 0, err
	}
	return Count(flags), err
}

// InsertColumns takes in a batch of Go slices whose columns put knows: see Insertion.Put. keys is the column of the
// keys.
//
// Where there is too little memory to bring any of it to the device, nothing is done: the outputs are clear, and all
// positions are named, but where x keeps what is in, those whose keys are in from before.
func InsertColumns(f *Frame, keys Column, cols []Column, put func(st *device.Stream, n int64, addr []uint64) (refused []int, why, err error), x Insertion) error {
	var refused []int
	var why error
	begun := false
	err := f.Batch(keys.n, cols, func(st *device.Stream, first, n int, addr []uint64) error {
		begun = true
		return f.Writing(st, func(st *device.Stream) error {
			lost, w, err := put(st, int64(n), addr)
			for _, i := range lost {
				refused = append(refused, first+i)
			}
			if w != nil {
				why = w
			}
			return err
		})
	})
	if device.IsOutOfMemory(err) && !begun { // not even the least staging: nothing is in
		for i := range cols {
			if c := &cols[i]; c.out && c.p != nil {
				clear(c.bytes(0, keys.n))
			}
		}
		if x.untried != nil {
			x.untried()
		}
		for i := range keys.n {
			refused = append(refused, i)
		}
		if why, err = err, nil; x.keeps && x.Find != nil {
			absent, wrong := strikeOff(f, keys, refused, x)
			if wrong == nil {
				refused = absent
			} else if !device.IsOutOfMemory(wrong) {
				err = wrong
			}
		}
	} else if err == nil && len(refused) > 0 && x.Find != nil {
		refused, err = strikeOff(f, keys, refused, x)
	}
	if err != nil || len(refused) == 0 {
		return err
	}
	return f.Locked(func() error { return x.full(refused, why) })
}

// strikeOff gives those of the refused positions whose keys are not in the table.
func strikeOff(f *Frame, keys Column, refused []int, x Insertion) (out []int, err error) {
	found, asked := make([]bool, len(refused)), Column{n: len(refused), size: keys.size}
	asked.p = unsafe.Pointer(unsafe.SliceData(make([]byte, asked.n*asked.size)))
	for i, p := range refused {
		copy(asked.bytes(i, 1), keys.bytes(p, 1))
	}
	err = f.Batch(asked.n, []Column{asked, Out(found)}, func(st *device.Stream, _, n int, addr []uint64) error {
		return f.Reading(st, func(st *device.Stream) error {
			return x.Find(st, Rows{Keys: addr[0], Flags: addr[1], N: int64(n)})
		})
	})
	if device.IsOutOfMemory(err) {
		err = f.findInBitmap(asked, found, x)
	}
	if err != nil {
		return nil, err
	}
	for i, p := range refused {
		if !found[i] {
			out = append(out, p)
		}
	}
	return out, nil
}

// findInBitmap looks keys up where there is no memory to stage them: a few at a time, in the memory of the bitmap. The
// keys stand there behind their flags.
func (f *Frame) findInBitmap(keys Column, found []bool, x Insertion) (err error) {
	for first := 0; first < keys.n && err == nil; {
		err = f.Writing(nil, func(st *device.Stream) error { // the bitmap must be clear again
			n := min(keys.n-first, (f.refused.Len()-int(Align(1)))/(keys.size+1))
			from := int(Align(int64(n)))
			mem := f.refused.Slice(from, from+n*keys.size)
			if err := mem.Write(st, keys.bytes(first, n)); err != nil {
				return errors.Join(err, mem.Fill(st, 0))
			}
			in, err := f.found(st, mem.Addr(), n, x)
			first += copy(found[first:], in)
			return errors.Join(err, mem.Fill(st, 0))
		})
	}
	return err
}

// strikeOffOn is strikeOff on the device. The caller is in Writing.
func strikeOffOn(f *Frame, st *device.Stream, keys uint64, keyBytes int, refused []int, x Insertion) (out []int, err error) {
	for len(refused) > 0 {
		first := refused[0]
		next, _ := slices.BinarySearch(refused, first+f.refused.Len())
		found, err := f.found(st, keys+uint64(first*keyBytes), refused[next-1]-first+1, x)
		if err != nil {
			return nil, err
		}
		for _, p := range refused[:next] {
			if !found[p-first] {
				out = append(out, p)
			}
		}
		refused = refused[next:]
	}
	return out, nil
}

// Absent gives the positions of a batch of n keys that are not in the table. The caller is in Writing.
func (f *Frame) Absent(st *device.Stream, keys uint64, keyBytes int, n int64, x Insertion) (out []int, err error) {
	for first := 0; first < int(n); first += f.refused.Len() {
		found, err := f.found(st, keys+uint64(first*keyBytes), min(int(n)-first, f.refused.Len()), x)
		if err != nil {
			return nil, err
		}
		for i, in := range found {
			if !in {
				out = append(out, first+i)
			}
		}
	}
	return out, nil
}

// found looks n keys up, no more than the bitmap has bytes: its first n are the memory for the flags.
func (f *Frame) found(st *device.Stream, keys uint64, n int, x Insertion) ([]bool, error) {
	flags := device.View[bool](f.refused, 0, n)
	err := x.Find(st, Rows{Keys: keys, Flags: flags.Addr(), N: int64(n)})
	if err != nil {
		return nil, err
	}
	found, err := flags.Host(st)
	return found, errors.Join(err, flags.Fill(st, 0))
}

// Whole implements an insert that needs the whole batch on the device at once: on is what it is there.
func Whole[K, V any](f *Frame, keys []K, values []V, on func(st *device.Stream, keys device.Slice[K], values device.Slice[V]) error) error {
	if err := f.Family.CheckNamed("values", len(keys), len(values)); err != nil {
		return err
	}
	if err := f.Usable(); err != nil {
		return err
	}
	k, err := From(f.Device, keys)
	if err != nil {
		return err
	}
	v, err := From(f.Device, values)
	if err != nil {
		return errors.Join(err, k.Free())
	}
	return OneLine(errors.Join(on(nil, k, v), k.Free(), v.Free()))
}

// InsertOn implements Insert and InsertNew on the device, and without values Insert of a set. added may be the zero
// Slice.
func InsertOn[K any](f *Frame, st *device.Stream, keys device.Slice[K], values DeviceSlice, added device.Slice[bool], x Insertion) error {
	return insertOn(f, st, keys, sizeOf[K](), values, Optional(added), x)
}

func insertOn(f *Frame, st *device.Stream, keys DeviceSlice, keyBytes int, values, added DeviceSlice, x Insertion) error {
	if err := f.CheckOn("values added", st, keys, values, added); err != nil {
		return err
	}
	return f.Writing(st, func(st *device.Stream) error {
		if keys.Len() == 0 {
			return nil
		}
		refused, why, err := x.Put(st, Rows{Keys: keys.Addr(), Values: values.Addr(), Flags: added.Addr(), N: int64(keys.Len())})
		if err == nil && len(refused) > 0 && x.Find != nil {
			refused, err = strikeOffOn(f, st, keys.Addr(), keyBytes, refused, x)
		}
		if err != nil {
			return err
		}
		return x.full(refused, why)
	})
}

func sizeOf[T any]() int { return int(unsafe.Sizeof(*new(T))) }

// NoValues stands for the values of a batch of keys alone.
func NoValues() DeviceSlice { return Optional(device.Slice[byte]{}) }
