package join

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/maphash"
	"math"
	"math/big"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal256"
	"github.com/apache/arrow-go/v18/arrow/extensions"
)

// Keys that are no numbers of up to 16 bytes together are hashed to 8 bytes, which the table has; and what it finds is
// compared byte by byte. On the build side no two keys may have the same hash, so that each has rows of its own: where
// two do, all are hashed anew.

// wideKinds are kinds of key columns whose values are compared as bytes.
var wideKinds = map[string]bool{"string": true, "binary": true, "float": true, "boolean": true, "decimal": true}

// wideDomain is domainOf for these.
func wideDomain(t arrow.DataType) (domain, bool) {
	switch t := t.(type) {
	case *arrow.StringType, *arrow.LargeStringType, *arrow.StringViewType:
		return domain{kind: "string"}, true
	case *arrow.BinaryType, *arrow.LargeBinaryType, *arrow.BinaryViewType, *arrow.FixedSizeBinaryType:
		return domain{kind: "binary"}, true
	case *arrow.Float16Type:
		return domain{}, false
	case *arrow.Float32Type, *arrow.Float64Type:
		return domain{kind: "float"}, true
	case *arrow.BooleanType:
		return domain{kind: "boolean"}, true
	case arrow.DecimalType:
		return domain{kind: "decimal", unit: int64(t.GetScale())}, true
	case *extensions.UUIDType: // its 16 bytes
		return domain{kind: "binary"}, true
	case *arrow.DictionaryType:
		d, ok := wideDomain(t.ValueType)
		return d, ok && (d.kind == "string" || d.kind == "binary")
	}
	return domain{}, false
}

// canonical gives a key column's values in a form in which equal ones have equal bytes, decimals without so many digits
// behind the point; it clears in ok the rows of decimals that have more.
func (k *key) canonical(a arrow.Array, drop int, ok []bool) (*vec, error) {
	v := &vec{n: a.Len()}
	if d, _ := domainOf(a.DataType()); d.kind == "integer" {
		k.integers(v, d.u64, drop, ok, a)
		v.nulls(a)
		return v, nil
	}
	switch a := a.(type) {
	case *extensions.UUIDArray:
		return k.canonical(a.Storage(), drop, ok)
	case *array.String:
		texts(v, a.ValueOffsets(), a.ValueBytes())
	case *array.LargeString:
		texts(v, a.ValueOffsets(), a.ValueBytes())
	case *array.Binary:
		texts(v, a.ValueOffsets(), a.ValueBytes())
	case *array.LargeBinary:
		texts(v, a.ValueOffsets(), a.ValueBytes())
	case *array.StringView:
		v.strings(func(i int) []byte { return []byte(a.Value(i)) }, a)
	case *array.BinaryView:
		v.strings(a.Value, a)
	case *array.FixedSizeBinary:
		v.strings(a.Value, a)
	case *array.Dictionary:
		dict, err := k.canonical(a.Dictionary(), 0, nil)
		if err != nil || dict.valid != nil {
			return nil, errors.Join(err, errors.New("a dictionary with a null in it"))
		}
		v.dict, v.codes = dict, make([]int32, v.n)
		for i := range v.codes {
			if a.IsValid(i) {
				v.codes[i] = int32(a.GetValueIndex(i))
			}
		}
	case *array.Float32:
		v.number(func(i int) uint64 { return floatBits(float64(a.Value(i))) })
	case *array.Float64:
		v.number(func(i int) uint64 { return floatBits(a.Value(i)) })
	case *array.Boolean:
		v.number(func(i int) uint64 {
			if a.Value(i) {
				return 1
			}
			return 0
		})
	case *array.Decimal32:
		k.decimals(v, drop, ok, a, func(i int) decimal256.Num { return decimal256.FromI64(int64(a.Value(i))) })
	case *array.Decimal64:
		k.decimals(v, drop, ok, a, func(i int) decimal256.Num { return decimal256.FromI64(int64(a.Value(i))) })
	case *array.Decimal128:
		k.decimals(v, drop, ok, a, func(i int) decimal256.Num { return decimal256.FromDecimal128(a.Value(i)) })
	case *array.Decimal256:
		k.decimals(v, drop, ok, a, a.Value)
	default:
		return nil, fmt.Errorf("a key column of type %s", a.DataType()) // keyColumn lets none in
	}
	v.nulls(a)
	return v, nil
}

// integers are canonical where the other side's column is of decimals or floats.
func (k *key) integers(v *vec, u64 bool, drop int, ok []bool, a arrow.Array) {
	words, any := make([]uint64, v.n), make([]bool, v.n)
	(&key{lo: math.MinInt64, hi: math.MaxInt64, u64: u64, bytes: 8}).column(a, 1, words, any)
	switch {
	case k.kind == "float" && k.single:
		v.number(func(i int) uint64 { return floatBits(float64(nearestFloat[float32](words[i], u64))) })
	case k.kind == "float":
		v.number(func(i int) uint64 { return floatBits(nearestFloat[float64](words[i], u64)) })
	case u64:
		v.decimal(drop, ok, a, func(i int) decimal256.Num { return decimal256.FromU64(words[i]) })
	default:
		v.decimal(drop, ok, a, func(i int) decimal256.Num { return decimal256.FromI64(int64(words[i])) })
	}
}

// nearestFloat is the float that is nearest to an integer.
func nearestFloat[F float32 | float64](w uint64, u64 bool) F {
	if u64 {
		return F(w)
	}
	return F(int64(w))
}

// decimals are canonical where the other side's column is of numbers.
func (k *key) decimals(v *vec, drop int, ok []bool, a arrow.Array, at func(i int) decimal256.Num) {
	if k.kind != "float" {
		v.decimal(drop, ok, a, at)
		return
	}
	scale := int(a.DataType().(arrow.DecimalType).GetScale())
	v.number(func(i int) uint64 {
		if k.single {
			return floatBits(float64(decimalFloat[float32](at(i), scale, 1<<24)))
		}
		return floatBits(decimalFloat[float64](at(i), scale, 1<<53))
	})
}

// decimalFloat is the float of a decimal, as DuckDB makes it: of a number that a float holds exactly, at most `exact`,
// by one division; of others by their digits before the point and those behind it.
func decimalFloat[F float32 | float64](x decimal256.Num, scale int, exact int64) F {
	whole := func(x decimal256.Num) F {
		f, _ := new(big.Float).SetInt(x.BigInt()).Float64()
		return F(f)
	}
	if scale <= 0 {
		return whole(x) * F(math.Pow10(-scale))
	}
	if small := int64(x.LowBits()); decimal256.FromI64(small) == x && -exact <= small && small <= exact {
		return F(small) / F(math.Pow10(scale))
	}
	before, behind := x.Div(decimal256.GetScaleMultiplier(scale))
	return whole(before) + whole(behind)/F(math.Pow10(scale))
}

// floatBits are the same for equal floats, and for all that are none.
func floatBits(f float64) uint64 {
	switch {
	case f == 0:
		return 0 // -0 too
	case f != f:
		return math.Float64bits(math.NaN())
	}
	return math.Float64bits(f)
}

func (v *vec) number(at func(i int) uint64) {
	w := make([]uint64, v.n)
	for i := range w {
		w[i] = at(i)
	}
	v.width, v.fixed = 8, raw(w)
}

func (v *vec) decimal(drop int, ok []bool, a arrow.Array, at func(i int) decimal256.Num) {
	v.width = 32
	for i := range v.n {
		x := at(i)
		if drop > 0 {
			var fits bool
			if x, fits = dropDigits(x, drop); !fits && a.IsValid(i) {
				ok[i] = false
			}
		}
		for _, w := range x.Array() {
			v.fixed = binary.LittleEndian.AppendUint64(v.fixed, w)
		}
	}
}

// dropDigits divides by a power of ten, and tells whether nothing is left.
func dropDigits(x decimal256.Num, digits int) (decimal256.Num, bool) {
	if digits > 76 { // more than any decimal has
		return decimal256.Num{}, x == decimal256.Num{}
	}
	by := decimal256.GetScaleMultiplier(digits)
	if small := int64(x.LowBits()); digits <= 18 && decimal256.FromI64(small) == x {
		d := int64(by.LowBits())
		return decimal256.FromI64(small / d), small%d == 0
	}
	x, rest := x.Div(by)
	return x, rest == decimal256.Num{}
}

func (v *vec) strings(at func(i int) []byte, a arrow.Array) {
	v.ends = make([]int, 1, v.n+1)
	for i := range v.n {
		if a.IsValid(i) {
			v.text = append(v.text, at(i)...)
		}
		v.ends = append(v.ends, len(v.text))
	}
}

// wideColumn is a key column's values of some rows, for a wide key, and clears those rows that can match nothing.
func (p *keyPlan) wideColumn(k *key, d keyData, div int64, drop int, ok []bool) (*vec, error) {
	v := d.v
	if v == nil {
		var vecs []*vec
		at := 0
		for _, a := range d.arrays {
			part := ok[at : at+a.Len()]
			at += a.Len()
			if wideKinds[k.kind] {
				c, err := k.canonical(a, drop, part)
				if err != nil {
					return nil, err
				}
				vecs = append(vecs, c)
				continue
			}
			words, fits := make([]uint64, a.Len()), make([]bool, a.Len())
			for i := range fits {
				fits[i] = true
			}
			k.column(a, div, words, fits)
			c := &vec{n: a.Len(), width: 8, fixed: raw(words)}
			c.nulls(a)
			for i, fit := range fits {
				part[i] = part[i] && (fit || a.IsNull(i))
			}
			vecs = append(vecs, c)
		}
		if len(vecs) == 0 {
			return &vec{width: 8}, nil
		}
		v = concat(vecs)
	}
	if v.valid != nil && !p.nullsEqual {
		for i, there := range v.valid {
			ok[i] = ok[i] && there
		}
	}
	return v, nil
}

// hash gives each row a word of all its values.
func (p *keyPlan) hash(columns []*vec, words []uint64) {
	clear(words)
	for _, v := range columns {
		one := func(x []byte) uint64 { return maphash.Bytes(p.seed, x) }
		var codes []uint64
		if v.dict != nil {
			codes = make([]uint64, v.dict.n)
			for i := range codes {
				codes[i] = one(v.dict.entry(i))
			}
		}
		plain := v.valid == nil && codes == nil
		for i := range words {
			h := uint64(0x6e756c6c)
			switch {
			case plain && v.width == 0:
				h = one(v.text[v.ends[i]:v.ends[i+1]])
			case v.valid != nil && !v.valid[i]:
			case codes != nil:
				h = codes[v.codes[i]]
			default:
				h = one(v.entry(i))
			}
			words[i] = (words[i]^h)*0x9e3779b97f4a7c15 ^ h>>29
		}
	}
}

// value is the i-th value's bytes, and whether it is one.
func (v *vec) value(i int) ([]byte, bool) {
	switch {
	case v.valid != nil && !v.valid[i]:
		return nil, false
	case v.dict != nil:
		return v.dict.entry(int(v.codes[i])), true
	}
	return v.entry(i), true
}

// equal tells whether two rows have the same key.
func equalKeys(a []*vec, i int, b []*vec, j int) bool {
	for c := range a {
		x, there := a[c].value(i)
		y, also := b[c].value(j)
		if there != also || !bytes.Equal(x, y) {
			return false
		}
	}
	return true
}

// verify takes those rows out of hit whose keys are others than their representatives'.
func verify[R uint32 | uint64](build, probe []*vec, reps []R, hit []bool) {
	inPieces(len(hit), func(_, from, to int) {
		if len(build) == 1 && plainAlike(build[0], probe[0]) {
			verifyPlain(build[0], probe[0], reps[from:to], from, hit[from:to])
			return
		}
		for i := from; i < to; i++ {
			hit[i] = hit[i] && equalKeys(build, int(reps[i]), probe, i)
		}
	})
}

// plainAlike tells that two columns have values of one form, none of them a null, and no dictionary.
func plainAlike(a, b *vec) bool {
	return a.valid == nil && b.valid == nil && a.dict == nil && b.dict == nil && a.width == b.width
}

// verifyPlain is verify of such columns, for rows of the probe side from one on.
func verifyPlain[R uint32 | uint64](build, probe *vec, reps []R, from int, hit []bool) {
	if width := build.width; width > 0 {
		for i, r := range reps {
			if hit[i] {
				x, y := build.fixed[int(r)*width:][:width], probe.fixed[(from+i)*width:][:width]
				hit[i] = string(x) == string(y)
			}
		}
		return
	}
	for i, r := range reps {
		if hit[i] {
			x, y := build.text[build.ends[r]:build.ends[r+1]], probe.text[probe.ends[from+i]:probe.ends[from+i+1]]
			hit[i] = string(x) == string(y)
		}
	}
}

// errSameHash says that two keys of the build side have the same hash.
var errSameHash = errors.New("two keys with the same hash")

// keyData is a key column of some rows: as a vec of canonical values, or as arrays.
type keyData struct {
	v      *vec
	arrays []arrow.Array
	under  *vec // where set, the arrays' memory
}

// release is for keys that nothing refers to any more.
func (d keyData) release() {
	release(d.arrays)
	if d.under != nil {
		d.under.spare()
	}
}

// rows is how many rows it has.
func (d keyData) rows() (n int) {
	if d.v != nil {
		return d.v.n
	}
	for _, a := range d.arrays {
		n += a.Len()
	}
	return n
}
