package slab

import (
	"errors"

	"github.com/warpmap/warpmap/device"
)

// Program returns a program with a kernel of your own that works on this table. Its source is main, which includes
// "config.h" and "slab.cuh", and names the table's type `config`. Add your parameter struct, which holds a Table, to
// the program's Layouts.
//
//	#include "config.h"
//	#include "slab.cuh"
//	WARPMAP_KERNEL(count, mine::CountParams) {
//	    tile<8> g;
//	    slab::Resident r;
//	    …slab::insert<config>(p.table, g, r, key, value)…
//	}
func (m *Map[K, V]) Program(name, main string) *device.Program {
	m.made().frame.MustBeMade()
	return m.made().program(name, main)
}

// Use runs a kernel of yours in order with the table's own operations. It calls queue with the table as kernels take
// it, and queue puts work on the stream. queue must not call the table's methods, because they wait for queue. The
// Table is good for this call alone, because the table may move when it grows.
//
// room is how many pairs the kernel is to insert; the table makes slabs ready for them. An insert that still finds no
// slab, or finds none because MaxBytes forbids more, returns FULL in the kernel. Map.Mixed and Map.Insert would get
// more slabs.
func (m *Map[K, V]) Use(st *device.Stream, room int, queue func(Table) error) error {
	return m.made().use(st, room, queue)
}

func (c *core) use(st *device.Stream, room int, queue func(Table) error) error {
	return c.frame.Using(st, room, c.look, func(st *device.Stream) error {
		if pairs := c.live() + int64(room); !c.bound && pairs > c.limit() {
			if _, err := c.grow(st, pairs); err != nil {
				return err
			}
		}
		c.foreign = true
		if err := errors.Join(c.prepare(st, int64(room)), c.pool.NoLongerDry(st)); err != nil {
			return err
		}
		return queue(c.table())
	})
}
