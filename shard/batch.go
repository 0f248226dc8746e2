package shard

import (
	"unsafe"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// batch is what a call brings: Go slices, or slices on devices.
type batch struct {
	what  string // the method that was called
	wrong error  // with its arguments: a cluster returns it, and members tell one another

	// Go slices, as bytes, and nil where one is left out. marks are the operations of a mixed batch, of which flags are
	// the outcomes.
	host                                  bool
	n                                     int // rows
	keys, values, out, flags, when, marks []byte
	typed                                 func(from, to int) []frame.Column // keys, values and out

	parts []part // slices on devices
}

// part is a batch's part on one device.
type part struct {
	source
	on     *device.Device      // of the keys; nil where there are none
	checks []frame.DeviceSlice // the keys, and what must go with them
}

// hostRows are the rows of a batch of Go slices. All but keys may be nil.
type hostRows[K, V any] struct {
	keys        []K
	values, out []V
	flags, when []bool
	ops         []table.Op
	status      []table.Status
}

// batch makes a batch of the rows. lens are the lengths of the slices beside the keys.
func (h hostRows[K, V]) batch(what string, lens ...int) batch {
	b := batch{what: what, wrong: family.CheckLens(len(h.keys), lens...), host: true, n: len(h.keys),
		keys: bytesOf(h.keys), values: bytesOf(h.values), out: bytesOf(h.out),
		flags: bytesOf(h.flags), when: bytesOf(h.when), marks: bytesOf(h.ops)}
	if h.status != nil {
		b.flags = bytesOf(h.status)
	}
	b.typed = func(from, to int) []frame.Column {
		return []frame.Column{frame.In(h.keys[from:to]), frame.In(within(h.values, from, to)),
			frame.Out(within(h.out, from, to))}
	}
	return b
}

// columns are the rows from one on to another; source has the order of their addresses.
func (b *batch) columns(from, to int) []frame.Column {
	return append(b.typed(from, to), frame.Out(within(b.flags, from, to)), frame.In(within(b.when, from, to)),
		frame.In(within(b.marks, from, to)))
}

// source is a chunk of the batch on a device, where its columns are.
func (b *batch) source(st *device.Stream, n int, addr []uint64) source {
	return source{n: n, keys: addr[0], values: addr[1], out: addr[2], flags: addr[3], when: addr[4], marks: addr[5],
		st: st}
}

// chosen tells whether a row of Go slices is one that is done.
func (b *batch) chosen(i int) bool { return b.when == nil || b.when[i] != 0 }

// deviceRows are the rows of a batch on a device. All but keys may be zero Slices.
type deviceRows[K, V any] struct {
	st          *device.Stream
	keys        device.Slice[K]
	values, out device.Slice[V]
	flags, when device.Slice[bool]
	ops         device.Slice[table.Op]
	status      device.Slice[table.Status]
}

// batch makes a batch of the rows. Others are the slices beside the keys.
func (r deviceRows[K, V]) batch(what string, others ...frame.DeviceSlice) batch {
	return batch{what: what, parts: []part{r.part(others...)}}
}

func (r deviceRows[K, V]) part(others ...frame.DeviceSlice) part {
	flags := r.flags.Raw()
	if r.status.Addr() != 0 {
		flags = r.status.Raw()
	}
	s := sourceOf(r.st, received{n: r.keys.Len(), keys: r.keys.Raw(), values: r.values.Raw(), out: r.out.Raw(),
		flags: flags, when: r.when.Raw(), marks: r.ops.Raw()})
	return part{source: s, on: r.keys.Device(), checks: append([]frame.DeviceSlice{r.keys}, others...)}
}

// Part is the part of a batch that is on one device. A batch has one part a device at most. A nil Stream means the
// device's own stream. A member of a job brings one part, on its device, or none.
//
// Values and Flags have as many elements as Keys, or are zero Slices where a method does not need them.
type Part[K, V any] struct {
	Stream *device.Stream
	Keys   device.Slice[K]
	// InsertEach and InsertNewEach of pairs, and UpdateEach, read Values, which must be there. FindEach writes to them,
	// the values or counts that it finds, unless they are left out. All other methods ignore them; so a set's V is
	// byte, and a part of a set has none.
	Values device.Slice[V]
	// FindEach and ContainsEach write to Flags whether each key was found, InsertNewEach and a set's InsertEach whether
	// it was added, and DeleteEach whether it was deleted. Only ContainsEach needs them; they can be left out in all
	// others. Methods that tell nothing of a key (InsertEach of pairs, UpdateEach, AddEach) ignore them.
	Flags device.Slice[bool]
}

// partsOf makes a batch of parts. values tells whether values must be there, and flags whether flags must.
func partsOf[K, V any](what string, parts []Part[K, V], values, flags bool) batch {
	b := batch{what: what}
	for _, p := range parts {
		v, f := frame.DeviceSlice(p.Values), frame.DeviceSlice(p.Flags)
		if !values {
			v = frame.Optional(p.Values)
		}
		if !flags {
			f = frame.Optional(p.Flags)
		}
		rows := deviceRows[K, V]{st: p.Stream, keys: p.Keys, values: p.Values, out: p.Values, flags: p.Flags}
		b.parts = append(b.parts, rows.part(v, f))
	}
	return b
}

// counted runs an operation on n keys with flags, of its own if there are none, and counts those that it set.
func counted(n int, flags []bool, op func(flags []bool) error) (int, error) {
	if flags == nil {
		flags = make([]bool, n)
	}
	err := op(flags)
	if err != nil && !isFull(err) {
		return 0, err
	}
	return frame.Count(flags), err
}

// within are elements of a slice that may be nil.
func within[T any](s []T, from, to int) []T {
	if s == nil {
		return nil
	}
	return s[from:to]
}

// bytesOf are the elements of a slice as bytes, nil for nil.
func bytesOf[T any](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(*new(T))))
}

// fromBytes are elements that bytesOf gave, as a copy.
func fromBytes[T any](b []byte) []T {
	out := make([]T, len(b)/int(unsafe.Sizeof(*new(T))))
	copy(bytesOf(out), b)
	return out
}

// patterns are keys as numbers.
func patterns[K any](keys []K) []uint64 {
	out := make([]uint64, len(keys))
	for i := range keys {
		if unsafe.Sizeof(keys[i]) == 4 {
			out[i] = uint64(*(*uint32)(unsafe.Pointer(&keys[i])))
		} else {
			copy((*[8]byte)(unsafe.Pointer(&out[i]))[:], unsafe.Slice((*byte)(unsafe.Pointer(&keys[i])), 8))
		}
	}
	return out
}
