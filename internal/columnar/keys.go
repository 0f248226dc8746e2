package columnar

import (
	"encoding/binary"
	"math/bits"
	"math/rand/v2"

	"github.com/warpmap/warpmap/table/text"
)

// keys are the keys of a batch as indexes take them.
type keys struct {
	n     int
	width int       // 4 or 8; 0: texts
	fixed []byte    // n words
	text  text.Keys // or n texts
}

// packing says how the key columns of a row become one key.
type packing struct {
	forms []form
	width int  // of words; 0: texts
	one   bool // the only column's memory is that of the keys
}

func newPacking(columns []Column) (p packing) {
	sum := 0
	for _, c := range columns {
		f, _ := formOf(c.Type)
		p.forms = append(p.forms, f)
		if f.text() || sum > 8 {
			sum = 9
		} else {
			sum += f.width
		}
	}
	switch {
	case sum <= 4:
		p.width = 4
	case sum <= 8:
		p.width = 8
	}
	p.one = len(columns) == 1 && (p.width == 0 && p.forms[0].text() || p.width > 0 && p.forms[0].width == p.width)
	return p
}

// pack makes keys of rows from..to-1. Of a single column of 4 or 8 bytes, or of texts, nothing is copied.
func (p *packing) pack(columns []Data, from, to int) keys {
	rows := to - from
	k := keys{n: rows, width: p.width}
	switch {
	case p.one:
		k = keys{n: to, width: p.width, fixed: columns[0].Fixed, text: columns[0].Text}
		return k.part(from, to)
	case p.width > 0:
		k.fixed = make([]byte, rows*p.width)
		at := 0
		for i, f := range p.forms {
			values := columns[i].Fixed[from*f.width : to*f.width]
			for r := range rows {
				copy(k.fixed[r*p.width+at:], values[r*f.width:(r+1)*f.width])
			}
			at += f.width
		}
	default:
		k.text = p.compose(columns, from, to)
	}
	return k
}

// compose puts the columns of each row behind one another; before a text stands its length.
func (p *packing) compose(columns []Data, from, to int) text.Keys {
	rows, size := to-from, 0
	for i, f := range p.forms {
		if f.text() {
			size += 4*rows + len(columns[i].textBytes(from, to))
		} else {
			size += f.width * rows
		}
	}
	out := text.Keys{Bytes: make([]byte, 0, size), Offsets: make([]int64, rows+1)}
	for r := from; r < to; r++ {
		for i, f := range p.forms {
			if !f.text() {
				out.Bytes = append(out.Bytes, columns[i].Fixed[r*f.width:(r+1)*f.width]...)
				continue
			}
			t := columns[i].textBytes(r, r+1)
			out.Bytes = binary.LittleEndian.AppendUint32(out.Bytes, uint32(len(t)))
			out.Bytes = append(out.Bytes, t...)
		}
		out.Offsets[r-from+1] = int64(len(out.Bytes))
	}
	return out
}

// unpack makes columns of keys again.
func (p *packing) unpack(k keys) []Data {
	out := make([]Data, len(p.forms))
	if p.one {
		out[0] = Data{Fixed: k.fixed, Text: k.text}
		return out
	}
	for i, f := range p.forms {
		if f.text() {
			out[i].Text = text.Keys{Offsets: make([]int64, 1, k.n+1)}
		} else {
			out[i].Fixed = make([]byte, 0, k.n*f.width)
		}
	}
	for r := range k.n {
		row := k.row(r)
		for i, f := range p.forms {
			d := &out[i]
			if !f.text() {
				d.Fixed, row = append(d.Fixed, row[:f.width]...), row[f.width:]
				continue
			}
			n := binary.LittleEndian.Uint32(row)
			d.Text.Bytes, row = append(d.Text.Bytes, row[4:4+n]...), row[4+n:]
			d.Text.Offsets = append(d.Text.Offsets, int64(len(d.Text.Bytes)))
		}
	}
	return out
}

// row is the bytes of a key.
func (k *keys) row(i int) []byte {
	if k.width > 0 {
		return k.fixed[i*k.width : (i+1)*k.width]
	}
	return k.text.At(i)
}

// part gives keys from..to-1, without a copy.
func (k *keys) part(from, to int) keys {
	out := keys{n: to - from, width: k.width}
	switch {
	case k.width > 0:
		out.fixed = k.fixed[from*k.width : to*k.width]
	case from == to:
	case k.text.Offsets != nil:
		out.text = text.Keys{Bytes: k.text.Bytes, Offsets: k.text.Offsets[from : to+1]}
	default:
		out.text = text.Keys{Bytes: k.text.Bytes, Offsets32: k.text.Offsets32[from : to+1]}
	}
	return out
}

// pick copies the keys at some positions, which are sorted.
func (k *keys) pick(positions []int) keys {
	if len(positions) == k.n {
		return *k // all, in their order
	}
	out := keys{width: k.width}
	if k.width > 0 {
		out.n, out.fixed = len(positions), pickBytes(k.fixed, k.width, positions, k.n)
		return out
	}
	for _, i := range positions {
		one := k.part(i, i+1)
		out.add(&one)
	}
	return out
}

// add copies other keys behind these, which are a copy themselves.
func (k *keys) add(other *keys) {
	k.n += other.n
	if k.width > 0 {
		k.fixed = append(k.fixed, other.fixed...)
		return
	}
	if len(k.text.Offsets) == 0 {
		k.text.Offsets = []int64{0}
	}
	for i := range other.n {
		k.text.Bytes = append(k.text.Bytes, other.text.At(i)...)
		k.text.Offsets = append(k.text.Offsets, int64(len(k.text.Bytes)))
	}
}

// partOf tells which of so many parts a key is of. A key is always of the same.
func (k *keys) partOf(i, parts int) int {
	h := uint64(14695981039346656037)
	for _, c := range k.row(i) {
		h = (h ^ uint64(c)) * 1099511628211
	}
	h = (h ^ h>>32) * 0xd6e8feb86659fd93
	h ^= h >> 32
	hi, _ := bits.Mul64(h, uint64(parts))
	return int(hi)
}

// Random numbers that nobody knows, so that nobody can choose keys that collide in repeated.
var seed, factor = rand.Uint64(), rand.Uint64() | 1

// repeated gives the positions, sorted, of keys of a width that come more than once. Cost: a few ns a key, and some
// more for each of those.
func (k *keys) repeated() []int {
	if k.width == 4 {
		return repeated(as[uint32](k.fixed))
	}
	return repeated(as[uint64](k.fixed))
}

func repeated[T uint32 | uint64](keys []T) (positions []int) {
	if len(keys) < 2 {
		return nil
	}
	hash := func(key T) uint64 {
		hi, lo := bits.Mul64(uint64(key)^seed, factor)
		return hi ^ lo
	}
	// Each hash has a bit, of which there are 16 a key or more, and one beside it that tells of a second key: most keys
	// that are alone have theirs for themselves, and these bits fit a core's cache far longer than keys do.
	set := make([][2]uint64, max(1, 1<<bits.Len(uint(len(keys)))/4))
	mask, found := uint64(len(set)-1), uint64(0)
	for _, key := range keys {
		h := hash(key)
		words, bit := &set[h>>6&mask], uint64(1)<<(h&63)
		had := words[0] & bit
		words[0] |= bit
		words[1] |= had
		found |= had
	}
	if found == 0 {
		return nil
	}
	var some []int
	for i, key := range keys {
		if h := hash(key); set[h>>6&mask][1]>>(h&63)&1 != 0 {
			some = append(some, i)
		}
	}
	slots := make([]uint32, 1<<bits.Len(uint(2*len(some)-1))) // places in some, counted from 1: the first of each key
	mask = uint64(len(slots) - 1)
	told := make([]bool, len(some))
	for j, i := range some {
		slot := hash(keys[i]) & mask
		for slots[slot] != 0 && keys[some[slots[slot]-1]] != keys[i] {
			slot = (slot + 1) & mask
		}
		if had := slots[slot]; had == 0 {
			slots[slot] = uint32(j + 1)
		} else {
			told[had-1], told[j] = true, true
		}
	}
	for j, i := range some {
		if told[j] {
			positions = append(positions, i)
		}
	}
	return positions
}
