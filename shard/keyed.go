package shard

import (
	"errors"
	"fmt"
	"slices"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// What maps, sets and counters have in common: a key is there once, so which positions of a batch are not in is told by looking their keys up.

// inserts makes the job of an insert, which tells what was added if asked to, and notes why a table was full.
type inserts func(added bool, why *error) job

// insertKeyed takes a batch of Go slices in. values and added may be nil.
func insertKeyed[K, V any](c *cluster, keys []K, values []V, added []bool, contains func([]K, []bool) error, absence func() job, insert inserts) error {
	var lost refusals
	err := c.batch(len(keys), func(from, to int) []table.Column {
		return []table.Column{table.In(keys[from:to]), table.In(within(values, from, to)), table.Out(within(added, from, to))}
	}, func(member int, st *device.Stream, first, n int, addr []uint64) error {
		return c.locked(func() error {
			s := source{n: n, keys: addr[0], values: addr[1], flags: addr[2], st: st}
			var why error
			j := insert(added != nil, &why)
			j.sources = c.from(member, s)
			err := c.exchange(&j)
			if err != nil || why == nil {
				return err
			}
			positions, err := c.absent(member, s, absence())
			lost.add(positions, first, why)
			return err
		})
	})
	if err != nil || len(lost.positions) == 0 {
		return err
	}
	// Another chunk may have found room for the same key.
	slices.Sort(lost.positions)
	asked, in := make([]K, len(lost.positions)), make([]bool, len(lost.positions))
	for i, p := range lost.positions {
		asked[i] = keys[p]
	}
	if err := contains(asked, in); err != nil {
		return err
	}
	kept := lost.positions[:0]
	for i, p := range lost.positions {
		if !in[i] {
			kept = append(kept, p)
		}
	}
	lost.positions = kept
	return c.locked(func() error { return c.fullError(&lost) })
}

// insertParts takes in a batch that is on devices.
func insertParts[K, V any](c *cluster, parts []Part[K, V], added, values bool, absence func() job, insert inserts) error {
	return c.locked(func() error {
		sources, members, before, err := checked(c, parts, values, false)
		if err != nil {
			return err
		}
		var why error
		_, told := wanted(parts)
		j := insert(added, &why)
		j.flags = j.flags && told
		j.sources = sources
		if c.opts.Mode == Independent {
			return c.insertLocal(&j, members, before)
		}
		if err := c.exchange(&j); err != nil || why == nil {
			return err
		}
		var lost refusals
		for k, i := range members {
			positions, err := c.absent(i, sources[i], absence())
			if err != nil {
				return err
			}
			lost.add(positions, before[k], why)
		}
		return c.fullError(&lost)
	})
}

// insertLocal inserts the parts of a batch each on its own device. before are the rows before those of each of the members.
func (c *cluster) insertLocal(j *job, members, before []int) error {
	var lost refusals
	j.full = func(i int, e *table.FullError, _ received) error {
		lost.add(e.Positions, before[slices.Index(members, i)], e.Why)
		return nil
	}
	if err := c.local(j); err != nil {
		return err
	}
	return c.fullError(&lost)
}

// absentAtOnce is how many keys are asked for at once which of them are absent.
const absentAtOnce = 1 << 20

// absent gives the positions of a source's rows whose keys are not in. The caller holds the lock.
func (c *cluster) absent(member int, s source, j job) (positions []int, err error) {
	if s.n == 0 {
		return nil, nil
	}
	d := c.members[member].d
	flags, err := device.Make[bool](d, min(s.n, absentAtOnce))
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, flags.Free()) }()
	for first := 0; first < s.n; first += absentAtOnce {
		part := source{n: min(s.n-first, absentAtOnce), keys: s.keys + uint64(first*c.keyBytes), flags: flags.Addr(), st: s.st}
		if s.slices != nil {
			part.slices = &received{part.n, s.slices.keys.Slice(first*c.keyBytes, (first+part.n)*c.keyBytes), device.Slice[byte]{}, flags.Raw().Slice(0, part.n)}
		}
		j.sources = c.from(member, part)
		if err := c.exchange(&j); err != nil {
			return nil, err
		}
		in := make([]bool, part.n)
		if err := flags.Read(c.members[member].following(s.st), in); err != nil {
			return nil, err
		}
		for i, there := range in {
			if !there {
				positions = append(positions, first+i)
			}
		}
	}
	return positions, nil
}

// look does a job on Go slices: look-ups and deletions. values and flags may be nil.
func look[K, V any](c *cluster, keys []K, values []V, flags []bool, j job) error {
	return c.batch(len(keys), func(from, to int) []table.Column {
		return []table.Column{table.In(keys[from:to]), table.Out(within(values, from, to)), table.Out(within(flags, from, to))}
	}, func(member int, st *device.Stream, _, n int, addr []uint64) error {
		return c.locked(func() error {
			own := j
			own.sources = c.from(member, source{n: n, keys: addr[0], values: addr[1], flags: addr[2], st: st})
			return c.exchange(&own)
		})
	})
}

// lookParts is look for a batch that is on devices.
func lookParts[K, V any](c *cluster, parts []Part[K, V], flags bool, j job) error {
	return c.locked(func() (err error) {
		if j.sources, _, _, err = checked(c, parts, false, flags); err != nil {
			return err
		}
		return c.exchange(&j)
	})
}

// wanted tells whether any part has values, and flags.
func wanted[K, V any](parts []Part[K, V]) (values, flags bool) {
	for _, p := range parts {
		values = values || p.Values.Addr() != 0
		flags = flags || p.Flags.Addr() != 0
	}
	return values, flags
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
	return table.Count(flags), err
}

// allPairs joins what the members' tables export. The caller holds the lock.
func allPairs[K, V any](c *cluster, export func(i int) ([]K, []V, error)) (keys []K, values []V, err error) {
	k, v := make([][]K, len(c.members)), make([][]V, len(c.members))
	err = c.together(func(i int) (err error) { k[i], v[i], err = export(i); return err })
	if err != nil {
		return nil, nil, err
	}
	return slices.Concat(k...), slices.Concat(v...), nil
}

// chunks goes over each member's table. unchanged comes before each chunk that is given out, and behind each table: an error ends that, for a call changed
// one of the tables. A call that is under way comes before.
func (c *cluster) chunks(over func(i int, unchanged func() error) error) error {
	var before uint64
	if err := c.locked(func() error { before = c.changes.Load(); return nil }); err != nil {
		return err
	}
	unchanged := func() error {
		if c.changes.Load() != before {
			return fmt.Errorf("%s: %w", family, table.ErrChanged)
		}
		return nil
	}
	return c.oneByOne(func(i int) error {
		if err := over(i, unchanged); err != nil || i+1 == len(c.members) {
			return err
		}
		return unchanged()
	})
}

// oneByOne does something with each member's table, without the lock.
func (c *cluster) oneByOne(do func(i int) error) error {
	for i := range c.members {
		if err := c.locked(func() error { return nil }); err != nil {
			return err
		}
		if err := do(i); err != nil {
			return c.locked(func() error { return err })
		}
	}
	return nil
}
