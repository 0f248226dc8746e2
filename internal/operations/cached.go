package operations

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/warpmap/warpmap/cache"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

// A cache keeps what is worth most, so what it holds is not a matter of keys alone. What it may hold follows from
// buckets: a pair may go out only where more keys want to be in a bucket than that has slots, and no pair stays with a
// smaller score than one that went. Where no bucket is crowded, all is sure. Where one is, the model takes over what
// the cache says, if that is allowed.

// slotsOf is how many pairs a bucket has, as cache.Options says.
const slotsOf = 12

// life is for how long a pair is there: surely until the first moment, and surely not from the second on. Both are zero
// for a pair that stays for ever.
type life struct{ from, to time.Time }

// over tells whether the pair has surely ended by then.
func (l life) over(now time.Time) bool { return !l.to.IsZero() && !l.to.After(now) }

// shaky tells whether the pair may have ended by then.
func (l life) shaky(now time.Time) bool { return !l.from.IsZero() && !l.from.After(now) }

// either is the life of a pair that has one of two.
func (l life) either(x life) life {
	if l.from.IsZero() || !x.from.IsZero() && x.from.Before(l.from) {
		l.from = x.from
	}
	if l.to.IsZero() || x.to.IsZero() {
		l.to = time.Time{}
	} else if x.to.After(l.to) {
		l.to = x.to
	}
	return l
}

// heldPair is what a cache has of a key.
type heldPair struct {
	value uint64
	score uint32
	life
}

// cached is a cache that is run beside its model.
type cached struct {
	r       *run
	pairs   map[uint64]heldPair
	stats   cache.Stats
	policy  cache.Policy
	ttl     time.Duration
	hash    int
	seed    uint64
	buckets uint64
	used    uint64 // keys since the counts of an Aged cache were halved
	lost    bool   // the cache could not be exported, for want of memory
	unaged  bool   // nobody knows when counts are halved: a batch was done in part, or in parts
}

func newCached(r *run) *cached {
	o := cacheOptions(r.f.Table)
	return &cached{r: r, pairs: map[uint64]heldPair{}, policy: o.Policy, ttl: o.TimeToLive, hash: o.Hash, seed: o.Seed}
}

// begin reads how many buckets there are.
func (m *cached) begin() error {
	a := m.r.ask("stats", nil)
	m.stats, m.buckets = a.Cache, uint64(a.Cache.Capacity/slotsOf)
	if a.Err != nil {
		return a.Err
	}
	t, x := m.r.f.Table, a.Cache
	over := func(bytes int64, bound string) bool { most := t.number64(bound); return most > 0 && bytes > most }
	if n := t.number("capacity"); x.Capacity < n || n > 0 && x.Capacity >= n+slotsOf ||
		over(x.Bytes-x.HostBytes, "bytes") || over(x.HostBytes, "hostbytes") ||
		(x.HostBytes > 0) != (t.number("hostvalues") > 0) {
		return fmt.Errorf("a cache of %d pairs and %d bytes, %d of them of the host, where the options are %v", x.Capacity,
			x.Bytes, x.HostBytes, t)
	}
	return nil
}

func (m *cached) bucket(key uint64) uint64 {
	return kernel.Reduce(kernel.Hash64(m.hash, key, m.seed), m.buckets)
}

// row is what a batch does to a key.
type batchKey struct {
	values []uint64 // that it may get
	scores []uint32
	times  uint32 // that it counts as used, at most
	life   life
	puts   bool // a row puts it, if it is absent, or always
	always bool // a row puts it
	finds  bool
	gone   bool // a row takes it out
}

// step is an operation that is done, and what is seen of the cache before and behind it.
type step struct {
	c            *call
	a            answer
	keys         map[uint64]*batchKey
	before       map[uint64]heldPair
	after        map[uint64]heldPair
	was, is      cache.Stats
	begun, ended time.Time      // of the operation
	seen         time.Time      // when the look at the cache behind it began
	looked       time.Time      // and when it ended
	failed       bool           // for want of memory: it may be done in part
	want         map[uint64]int // keys that want to be in a bucket
	have         map[uint64]int // slots of it that were in use at some moment behind the operation's last insert, at most
}

// touches are the operations whose keys count as used, and after which the counts of an Aged cache may be halved.
var touches = []string{"insert", "insertout", "insertfor", "find", "findorinsert", "update", "mixed"}

// do does an operation, looks at the cache, and says what is not allowed.
func (m *cached) do(c *call) error {
	if c.Name == "save" {
		return m.save(c)
	}
	if c.Name == "wait" {
		time.Sleep(millis(int64(c.N)))
		return nil
	}
	s := &step{c: c, before: m.pairs, was: m.stats, begun: time.Now()}
	if s.a = m.r.s.do(c); s.a.Lacks || s.a.Short {
		return nil
	}
	s.ended = time.Now()
	short := m.r.g.Get("memory") != ""
	switch {
	case c.Name == "wrong" && s.a.Err == nil:
		return fmt.Errorf("what is wrong by %s is done", c.With)
	case c.Name == "wrong":
		s.a.Err, s.c.Keys, s.c.Values = nil, nil, nil
	case short && device.IsOutOfMemory(s.a.Err):
		s.failed = true
		m.r.m.refusals++
	case s.a.Err != nil:
		return s.a.Err
	}
	s.seen = time.Now()
	e, stats := m.r.ask("export", nil), m.r.ask("stats", nil)
	s.looked = time.Now()
	if err := errors.Join(e.Err, stats.Err); err != nil {
		m.lost = true
		if short && device.IsOutOfMemory(err) {
			return nil
		}
		return err
	}
	s.after, s.is = make(map[uint64]heldPair, len(e.Keys)), stats.Cache
	for i, k := range e.Keys {
		if _, twice := s.after[k]; twice {
			return fmt.Errorf("key %d is in twice", k)
		}
		s.after[k] = heldPair{value: e.Values[i], score: e.Scores[i]}
	}
	wrong := m.judge(s)
	m.pairs, m.stats, m.lost = s.after, s.is, false
	return wrong
}

// judge says what is not allowed, and gives the pairs behind the operation their lives.
func (m *cached) judge(s *step) error {
	m.age(s)
	if m.lost { // nobody knows what there was
		for k, x := range s.after {
			x.life = life{from: s.begun.Add(-time.Hour)}
			s.after[k] = x
		}
		return m.counts(s)
	}
	if s.c.Name == "clear" {
		m.used = 0
		if len(s.after) > 0 || s.is.Clock+s.is.LeastScore > 0 || s.is.Hits+s.is.Misses+s.is.Evictions > 0 {
			return fmt.Errorf("cleared, it has %d pairs and %+v", len(s.after), s.is)
		}
		return nil
	}
	m.rows(s)
	return inTurn(s, m.counts, m.crowd, m.known, m.kept, m.went, m.scores, m.told)
}

// inTurn gives the first error.
func inTurn(s *step, checks ...func(*step) error) error {
	for _, check := range checks {
		if err := check(s); err != nil {
			return err
		}
	}
	return nil
}

// age halves what an Aged cache halves before a batch.
func (m *cached) age(s *step) {
	if m.policy != cache.Aged || !slices.Contains(touches, s.c.Name) || len(s.c.Keys) == 0 && s.c.Name != "find" {
		return
	}
	if m.used >= 10*slotsOf*m.buckets {
		s.before = maps.Clone(s.before)
		for k, x := range s.before {
			x.score /= 2
			s.before[k] = x
		}
		m.used = 0
	}
	m.used += uint64(len(s.c.Keys))
	m.unaged = m.unaged || s.failed || m.r.g.Get("memory") != "" && m.used >= 10*slotsOf*m.buckets
}

// rows says what the batch does to each key.
func (m *cached) rows(s *step) {
	c := s.c
	s.keys = map[uint64]*batchKey{}
	for i, k := range c.Keys {
		x := s.keys[k]
		if x == nil {
			x = &batchKey{}
			s.keys[k] = x
		}
		x.times++
		name := c.Name
		if name == "mixed" {
			name = [...]string{table.OpFind: "find", table.OpInsert: "insert", table.OpInsertNew: "findorinsert",
				table.OpDelete: "delete"}[c.Ops[i]]
		}
		switch name {
		case "insert", "insertout", "insertfor", "update":
			x.puts, x.always = true, true
		case "findorinsert":
			x.puts, x.finds = true, true
		case "find":
			x.finds = true
		case "findquiet":
			x.finds = true
			x.times--
		case "delete":
			x.gone = true
			x.times--
		}
		if !x.puts {
			continue
		}
		x.values = append(x.values, c.Values[i])
		if c.Scores != nil {
			x.scores = append(x.scores, c.Scores[i])
		} else {
			x.scores = append(x.scores, 0)
		}
		long := m.ttl
		if c.Lives != nil && c.Lives[i] > 0 {
			long = millis(int64(c.Lives[i]))
		}
		var own life
		if long > 0 {
			own = life{s.begun.Add(long), s.ended.Add(long + time.Second/8)}
		}
		if len(x.values) == 1 {
			x.life = own
		} else {
			x.life = x.life.either(own)
		}
	}
}

// counts holds the cache's own counts against its pairs.
func (m *cached) counts(s *step) error {
	x := &s.is
	if x.Len != len(s.after) || x.Len > x.Capacity || x.Capacity != s.was.Capacity || x.Bytes != s.was.Bytes ||
		x.HostBytes != s.was.HostBytes {
		return fmt.Errorf("%d pairs are given, and statistics have %d, of %d in %d bytes; before of %d in %d bytes",
			len(s.after), x.Len, x.Capacity, x.Bytes, s.was.Capacity, s.was.Bytes)
	}
	if m.lost || s.failed || s.c.Name == "clear" {
		return nil
	}
	looks, deleted := 0, 0
	for i := range s.c.Keys {
		name := s.c.Name
		if name == "mixed" && (s.c.Ops[i] == table.OpFind || s.c.Ops[i] == table.OpInsertNew) ||
			name == "find" || name == "findquiet" || name == "findorinsert" {
			looks++
		}
		if name == "delete" && s.a.Flags[i] || name == "mixed" && s.c.Ops[i] == table.OpDelete &&
			s.a.Status[i] == table.Present {
			deleted++
		}
	}
	if n := int(x.Hits + x.Misses - s.was.Hits - s.was.Misses); n != looks {
		return fmt.Errorf("%d look-ups are counted, want %d", n, looks)
	}
	expired := int(x.Expired - s.was.Expired)
	if n := len(s.before) + int(x.Added-s.was.Added) - deleted; len(s.after) > n || len(s.after)+expired < n {
		return fmt.Errorf("%d pairs; there were %d, %d were added, %d deleted, and %d ended", len(s.after), len(s.before),
			x.Added-s.was.Added, deleted, expired)
	}
	return nil
}

// crowd counts, for each bucket, the keys that want to be in it, and those that are.
func (m *cached) crowd(s *step) error {
	s.want, s.have = map[uint64]int{}, map[uint64]int{}
	for k, x := range s.before {
		s.want[m.bucket(k)]++
		if _, is := s.after[k]; !is && x.shaky(s.looked) && s.keys[k] == nil { // it may have ended after the operation
			s.have[m.bucket(k)]++
		}
	}
	for k, x := range s.keys {
		if _, was := s.before[k]; !was && x.puts {
			s.want[m.bucket(k)]++
		}
		if _, is := s.after[k]; x.gone || !is && x.life.shaky(s.looked) { // its slot may have been in use, and is free
			s.have[m.bucket(k)]++
		}
	}
	in := map[uint64]int{}
	for k := range s.after {
		b := m.bucket(k)
		s.have[b]++
		if in[b]++; in[b] > slotsOf {
			return fmt.Errorf("%d keys of one bucket are in", in[b])
		}
	}
	return nil
}

// crowded tells whether pairs of a key's bucket may have gone out.
func (m *cached) crowded(s *step, k uint64) bool {
	b := m.bucket(k)
	return s.want[b] > slotsOf && s.have[b] >= slotsOf
}

// known holds each pair that is in against what was there and what came, and gives it its life.
func (m *cached) known(s *step) error {
	add := combined[s.c.With]
	for k, x := range s.after {
		old, was := s.before[k]
		was = was && !old.over(s.begun)
		of := s.keys[k]
		if of == nil || !of.puts {
			if !was || x.value != old.value || of != nil && of.gone {
				return fmt.Errorf("key %d is in with %d; it was in %t, with %d", k, x.value, was, old.value)
			}
			if old.over(s.seen) {
				return fmt.Errorf("key %d is in, and ended at %v", k, old.to)
			}
			x.life = old.life
			s.after[k] = x
			continue
		}
		shaky := was && old.shaky(s.looked)
		sure := was && !shaky && s.want[m.bucket(k)] <= slotsOf && !s.failed
		may := slices.Contains(of.values, x.value)
		switch {
		case s.c.Name == "update":
			sum := of.values[0]
			for _, v := range of.values[1:] {
				sum = add(sum, v) & m.r.m.most
			}
			with := add(old.value, sum) & m.r.m.most
			if sure && x.value != with || !was && s.want[m.bucket(k)] <= slotsOf && !s.failed && x.value != sum ||
				len(of.values) == 1 && x.value != sum && !(was && (x.value == with || s.failed && x.value == old.value)) {
				return fmt.Errorf("key %d has %d; combined it is %d, or %d if it was there, which is %t", k, x.value, sum,
					with, was)
			}
		case !of.always && sure && x.value != old.value:
			return fmt.Errorf("key %d was there with %d, and has %d", k, old.value, x.value)
		case !may && !(was && x.value == old.value && (!of.always || s.failed)):
			return fmt.Errorf("key %d has %d; it was in %t, with %d, and %d came", k, x.value, was, old.value, of.values)
		}
		switch {
		case !was || of.always && !s.failed:
			x.life = of.life
		case sure && !of.always:
			x.life = old.life
		default:
			x.life = old.either(of.life)
		}
		if x.over(s.seen) {
			return fmt.Errorf("key %d is in, and ended at %v", k, x.to)
		}
		s.after[k] = x
	}
	return nil
}

// kept holds what is not in against what may have gone.
func (m *cached) kept(s *step) error {
	newGone := map[uint64]bool{} // buckets of which a pair that the batch brought went out
	worst := map[uint64]uint32{} // the largest score that went out of each
	for k, old := range s.before {
		if _, is := s.after[k]; is || old.shaky(s.looked) {
			continue
		}
		of := s.keys[k]
		if of != nil && of.gone {
			continue
		}
		if !m.crowded(s, k) {
			return fmt.Errorf("key %d, with a score of %d, has gone, and its bucket has room", k, old.score)
		}
		if of == nil {
			b := m.bucket(k)
			worst[b] = max(worst[b], old.score)
		}
	}
	for k, of := range s.keys {
		if _, is := s.after[k]; is || !of.puts || of.gone || s.failed || of.life.shaky(s.looked) {
			continue
		}
		if old, was := s.before[k]; was && old.shaky(s.looked) {
			continue
		}
		if !m.crowded(s, k) {
			return fmt.Errorf("key %d was put and is not in, and its bucket has room", k)
		}
		newGone[m.bucket(k)] = of.always
	}
	for i := range s.a.Scores {
		b := m.bucket(s.a.Keys[i])
		worst[b] = max(worst[b], s.a.Scores[i])
	}
	for k, x := range s.after {
		b := m.bucket(k)
		if s.keys[k] != nil || s.failed || m.unaged {
			continue
		}
		if x.score < worst[b] || newGone[b] && m.policy == cache.LRU {
			return fmt.Errorf("key %d stays with a score of %d, and one of its bucket went that had %d, or was new: %t", k,
				x.score, worst[b], newGone[b])
		}
	}
	return nil
}

// went holds what InsertOut gave against what was there and what came: each pair that is not in went out, once more
// than it came back.
func (m *cached) went(s *step) error {
	if s.c.Name != "insertout" || s.failed {
		return nil
	}
	if n := int(s.is.Evictions + s.is.Refused - s.was.Evictions - s.was.Refused); n != len(s.a.Keys) {
		return fmt.Errorf("%d pairs are given that went out, and %d did", len(s.a.Keys), n)
	}
	out := map[uint64][]uint64{}
	for i, k := range s.a.Keys {
		out[k] = append(out[k], s.a.Values[i])
		old, was := s.before[k]
		if was && s.keys[k] == nil && s.a.Scores[i] != old.score && !m.unaged {
			return fmt.Errorf("key %d went out with a score of %d, and had %d", k, s.a.Scores[i], old.score)
		}
	}
	all := maps.Clone(out) // and what was there or came
	for k := range s.before {
		all[k] = out[k]
	}
	for k := range s.keys {
		all[k] = out[k]
	}
	for k, times := range all {
		old, was := s.before[k]
		var may []uint64
		if was {
			may = append(may, old.value)
		}
		if of := s.keys[k]; of != nil {
			may = append(may, of.values...)
		}
		if x, is := s.after[k]; is {
			times = append(slices.Clone(times), x.value)
		} else if len(times) == 0 && !(was && old.shaky(s.looked)) && (s.keys[k] == nil || !s.keys[k].life.shaky(s.looked)) {
			return fmt.Errorf("key %d is not in, and did not go out", k)
		}
		for _, v := range times {
			at := slices.Index(may, v)
			if at < 0 {
				return fmt.Errorf("key %d went out or stays with %d, or twice with it; want of %d", k, v, may)
			}
			may = slices.Delete(may, at, at+1)
		}
	}
	return nil
}

// scores holds the scores of all pairs against what the policy says.
func (m *cached) scores(s *step) error {
	if m.unaged {
		return nil
	}
	for k, x := range s.after {
		old, was := s.before[k]
		of, low, high := s.keys[k], old.score, old.score
		fresh := !was || old.shaky(s.looked) // it may have come in
		touched := of != nil && of.times > 0
		room := s.want[m.bucket(k)] <= slotsOf && !s.failed && !(was && fresh)
		switch {
		case !touched:
		case m.policy == cache.LRU:
			low, high = s.was.Clock+1, s.is.Clock
			if s.failed {
				low = min(low, old.score)
			}
		case m.policy == cache.Scored && !of.puts:
		case m.policy == cache.Scored:
			given := slices.Clone(of.scores)
			if s.c.Scores == nil && was {
				given = append(given, old.score)
				if room {
					given = given[len(given)-1:]
				}
			}
			if s.failed {
				given = append(given, old.score)
			}
			if !slices.Contains(given, x.score) {
				return fmt.Errorf("key %d has a score of %d, want one of %d", k, x.score, given)
			}
			continue
		default: // counts
			if low, high = old.score+of.times, old.score+of.times; !was {
				low, high = of.times, of.times
			}
			if !room {
				low = min(1, low)
			}
			if s.failed {
				low = min(low, old.score)
			}
			// A look-up without a lock may touch a slot that another pair has taken meanwhile.
			if (s.c.Name == "mixed" || s.c.Name == "findorinsert") && !room {
				low, high = min(low, old.score), high+slotsOf+uint32(s.want[m.bucket(k)])
			}
		}
		if x.score < low || x.score > high {
			return fmt.Errorf("key %d has a score of %d, want %d to %d; it was in %t, with %d", k, x.score, low, high, was,
				old.score)
		}
	}
	if s.is.Clock < s.was.Clock || m.policy == cache.LRU && s.is.LeastScore > s.is.Clock {
		return fmt.Errorf("the clock is %d, was %d, and the least score %d", s.is.Clock, s.was.Clock, s.is.LeastScore)
	}
	return nil
}

// told holds what the operation said of each position.
func (m *cached) told(s *step) error {
	c, a := s.c, s.a
	if s.failed {
		return nil
	}
	done := map[uint64]int{}
	if slices.Contains([]string{"delete", "findorinsert"}, c.Name) {
		for i, k := range c.Keys {
			if done[k] += 0; a.Flags[i] {
				done[k]++
			}
		}
		if a.N != trues(a.Flags) {
			return fmt.Errorf("%d are told, and %d flags", a.N, trues(a.Flags))
		}
	}
	for k, n := range done {
		old, was := s.before[k]
		shaky := was && old.shaky(s.looked)
		was = was && !old.over(s.begun)
		crowded := c.Name == "findorinsert" && s.want[m.bucket(k)] > slotsOf
		want := 0
		if was == (c.Name == "delete") {
			want = 1
		}
		if n > 1 && !crowded || n != want && !shaky && !crowded {
			return fmt.Errorf("key %d was in %t, and %d positions have done it", k, was, n)
		}
	}
	for i, k := range c.Keys {
		old, was := s.before[k]
		shaky := was && old.shaky(s.looked)
		was = was && !old.over(s.begun)
		fail := func(what string) error {
			return fmt.Errorf("position %d, key %d: %s; was in %t, with %d, told %t, %v, %v", i, k, what, was, old.value,
				a.Flags[i], at(a.Values, i), a.Status[i])
		}
		switch c.Name {
		case "find", "findquiet":
			if want := was; a.Flags[i] != want && !shaky || a.Flags[i] && (!was || a.Values[i] != old.value) ||
				!a.Flags[i] && a.Values[i] != 0 {
				return fail("found, or not")
			}
		case "findorinsert":
			of := s.keys[k]
			crowded := s.want[m.bucket(k)] > slotsOf
			switch v := a.Values[i]; {
			case a.Flags[i] && v != c.Values[i],
				!slices.Contains(of.values, v) && !(was && v == old.value),
				was && !shaky && !crowded && v != old.value:
				return fail("told another value")
			case !crowded && !shaky:
				if x := s.after[k]; x.value != v && !x.shaky(s.looked) {
					return fail(fmt.Sprintf("it has %d", x.value))
				}
			}
		case "mixed":
			if err := m.mixed(s, i, k, old, was, shaky, fail); err != nil {
				return err
			}
		}
	}
	return nil
}

// mixed is of a batch with one operation a key.
func (m *cached) mixed(s *step, i int, k uint64, old heldPair, was, shaky bool, fail func(string) error) error {
	op, status := s.c.Ops[i], s.a.Status[i]
	loose := shaky || s.want[m.bucket(k)] > slotsOf // it may have gone out before
	may := []table.Status{table.Absent}
	switch puts := op == table.OpInsert || op == table.OpInsertNew; {
	case was && puts && loose:
		may = []table.Status{table.Present, table.Added}
	case was && loose:
		may = []table.Status{table.Present, table.Absent}
	case was:
		may = []table.Status{table.Present}
	case puts:
		may = []table.Status{table.Added}
	}
	if op == table.OpInsert || op == table.OpInsertNew {
		if m.policy == cache.Scored && loose {
			may = append(may, table.NoRoom)
		}
	}
	if !slices.Contains(may, status) {
		return fail(fmt.Sprintf("%v, want one of %v", op, may))
	}
	want := uint64(0)
	if op == table.OpFind && status == table.Present {
		want = old.value
	}
	if s.a.Values[i] != want {
		return fail(fmt.Sprintf("%v, want the value %d", op, want))
	}
	return nil
}

// check is what holds of a cache between operations.
func (m *cached) check() error {
	short := m.r.g.Get("memory") != ""
	if err := m.r.ask("check", nil).Err; err != nil && !(short && device.IsOutOfMemory(err)) {
		return fmt.Errorf("check: %w", err)
	}
	a := m.r.ask("len", nil)
	if a.Err == nil && !m.lost && a.N != len(m.pairs) { // pairs that have ended count until they are swept
		return fmt.Errorf("length %d, want %d", a.N, len(m.pairs))
	}
	return a.Err
}

// whole holds All, Chunks, and Export of some against what is in.
func (m *cached) whole() error {
	if m.lost {
		return nil
	}
	short := m.r.g.Get("memory") != ""
	for _, name := range []string{"all", "chunks", "export"} {
		c := &call{Name: name}
		if name == "export" {
			c.N = 2
		}
		begun := time.Now()
		a := m.r.s.do(c)
		if err := a.Err; err != nil {
			if short && device.IsOutOfMemory(err) {
				continue
			}
			return fmt.Errorf("%s: %w", name, err)
		}
		looked := time.Now()
		got := map[uint64]bool{}
		for i, k := range a.Keys {
			x, in := m.pairs[k]
			if !in || got[k] || x.value != a.Values[i] || x.over(begun) || c.N > 0 && a.Scores[i] < uint32(c.N) {
				return fmt.Errorf("%s has key %d with %d; it is in %t, with %+v, twice %t", name, k, a.Values[i], in, x, got[k])
			}
			got[k] = true
		}
		for k, x := range m.pairs {
			if !got[k] && !x.shaky(looked) && x.score >= uint32(c.N) {
				return fmt.Errorf("%s lacks key %d, with %+v", name, k, x)
			}
		}
		if name == "export" {
			break
		}
		maps.DeleteFunc(m.pairs, func(k uint64, x heldPair) bool { return !got[k] }) // they are swept
	}
	return nil
}

// save holds what a file brought to another cache against what is in.
func (m *cached) save(c *call) error {
	c.Other = m.other(c.Other)
	begun := time.Now()
	a := m.r.s.do(c)
	counts := func(p cache.Policy) bool { return p == cache.LFU || p == cache.Aged }
	policy := policies[c.Other.Get("policy")]
	if policy != m.policy && !(counts(policy) && counts(m.policy)) {
		if a.Err == nil || device.IsOutOfMemory(a.Err) && m.r.g.Get("memory") == "" {
			return fmt.Errorf("a file of %v is loaded as %v: %v", m.policy, policy, a.Err)
		}
		return m.do(&call{Name: "sweep"})
	}
	if a.Err != nil {
		if m.r.g.Get("memory") != "" && device.IsOutOfMemory(a.Err) {
			return m.do(&call{Name: "sweep"})
		}
		return a.Err
	}
	ended := time.Now()
	buckets, seed := uint64(a.Cache.Capacity/slotsOf), c.Other.seed("seed")|1
	bucket := func(k uint64) uint64 { return kernel.Reduce(kernel.Hash64(m.hash, k, seed), buckets) }
	got, have, worst := map[uint64]bool{}, map[uint64]int{}, map[uint64]uint32{}
	for i, k := range a.Keys {
		x, in := m.pairs[k]
		if policy == cache.LFU {
			x.score = max(x.score, 1)
		}
		if !m.lost && (!in || got[k] || x.value != a.Values[i] || x.score != a.Scores[i] || x.over(begun)) {
			return fmt.Errorf("the file has key %d with %d and a score of %d; it is in %t, with %+v, twice %t", k, a.Values[i],
				a.Scores[i], in, x, got[k])
		}
		got[k] = true
		b := bucket(k)
		if have[b]++; have[b] == 1 || x.score < worst[b] {
			worst[b] = x.score
		}
	}
	for k, x := range m.pairs {
		if b := bucket(k); !m.lost && !got[k] && !x.shaky(ended) && (have[b] < slotsOf || x.score > worst[b]) {
			return fmt.Errorf("the file lacks key %d, with %+v, and its bucket has %d pairs, with scores of %d and more", k, x,
				have[b], worst[b])
		}
	}
	return m.do(&call{Name: "sweep"}) // as saving did
}

// other are the options of the cache that a file is loaded into.
func (m *cached) other(s Settings) Settings {
	t := m.r.f.Table
	for _, name := range []string{"hash", "ttl", "lives"} {
		s = s.With(name, t.Get(name))
	}
	if s.Get("policy") == "" {
		s = s.With("policy", t.Get("policy"))
	}
	return s
}
