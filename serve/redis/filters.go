package redis

import (
	"errors"
	"math"
	"strconv"

	"github.com/warpmap/warpmap/internal/filters"
	"github.com/warpmap/warpmap/internal/keyspace"
	"github.com/warpmap/warpmap/internal/resp"
)

// What filters are made with that nobody reserved, as RedisBloom's documentation has it.
const (
	bloomRate, bloomCapacity, bloomExpansion = 0.01, 100, 2
	cuckooCapacity, cuckooExpansion          = 1024, 1
	mostExpansion                            = 32768
)

// The names of the types are RedisBloom's.
const bloomType, cuckooType = "MBbloom--", "MBbloomCF"

// filterType is what TYPE says of a filter.
func filterType(v filters.Value) string {
	if v.IsCuckoo() {
		return cuckooType
	}
	return bloomType
}

// filterAt writes a filter that a key holds: it is a filters.Writer.
type filterAt struct {
	c   *session
	sh  *keyspace.Shard
	h   uint64
	key []byte
}

func (f filterAt) now() filters.Value {
	v, _, _ := f.sh.Filter(f.h, f.key, f.c.now)
	return v
}

func (f filterAt) Patch(at int, with []byte) []byte {
	f.sh.Patch(f.h, f.key, at, with)
	return f.now()
}

func (f filterAt) Append(more []byte) []byte {
	f.sh.Append(f.h, f.key, more, f.c.s.o.Bulk, f.c.now)
	return f.now()
}

// filter is the filter that a locked key holds; nil where there is none. Where the key holds something else, ok is
// false, and it answers so.
func (c *session) filter(sh *keyspace.Shard, h uint64, key []byte, kind func(filters.Value) bool) (v filters.Value,
	ok bool) {
	value, _, there := sh.Filter(h, key, c.now)
	if there && !kind(value) {
		c.wrongType()
		return nil, false
	}
	return value, true
}

func isBloom(v filters.Value) bool  { return v.IsBloom() }
func isCuckoo(v filters.Value) bool { return v.IsCuckoo() }

// filterErr answers with what is wrong.
func (c *session) filterErr(err error) {
	switch {
	case errors.Is(err, filters.ErrFull):
		c.err("ERR non scaling filter is full")
	case errors.Is(err, filters.ErrWrong):
		c.wrongType()
	default:
		c.err("ERR " + err.Error())
	}
}

func (c *session) yes(is bool) { c.out = resp.AppendTruth(c.out, c.version, is) }

// rateOf reads a rate of false positives.
func rateOf(arg []byte) (rate float64, ok bool) {
	rate, err := strconv.ParseFloat(string(arg), 64)
	return rate, err == nil && rate > 0 && rate < 1
}

func bloomReserve(c *session, args [][]byte) {
	rate, ok := rateOf(args[2])
	if !ok {
		c.err("ERR (0 < error rate range < 1)")
		return
	}
	capacity, ok := c.capacity(args[3])
	if !ok {
		return
	}
	expansion, given, none := int64(bloomExpansion), false, false
	for i := 4; i < len(args); i++ {
		switch {
		case is(args[i], "NONSCALING"):
			none = true
		case is(args[i], "EXPANSION") && i+1 < len(args):
			i++
			if expansion, ok = c.limited(args[i], 0, mostExpansion, "expansion"); !ok {
				return
			}
			given = true
		default:
			c.err(errSyntax)
			return
		}
	}
	if none && given && expansion > 0 {
		c.err("ERR Nonscaling filters cannot expand")
		return
	}
	if none {
		expansion = 0
	}
	c.reserve(args[1], func() (filters.Value, error) {
		return filters.NewBloom(rate, uint64(capacity), uint64(expansion), c.s.o.Bulk)
	})
}

// capacity reads how many items a filter is for.
func (c *session) capacity(arg []byte) (int64, bool) {
	n, ok := resp.Int(arg)
	if !ok {
		c.err("ERR bad capacity")
	} else if ok = n > 0; !ok {
		c.err("ERR (capacity should be larger than 0)")
	}
	return n, ok
}

// limited reads a number between bounds.
func (c *session) limited(arg []byte, least, most int64, name string) (int64, bool) {
	n, ok := resp.Int(arg)
	if ok = ok && n >= least && n <= most; !ok {
		c.err("ERR bad " + name)
	}
	return n, ok
}

// reserve makes a filter under a key that is not there.
func (c *session) reserve(key []byte, create func() (filters.Value, error)) {
	sh, h := c.lock(key)
	defer c.unlock(sh)
	if _, _, there := sh.Peek(h, key, c.now); there {
		c.err("ERR item exists")
		return
	}
	v, err := create()
	if err != nil {
		c.filterErr(err)
		return
	}
	sh.PutFilter(h, key, v, 0, c.now)
	c.ok()
}

func newBloom(c *session) (filters.Value, error) {
	return filters.NewBloom(bloomRate, bloomCapacity, bloomExpansion, c.s.o.Bulk)
}

func newCuckoo(c *session) (filters.Value, error) {
	return filters.NewCuckoo(cuckooCapacity, cuckooExpansion, c.s.o.Bulk)
}

// each does something with the items of a request, which an array answers if there may be several.
func (c *session) each(items [][]byte, several bool, do func(item []byte)) {
	if several {
		c.array(len(items))
	}
	for _, item := range items {
		do(item)
	}
}

// bloomAdd is BF.ADD and BF.MADD.
func bloomAdd(c *session, args [][]byte) {
	c.addTo(args, isBloom, newBloom, func(f filterAt, item []byte) (bool, error) {
		return f.now().AddBloom(f, item, c.s.o.Bulk)
	})
}

// cuckooAdd is CF.ADD and CF.ADDNX.
func cuckooAdd(c *session, args [][]byte) {
	onlyNew := len(args[0]) == len("cf.addnx")
	c.addTo(args, isCuckoo, newCuckoo, func(f filterAt, item []byte) (bool, error) {
		return f.now().AddCuckoo(f, item, onlyNew, c.s.o.Bulk)
	})
}

// addTo adds items to a filter, which is made if it is not there.
func (c *session) addTo(args [][]byte, kind func(filters.Value) bool, create func(c *session) (filters.Value, error),
	add func(f filterAt, item []byte) (bool, error)) {
	key := args[1]
	sh, h := c.lock(key)
	defer c.unlock(sh)
	defer c.together(h).End()
	v, ok := c.filter(sh, h, key, kind)
	if !ok {
		return
	}
	if v == nil {
		v, err := create(c)
		if err != nil {
			c.filterErr(err)
			return
		}
		sh.PutFilter(h, key, v, 0, c.now)
	}
	f := filterAt{c, sh, h, key}
	c.each(args[2:], several(args), func(item []byte) {
		if added, err := add(f, item); err != nil {
			c.filterErr(err)
		} else {
			c.yes(added)
		}
	})
}

// together has what is done to a key's locked shard logged as one record, so that after a crash a filter counts as many
// items as it has, and other values have all that a command wrote, or nothing.
func (c *session) together(h uint64) *keyspace.Group {
	if c.held { // EXEC has done so
		return nil
	}
	var one keyspace.Several
	one.Add(h)
	return c.s.space.Group(&one)
}

// several tells whether a command's name says that it is of several items: BF.MADD.
func several(args [][]byte) bool { return args[0][len("bf.")]|0x20 == 'm' }

// bloomExists is BF.EXISTS and BF.MEXISTS.
func bloomExists(c *session, args [][]byte) {
	sh, h := c.lock(args[1])
	defer c.unlock(sh)
	v, ok := c.filter(sh, h, args[1], isBloom)
	if !ok {
		return
	}
	c.each(args[2:], several(args), func(item []byte) {
		has := false
		if v != nil {
			has, _ = v.HasBloom(item)
		}
		c.yes(has)
	})
}

// cuckooExists is CF.EXISTS and CF.MEXISTS.
func cuckooExists(c *session, args [][]byte) {
	sh, h := c.lock(args[1])
	defer c.unlock(sh)
	v, ok := c.filter(sh, h, args[1], isCuckoo)
	if !ok {
		return
	}
	c.each(args[2:], several(args), func(item []byte) {
		n := 0
		if v != nil {
			n, _ = v.CountCuckoo(item)
		}
		c.yes(n > 0)
	})
}

func cuckooCount(c *session, args [][]byte) {
	sh, h := c.lock(args[1])
	defer c.unlock(sh)
	v, ok := c.filter(sh, h, args[1], isCuckoo)
	if !ok {
		return
	}
	n := 0
	if v != nil {
		n, _ = v.CountCuckoo(args[2])
	}
	c.int(int64(n))
}

func cuckooDelete(c *session, args [][]byte) {
	sh, h := c.lock(args[1])
	defer c.unlock(sh)
	v, ok := c.filter(sh, h, args[1], isCuckoo)
	if !ok {
		return
	}
	if v == nil {
		c.err("ERR Not found")
		return
	}
	defer c.together(h).End()
	gone, err := v.DeleteCuckoo(filterAt{c, sh, h, args[1]}, args[2])
	if err != nil {
		c.filterErr(err)
		return
	}
	c.yes(gone)
}

func bloomCard(c *session, args [][]byte) {
	sh, h := c.lock(args[1])
	defer c.unlock(sh)
	v, ok := c.filter(sh, h, args[1], isBloom)
	if !ok {
		return
	}
	n := filters.Info{}
	if v != nil {
		n, _ = v.About()
	}
	c.int(int64(n.Items))
}

// field is one of BF.INFO or CF.INFO.
type field struct {
	name, word string
	n          uint64
}

func bloomInfo(c *session, args [][]byte) {
	if len(args) > 3 {
		c.wrongNumber("bf.info")
		return
	}
	v, n, ok := c.about(args[1], isBloom)
	if !ok {
		return
	}
	all := []field{{"Capacity", "CAPACITY", n.Capacity}, {"Size", "SIZE", n.Bytes},
		{"Number of filters", "FILTERS", n.Links}, {"Number of items inserted", "ITEMS", n.Items},
		{"Expansion rate", "EXPANSION", v}}
	if len(args) == 2 {
		c.fields(all)
		return
	}
	for _, f := range all {
		if is(args[2], f.word) {
			c.array(1)
			c.expansion(f)
			return
		}
	}
	c.err("ERR Invalid information value")
}

// about is the expansion of a filter, and what else is known of it. Where there is none, it answers so.
func (c *session) about(key []byte, kind func(filters.Value) bool) (expansion uint64, n filters.Info, ok bool) {
	sh, h := c.lock(key)
	defer c.unlock(sh)
	v, ok := c.filter(sh, h, key, kind)
	if !ok {
		return 0, n, false
	}
	if v == nil {
		c.err("ERR not found")
		return 0, n, false
	}
	n, err := v.About()
	if err != nil {
		c.filterErr(err)
	}
	return v.Expansion(), n, err == nil
}

func (c *session) fields(all []field) {
	c.pairs(len(all))
	for _, f := range all {
		c.simple(f.name)
		c.expansion(f)
	}
}

// expansion answers with a field's number. One that does not grow has no expansion.
func (c *session) expansion(f field) {
	if f.word == "EXPANSION" && f.n == 0 {
		c.null()
		return
	}
	c.int(int64(f.n))
}

func cuckooReserve(c *session, args [][]byte) {
	capacity, ok := c.capacity(args[2])
	if !ok {
		return
	}
	expansion := int64(cuckooExpansion)
	for i := 3; i < len(args); i += 2 {
		switch {
		case i+1 == len(args):
			c.err(errSyntax)
			return
		case is(args[i], "BUCKETSIZE"): // which buckets have, and how far is looked for room, is the layout's affair
			_, ok = c.limited(args[i+1], 1, 255, "bucket size")
		case is(args[i], "MAXITERATIONS"):
			_, ok = c.limited(args[i+1], 1, 65535, "max iterations")
		case is(args[i], "EXPANSION"):
			expansion, ok = c.limited(args[i+1], 0, mostExpansion, "expansion")
		default:
			c.err(errSyntax)
			return
		}
		if !ok {
			return
		}
	}
	c.reserve(args[1], func() (filters.Value, error) {
		return filters.NewCuckoo(uint64(capacity), uint64(expansion), c.s.o.Bulk)
	})
}

func cuckooInfo(c *session, args [][]byte) {
	expansion, n, ok := c.about(args[1], isCuckoo)
	if !ok {
		return
	}
	c.fields([]field{{"Size", "", n.Bytes}, {"Number of buckets", "", n.Buckets}, {"Number of filters", "", n.Links},
		{"Number of items inserted", "", n.Items}, {"Number of items deleted", "", n.Deleted},
		{"Bucket size", "", filters.Slots}, {"Expansion rate", "", expansion}, {"Max iterations", "", filters.Looks}})
}

// bloomNeeds is what BF.RESERVE needs: the filter, whose bytes it has to know before it is made.
func bloomNeeds(c *session, args [][]byte) int64 {
	rate, ok := rateOf(args[2])
	n, is := resp.Int(args[3])
	if !ok || !is || n < 1 {
		return 0
	}
	bits := 2 * (1 - math.Log2(rate)) * 1.44 // of an item, with room for what blocks take more
	return int64(min(float64(n)*bits/8, float64(c.s.o.Bulk))) + headNeeds
}

func cuckooNeeds(c *session, args [][]byte) int64 {
	n, ok := resp.Int(args[2])
	if !ok || n < 1 {
		return 0
	}
	return min(min(n, 1<<40)*5/2, int64(c.s.o.Bulk)) + headNeeds
}

// addNeeds is what a filter grows by for the items of a request, or what it takes if it is made for it.
func addNeeds(c *session, args [][]byte) int64 {
	sh, h := c.lock(args[1])
	defer c.unlock(sh)
	v, _, there := sh.Filter(h, args[1], c.now)
	if !there {
		if args[0][0]|0x20 == 'c' {
			return cuckooCapacity*5/2 + headNeeds
		}
		return int64(4*len(args[2:])) + headNeeds
	}
	return min(filters.Value(v).Grows(len(args)-2), int64(c.s.o.Bulk))
}

// headNeeds is about what a filter takes beside its words.
const headNeeds = 512
