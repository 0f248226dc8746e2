package operations

import (
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// model is what a table should hold. Where an operation leaves a choice (which of equal keys stays, what is refused), it
// takes over what the table says, if that is one of what is allowed.
type model struct {
	kind     string
	pairs    map[uint64]uint64   // of maps, sets, counters and strings
	lists    map[uint64][]uint64 // of multimaps
	total    int                 // pairs in lists
	over     map[uint64]bool     // keys whose count is too large
	most     uint64              // the largest value
	saturate bool
	loose    bool // the ground can be short of memory
	bounded  bool // the ground can be full
	refusals int  // operations that were done in part, or not at all
}

func newModel(f *File, g Settings) *model {
	m := &model{kind: f.Kind, pairs: map[uint64]uint64{}, lists: map[uint64][]uint64{}, over: map[uint64]bool{}}
	m.most, m.saturate = ^uint64(0), f.Table.number("saturate") > 0
	if f.Table.Get("value") == "u32" || f.Kind == "strings" {
		m.most = 1<<32 - 1
	}
	if f.Kind == "cache" && f.Table.Get("value") == "64" {
		m.most = 1<<32 - 1
	} else if f.Kind == "cache" && f.Table.Get("value") == "" {
		m.most = 0
	}
	m.loose = g.Get("memory") != ""
	m.bounded = m.loose || f.Table.Get("maxbytes") != "" || g.Get("device") != "" || g.Get("host") != ""
	return m
}

// multi tells whether a key may have several values.
func (m *model) multi() bool { return multi(m.kind) }

func multi(kind string) bool {
	return kind == "multimap" || kind == "bucketlist" || kind == "multibucket"
}

func (m *model) len() int {
	if m.multi() {
		return m.total
	}
	return len(m.pairs)
}

func (m *model) clear() {
	clear(m.pairs)
	clear(m.lists)
	clear(m.over)
	m.total = 0
}

// digest is of all keys, and of the pairs of multimaps: what is the same on all grounds that refused nothing.
func (m *model) digest() (sum uint64) {
	mix := func(x uint64) uint64 {
		x ^= x >> 31
		x *= 0x7fb5d329728ea185
		x ^= x >> 27
		return x * 0x81dadef4bc2dd44d
	}
	for k := range m.pairs {
		sum += mix(k + 1)
	}
	for k, list := range m.lists {
		for _, v := range list {
			sum += mix(mix(k+1) + v)
		}
	}
	return sum
}

// short tells whether an error says that memory is short, where it can be.
func (m *model) short(err error) bool {
	if m.loose && device.IsOutOfMemory(err) {
		m.refusals++
		return true
	}
	return false
}

// refused are the positions of a FullError, and whether their keys may be in all the same; any other error is the end.
func (m *model) refused(err error, n int) (positions map[int]bool, unasked bool, _ error) {
	if err == nil {
		return nil, false, nil
	}
	var full *table.FullError
	if !errors.As(err, &full) {
		return nil, false, fmt.Errorf("an error that is no FullError: %w", err)
	}
	if !m.bounded {
		return nil, false, fmt.Errorf("a FullError, though nothing bounds the table: %w", err)
	}
	m.refusals++
	positions = make(map[int]bool, len(full.Positions))
	last := -1
	for _, at := range full.Positions {
		if at <= last || at >= n {
			return nil, false, fmt.Errorf("FullError names position %d after %d, of %d rows", at, last, n)
		}
		last, positions[at] = at, true
	}
	if len(positions) == 0 {
		return nil, false, fmt.Errorf("a FullError that names no position: %w", err)
	}
	return positions, device.IsOutOfMemory(full.Why), nil
}

// put holds what a batch of a map was answered, and what a look-up finds afterwards, against what is allowed. It takes
// over what is in.
func (m *model) put(c *call, a, after answer) error {
	refused, unasked, err := m.refused(a.Err, len(c.Keys))
	if err != nil {
		return err
	}
	type key struct {
		may  map[uint64]bool // values that the key may have
		sum  uint64          // of those that were let in
		let  bool            // one was let in
		told int             // positions that are told to be added
	}
	keys := map[uint64]*key{}
	add := combined[c.With]
	for i, k := range c.Keys {
		if c.When != nil && !c.When[i] {
			if refused[i] {
				return fmt.Errorf("position %d was not chosen, and is refused", i)
			}
			continue
		}
		of := keys[k]
		if of == nil {
			of = &key{may: map[uint64]bool{}}
			keys[k] = of
		}
		of.may[c.Values[i]] = true
		if !refused[i] {
			if of.sum = add(of.sum, c.Values[i]) & m.most; !of.let {
				of.sum = c.Values[i]
			}
			of.let = true
		}
	}
	has := map[uint64]uint64{}
	for i, k := range c.Keys {
		of, found, got := keys[k], after.Flags[i], after.Values[i]
		old, was := m.pairs[k]
		fail := func(what string) error {
			return fmt.Errorf("position %d, key %d: %s (was in %t, %d; refused %t; is in %t, %d; with %d; told %t, %v)", i, k,
				what, was, old, refused[i], found, got, c.Values[i], len(a.Flags) > i && a.Flags[i], at(a.Values, i))
		}
		if of == nil || unasked && was && !of.let { // no position of the key was chosen, or could be brought
			if found != was || found && got != old {
				return fail("nothing was done to it, and it is another")
			}
			continue
		}
		if chosen := c.When == nil || c.When[i]; chosen && refused[i] == found && !(unasked && found) {
			return fail("FullError does not tell whether it is in")
		}
		if found != (was || of.let) {
			return fail("it is in, or is not, though its positions say otherwise")
		}
		if !found {
			continue
		}
		fresh := c.Name == "insertnew" || c.Name == "findorinsert"
		switch {
		case c.Name == "update":
			want := of.sum
			if was {
				want = add(old, want) & m.most
			}
			if got != want {
				return fail(fmt.Sprintf("combined it is %d", want))
			}
		case fresh && was && got != old:
			return fail("it was in, and has another value")
		case !(fresh && was) && !of.may[got] && !(unasked && was && got == old):
			return fail("a value that did not come")
		case fresh && a.Flags[i]:
			of.told++
			if was || got != c.Values[i] || refused[i] {
				return fail("it is told to be added, and was not")
			}
		}
		if c.Name == "findorinsert" && !refused[i] && a.Values[i] != got {
			return fail("it was told another value")
		}
		if v, seen := has[k]; seen && v != got {
			return fail("two values")
		}
		has[k] = got
	}
	if err := m.added(c, a, has, func(k uint64) int { return keys[k].told }); err != nil {
		return err
	}
	maps.Copy(m.pairs, has)
	return nil
}

func at(list []uint64, i int) any {
	if i < len(list) {
		return list[i]
	}
	return "nothing"
}

// combined are what Update's operations do.
var combined = map[string]func(a, b uint64) uint64{
	"":    func(a, b uint64) uint64 { return a + b },
	"min": func(a, b uint64) uint64 { return min(a, b) },
	"max": func(a, b uint64) uint64 { return max(a, b) },
	"xor": func(a, b uint64) uint64 { return a ^ b },
}

// added holds the flags and the count of what is told to be new against the keys that are in.
func (m *model) added(c *call, a answer, has map[uint64]uint64, told func(k uint64) int) error {
	if c.Name != "insertnew" && c.Name != "findorinsert" && m.kind != "set" {
		return nil
	}
	news := 0
	for k := range has {
		_, was := m.pairs[k]
		if !was {
			news++
		}
		if n := told(k); (n == 1) == was || n > 1 {
			return fmt.Errorf("key %d was in %t, and is told to be added %d times", k, was, n)
		}
	}
	if a.N != news {
		return fmt.Errorf("%d are told to be added, %d were", a.N, news)
	}
	return nil
}

// putKeys is put of a set.
func (m *model) putKeys(c *call, a, after answer) error {
	refused, unasked, err := m.refused(a.Err, len(c.Keys))
	if err != nil {
		return err
	}
	let, told, has := map[uint64]bool{}, map[uint64]int{}, map[uint64]uint64{}
	for i, k := range c.Keys {
		_, was := m.pairs[k]
		chosen := c.When == nil || c.When[i]
		if chosen && refused[i] == after.Flags[i] && !(unasked && was) || !chosen && (refused[i] || a.Flags[i]) {
			return fmt.Errorf("position %d, key %d: chosen %t, refused %t, was in %t, is in %t, added %t",
				i, k, chosen, refused[i], was, after.Flags[i], a.Flags[i])
		}
		let[k] = let[k] || chosen && !refused[i]
		if a.Flags[i] {
			told[k]++
		}
	}
	for i, k := range c.Keys {
		if _, was := m.pairs[k]; after.Flags[i] != (was || let[k]) {
			return fmt.Errorf("key %d is in %t: it was %t, let in %t", k, after.Flags[i], was, let[k])
		}
		if let[k] {
			has[k] = 0
		} else if told[k] > 0 {
			return fmt.Errorf("key %d is told to be added, and was not let in", k)
		}
	}
	if err := m.added(c, a, has, func(k uint64) int { return told[k] }); err != nil {
		return err
	}
	maps.Copy(m.pairs, has)
	return nil
}

// putPairs is put of a multimap.
func (m *model) putPairs(c *call, a answer) error {
	refused, _, err := m.refused(a.Err, len(c.Keys))
	if err != nil {
		return err
	}
	for i, k := range c.Keys {
		if !refused[i] {
			m.lists[k] = append(m.lists[k], c.Values[i])
			m.total++
		}
	}
	return nil
}

// delete holds what a deletion was answered against what was in, and takes the keys out.
func (m *model) delete(c *call, a, after answer) error {
	if a.Err != nil {
		return a.Err
	}
	told, want := map[uint64]int{}, 0
	for i, k := range c.Keys {
		if after.Flags[i] {
			return fmt.Errorf("position %d: key %d is in, though deleted", i, k)
		}
		if a.Flags[i] {
			told[k]++
		}
	}
	for _, k := range c.Keys {
		n := told[k]
		if m.multi() {
			had := len(m.lists[k])
			if _, seen := told[k]; n > 0 && had == 0 || n == 0 && had > 0 {
				return fmt.Errorf("key %d had %d values, and is told to be deleted %t, %d times", k, had, seen, n)
			}
			want += had
			m.total -= had
		} else if _, was := m.pairs[k]; was {
			want++
			if n != 1 {
				return fmt.Errorf("key %d was in, and was deleted %d times", k, n)
			}
		} else if n > 0 {
			return fmt.Errorf("key %d was not in, and is told to be deleted", k)
		}
		delete(told, k) // it comes again
		delete(m.lists, k)
		delete(m.pairs, k)
	}
	if a.N >= 0 && a.N != want {
		return fmt.Errorf("%d are told to be deleted, %d were", a.N, want)
	}
	return nil
}

// mix is of a mixed batch with one operation a key, so that what comes of it is sure.
func (m *model) mix(c *call, a answer) error {
	refused, _, err := m.refused(a.Err, len(c.Keys))
	if err != nil {
		return err
	}
	for i, k := range c.Keys {
		old, was := m.pairs[k]
		op, want := c.Ops[i], table.Absent
		switch {
		case refused[i]: // at times also where the key is in: nothing could be brought
			want = table.NoRoom
		case was:
			want = table.Present
		case op == table.OpInsert || op == table.OpInsertNew:
			want = table.Added
		}
		if a.Status[i] != want || refused[i] && !m.loose && (was || op == table.OpFind || op == table.OpDelete) {
			return fmt.Errorf("position %d, %v of key %d: %v, want %v, refused %t", i, op, k, a.Status[i], want, refused[i])
		}
		if result := old; op == table.OpFind && !refused[i] && a.Values[i] != result {
			return fmt.Errorf("position %d: key %d has %d, want %d", i, k, a.Values[i], result)
		}
		switch {
		case refused[i]:
		case op == table.OpDelete:
			delete(m.pairs, k)
		case want == table.Added, want == table.Present && op == table.OpInsert:
			m.pairs[k] = c.Values[i]
		}
	}
	return nil
}

// count is put of a counter.
func (m *model) count(c *call, a, after answer) error {
	overflow := errors.Is(a.Err, table.ErrOverflow)
	var full *table.FullError
	if err := a.Err; overflow && !errors.As(err, &full) {
		a.Err = nil
	}
	refused, _, err := m.refused(a.Err, len(c.Keys))
	if err != nil {
		return err
	}
	was := len(m.over)
	for i, k := range c.Keys {
		if refused[i] {
			continue
		}
		by := uint64(1)
		if c.Name == "addcounts" {
			by = c.Values[i]
		}
		if by > m.most-m.pairs[k] {
			m.over[k], m.pairs[k] = true, m.most
		} else {
			m.pairs[k] += by
		}
	}
	if full == nil && !m.saturate && len(m.over) > was && !overflow || m.saturate && overflow {
		return fmt.Errorf("%d counts are too large, ErrOverflow %t, Saturate %t", len(m.over)-was, overflow, m.saturate)
	}
	for i, k := range c.Keys {
		want, in := m.pairs[k]
		if after.Flags[i] != in || after.Values[i] != want || refused[i] && in {
			return fmt.Errorf("position %d, key %d: %d, in %t, refused %t, want %d, %t",
				i, k, after.Values[i], after.Flags[i], refused[i], want, in)
		}
	}
	return nil
}

// found holds a look-up against what is in. Where it gives no values, values is false.
func (m *model) found(c *call, a answer, values bool) error {
	if a.Err != nil {
		return a.Err
	}
	for i, k := range c.Keys {
		v, in := m.pairs[k]
		if m.multi() {
			in = len(m.lists[k]) > 0
		}
		if c.When != nil && !c.When[i] {
			v, in = 0, false
		}
		if a.Flags[i] != in && !(m.kind == "filter" && a.Flags[i]) {
			return fmt.Errorf("position %d: key %d is told to be in %t, and is %t", i, k, a.Flags[i], in)
		}
		if values && a.Values[i] != v {
			return fmt.Errorf("position %d: key %d has %d, want %d", i, k, a.Values[i], v)
		}
	}
	return nil
}

// lists holds FindAll and Count against what is in.
func (m *model) foundAll(c *call, all, counts answer) error {
	if len(all.Offsets) != len(c.Keys)+1 {
		return fmt.Errorf("%d offsets of %d keys", len(all.Offsets), len(c.Keys))
	}
	for i, k := range c.Keys {
		from, to := all.Offsets[i], all.Offsets[i+1]
		if from > to || to > uint64(len(all.Values)) || !sameValues(all.Values[from:to], m.lists[k]) {
			return fmt.Errorf("position %d: FindAll of key %d gives values %d to %d, want %d values, or they are others",
				i, k, from, to, len(m.lists[k]))
		}
		if counts.Err == nil && int(counts.Counts[i]) != len(m.lists[k]) {
			return fmt.Errorf("position %d: Count of key %d is %d, want %d", i, k, counts.Counts[i], len(m.lists[k]))
		}
	}
	return nil
}

func sameValues(a, b []uint64) bool {
	if len(a) != len(b) {
		return false
	}
	if len(a) < 2 {
		return slices.Equal(a, b)
	}
	a, b = slices.Clone(a), slices.Clone(b)
	slices.Sort(a)
	slices.Sort(b)
	return slices.Equal(a, b)
}

// each holds the calls of code for pairs against what is in.
func (m *model) each(c *call, a answer) error {
	if a.Err != nil {
		return a.Err
	}
	for i, k := range c.Keys {
		v, in := m.pairs[k]
		list := m.lists[k]
		if in {
			list = []uint64{v}
		}
		sum := uint64(0)
		for _, v := range list {
			sum += v
		}
		if int(a.Counts[i]) != len(list) || a.Values[i] != sum {
			return fmt.Errorf("position %d: the code was called %d times for key %d, with values that add up to %d, want %d, %d",
				i, a.Counts[i], k, a.Values[i], len(list), sum)
		}
	}
	return nil
}

// same holds an export against what is in.
func (m *model) same(what string, a answer) error {
	if a.Err != nil {
		return fmt.Errorf("%s: %w", what, a.Err)
	}
	if m.kind != "set" && len(a.Keys) != len(a.Values) || len(a.Keys) != m.len() {
		return fmt.Errorf("%s has %d keys and %d values, want %d", what, len(a.Keys), len(a.Values), m.len())
	}
	if m.multi() {
		lists := map[uint64][]uint64{}
		for i, k := range a.Keys {
			lists[k] = append(lists[k], a.Values[i])
		}
		for k, want := range m.lists {
			if !sameValues(lists[k], want) {
				return fmt.Errorf("%s has %d values of key %d, want %d, or others", what, len(lists[k]), k, len(want))
			}
		}
		return nil
	}
	seen := map[uint64]bool{}
	for i, k := range a.Keys {
		v, in := m.pairs[k]
		if !in || seen[k] || m.kind != "set" && v != a.Values[i] {
			return fmt.Errorf("%s has key %d with %v, want %d, in %t, twice %t", what, k, at(a.Values, i), v, in, seen[k])
		}
		seen[k] = true
	}
	return nil
}

// top holds the most frequent keys against what is in.
func (m *model) top(n int, a answer) error {
	if a.Err != nil {
		return a.Err
	}
	want := slices.Sorted(maps.Values(m.pairs))
	slices.Reverse(want)
	want = want[:min(n, len(want))]
	if !slices.Equal(a.Values, want) {
		return fmt.Errorf("top %d has %d counts, want %d, or others", n, len(a.Values), len(want))
	}
	seen := map[uint64]bool{}
	for i, k := range a.Keys {
		if m.pairs[k] != want[i] || seen[k] {
			return fmt.Errorf("top has key %d with %d, want %d, twice %t", k, want[i], m.pairs[k], seen[k])
		}
		seen[k] = true
	}
	return nil
}
