package shard

import (
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// leastShare: a batch of Go slices goes by way of several devices if each gets so many rows. Fewer are sooner there by one.
const leastShare = 1 << 14

// batch carries Go slices of n rows to the devices, of each an equal share, in chunks, and calls op for each chunk with
// its first row and the addresses of its columns. cols gives the columns of the rows from one on to another. Chunks of
// different devices come at the same time. short, which may be nil, is told of rows that there is no memory to bring
// there, of which op has seen none, and why.
func (c *cluster) batch(n int, cols func(from, to int) []table.Column, op func(member int, st *device.Stream, first, n int, addr []uint64) error,
	short func(from, to int, why error)) error {
	if err := c.locked(func() error { return nil }); err != nil {
		return err
	}
	shares := max(1, min(len(c.members), n/leastShare))
	err := together(shares, func(i int) error {
		from, to := n/shares*i+min(i, n%shares), n/shares*(i+1)+min(i+1, n%shares)
		begun := false
		err := c.members[i].stage.Run(to-from, cols(from, to), func(st *device.Stream, first, n int, addr []uint64) error {
			begun = true
			return op(i, st, from+first, n, addr)
		})
		if short != nil && !begun && device.IsOutOfMemory(err) {
			short(from, to, err)
			return nil
		}
		return err
	})
	if errors.Is(err, table.ErrClosed) && err.Error() == table.ErrClosed.Error() { // closed since
		err = fmt.Errorf("%s: %w", family, table.ErrClosed)
	}
	return err
}

// within are elements of a slice that may be nil.
func within[T any](s []T, from, to int) []T {
	if s == nil {
		return nil
	}
	return s[from:to]
}

// from makes a member the only source of a job.
func (c *cluster) from(member int, s source) []source {
	all := make([]source, len(c.members))
	all[member] = s
	return all
}

// memberOf is the member that is the device.
func (c *cluster) memberOf(d *device.Device) (int, error) {
	var names []string
	for i, m := range c.members {
		if m.d == d || m.d.Info().Name == d.Info().Name {
			return i, nil
		}
		names = append(names, m.d.Info().Name)
	}
	return 0, fmt.Errorf("%s: a batch on device %s, which is none of the table's: %v", family, d.Info().Name, names)
}

// sourceOf is the member whose device a batch is on: that of its keys, or of its stream where there are none.
func (c *cluster) sourceOf(st *device.Stream, keys *device.Device) (int, error) {
	switch {
	case keys != nil:
		return c.memberOf(keys)
	case st != nil:
		return c.memberOf(st.Device())
	}
	return 0, nil
}

// Part is a batch's part on one device. A stream of nil is the device's own.
type Part[K, V any] struct {
	Stream *device.Stream
	Keys   device.Slice[K]
	Values device.Slice[V]    // read by inserts, written by look-ups, which can do without
	Flags  device.Slice[bool] // written: found, added or deleted; can be left out where values are written, and of InsertNew and Delete
}

// checked are the parts as sources, one a member at most, and how many rows come before each part of the batch. values tells whether values
// must be there, and flags whether flags must.
func checked[K, V any](c *cluster, parts []Part[K, V], values, flags bool) (sources []source, members, before []int, err error) {
	sources = make([]source, len(c.members))
	rows := 0
	for _, p := range parts {
		i, err := c.sourceOf(p.Stream, p.Keys.Device())
		if err != nil {
			return nil, nil, nil, err
		}
		if slices.Contains(members, i) {
			return nil, nil, nil, fmt.Errorf("%s: two parts of a batch are on %s (want one a device)", family, c.members[i].d.Info().Name)
		}
		v, g := table.DeviceSlice(p.Values), table.DeviceSlice(p.Flags)
		if !values {
			v = table.Optional(p.Values)
		}
		if !flags {
			g = table.Optional(p.Flags)
		}
		if err := family.CheckOn(c.members[i].d, p.Stream, p.Keys, v, g); err != nil {
			return nil, nil, nil, err
		}
		sources[i] = part(p)
		members, before = append(members, i), append(before, rows)
		rows += p.Keys.Len()
	}
	return sources, members, before, nil
}

// keysOn is every device.Slice of keys.
type keysOn interface {
	table.DeviceSlice
	Device() *device.Device
	Raw() device.Slice[byte]
}

// onDevice is a batch on one device as a source that has its keys alone, and the member that it is on. Others are the batch's other slices, which are checked.
func (c *cluster) onDevice(st *device.Stream, keys keysOn, others ...table.DeviceSlice) (s source, member int, err error) {
	if member, err = c.sourceOf(st, keys.Device()); err != nil {
		return s, 0, err
	}
	if err := family.CheckOn(c.members[member].d, st, append([]table.DeviceSlice{keys}, others...)...); err != nil {
		return s, 0, err
	}
	return source{n: keys.Len(), keys: keys.Addr(), st: st, slices: &received{n: keys.Len(), keys: keys.Raw()}}, member, nil
}

// part is a part of a batch as a source.
func part[K, V any](p Part[K, V]) source {
	return source{n: p.Keys.Len(), keys: p.Keys.Addr(), values: p.Values.Addr(), out: p.Values.Addr(), flags: p.Flags.Addr(), st: p.Stream,
		slices: &received{n: p.Keys.Len(), keys: p.Keys.Raw(), values: p.Values.Raw(), out: p.Values.Raw(), flags: p.Flags.Raw()}}
}

// refusals are the positions of a batch that are not in, and why.
type refusals struct {
	mu        sync.Mutex
	positions []int
	why       error
}

func (r *refusals) add(positions []int, first int, why error) {
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, p := range positions {
		r.positions = append(r.positions, first+p)
	}
	r.why = why
}

// error is the FullError of the positions, or nil. The caller holds the lock.
func (c *cluster) fullError(r *refusals) error {
	if len(r.positions) == 0 {
		return nil
	}
	n, err := c.len()
	if err != nil {
		return err
	}
	slots := make([]int, len(c.members))
	err = c.together(func(i int) error {
		if m := c.members[i]; m.capacity > 0 { // it was full, so it has not grown since
			slots[i] = m.capacity
			return nil
		}
		s, err := c.members[i].table.Stats()
		if slots[i] = s.Capacity; device.IsOutOfMemory(err) { // what is not in is to be told all the same
			slots[i], err = c.members[i].table.Len()
		}
		return err
	})
	if err != nil {
		return err
	}
	capacity := 0
	for _, s := range slots {
		capacity += s
	}
	return table.Full(r.positions, capacity, n, r.why)
}
