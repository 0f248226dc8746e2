package stadium

import (
	_ "embed"
	"fmt"

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
//	key    the key, value  its value: of their Go types, where these are integers or floats; else as u128 or u256,
//	       where they have so many bits, or in place, as words key.w[0], key.w[1], … of 32 bits
//	index  the key's position in keys, u64
//
// body also sees the arguments by their names, and the vocabulary of package kernel, such as add(&counts[value], 1u).
// body must not change the table. ForEach queues its work and returns. args must stay allocated until the stream has
// passed it.
//
// Errors: *device.CompileError with the compiler's words; arguments of other types. Cost: compiling a body once.
func (m *Map[K, V]) ForEach(st *device.Stream, keys device.Slice[K], body string, args Args) error {
	return frame.CallEach[K, V](&m.made().frame, st, keys, body, args, m.made().caller())
}

// ForAll calls body for every pair of the table: see ForEach. In body, index is the slot.
func (m *Map[K, V]) ForAll(st *device.Stream, body string, args Args) error {
	return frame.CallAll[K, V](&m.made().frame, st, body, args, m.made().caller())
}

func (c *core) caller() (x frame.Caller) {
	x.Grid, x.Slots = c.grid, c.capacity
	x.Program = func(header device.File) *device.Program { return c.program("foreach", foreachCU, header) }
	x.Params = func(keys, n uint64, words [frame.MaxArgs]uint64) any {
		return &forEachParams{c.table(), keys, n, words}
	}
	return x
}

// Program returns a program with a kernel of your own that works on this table. Its source is main, which includes
// "config.h" and "stadium.cuh", and names the table's type `config`. Add your parameter struct, which holds a Table, to
// the program's Layouts.
//
//	#include "config.h"
//	#include "stadium.cuh"
//	WARPMAP_KERNEL(count, mine::CountParams) {
//	    …stadium::insert<config>(p.table, key, value)…
//	}
func (m *Map[K, V]) Program(name, main string) *device.Program {
	m.made().frame.MustBeMade()
	return m.made().program(name, main)
}

// Use runs a kernel of yours in order with the table's own operations. It calls queue with the table as kernels take
// it, and queue puts work on the stream. queue must not call the table's methods, because they wait for queue. The
// Table is good for this call alone, because the table may move when it grows or is laid anew.
//
// room is how many pairs the kernel is to insert. The table grows first if it must, or Use returns the reason why it
// cannot. An insert that still finds no room returns FULL in the kernel.
func (m *Map[K, V]) Use(st *device.Stream, room int, queue func(Table) error) error {
	return m.made().use(st, room, queue)
}

func (c *core) use(st *device.Stream, room int, queue func(Table) error) error {
	return c.frame.Using(st, room, c.look, func(st *device.Stream) error {
		if pairs := c.live() + int64(room); pairs > c.limit() {
			why, err := c.grow(st, pairs)
			if err != nil {
				return err
			}
			if why != nil {
				return fmt.Errorf("stadium: no room for %d more pairs: %w", room, why)
			}
		}
		c.foreign = true
		c.stale()
		return queue(c.table())
	})
}
