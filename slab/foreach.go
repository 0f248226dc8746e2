package slab

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

// ForEach calls body on the device for each given key that is in, with its pair, in any order and in parallel. body is
// a piece of CUDA C++. It sees key and value, of their Go types if these are integers or floats, else as u32, u64 or
// u128. It sees index, the key's position, as u64. It also sees the arguments by their names, and the vocabulary of
// package kernel. body must not change the table. ForEach queues its work and returns. args must stay allocated until
// the stream has passed it.
//
// Errors: *device.CompileError with the compiler's words; arguments of other types. Cost: compiling a body once; for
// each key, reading all slabs of its chain.
func (m *Map[K, V]) ForEach(st *device.Stream, keys device.Slice[K], body string, args Args) error {
	return frame.CallEach[K, V](&m.made().frame, st, keys, body, args, m.made().caller())
}

// ForAll calls body for every pair of the table: see ForEach. In body, index is the bucket.
func (m *Map[K, V]) ForAll(st *device.Stream, body string, args Args) error {
	return frame.CallAll[K, V](&m.made().frame, st, body, args, m.made().caller())
}

// ForEach calls body for every pair of each given key: see Map.ForEach.
func (m *MultiMap[K, V]) ForEach(st *device.Stream, keys device.Slice[K], body string, args Args) error {
	return frame.CallEach[K, V](&m.made().frame, st, keys, body, args, m.made().caller())
}

// ForAll calls body for every pair of the table: see Map.ForAll.
func (m *MultiMap[K, V]) ForAll(st *device.Stream, body string, args Args) error {
	return frame.CallAll[K, V](&m.made().frame, st, body, args, m.made().caller())
}

// ForEach calls body for each given key that is in the set: see Map.ForEach. The body for a set sees no value.
func (s *Set[K]) ForEach(st *device.Stream, keys device.Slice[K], body string, args Args) error {
	return frame.CallEach[K, frame.NoValue](&s.made().frame, st, keys, body, args, s.made().caller())
}

// ForAll calls body for every key of the set. In body, index is the bucket.
func (s *Set[K]) ForAll(st *device.Stream, body string, args Args) error {
	return frame.CallAll[K, frame.NoValue](&s.made().frame, st, body, args, s.made().caller())
}

func (c *core) caller() (by frame.Caller) {
	by.Program = func(header device.File) *device.Program { return c.program("foreach", foreachCU, header) }
	by.Params = func(keys, n uint64, words [frame.MaxArgs]uint64) any {
		return &forEachParams{c.table(), keys, n, words}
	}
	by.Grid = func(n int64) device.Grid { return c.frame.Grid(n, findBlocks) }
	by.Slots = func() int64 { return buckets0(&c.memory) }
	return by
}
