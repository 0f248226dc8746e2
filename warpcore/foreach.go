package warpcore

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

// ForEach calls body on the device for every pair whose key is one of the given keys, in any order and in parallel
// (paper, §IV-B4). body is a piece of CUDA C++. It sees
//
//	key    the key, value  its value: of their Go types, where these are integers or floats; else as u32, u64 or u128
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

// ForEach calls body for every pair whose key is one of the given keys: see Map.ForEach.
func (m *MultiMap[K, V]) ForEach(st *device.Stream, keys device.Slice[K], body string, args Args) error {
	return frame.CallEach[K, V](&m.made().frame, st, keys, body, args, m.made().caller())
}

// ForAll calls body for every pair of the table: see Map.ForEach. In body, index is the slot.
func (m *MultiMap[K, V]) ForAll(st *device.Stream, body string, args Args) error {
	return frame.CallAll[K, V](&m.made().frame, st, body, args, m.made().caller())
}

// ForEach calls body for each given key that is in the set: see Map.ForEach. The body for a set sees no value.
func (s *Set[K]) ForEach(st *device.Stream, keys device.Slice[K], body string, args Args) error {
	return frame.CallEach[K, frame.NoValue](&s.made().frame, st, keys, body, args, s.made().caller())
}

// ForAll calls body for every key of the set: see ForEach. In body, index is the slot.
func (s *Set[K]) ForAll(st *device.Stream, body string, args Args) error {
	return frame.CallAll[K, frame.NoValue](&s.made().frame, st, body, args, s.made().caller())
}

// ForEach calls body for each given key that is in: see Map.ForEach. In body, value is the count of the key.
func (c *Counter[K, C]) ForEach(st *device.Stream, keys device.Slice[K], body string, args Args) error {
	return frame.CallEach[K, C](&c.made().frame, st, keys, body, args, c.made().caller())
}

// ForAll calls body for every key and its count: see ForEach. In body, index is the slot.
func (c *Counter[K, C]) ForAll(st *device.Stream, body string, args Args) error {
	return frame.CallAll[K, C](&c.made().frame, st, body, args, c.made().caller())
}

func (c *core) caller() frame.Caller {
	return frame.Caller{
		Program: func(header device.File) *device.Program { return c.program("foreach", foreachCU, header) },
		Params:  c.callbackParams,
		Grid:    c.grid, Slots: c.slots,
	}
}

func (c *core) callbackParams(keys, n uint64, words [frame.MaxArgs]uint64) any {
	return &forEachParams{c.t, keys, n, words}
}

// Program returns a program with a kernel of your own that works on this table. Its source is main, which includes
// "config.h" and "warpcore.cuh", and names the table's type `config`. Add your parameter struct, which holds a Table,
// to the program's Layouts.
//
//	#include "config.h"
//	#include "warpcore.cuh"
//	WARPMAP_KERNEL(count, mine::CountParams) {
//	    tile<4> g;
//	    …warpcore::find<config>(p.table, g, key, value)…
//	}
func (m *Map[K, V]) Program(name, main string) *device.Program {
	m.made().frame.MustBeMade()
	return m.made().program(name, main)
}

// Use runs a kernel of yours in order with the table's own operations. It calls queue with the table as kernels take
// it, and queue puts work on the stream. queue must not call the table's methods, because they wait for queue. The
// Table is good for this call alone, because the table may move when it grows.
//
// If the kernel inserts, room must say how many slots it takes at most. The table grows first if it must, or Use
// returns the reason why it cannot. If the kernel erases a slot, that slot is not taken again before the next Insert.
// So a pair that the kernel inserts, erases and inserts again counts twice. A kernel that takes more slots than room
// gets FULL if the table is full. The next Insert then waits, to see what is there. The three highest keys have four
// slots of their own: a kernel that erases one of these keys and inserts it again may get FULL for it, though there is
// room for other keys.
func (m *Map[K, V]) Use(st *device.Stream, room int, queue func(Table) error) error {
	return m.made().use(st, room, queue)
}

// Program returns a program with a kernel of your own: see Map.Program.
func (m *MultiMap[K, V]) Program(name, main string) *device.Program {
	m.made().frame.MustBeMade()
	return m.made().program(name, main)
}

// Use runs a kernel of yours in order with the table's own operations: see Map.Use.
func (m *MultiMap[K, V]) Use(st *device.Stream, room int, queue func(Table) error) error {
	return m.made().use(st, room, queue)
}

func (c *core) use(st *device.Stream, room int, queue func(Table) error) error {
	return c.frame.Using(st, room, nil, func(st *device.Stream) error {
		if c.filled+int64(room) > c.limit() {
			if err := c.makeRoom(st, int64(room)); err != nil {
				return err
			}
		}
		c.filled += int64(room)
		c.foreign, c.touched = true, true
		return queue(c.t)
	})
}

// makeRoom grows the table, if it must, for so many more pairs.
func (c *core) makeRoom(st *device.Stream, room int64) error {
	if _, err := c.look(st); err != nil || c.filled+room <= c.limit() {
		return err
	}
	why, err := c.grow(st, c.live()+room, 0)
	if err != nil {
		return err
	}
	if why == nil && c.filled+room > c.limit() {
		why = frame.AtMaxBytes(c.opts.MaxBytes)
	}
	if why != nil {
		return fmt.Errorf("warpcore: no room for %d more pairs: %w", room, why)
	}
	return nil
}
