package join

import (
	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/schema"
)

// vecOf sees a column of Arrow arrays as a flat Parquet column's values; nil where that takes more than copying
// numbers, and the library has to do it.
func vecOf(arrays []arrow.Array, col *schema.Column) *vec {
	var vecs []*vec
	for _, a := range arrays {
		v := vecOfArray(a, col)
		if v == nil {
			return nil
		}
		vecs = append(vecs, v)
	}
	if len(vecs) == 0 {
		return nil
	}
	return concat(vecs)
}

func vecOfArray(a arrow.Array, col *schema.Column) *vec {
	v := &vec{n: a.Len(), width: widthOf(col)}
	switch a := a.(type) {
	case *array.Int32, *array.Uint32, *array.Float32, *array.Date32:
		if v.width != 4 {
			return nil
		}
		v.numbers(a)
	case *array.Int64, *array.Uint64, *array.Float64, *array.Time64:
		if v.width != 8 {
			return nil
		}
		v.numbers(a)
	case *array.Timestamp:
		if col.PhysicalType() != parquet.Types.Int64 || a.DataType().(*arrow.TimestampType).Unit == arrow.Second {
			return nil
		}
		v.numbers(a)
	case *array.Decimal128:
		if col.PhysicalType() != parquet.Types.Int64 && col.PhysicalType() != parquet.Types.Int32 || !v.decimals(a) {
			return nil
		}
	case *array.String:
		texts(v, a.ValueOffsets(), a.ValueBytes())
	case *array.Binary:
		if col.PhysicalType() != parquet.Types.ByteArray {
			return nil
		}
		texts(v, a.ValueOffsets(), a.ValueBytes())
	case *array.LargeString:
		texts(v, a.ValueOffsets(), a.ValueBytes())
	case *array.LargeBinary:
		texts(v, a.ValueOffsets(), a.ValueBytes())
	case *array.Dictionary:
		return vecOfDictionary(a, col)
	default:
		return nil
	}
	v.nulls(a)
	return v
}

// numbers takes an array's values as they lie in memory.
func (v *vec) numbers(a arrow.Array) {
	d := a.Data()
	if v.n > 0 {
		v.fixed = d.Buffers()[1].Bytes()[d.Offset()*v.width : (d.Offset()+v.n)*v.width]
	}
}

// decimals cuts decimals to the numbers that their precision needs; false if one does not fit.
func (v *vec) decimals(a *array.Decimal128) bool {
	values := a.Values()
	put := func(i int, x decimal128.Num) bool {
		return int64(x.LowBits())>>63 == x.HighBits() || a.IsNull(i)
	}
	if v.width == 4 {
		w := make([]uint32, v.n)
		for i, x := range values {
			if !put(i, x) || int64(int32(x.LowBits())) != int64(x.LowBits()) && a.IsValid(i) {
				return false
			}
			w[i] = uint32(x.LowBits())
		}
		v.fixed = raw(w)
		return true
	}
	w := make([]uint64, v.n)
	for i, x := range values {
		if !put(i, x) {
			return false
		}
		w[i] = x.LowBits()
	}
	v.fixed = raw(w)
	return true
}

// texts takes strings; they end where the next begins.
func texts[T int32 | int64](v *vec, offsets []T, text []byte) {
	v.ends = make([]int, v.n+1)
	for i := range min(len(offsets), v.n+1) {
		v.ends[i] = int(offsets[i] - offsets[0])
	}
	v.text = text
}

// nulls takes an array's nulls.
func (v *vec) nulls(a arrow.Array) {
	if a.NullN() == 0 {
		return
	}
	v.valid = make([]bool, v.n)
	for i := range v.valid {
		v.valid[i] = a.IsValid(i)
	}
}

func vecOfDictionary(a *array.Dictionary, col *schema.Column) *vec {
	dict := vecOfArray(a.Dictionary(), col)
	if dict == nil || dict.valid != nil {
		return nil
	}
	v := &vec{n: a.Len(), width: dict.width, dict: dict, codes: make([]int32, a.Len())}
	v.nulls(a)
	for i := range v.codes {
		if v.valid == nil || v.valid[i] {
			v.codes[i] = int32(a.GetValueIndex(i))
		}
	}
	return v
}
