package shard

import (
	"errors"
	"slices"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// Over is what a table is spread over: devices of this process, or the members of the job that this process joined.
type Over interface{ []*device.Device | *Member }

// exchanger spreads a table's batches over devices: a cluster those of one process, a joint those of the members of a
// job. A Map, Set, Counter or MultiMap makes batches and jobs of what its methods are called with; whose the rows are,
// and how they get there, is the exchanger's.
type exchanger interface {
	// ask does a job that is the same for all rows: a look-up or a deletion.
	ask(b batch, j job) error
	// put takes rows in, of a table in which a key is there once.
	put(b batch, p putting) error
	// mix runs a mixed batch; job makes its job, which notes why a table was full.
	mix(b batch, job func(why *error) job) error
	// add inserts pairs into a multimap by a job.
	add(b batch, j job) error
	// remove is ask of a multimap's deletion, and counts the pairs.
	remove(b batch, j job) (int, error)
	// lists finds all values of keys. take gets the offsets and the values as bytes, once for all keys or, of Go
	// slices, once for each piece of them, and frees them.
	lists(b batch, l listing, take taker) error
	// top joins what the tables say of their keys.
	top(t topping) (keys, counts []byte, err error)

	// export runs do for each table of this process.
	export(do func(i int) error) error
	// chunks runs over for each table of this process. unchanged comes before each chunk: an error ends that.
	chunks(over func(i int, unchanged func() error) error) error
	// check walks the invariants; exported gives the keys of one of this process's tables.
	check(exported func(i int) ([]uint64, error)) error
	independent() bool
	ownerOf(key uint64) int

	devices() []*device.Device
	steps() Steps
	family() table.Family
	len() (int, error)
	ownLen() (int, error)
	tell(n int, wrong error) ([]int, error)
	clear() error
	statsEach() ([]table.Stats, error)
	grow(n int) error
	close() error
}

// operation does something with rows that table i of this process got.
type operation func(i int, st *device.Stream, r received) error

// handle is what users hold of a table over several devices. It names the exchanger instead of embedding it: each
// instance of a generic type is compiled with every method that it embeds, in each package that uses it.
type handle struct{ x exchanger }

// over is the exchanger, or one whose operations are errors, if no constructor has made the table.
func (h handle) over() exchanger {
	if h.x == nil {
		return unmade
	}
	return h.x
}

var unmade = &cluster{lost: errors.New("shard: a table that NewMap, NewSet, NewCounter or NewMultiMap has not made")}

// spread makes a table of T on each device that this process has of it.
func spread[T table.Table, O Over](over O, w frame.Width, o Options,
	newTable func(d *device.Device, o table.Options) (T, error)) (h handle, tables []T, err error) {
	devices, _ := any(over).([]*device.Device)
	tables = make([]T, max(1, len(devices)))
	each := func(i int, d *device.Device, o table.Options) (table.Table, error) {
		t, err := newTable(d, o)
		tables[i] = t
		return t, err
	}
	switch over := any(over).(type) {
	case []*device.Device:
		h.x, err = newCluster(over, w, o, each)
	case *Member:
		if over == nil {
			return h, nil, errors.New("shard: no member (see Join)")
		}
		h.x, err = newJoint(over, w, o, each)
	}
	return h, tables, err
}

// Devices lists the devices of this process that the table is on, in the order of their numbers.
func (h handle) Devices() []*device.Device { return h.over().devices() }

// Steps tells how long the steps of all exchanges took since the last call of Steps. All times are 0 without
// Options.Apart, and for a table over members.
func (h handle) Steps() Steps { return h.over().steps() }

// Family is the family of the devices' tables.
func (h handle) Family() table.Family { return h.over().family() }

// Len counts what the table holds, on all devices. It waits for what is queued. Over members it is collective.
func (h handle) Len() (int, error) { return h.over().len() }

// OwnLen counts what All and Chunks give: over members this member's part, and else what Len counts. It is not
// collective.
func (h handle) OwnLen() (int, error) { return h.over().ownLen() }

// Tell gives what each member of a job says, in the order of ranks, or an error if one of them says that something is
// wrong: its own if it is this member. It is collective. For a table of one process it gives n alone, or wrong. With it
// members that do not know how many batches the others have agree on when to end, as loading a snapshot does.
func (h handle) Tell(n int, wrong error) ([]int, error) { return h.over().tell(n, wrong) }

// Clear empties the table on every device and keeps the capacity. It queues. Over members it is collective.
func (h handle) Clear() error { return h.over().clear() }

// Stats measures the table over all devices. Each figure is a sum, except MaxProbes, which is the largest. Cost: all of
// the table is read. Over members it is collective.
func (h handle) Stats() (table.Stats, error) {
	each, err := h.over().statsEach()
	return added(each), err
}

// StatsEach measures the part of the table on each device, in the order of Devices. Over members it gives one part for
// each member, in the order of their ranks, and is collective. ScratchBytes includes the memory that exchanges keep on
// the device.
func (h handle) StatsEach() ([]table.Stats, error) { return h.over().statsEach() }

// added are the sums of what several tables tell.
func added(each []table.Stats) (s table.Stats) {
	probes := 0.0
	for _, x := range each {
		s.Len += x.Len
		s.Capacity += x.Capacity
		s.Tombstones += x.Tombstones
		s.Bytes += x.Bytes
		s.HostBytes += x.HostBytes
		s.StagingBytes += x.StagingBytes
		s.ScratchBytes += x.ScratchBytes
		for i, n := range x.Probes {
			s.Probes[i] += n
		}
		probes += x.MeanProbes * float64(x.Len)
		s.MaxProbes = max(s.MaxProbes, x.MaxProbes)
	}
	if s.Capacity > 0 {
		s.LoadFactor = float64(s.Len) / float64(s.Capacity)
	}
	if s.Len > 0 {
		s.MeanProbes = probes / float64(s.Len)
	}
	return s
}

// Grow makes room for at least n pairs or keys in all. If one device has too little memory, Grow returns an error, and
// other devices may have grown already. Over members it is collective.
func (h handle) Grow(n int) error { return h.over().grow(n) }

// Close waits for all work on the table, and frees its memory on every device of this process. A second call does
// nothing. Close is not collective.
func (h handle) Close() error { return h.over().close() }

// exportPairs joins what the tables of this process export.
func exportPairs[K, V any](h handle, n int, export func(i int) ([]K, []V, error)) (keys []K, values []V, err error) {
	k, v := make([][]K, n), make([][]V, n)
	err = h.over().export(func(i int) (err error) { k[i], v[i], err = export(i); return err })
	if err != nil {
		return nil, nil, err
	}
	return slices.Concat(k...), slices.Concat(v...), nil
}

// chunkPairs gives what the tables of this process hold to do, in chunks, one table's after the other's.
func chunkPairs[K, V any](h handle, chunks func(i int, do func(keys []K, values []V) error) error,
	do func(keys []K, values []V) error) error {
	return h.over().chunks(func(i int, unchanged func() error) error {
		return chunks(i, func(keys []K, values []V) error {
			if err := unchanged(); err != nil {
				return err
			}
			return do(keys, values)
		})
	})
}

// checkKeys walks the invariants of the tables of this process; all gives the keys of one.
func checkKeys[K any](h handle, all func(i int) ([]K, error)) error {
	return h.over().check(func(i int) ([]uint64, error) {
		keys, err := all(i)
		return patterns(keys), err
	})
}
