package gph

import (
	_ "embed"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

//go:embed foreach.cu
var foreachCU string

// Args are the named device arguments of a callback: see table.Args.
type Args = table.Args

// ForEach calls body on the device for each given key that the table has, with its pair, in any order and in parallel.
// body is a piece of CUDA C++. It sees
//
//	key    the key, value  its value: of their Go types, where these are integers or floats; else as u16 … u64 or u128
//	index  the key's position in keys, u64
//
// body also sees the arguments by their names, and the vocabulary of package kernel, such as add(&counts[value], 1u).
// body must not change the table. ForEach queues its work and returns. args must stay allocated until the stream has
// passed it.
//
// Errors: *device.CompileError with the compiler's words; arguments of other types. Cost: compiling a body once; for
// each key, the cost of Find.
func (m *Map[K, V]) ForEach(st *device.Stream, keys device.Slice[K], body string, args Args) error {
	return frame.CallEach[K, V](&m.made().frame, st, keys, body, args, m.made().caller())
}

// ForAll calls body for every pair of the table: see ForEach. In body, index is the slot.
func (m *Map[K, V]) ForAll(st *device.Stream, body string, args Args) error {
	return frame.CallAll[K, V](&m.made().frame, st, body, args, m.made().caller())
}

func (c *core) caller() frame.Caller {
	return frame.Caller{
		Program: func(header device.File) *device.Program { return c.program("foreach", foreachCU, header) },
		Params:  c.callbackParams,
		Grid:    c.grid, Slots: func() int64 { return c.slots() + int64(c.cfg.bucket) },
	}
}

func (c *core) callbackParams(keys, n uint64, words [frame.MaxArgs]uint64) any {
	return &forEachParams{c.t, keys, n, words}
}

// Program returns a program with a kernel of your own that works on this table. Its source is main, which includes
// "config.h" and "gph.cuh", and names the table's type `config`. Add your parameter struct, which holds a Table, to the
// program's Layouts. If Hash is one that is meant to be poor, load the kernel again after the table has grown: it then
// has another hash function.
//
//	#include "config.h"
//	#include "gph.cuh"
//	WARPMAP_KERNEL(count, mine::CountParams) {
//	    tile<4> g;
//	    …gph::find<config>(p.table, g, key, value)…
//	}
func (m *Map[K, V]) Program(name, main string) *device.Program {
	m.made().frame.MustBeMade()
	var p *device.Program
	m.made().frame.Guard(func() { p = m.made().program(name, main) }) // a rebuild may change the hash function
	return p
}

// Use runs a kernel of yours in order with the table's own operations. It calls queue with the table as kernels take
// it, and queue puts work on the stream. queue must not call the table's methods, because they wait for queue. The
// Table is good for this call alone, because the table may move when it grows. The kernel may only look up: to insert a
// pair that has no room in its bucket moves other pairs, so the host must order inserts.
func (m *Map[K, V]) Use(st *device.Stream, queue func(Table) error) error {
	if err := family.CheckOn(m.made().frame.Device, st); err != nil {
		return err
	}
	return m.made().frame.Reading(st, func(*device.Stream) error { return queue(m.made().t) })
}
