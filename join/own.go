package join

import (
	"math/bits"
	"math/rand/v2"

	"github.com/warpmap/warpmap/internal/huge"
)

// own is a level for the cores of a CPU: a hash table in parts, each of which fits a core's cache while it is filled.
//
//	hash of a word   │ part │ home cell, as a fraction of the part's cells │
//	cells            [part][part][part]: each has half as many cells again as there are rows of its, and uses the
//	                 first of them alone where it has few words
//	cell             word, row+1, tags
//
// A word stands in its home cell or in one of those behind it, all of which are taken; the first cell follows the last.
// A cell's tags are a bit, of 32, for each word whose home it is: one cell tells most words that are not there.
// The row is the first of those with the word. Nothing is added once fill is done, so any number of goroutines may
// look words up. The hash has seeds that nobody can foretell, so nobody can choose keys that share cells.
type own struct {
	seeds
	bits  uint // of a hash, that name the part
	parts []ownPart
	cells []ownCell // of all parts
}

// ownPart is where a part's cells begin, and how many it uses: one more than it has words, at least.
type ownPart struct{ from, n uint64 }

type ownCell struct {
	word uint64
	row  uint32 // plus 1; 0 for a cell that is empty
	tags uint32
}

// tag is the bit of a hash in its home cell's tags.
func tag(h uint64) uint32 { return 1 << (h & 31) }

const (
	ownRows  = 1 << 13 // rows of a part: its cells take 256 KB, which a core's L2 cache has room for
	ownParts = 1 << 12 // parts at most: a row goes to one of so many places at a time
	ownFirst = 768     // cells that a part uses at first
	ownBlock = 512     // words whose home cells are read before any is compared, so that the cache misses overlap
)

func newOwn() *own {
	return &own{seeds: newSeeds(), parts: []ownPart{{0, 1}}, cells: make([]ownCell, 1)}
}

// seeds choose a hash.
type seeds [2]uint64

func newSeeds() seeds { return seeds{rand.Uint64(), rand.Uint64() | 1} }

func (s *seeds) hash(word uint64) uint64 {
	high, low := bits.Mul64(word^s[0], s[1])
	h := (high ^ low) * 0x9e3779b97f4a7c15
	return h ^ h>>32
}

// both makes one word of the two of a key. Others may have it, too.
func (t *own) both(a, b uint64) uint64 { return t.hash(a)*3 ^ bits.RotateLeft64(t.hash(^b), 32) }

// home is the number of a hash's first cell.
func (t *own) home(h uint64) uint64 {
	p := t.parts[h>>(64-t.bits)]
	at, _ := bits.Mul64(h<<t.bits, p.n)
	return p.from + at
}

// probe gives the cell of a word: its own, or the empty one that it would take.
func (t *own) probe(word uint64, h uint64) *ownCell {
	p := t.parts[h>>(64-t.bits)]
	for i := t.home(h); ; i++ {
		if i == p.from+p.n {
			i = p.from
		}
		if c := &t.cells[i]; c.row == 0 || c.word == word {
			return c
		}
	}
}

// put enters a word, and gives the row+1 of the one that is there already, or 0.
func (t *own) put(word uint64, row uint32) uint32 {
	h := t.hash(word)
	c := t.probe(word, h)
	if c.row != 0 {
		return c.row
	}
	c.word, c.row = word, row
	t.cells[t.home(h)].tags |= tag(h)
	return 0
}

// fill is the function of that name. It deals the rows out to the parts, in their order, and fills the parts side by
// side.
func (t *own) fill(words []uint64, ok []bool, always bool) (unique bool, reps []uint32) {
	t.bits = min(uint(bits.Len(uint(len(words)/ownRows))), uint(bits.Len(ownParts-1)))
	t.parts = make([]ownPart, 1<<t.bits)
	dealt := t.deal(words, ok)
	again := make([][]pairOfRows, len(t.parts))
	t.cells = huge.Slice[ownCell](len(dealt.words) + len(dealt.words)/2 + len(t.parts))
	inParallel(len(t.parts), func(p int) {
		from, to := dealt.part(p)
		t.parts[p].from = uint64(from + from/2 + p)
		again[p] = t.fillPart(&t.parts[p], dealt.words[from:to], dealt.rows[from:to])
	})
	unique = true
	for _, a := range again {
		unique = unique && len(a) == 0
	}
	if unique && !always {
		return true, nil
	}
	reps = make([]uint32, len(words))
	inPieces(len(words), func(_, from, to int) {
		for i := from; i < to; i++ {
			reps[i] = uint32(i)
		}
	})
	inParallel(len(again), func(p int) {
		for _, a := range again[p] {
			reps[a.row] = a.first
		}
	})
	return unique, reps
}

// pairOfRows is a row whose word came before, and the first row with that word.
type pairOfRows struct{ row, first uint32 }

// fillPart puts a part's rows into its cells: a few at first, and as many as its words seem to need once it is known
// how many of the rows bring another. Cells that are not used take no memory.
func (t *own) fillPart(p *ownPart, words []uint64, rows []uint32) (again []pairOfRows) {
	most := len(words) + len(words)/2 + 1
	t.use(p, min(most, ownFirst), nil)
	different := 0
	for i, w := range words {
		if different == int(p.n)*2/3 && int(p.n) < most {
			expected := int(float64(different) / float64(i) * float64(len(words)))
			t.use(p, min(most, max(4*int(p.n), 2*expected)), t.cells[p.from:p.from+p.n])
		}
		if first := t.put(w, rows[i]+1); first != 0 {
			again = append(again, pairOfRows{rows[i], first - 1})
		} else {
			different++
		}
	}
	return again
}

// use gives a part n cells, and puts what there was into them.
func (t *own) use(p *ownPart, n int, before []ownCell) {
	var some []ownCell
	for _, c := range before {
		if c.row != 0 {
			some = append(some, c)
		}
	}
	p.n = uint64(n)
	clear(t.cells[p.from : p.from+p.n]) // memory that is written to before it is read costs one page fault, not two
	for _, c := range some {
		t.put(c.word, c.row)
	}
}

// dealtRows are rows in the order of their parts.
type dealtRows struct {
	words []uint64
	rows  []uint32
	ends  []int // of each part
}

func (d *dealtRows) part(p int) (from, to int) {
	if p > 0 {
		from = d.ends[p-1]
	}
	return from, d.ends[p]
}

// deal brings the rows that can match into the order of their parts, and leaves those of a part in the order they are.
func (t *own) deal(words []uint64, ok []bool) *dealtRows {
	shift := 64 - t.bits
	next := make([][]int, pieces(len(words))) // where a piece's next row of each part goes
	inPieces(len(words), func(k, from, to int) {
		n := make([]int, len(t.parts))
		for i, w := range words[from:to] {
			if ok[from+i] {
				n[t.hash(w)>>shift]++
			}
		}
		next[k] = n
	})
	d := &dealtRows{ends: make([]int, len(t.parts))}
	all := 0
	for p := range t.parts {
		for _, n := range next {
			n[p], all = all, all+n[p]
		}
		d.ends[p] = all
	}
	d.words, d.rows = huge.Slice[uint64](all), huge.Slice[uint32](all)
	inPieces(len(words), func(k, from, to int) {
		n := next[k]
		for i, w := range words[from:to] {
			if ok[from+i] {
				to := &n[t.hash(w)>>shift]
				d.words[*to], d.rows[*to] = w, uint32(from+i)
				*to++
			}
		}
	})
	return d
}

// insertNew is for a level that has been filled, and gets no more.
func (t *own) insertNew([]uint64, []uint32) (int, error) {
	panic("join: an own table is filled at once")
}

// find looks words up. Those that stand one behind the other several times are looked up once.
func (t *own) find(words []uint64, rows []uint32, found []bool) error {
	var heads, at [ownBlock]uint64 // the words that differ from those before them, and their home cells
	var hashes [ownBlock]uint64
	var got [ownBlock]ownCell
	for len(words) > 0 {
		some := words[:min(len(words), ownBlock)]
		n, last := 0, ^some[0]
		for _, w := range some {
			if w != last {
				n++
			}
			heads[(n-1)%ownBlock] = w
			last = w
		}
		for i, w := range heads[:n] {
			hashes[i] = t.hash(w)
			at[i] = t.home(hashes[i])
		}
		for i, c := range at[:n] {
			got[i] = t.cells[c]
		}
		for i, w := range heads[:n] {
			c := &got[i]
			switch h := hashes[i]; {
			case c.word == w:
			case c.tags&tag(h) == 0:
				c.row = 0
			default:
				c.row = t.probe(w, h).row
			}
		}
		n, last = 0, ^some[0]
		r, f := rows[:len(some)], found[:len(some)]
		for i, w := range some {
			if w != last {
				n++
			}
			row := got[(n-1)%ownBlock].row
			r[i], f[i] = row-1, row != 0
			last = w
		}
		words, rows, found = words[len(some):], rows[len(some):], found[len(some):]
	}
	return nil
}

func (t *own) filtered() int64 { return 0 }

func (t *own) close() error { return nil }
