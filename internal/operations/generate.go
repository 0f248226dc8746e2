package operations

import (
	"fmt"
	"math/rand/v2"

	"github.com/warpmap/warpmap/table"
)

// Generator makes files of seeds. The same seed and the same fields make the same file.
type Generator struct {
	Kind string
	// Short leaves out what has other kernels than the default, as three of four files do: to compile these is most of a run.
	Short bool
	// GPU makes files whose grounds are on one device or, with Shards, on two. Some tables are large.
	GPU bool
	// Family, if set, is the only one that grounds have. Shards has all grounds be shards, where the kind can be.
	Family table.Family
	Shards bool
	// Members, if not 0, has all grounds be jobs of so many members.
	Members int
}

// making is one file on its way.
type making struct {
	*rand.Rand
	Generator
	f              *File
	universe, most int    // keys that there are, and rows of a batch
	last           uint64 // value
	stress         bool
	plain          bool // options that are other kernels stay as they are
}

func pick[T any](r *rand.Rand, from ...T) T { return from[r.IntN(len(from))] }

func (m *making) chance(one int) bool { return m.IntN(one) == 0 }

// types are the keys and values of tables of a kind, in turn by weight.
var types = map[string][][2]string{
	"map":         {{"u32", "u32"}, {"u64", "u64"}, {"u32", "u32"}, {"u64", "u64"}, {"u32", "16"}, {"16", "u64"}},
	"set":         {{"u32", ""}, {"u64", ""}},
	"multimap":    {{"u32", "u32"}, {"u64", "u32"}, {"u32", "u64"}},
	"bucketlist":  {{"u32", "u32"}, {"u64", "u32"}, {"u32", "u64"}},
	"multibucket": {{"u32", "u32"}, {"u64", "u32"}, {"u32", "u64"}},
	"counter":     {{"u32", "u32"}, {"u64", "u64"}, {"u64", "u32"}},
	"filter":      {{"u32", ""}, {"u64", ""}, {"16", ""}},
	"strings":     {{"", ""}},
	"cache":       {{"u64", "u64"}, {"u32", "64"}, {"u32", ""}},
}

// weights are how often each operation comes in files of a kind.
var weights = map[string][]string{
	"map": {"insert", "insert", "insert", "insert", "insert", "insertnew", "insertnew", "insertif", "insertif", "update",
		"update", "findorinsert", "findorinsert", "delete", "delete", "delete", "mixed", "mixed", "find", "findif", "contains",
		"containsif", "grow", "shrink", "clear", "build", "save", "all", "foreach", "wrong"},
	"set": {"insert", "insert", "insert", "insert", "insertif", "insertif", "delete", "delete", "contains", "containsif",
		"grow", "shrink", "clear", "save", "all", "foreach", "wrong"},
	"multimap": {"insert", "insert", "insert", "insert", "insert", "insert", "delete", "delete", "findall", "contains", "grow",
		"shrink", "build", "clear", "save", "all", "foreach", "wrong"},
	"counter": {"add", "add", "addcounts", "addcounts", "addcounts", "find", "top", "grow", "clear", "save", "all", "foreach",
		"wrong"},
	"filter": {"insert", "insert", "insert", "delete", "delete", "contains", "clear", "save", "wrong"},
	"strings": {"insert", "insert", "insert", "insertnew", "insertnew", "delete", "delete", "find", "grow", "clear", "save",
		"all", "wrong"},
	"cache": {"insert", "insert", "insert", "insert", "insertout", "insertout", "insertout", "insertfor", "find", "find",
		"find", "findquiet", "findorinsert", "findorinsert", "update", "update", "delete", "delete", "mixed", "mixed", "clear",
		"save", "all", "sweep", "wait", "wrong"},
}

// Generate makes the file of a seed.
func (g Generator) Generate(seed uint64) *File {
	m := &making{Rand: newRand(seed, 7), Generator: g, f: &File{Kind: g.Kind}}
	m.plain = m.IntN(4) > 0 || g.Short
	m.f.Comments = []string{fmt.Sprintf("generated of seed %d", seed)}
	m.table()
	m.sizes()
	families := familiesOf(g.Kind, m.f.Table.Get("key"))
	if g.Family != "" {
		families = []table.Family{g.Family}
	}
	m.Shuffle(len(families), func(i, j int) { families[i], families[j] = families[j], families[i] })
	n := 1 + m.IntN(len(families))
	if n = max(n, min(2, len(families))); g.Short {
		n = min(n, 2)
	}
	for _, family := range families[:n] {
		m.ground(family)
	}
	if n == 1 && m.chance(2) {
		m.ground(families[0])
	}
	list := weights[g.Kind]
	if multi(g.Kind) {
		list = weights["multimap"]
	}
	for range 4 + m.IntN(12) {
		m.op(pick(m.Rand, list...))
	}
	if m.chance(10) {
		m.add("close", nil)
		m.op(pick(m.Rand, list...))
	}
	return m.f
}

func (m *making) table() {
	t := pick(m.Rand, types[m.Kind]...)
	for m.Members > 0 && !sharded(m.Kind, t[0]) {
		t = pick(m.Rand, types[m.Kind]...)
	}
	s := Settings{}.With("key", t[0]).With("value", t[1])
	hash := 0
	if !m.plain && m.chance(2) {
		if hash = 1 + m.IntN(3); m.Kind == "filter" {
			hash = 1
		}
	}
	s = s.With("hash", hash).With("seed", m.IntN(1_000_000)|1)
	if m.Kind == "filter" {
		s = s.With("capacity", pick(m.Rand, 1, 10, 300, 3000, 9000)).With("positives", pick(m.Rand, 0, 0.001, 0.3))
		if m.chance(3) {
			s = s.With("positives", 0).With("bytes", pick(m.Rand, 8, 100, 5000, 100_000))
		}
		m.f.Table = s
		return
	}
	if m.Kind == "cache" {
		m.f.Table = m.cache(s)
		return
	}
	s = s.With("capacity", pick(m.Rand, 0, 0, 1, 100, 5000)).With("load", pick(m.Rand, 0, 0, 0.1, 0.5, 0.9, 1.0, 0.001))
	if m.chance(2) {
		s = s.With("maxbytes", pick(m.Rand, 2<<10, 5000, 16<<10, 64<<10, 300<<10))
	}
	switch {
	case m.Kind == "bucketlist" || m.Kind == "multibucket":
		s = s.With("distinct", pick(m.Rand, 0, 1, 10))
	case m.Kind == "counter":
		s = s.With("saturate", m.chance(2))
	case m.Kind == "strings":
		s = s.With("keybytes", pick(m.Rand, 0, 1, 8, 100)).With("long", pick(m.Rand, 1, 10, 100, 2000))
	}
	m.f.Table = s
}

// cache adds the options of caches.
func (m *making) cache(s Settings) Settings {
	if m.chance(4) {
		s = s.With("bytes", pick(m.Rand, 4<<10, 20_000, 300<<10))
	} else {
		s = s.With("capacity", pick(m.Rand, 1, 24, 100, 1000, 5000))
	}
	s = s.With("policy", pick(m.Rand, "", "lfu", "aged", "scored"))
	if !m.plain {
		s = s.With("ttl", pick(m.Rand, 0, 0, 100, 3_600_000)).With("lives", m.chance(3))
	}
	if s.Get("value") == "64" && m.chance(2) {
		s = s.With("hostvalues", 1)
		if m.chance(3) {
			s = s.With("capacity", 0).With("hostbytes", pick(m.Rand, 768, 10_000, 300_000))
		}
	}
	return s
}

// sizes says how many keys there are, and how many rows a batch may have.
func (m *making) sizes() {
	m.stress = !m.GPU && m.chance(3)
	m.universe = pick(m.Rand, 1, 10, 300, 3000, 9000)
	m.most = pick(m.Rand, 50, 1000, 2*m.universe+1)
	bound := func(n int) { m.universe, m.most = min(m.universe, n), min(m.most, n) }
	load := m.f.Table.fraction("load") // a table filled to a thousandth would have gigabytes, which Check walks
	if m.GPU && m.chance(3) && (load == 0 || load >= 0.1) {
		m.universe, m.most = 200_000, 300_000
	}
	if m.stress {
		bound(1000)
	}
	if m.Kind == "strings" {
		bound(3000)
	}
	hash := m.f.Table.number("hash")
	if hash == 3 { // every key is on one path
		bound(300)
		if m.stress {
			bound(60)
		}
	}
	if hash == 2 { // keys that lie close together are on one path where high bits say where it begins
		bound(3000)
	}
	if multi(m.Kind) && (hash == 3 || hash == 2 && m.stress) {
		bound(100)
	}
}

// ground adds one of a family.
func (m *making) ground(family table.Family) {
	g := Settings{}.With("family", family)
	if m.Members > 0 { // a member that is short of memory is the end of its table
		m.f.Grounds = append(m.f.Grounds, g.With("members", m.Members).With("piece", pick(m.Rand, 0, 100, 5000)))
		return
	}
	if m.stress && m.chance(2) || m.stress && len(m.f.Grounds) == 0 {
		g = g.With("stress", 1+m.IntN(1_000_000))
	}
	if m.chance(2) {
		g = g.With("memory", pick(m.Rand, 300<<10, 1<<20, 2<<20, 8<<20))
	}
	if m.chance(4) {
		g = g.With("kept", "none")
	}
	if (!m.GPU && m.chance(5) || m.Shards) && sharded(m.Kind, m.f.Table.Get("key")) {
		shards := 2
		if !m.GPU {
			shards += m.IntN(2)
		}
		m.f.Grounds = append(m.f.Grounds, g.With("shards", shards).With("piece", pick(m.Rand, 0, 100, 5000)).
			With("askall", pick(m.Rand, 0, 1000)).With("copies", m.chance(3)).
			With("regions", pick(m.Rand, 0, 0, 5, 37, 300)))
		return
	}
	m.f.Grounds = append(m.f.Grounds, m.own(string(family), g))
}

// own adds options that the family alone has.
func (m *making) own(family string, g Settings) Settings {
	r, plain := m.Rand, m.plain
	groups := func(insert, find []int) {
		g = g.With("insert", pick(r, insert...)).With("find", pick(r, find...))
	}
	switch {
	case m.Kind == "strings" || m.Kind == "cache":
	case family == "cuckoo":
		g = g.With("tag", pick(r, 0, 0, 8, 12, 16))
	case m.Kind == "filter":
		if !plain {
			g = g.With("block", pick(r, 0, 8, 16, 32, 64)).With("hashes", pick(r, 0, 1, 3, 16))
		}
	case family == "slab":
		g = g.With("light", m.chance(2)).With("nopolicy", m.chance(2))
		if !plain {
			g = g.With("group", pick(r, 0, 0, 1, 2, 8, 32))
		}
	case family == "dycuckoo":
		g = g.With("low", pick(r, 0, 0, 0.01, 0.3)).With("balance", m.IntN(2))
		if !plain {
			g = g.With("subtables", pick(r, 0, 2, 3, 4, 5, 7, 8)).With("bucket", pick(r, 0, 32, 64, 128))
			g = g.With("layout", m.IntN(4))
			groups([]int{0, 1, 2}, []int{0, 1, 4})
		}
	case family == "gph":
		g = g.With("percell", pick(r, 0, 0, 4.0, 20))
		if !plain {
			g = g.With("bucket", pick(r, 0, 0, 4, 8, 16, 32)).With("virtual", pick(r, 0, 0, 2, 4, 8, 32))
			g = g.With("cell", pick(r, 0, 1, 2))
			groups([]int{0, 0, 1, 2}, []int{0, 0, 1, 4})
		}
	case family == "stadium":
		g = g.With("device", pick(r, 0, -1, 4<<10, 100<<10)).With("host", pick(r, 0, 0, -1, 64<<10, 1<<20))
		if !plain {
			g = g.With("ticket", pick(r, 0, 1, 2, 4, 8, 16))
		}
	case m.Kind == "bucketlist":
		g = g.With("initial", pick(r, 0, 1, 2, 7, 100)).With("growth", pick(r, 0, 1, 1.5, 3, 1024))
		if !plain {
			groups([]int{0, 0, 1, 2}, []int{0, 0, 1, 4})
		}
	case !plain:
		g = g.With("window", pick(r, 0, 0, 1, 2, 4, 8, 16, 32))
		groups([]int{0, 0, 1, 2}, []int{0, 0, 1, 4})
		if m.Kind == "multibucket" {
			g = g.With("bucket", pick(r, 0, 1, 2, 3, 7, 30, 256))
		} else if m.Kind != "set" {
			g = g.With("layout", m.IntN(4))
		}
	}
	return g
}

func (m *making) add(name string, s Settings) { m.f.Ops = append(m.f.Ops, Op{Name: name, Settings: s}) }

// op adds an operation.
func (m *making) op(name string) {
	switch name {
	case "shrink", "all", "sweep":
		m.add(name, nil)
		return
	case "clear":
		if m.chance(3) {
			m.add(name, nil)
		}
		return
	case "wait":
		if t := m.f.Table; t.number("ttl") == 100 || t.Get("lives") != "" {
			m.add(name, Settings{}.With("n", pick(m.Rand, 1, 50, 200)))
		}
		return
	case "insertfor":
		if m.f.Table.Get("lives") == "" {
			return
		}
	case "grow", "top":
		m.add(name, Settings{}.With("n", m.IntN(2*m.universe)))
		return
	case "save":
		families := familiesOf(m.Kind, m.f.Table.Get("key"))
		if m.Kind == "multimap" {
			families = []table.Family{"slab", "multimap", "bucketlist", "multibucket"}
		}
		s := Settings{}.With("family", pick(m.Rand, families...)).With("seed", m.IntN(1000)|1)
		if m.Kind == "cache" {
			s = s.With("capacity", pick(m.Rand, 12, 300, 20_000))
			if m.f.Table.Get("value") == "64" {
				s = s.With("hostvalues", m.chance(2))
			}
			if m.chance(4) {
				s = s.With("policy", pick(m.Rand, "lru", "lfu", "aged", "scored"))
			}
		}
		if m.Kind == "filter" {
			s = nil
		}
		m.add(name, s)
		return
	case "foreach":
		if m.plain {
			return
		}
	}
	s := m.batch(name)
	if name == "wrong" {
		s = s.With("what", pick(m.Rand, "lengths", "freed", "grow"))
	} else if m.chance(4) && m.Kind != "strings" && name != "build" {
		s = s.With("on", "device")
		if m.chance(2) {
			s = s.With("stream", "new")
		}
	}
	if name == "update" && !m.plain {
		s = s.With("with", pick(m.Rand, "", "", "min", "max", "xor"))
	}
	m.add(name, s)
}

// batch are the rules of an operation's rows. Now and then the universe shrinks, so that keys are those of earlier
// batches.
func (m *making) batch(name string) Settings {
	n := m.IntN(m.most + 1)
	if m.chance(3) {
		n = m.IntN(40)
	}
	if name == "delete" && multi(m.Kind) {
		n = min(n, pick(m.Rand, 1, 5, n))
	}
	universe := m.universe
	if m.chance(4) {
		universe = 3
	} else if m.chance(6) {
		m.universe = max(1, m.universe/2)
	}
	kind := pick(m.Rand, "some", "wide")
	if multi(m.Kind) && m.chance(3) {
		kind = "skew"
	}
	s := Settings{}.With("n", n).With("keys", fmt.Sprintf("%s:%d:%d", kind, m.IntN(1_000_000), universe))
	if m.chance(6) {
		s = s.With("keys", fmt.Sprintf("seq:%d", m.IntN(2*universe)))
	}
	switch name {
	case "addcounts":
		s = s.With("values", fmt.Sprintf("small:%d", m.IntN(1_000_000)))
	case "insertif", "findif", "containsif":
		s = s.With("when", 1+m.IntN(1_000_000))
	case "mixed":
		s = s.With("ops", 1+m.IntN(1_000_000))
	case "insertfor":
		s = s.With("lives", 1+m.IntN(1_000_000))
	case "insert", "insertout":
		if m.f.Table.Get("policy") == "scored" && !m.chance(4) {
			s = s.With("scores", 1+m.IntN(1_000_000))
		}
	}
	if name != "addcounts" && m.Kind != "set" && m.Kind != "filter" && name != "add" {
		switch name {
		case "insert", "insertnew", "insertif", "update", "findorinsert", "mixed", "build", "insertout", "insertfor":
			s = s.With("values", fmt.Sprintf("from:%d", m.last+1))
			m.last += uint64(n)
		}
	}
	return s
}
