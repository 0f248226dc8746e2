package join

import (
	"bytes"
	"encoding/binary"
	"hash/maphash"
	"math"
	"slices"
	"unsafe"

	"github.com/warpmap/warpmap/internal/huge"
)

// vec is a flat column's values in Parquet's own form, so that what is read can be written without a detour: numbers of
// so many bytes, or strings, or codes into a dictionary of either. A null row has a zero, an empty string, or code 0.
type vec struct {
	n     int
	width int     // bytes of a number; 0 for strings
	fixed []byte  // n numbers
	ends  []int   // of strings: n+1 places in text
	text  []byte  //
	dict  *vec    // where set, the values are codes' entries in it, which has no nulls
	codes []int32 // n of them
	valid []bool  // nil without nulls
}

// noRow stands for a build row that is not there.
const noRow = math.MaxUint32

// bytes is about what a vec takes in memory.
func (v *vec) bytes() int {
	n := len(v.fixed) + 8*len(v.ends) + len(v.text) + 4*len(v.codes) + len(v.valid)
	if v.dict != nil {
		n += v.dict.bytes()
	}
	return n
}

// string is the i-th string of a vec without codes.
func (v *vec) string(i int) []byte { return v.text[v.ends[i]:v.ends[i+1]] }

// words sees numbers of 4 or 8 bytes as such.
func words[T uint32 | uint64](b []byte) []T {
	var zero T
	if len(b) == 0 {
		return nil
	}
	if uintptr(unsafe.Pointer(unsafe.SliceData(b)))%unsafe.Alignof(zero) != 0 {
		w := make([]T, len(b)/int(unsafe.Sizeof(zero)))
		copy(raw(w), b)
		return w
	}
	return unsafe.Slice((*T)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/int(unsafe.Sizeof(zero)))
}

// aligned gives a vec's numbers of 4 or 8 bytes at an address that is a multiple of theirs.
func (v *vec) aligned() []byte {
	if v.width == 4 {
		return raw(words[uint32](v.fixed))
	}
	return raw(words[uint64](v.fixed))
}

// raw is words' inverse.
func raw[T uint32 | uint64](w []T) []byte {
	var zero T
	return unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(w))), len(w)*int(unsafe.Sizeof(zero)))
}

// gather takes rows in the given order; noRow gives a null. The result shares v's dictionary.
func (v *vec) gather(rows []uint32, nulls bool) *vec {
	out := &vec{n: len(rows), width: v.width, dict: v.dict}
	if nulls || v.valid != nil {
		out.valid = grab[bool](len(rows))
		for i, r := range rows {
			out.valid[i] = r != noRow && (v.valid == nil || v.valid[r])
		}
		if !slices.Contains(out.valid, false) {
			spare(out.valid)
			out.valid = nil
		}
	}
	if nulls && slices.Contains(rows, noRow) {
		return v.gatherSome(out, rows)
	}
	switch {
	case v.dict != nil:
		out.codes = grab[int32](len(rows))
		pick(out.codes, v.codes, rows)
	case v.width == 4:
		w := grab[uint32](len(rows))
		pick(w, words[uint32](v.fixed), rows)
		out.fixed = raw(w)
	case v.width == 8:
		w := grab[uint64](len(rows))
		pick(w, words[uint64](v.fixed), rows)
		out.fixed = raw(w)
	default:
		return v.gatherSome(out, rows)
	}
	return out
}

func pick[T any](out, in []T, rows []uint32) {
	out = out[:len(rows)]
	for i, r := range rows {
		out[i] = in[r]
	}
}

// gatherSome is gather for rows that may not be there, and for values of other widths.
func (v *vec) gatherSome(out *vec, rows []uint32) *vec {
	switch {
	case v.dict != nil:
		out.codes = make([]int32, len(rows))
		for i, r := range rows {
			if r != noRow {
				out.codes[i] = v.codes[r]
			}
		}
	case v.width > 0:
		out.fixed = make([]byte, len(rows)*v.width)
		for i, r := range rows {
			if r != noRow {
				copy(out.fixed[i*v.width:(i+1)*v.width], v.fixed[int(r)*v.width:])
			}
		}
	default:
		out.ends = grab[int](len(rows) + 1)
		out.ends[0] = 0
		total := 0
		for i, r := range rows {
			if r != noRow {
				total += v.ends[r+1] - v.ends[r]
			}
			out.ends[i+1] = total
		}
		out.text = grab[byte](total)[:0]
		for _, r := range rows {
			if r != noRow {
				out.text = append(out.text, v.string(int(r))...)
			}
		}
	}
	return out
}

// plain gives the values without a dictionary.
func (v *vec) plain() *vec {
	if v.dict == nil {
		return v
	}
	rows := unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(v.codes))), len(v.codes))
	if v.valid != nil {
		rows = slices.Clone(rows)
		for i, ok := range v.valid {
			if !ok {
				rows[i] = noRow
			}
		}
	}
	out := v.dict.gather(rows, v.valid != nil)
	out.valid = v.valid
	return out
}

// slice is rows from to to-1, which share v's memory.
func (v *vec) slice(from, to int) *vec {
	out := &vec{n: to - from, width: v.width, dict: v.dict}
	switch {
	case v.dict != nil:
		out.codes = v.codes[from:to]
	case v.width > 0:
		out.fixed = v.fixed[from*v.width : to*v.width]
	default:
		out.ends, out.text = v.ends[from:to+1], v.text
	}
	if v.valid != nil {
		out.valid = v.valid[from:to]
	}
	return out
}

// concat puts vecs of one column one behind the other. Codes stay codes where the dictionaries together are small
// beside the rows.
func concat(vecs []*vec) *vec {
	if len(vecs) == 1 {
		return vecs[0]
	}
	rows, entries, nulls := 0, 0, false
	coded, same := true, true
	for _, v := range vecs {
		rows += v.n
		nulls = nulls || v.valid != nil
		if v.dict == nil {
			coded = false
			continue
		}
		same = same && v.dict == vecs[0].dict
		entries += v.dict.n
	}
	out := &vec{n: rows, width: vecs[0].width}
	if nulls {
		out.valid = make([]bool, 0, rows)
		for _, v := range vecs {
			if v.valid != nil {
				out.valid = append(out.valid, v.valid...)
				continue
			}
			for range v.n {
				out.valid = append(out.valid, true)
			}
		}
	}
	if coded && (same || entries <= rows/2) {
		out.joinCodes(vecs, same)
		return out
	}
	out.joinPlain(vecs)
	return out
}

// joinPlain takes the values of several, without dictionaries, side by side.
func (v *vec) joinPlain(vecs []*vec) {
	plain, rows, text := make([]*vec, len(vecs)), make([]int, len(vecs)+1), make([]int, len(vecs)+1)
	inParallel(len(vecs), func(i int) { plain[i] = vecs[i].plain() })
	for i, p := range plain {
		rows[i+1], text[i+1] = rows[i]+p.n, text[i]
		if v.width == 0 {
			text[i+1] += p.ends[p.n] - p.ends[0]
		}
	}
	if v.width > 0 {
		v.fixed = huge.Slice[byte](v.n * v.width)
	} else {
		v.ends, v.text = huge.Slice[int](v.n+1), huge.Slice[byte](text[len(vecs)])
	}
	inParallel(len(vecs), func(i int) {
		p := plain[i]
		if v.width > 0 {
			copy(v.fixed[rows[i]*v.width:], p.fixed)
			return
		}
		copy(v.text[text[i]:], p.text[p.ends[0]:p.ends[p.n]])
		base, ends := text[i]-p.ends[0], v.ends[rows[i]+1:rows[i+1]+1]
		for k, e := range p.ends[1 : p.n+1] {
			ends[k] = base + e
		}
	})
}

func (v *vec) appendPlain(p *vec, rows int) {
	if v.width > 0 {
		if v.fixed == nil {
			v.fixed = make([]byte, 0, rows*v.width)
		}
		v.fixed = append(v.fixed, p.fixed...)
		return
	}
	if v.ends == nil {
		v.ends = make([]int, 1, rows+1)
	}
	base := len(v.text) - p.ends[0]
	v.text = append(v.text, p.text[p.ends[0]:p.ends[p.n]]...)
	for _, e := range p.ends[1 : p.n+1] {
		v.ends = append(v.ends, base+e)
	}
}

// joinCodes makes one dictionary of several.
func (v *vec) joinCodes(vecs []*vec, same bool) {
	v.codes = make([]int32, 0, v.n)
	if same {
		v.dict = vecs[0].dict
		for _, p := range vecs {
			v.codes = append(v.codes, p.codes...)
		}
		return
	}
	u := &union{all: &vec{width: v.width}}
	if v.width == 0 {
		u.all.ends = []int{0}
	}
	seen := map[*vec][]int32{}
	for _, p := range vecs {
		to, ok := seen[p.dict]
		if !ok {
			to = u.add(p.dict)
			seen[p.dict] = to
		}
		for _, c := range p.codes {
			if len(to) == 0 { // nulls alone
				c = 0
			} else {
				c = to[c]
			}
			v.codes = append(v.codes, c)
		}
	}
	v.dict = u.all
}

// union is a dictionary that grows.
type union struct {
	all     *vec
	numbers map[uint64]int32
	strings map[string]int32
}

// add puts a dictionary's entries in and gives their codes.
func (u *union) add(d *vec) []int32 {
	if u.numbers == nil {
		u.numbers, u.strings = map[uint64]int32{}, map[string]int32{}
	}
	to := make([]int32, d.n)
	for i := range to {
		code, ok := int32(0), false
		switch d.width {
		case 4, 8:
			var w uint64
			if d.width == 4 {
				w = uint64(binary.LittleEndian.Uint32(d.fixed[4*i:]))
			} else {
				w = binary.LittleEndian.Uint64(d.fixed[8*i:])
			}
			if code, ok = u.numbers[w]; !ok {
				code = int32(u.all.n)
				u.numbers[w] = code
			}
		default:
			b := d.entry(i)
			if code, ok = u.strings[string(b)]; !ok {
				code = int32(u.all.n)
				u.strings[string(b)] = code
			}
		}
		if !ok {
			u.all.push(d.entry(i))
		}
		to[i] = code
	}
	return to
}

// entry is the i-th value as bytes, of a vec without codes.
func (v *vec) entry(i int) []byte {
	if v.width > 0 {
		return v.fixed[i*v.width : (i+1)*v.width]
	}
	return v.string(i)
}

// push appends a value.
func (v *vec) push(b []byte) {
	v.n++
	if v.width > 0 {
		v.fixed = append(v.fixed, b...)
		return
	}
	v.text = append(v.text, b...)
	v.ends = append(v.ends, len(v.text))
}

// Values are made codes where a row group has at most so many different ones, of so many bytes together; and after the
// first rows, where at most half of them differ.
const (
	dictEntries = 1 << 16
	dictBytes   = 1 << 20
	dictTrial   = 1 << 14
)

// coded gives the values codes where few of them come often.
func (v *vec) coded() *vec {
	if v.dict != nil || v.n < 2 {
		return v
	}
	d := &vec{width: v.width}
	if v.width == 0 {
		d.ends = []int{0}
	}
	codes := make([]int32, v.n)
	const slots = 4 * dictEntries
	table := make([]int32, slots) // code + 1
	for i := range codes {
		if v.valid != nil && !v.valid[i] {
			continue
		}
		x := v.entry(i)
		at := hashOf(x) & (slots - 1)
		for table[at] != 0 && !bytes.Equal(d.entry(int(table[at]-1)), x) {
			at = (at + 1) & (slots - 1)
		}
		if table[at] == 0 {
			d.push(x)
			table[at] = int32(d.n)
			if d.n > dictEntries || len(d.text)+len(d.fixed) > dictBytes || i >= dictTrial && d.n > i/2 {
				return v
			}
		}
		codes[i] = table[at] - 1
	}
	return &vec{n: v.n, width: v.width, dict: d, codes: codes, valid: v.valid}
}

var hashSeed = maphash.MakeSeed()

// hashOf spreads values over a table's slots. It differs from run to run; what is written does not depend on it.
func hashOf(x []byte) uint64 {
	switch len(x) {
	case 8:
		return binary.LittleEndian.Uint64(x) * 0x9e3779b97f4a7c15 >> 40
	case 4:
		return uint64(binary.LittleEndian.Uint32(x)) * 0x9e3779b97f4a7c15 >> 40
	}
	return maphash.Bytes(hashSeed, x)
}
