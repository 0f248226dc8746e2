package cache

import (
	"fmt"
	"maps"
	"slices"

	"github.com/warpmap/warpmap/table"
)

// model is a cache in Go, with the same buckets: what one lane alone does to it, batch by batch. Values are numbers.
type model struct {
	cfg     config
	t       Table
	buckets []modelBucket
	clock   uint32
	used    uint64
	time    uint64 // in ticks
	life    uint64
	n       Counters
}

type modelBucket struct {
	version uint32
	slots   [ways]modelSlot
}

type modelSlot struct {
	row
	in     bool
	expiry uint64
}

// row is a pair as it goes out.
type row struct {
	key           uint64
	number, score uint32
}

func newModel(c *core) *model {
	return &model{cfg: c.cfg, t: c.t, buckets: make([]modelBucket, c.t.Count)}
}

func (m *model) clear() {
	*m = model{cfg: m.cfg, t: m.t, buckets: make([]modelBucket, m.t.Count), time: m.time, life: m.life}
}

// tick is the clock of a batch of n keys that counts as use.
func (m *model) tick(n int) {
	if m.cfg.policy == Aged && m.used >= agePeriod*ways*m.t.Count {
		for i := range m.buckets {
			for j := range m.buckets[i].slots {
				m.buckets[i].slots[j].score /= 2
			}
		}
		m.used = 0
	}
	m.clock++
	m.used += uint64(n)
}

func (m *model) bucket(key uint64) *modelBucket {
	b, _ := m.cfg.where(key, &m.t)
	return &m.buckets[b]
}

func (b *modelBucket) find(key uint64) *modelSlot {
	for i := range b.slots {
		if s := &b.slots[i]; s.in && s.key == key {
			return s
		}
	}
	return nil
}

func (m *model) ended(s *modelSlot) bool { return m.cfg.expires && s.in && s.expiry <= m.time }

// sweep removes the pairs whose time has ended.
func (m *model) sweep() {
	for i := range m.buckets {
		for j := range m.buckets[i].slots {
			if s := &m.buckets[i].slots[j]; m.ended(s) {
				s.in = false
				m.n.Swept++
			}
		}
	}
}

// there is the slot of a key whose time has not ended.
func (m *model) there(key uint64) *modelSlot {
	s := m.bucket(key).find(key)
	if s != nil && m.ended(s) {
		return nil
	}
	return s
}

func (m *model) touch(s *modelSlot) {
	switch m.cfg.policy {
	case LRU:
		s.score = m.clock
	case LFU, Aged:
		s.score++
	}
}

// put puts a batch, and gives what goes out. lives are in ticks, where not 0; it may be nil, as scores may.
func (m *model) put(keys []uint64, numbers, scores, lives []uint32) (out []row) {
	m.tick(len(keys))
	for i, key := range keys {
		b := m.bucket(key)
		hand := b.version / 2 % ways
		b.version += 2
		expiry := m.time + m.life
		if lives != nil && lives[i] != 0 {
			expiry = m.time + uint64(lives[i])
		}
		if s := m.there(key); s != nil {
			s.expiry = expiry
			m.n.Updated++
			s.number = numbers[i]
			if m.touch(s); scores != nil {
				s.score = scores[i]
			}
			continue
		}
		x := row{key, numbers[i], m.newScore(scores, i)}
		if gone, out1 := m.bring(b, hand, x, expiry); gone {
			out = append(out, out1)
		}
	}
	return out
}

// newScore is that of a new pair.
func (m *model) newScore(scores []uint32, i int) uint32 {
	switch {
	case m.cfg.policy == LRU:
		return m.clock
	case m.cfg.policy != Scored:
		return 1
	case scores != nil:
		return scores[i]
	}
	return 0
}

// bring brings a new pair in, and gives what goes out.
func (m *model) bring(b *modelBucket, hand uint32, x row, expiry uint64) (gone bool, out row) {
	if s := b.find(x.key); s != nil { // its time has ended
		m.n.Renewed++
		*s = modelSlot{x, true, expiry}
		return false, out
	}
	if j := slices.IndexFunc(b.slots[:], func(s modelSlot) bool { return !s.in }); j >= 0 {
		m.n.Added++
		b.slots[j] = modelSlot{x, true, expiry}
		return false, out
	}
	if j := slices.IndexFunc(b.slots[:], func(s modelSlot) bool { return m.ended(&s) }); j >= 0 {
		m.n.Renewed++
		b.slots[j] = modelSlot{x, true, expiry}
		return false, out
	}
	victim := &b.slots[hand]
	for j := range uint32(ways) {
		if s := &b.slots[(hand+j)%ways]; s.score < victim.score {
			victim = s
		}
	}
	if m.cfg.policy == Scored && x.score < victim.score {
		m.n.Refused++
		return true, x
	}
	m.n.Evicted++
	out = victim.row
	*victim = modelSlot{x, true, expiry}
	return true, out
}

// mixed does one operation after the other, and gives what each finds, or where give is true, the value that an
// insert-new leaves there.
func (m *model) mixed(ops []table.Op, keys []uint64, numbers []uint32, give bool) (results []uint32,
	told []table.Status) {
	m.tick(len(keys))
	for i, key := range keys {
		b, result, status := m.bucket(key), uint32(0), table.Absent
		s := m.there(key)
		hand := b.version / 2 % ways
		if ops[i] != table.OpFind && !(ops[i] == table.OpInsertNew && s != nil) {
			b.version += 2
		}
		if s != nil {
			status = table.Present
		}
		if ops[i] == table.OpFind || ops[i] == table.OpInsertNew {
			if s != nil {
				m.n.Hits++
			} else {
				m.n.Misses++
			}
		}
		switch {
		case ops[i] == table.OpDelete && s != nil:
			m.n.Erased++
			s.in = false
		case s != nil:
			if m.touch(s); ops[i] == table.OpInsert {
				m.n.Updated++
				s.number, s.expiry = numbers[i], m.time+m.life
			} else if ops[i] == table.OpFind || give {
				result = s.number
			}
		case ops[i] == table.OpInsert || ops[i] == table.OpInsertNew:
			refused := m.n.Refused
			m.bring(b, hand, row{key, numbers[i], m.newScore(nil, i)}, m.time+m.life)
			if status = table.Added; m.n.Refused > refused {
				status = table.NoRoom
			}
			if give {
				result = numbers[i]
			}
		}
		results, told = append(results, result), append(told, status)
	}
	return results, told
}

func (m *model) look(keys []uint64, quiet bool) (numbers []uint32, found []bool) {
	if !quiet {
		m.tick(len(keys))
	}
	for _, key := range keys {
		s := m.there(key)
		if found = append(found, s != nil); s == nil {
			m.n.Misses++
			numbers = append(numbers, 0)
			continue
		}
		m.n.Hits++
		numbers = append(numbers, s.number)
		if !quiet {
			m.touch(s)
		}
	}
	return numbers, found
}

func (m *model) erase(keys []uint64) (deleted []bool) {
	for _, key := range keys {
		b := m.bucket(key)
		if b.find(key) != nil {
			b.version += 2
		}
		s := m.there(key)
		if deleted = append(deleted, s != nil); s != nil {
			m.n.Erased++
			s.in = false
		}
	}
	return deleted
}

// rows are all pairs with a score of least or more, by key.
func (m *model) rows(least uint32) (all []row) {
	for i := range m.buckets {
		for _, s := range m.buckets[i].slots {
			if s.in && !m.ended(&s) && s.score >= least {
				all = append(all, s.row)
			}
		}
	}
	return sorted(all)
}

func sorted(rows []row) []row {
	slices.SortFunc(rows, func(a, b row) int {
		switch {
		case a.key != b.key && a.key < b.key, a.key == b.key && a.number < b.number:
			return -1
		case a == b:
			return 0
		}
		return 1
	})
	return rows
}

// judge says what is wrong with a batch of inserts, whatever the order in which lanes came: of the pairs before it and
// after it, and of those that went out.
func (m *model) judge(before, after []row, keys []uint64, numbers []uint32, out []row) error {
	type fate struct {
		before, after *row
		puts          []uint32
		out           []row
	}
	fates := map[uint64]*fate{}
	of := func(key uint64) *fate {
		if fates[key] == nil {
			fates[key] = &fate{}
		}
		return fates[key]
	}
	for i := range before {
		of(before[i].key).before = &before[i]
	}
	for i := range after {
		f := of(after[i].key)
		if f.after != nil {
			return fmt.Errorf("key %#x is in twice", after[i].key)
		}
		f.after = &after[i]
	}
	for i, key := range keys {
		of(key).puts = append(of(key).puts, numbers[i])
	}
	for _, r := range out {
		of(r.key).out = append(of(r.key).out, r)
	}
	// by bucket: pairs in, and the largest score that went out of it
	occupied, least := map[uint64]int{}, map[uint64]uint32{}
	for _, key := range slices.Sorted(maps.Keys(fates)) {
		f := fates[key]
		b, _ := m.cfg.where(key, &m.t)
		if f.after != nil {
			occupied[b]++
		}
		if f.before != nil {
			occupied[b+1<<63]++
		}
		may := slices.Clone(f.puts)
		if f.before != nil {
			may = append(may, f.before.number)
		}
		stays := slices.Clone(f.out)
		if f.after != nil {
			stays = append(stays, *f.after)
		}
		for _, r := range stays { // each time that a key was in, it had another value last
			j := slices.Index(may, r.number)
			if j < 0 {
				return fmt.Errorf("key %#x had the value %#x, or had it twice; want of %#x", key, r.number, may)
			}
			may = slices.Delete(may, j, j+1)
		}
		switch {
		case len(stays) == 0:
			return fmt.Errorf("key %#x, in before or put, is neither in nor did it go out", key)
		case len(f.puts) == 0 && f.before == nil:
			return fmt.Errorf("key %#x was never put", key)
		case len(f.puts) == 0 && stays[0] != *f.before:
			return fmt.Errorf("pair %+v became %+v, and was not put", *f.before, stays[0])
		}
		for _, r := range f.out {
			least[b] = max(least[b], r.score)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(fates)) {
		f := fates[key]
		b, _ := m.cfg.where(key, &m.t)
		if len(f.puts) == 0 && f.after != nil && m.cfg.policy != Scored && f.after.score < least[b] {
			return fmt.Errorf("pair %+v stays where one with a score of %d went out", *f.after, least[b])
		}
		if occupied[b] < occupied[b+1<<63] || len(f.out) > 0 && occupied[b] < ways {
			return fmt.Errorf("bucket %d has %d pairs, had %d, and pairs went out", b, occupied[b], occupied[b+1<<63])
		}
		if occupied[b] > ways {
			return fmt.Errorf("bucket %d has %d pairs", b, occupied[b])
		}
	}
	return nil
}
