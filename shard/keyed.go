package shard

import (
	"errors"
	"fmt"
	"slices"
	"sort"
	"unsafe"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// What maps, sets and counters have in common: a key is there once, so which positions of a batch are not in is told by looking their keys up.

// inserts makes the job of an insert, which tells what was added if asked to, and notes why a table was full.
type inserts func(added bool, why *error) job

// keyed is how a table in which a key is there once takes batches in.
type keyed[K any] struct {
	insert   inserts
	absence  func() job // tells which keys are in
	contains func(keys []K, in []bool) error
	// again, which may be nil, does what was refused of rows whose keys are in after all, and tells of how many it was so. The caller holds the lock.
	again func() (int, error)
	// settle, which may be nil, is called by members behind again, whose error it gets: they agree on what else there is to tell.
	settle func(wrong error) error

	// Where there is no memory to ask which keys are in, undone, which comes with again, tells which rows were refused:
	// of keys, or where they are paired of keys and values. untried, which may be nil, is called where rows were not
	// tried at all.
	undone  func() map[string]int
	paired  bool
	untried func()
}

// noted are the keys of rows that owners refused, for the case that there is no memory to ask which of them are in.
type noted[K any] struct {
	keys    []K
	untried map[string]bool // of these, those that no owner looked at: they may be in, with the value from before
}

// notedAtOnce is how many keys are read at once, if any of them was refused.
const notedAtOnce = 1 << 20

// noting has a job note them, too.
func (x *noted[K]) noting(j job) job {
	full := j.full
	j.full = func(owner int, e *table.FullError, r received) error {
		if err := x.note(e.Positions, r); err != nil {
			return err
		}
		return full(owner, e, r)
	}
	return j
}

func (x *noted[K]) note(positions []int, r received) error {
	var keys []K
	first, end := 0, 0
	for _, p := range positions { // ascending
		if p >= end {
			first, end = p, min(p+notedAtOnce, r.n)
			keys = make([]K, end-first)
			if err := device.View[K](r.keys, 0, r.n).Slice(first, end).Read(nil, keys); err != nil {
				return err
			}
		}
		x.keys = append(x.keys, keys[p-first])
	}
	if r.untried {
		if x.untried == nil {
			x.untried = map[string]bool{}
		}
		for i := len(x.keys) - len(positions); i < len(x.keys); i++ {
			x.untried[string(bytesOf(x.keys[i:i+1]))] = true
		}
	}
	return nil
}

// rows is how often each key was refused.
func (x *noted[K]) rows() map[string]int {
	out := map[string]int{}
	for i := range x.keys {
		out[string(bytesOf(x.keys[i:i+1]))]++
	}
	return out
}

// unasked tells, without a device, which rows of a batch are not in. of gives the bytes of a row as undone has them, or
// of its key. A key of which all rows were refused is not in; one of which some went in is. Of rows that are counted,
// each that was refused is told, and of others all of a key that nobody looked at.
func (x keyed[K]) unasked(refused *noted[K], n int, chosen func(i int) bool, of func(i int, paired bool) string) (positions []int) {
	if x.undone != nil {
		undone := x.undone()
		for i := range n {
			if row := of(i, x.paired); undone[row] > 0 && chosen(i) {
				undone[row]--
				positions = append(positions, i)
			}
		}
		return positions
	}
	rows, brought := refused.rows(), map[string]int{}
	for i := range n {
		if key := of(i, false); rows[key] > 0 && chosen(i) {
			brought[key]++
			positions = append(positions, i)
		}
	}
	return slices.DeleteFunc(positions, func(i int) bool {
		key := of(i, false)
		return rows[key] < brought[key] && !refused.untried[key]
	})
}

func bytesOf[T any](s []T) []byte {
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(s))), len(s)*int(unsafe.Sizeof(*new(T))))
}

// hostBatch is a batch of Go slices. All but keys may be nil.
type hostBatch[K, V any] struct {
	keys        []K
	values, out []V
	flags, when []bool
}

func (b hostBatch[K, V]) columns(from, to int) []table.Column {
	return []table.Column{table.In(b.keys[from:to]), table.In(within(b.values, from, to)), table.Out(within(b.out, from, to)),
		table.Out(within(b.flags, from, to)), table.In(within(b.when, from, to))}
}

// source is a chunk of the batch on a device, where its columns are.
func (b hostBatch[K, V]) source(st *device.Stream, n int, addr []uint64) source {
	return source{n: n, keys: addr[0], values: addr[1], out: addr[2], flags: addr[3], when: addr[4], st: st}
}

// chosen tells whether a position is one that is done.
func (b hostBatch[K, V]) chosen(i int) bool { return b.when == nil || b.when[i] }

// insertKeyed takes a batch of Go slices in. Where there is no memory for some of it, or to ask what is in, what is not
// in is told all the same.
func insertKeyed[K, V any](c *cluster, b hostBatch[K, V], x keyed[K]) error {
	var lost refusals
	var refused noted[K]
	var untried []int // and all others were
	blind := false    // nobody can ask
	skip := func(from, to int, why error) {
		lost.add(nil, 0, why)
		for i := from; i < to; i++ {
			if b.chosen(i) {
				untried = append(untried, i)
			}
		}
	}
	err := c.batch(len(b.keys), b.columns, func(member int, st *device.Stream, first, n int, addr []uint64) error {
		return c.locked(func() error {
			s := b.source(st, n, addr)
			var why error
			j := refused.noting(x.insert(b.flags != nil, &why))
			j.sources = c.from(member, s)
			err := c.exchange(&j)
			if device.IsOutOfMemory(err) {
				skip(first, first+n, err)
				return nil
			}
			if err != nil || why == nil {
				return err
			}
			var positions []int
			if !blind {
				positions, err = c.absent(member, s, x.absence())
			}
			if device.IsOutOfMemory(err) {
				blind, err = true, nil
			}
			lost.add(slices.DeleteFunc(positions, func(i int) bool { return !b.chosen(first + i) }), first, why)
			return err
		})
	}, func(from, to int, why error) {
		c.mu.Lock()
		defer c.mu.Unlock()
		skip(from, to, why)
	})
	if err != nil || lost.why == nil {
		return err
	}
	if len(untried) > 0 && x.untried != nil {
		x.untried()
	}
	slices.Sort(untried)
	strict := x.undone == nil && b.flags != nil // a row that was not tried has no effect where the key is in
	if b.flags != nil {
		for _, i := range untried {
			b.flags[i] = false
		}
	}
	if strict {
		lost.positions = append(lost.positions, untried...)
		for _, i := range untried {
			refused.keys = append(refused.keys, b.keys[i])
		}
	} else if x.undone == nil && len(refused.untried) > 0 {
		for i := range b.keys {
			if b.chosen(i) && refused.untried[b.row(i, false)] {
				untried = append(untried, i)
			}
		}
		slices.Sort(untried)
		untried = slices.Compact(untried)
	}
	// Another chunk may have found room for the same key.
	slices.Sort(lost.positions)
	asked := make([]K, len(lost.positions))
	for i, p := range lost.positions {
		asked[i] = b.keys[p]
	}
	in := make([]bool, len(asked))
	for more := true; more && !blind; {
		if err = x.contains(asked, in); err == nil {
			more, err = x.retried(c)
		}
		if blind = device.IsOutOfMemory(err); err != nil && !blind {
			return err
		}
	}
	kept := lost.positions[:0]
	for i, p := range lost.positions {
		if !in[i] {
			kept = append(kept, p)
		}
	}
	if blind {
		kept = x.unasked(&refused, len(b.keys), func(i int) bool {
			_, told := slices.BinarySearch(untried, i)
			return b.chosen(i) && (strict || !told)
		}, b.row)
	}
	if lost.positions = kept; !strict {
		lost.positions = append(lost.positions, untried...)
		slices.Sort(lost.positions)
		lost.positions = slices.Compact(lost.positions)
	}
	return c.locked(func() error { return c.fullError(&lost) })
}

// row is a row's key as bytes, or its pair.
func (b hostBatch[K, V]) row(i int, paired bool) string {
	if paired {
		return pairBytes(&b.keys[i], &b.values[i])
	}
	return string(bytesOf(b.keys[i : i+1]))
}

// retried is again with the lock taken; it tells whether any row was done.
func (x keyed[K]) retried(c *cluster) (any bool, err error) {
	if x.again == nil {
		return false, nil
	}
	err = c.locked(func() error {
		n, err := x.again()
		any = n > 0
		return err
	})
	return any, err
}

// insertParts takes in a batch that is on devices.
func insertParts[K, V any](c *cluster, parts []Part[K, V], added, values bool, x keyed[K]) error {
	return c.locked(func() error {
		sources, members, before, err := checked(c, parts, values, false)
		if err != nil {
			return err
		}
		_, told := wanted(parts)
		return insertSources(c, sources, members, before, added, told, x)
	})
}

// insertSources takes in a batch of which the members have the sources, with so many rows before each. The caller holds the lock.
func insertSources[K any](c *cluster, sources []source, members, before []int, added, told bool, x keyed[K]) error {
	var why error
	j := x.insert(added, &why)
	j.flags = j.flags && told
	j.sources = sources
	if c.opts.Mode == Independent && !j.owned {
		return c.insertLocal(&j, members, before)
	}
	var refused noted[K]
	j = refused.noting(j)
	err := c.exchange(&j)
	if err != nil || why == nil {
		return err
	}
	if x.again != nil {
		_, err = x.again()
	}
	var lost refusals
	for k, i := range members {
		if err != nil {
			break
		}
		var positions []int
		if positions, err = c.absent(i, sources[i], x.absence()); err == nil {
			positions, err = sources[i].chosen(positions)
		}
		lost.add(positions, before[k], why)
	}
	if device.IsOutOfMemory(err) {
		lost = refusals{why: why}
		lost.positions, err = unaskedSources(c, sources, members, before, &refused, x)
	} else if err == nil && x.undone == nil && !added && len(refused.untried) > 0 {
		var positions []int
		positions, err = unaskedSources(c, sources, members, before, &refused, x)
		lost.positions = append(lost.positions, positions...)
		slices.Sort(lost.positions)
		lost.positions = slices.Compact(lost.positions)
	}
	if err != nil {
		return err
	}
	return c.fullError(&lost)
}

// unaskedSources is unasked for a batch on devices.
func unaskedSources[K any](c *cluster, sources []source, members, before []int, refused *noted[K], x keyed[K]) ([]int, error) {
	rows := 0
	keys, values, when := make([][]byte, len(members)), make([][]byte, len(members)), make([][]byte, len(members))
	for k, i := range members {
		s, err := sources[i], error(nil)
		rows = before[k] + s.n
		if s.n == 0 {
			continue
		}
		if keys[k], err = s.slices.keys.Host(s.st); err == nil && x.paired {
			values[k], err = s.slices.values.Host(s.st)
		}
		if err == nil && s.when != 0 {
			when[k], err = s.slices.when.Host(s.st)
		}
		if err != nil {
			return nil, err
		}
	}
	at := func(i int) (part, row int) {
		part = sort.Search(len(before), func(k int) bool { return before[k] > i }) - 1
		return part, i - before[part]
	}
	return x.unasked(refused, rows, func(i int) bool {
		k, row := at(i)
		return when[k] == nil || when[k][row] != 0
	}, func(i int, paired bool) string {
		k, row := at(i)
		key := string(keys[k][row*c.keyBytes : (row+1)*c.keyBytes])
		if !paired {
			return key
		}
		return key + string(values[k][row*c.valueBytes:(row+1)*c.valueBytes])
	}), nil
}

// chosen leaves of positions those that the source does.
func (s source) chosen(positions []int) ([]int, error) {
	if s.when == 0 {
		return positions, nil
	}
	when, err := s.slices.when.Host(s.st)
	return slices.DeleteFunc(positions, func(i int) bool { return when[i] == 0 }), err
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
			part.slices = &received{n: part.n, keys: s.slices.keys.Slice(first*c.keyBytes, (first+part.n)*c.keyBytes), flags: flags.Raw().Slice(0, part.n)}
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

// look does a job on Go slices: look-ups and deletions.
func look[K, V any](c *cluster, b hostBatch[K, V], j job) error {
	return c.batch(len(b.keys), b.columns, func(member int, st *device.Stream, _, n int, addr []uint64) error {
		return c.locked(func() error {
			own := j
			own.sources = c.from(member, b.source(st, n, addr))
			return c.exchange(&own)
		})
	}, nil)
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
