package join

import (
	"bytes"
	"cmp"
	"encoding/binary"
	"fmt"
	"math"
	"slices"

	"github.com/apache/arrow-go/v18/arrow/memory"
	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/compress"
	"github.com/apache/arrow-go/v18/parquet/file"
	pqmeta "github.com/apache/arrow-go/v18/parquet/metadata"
	"github.com/apache/arrow-go/v18/parquet/schema"
	"github.com/klauspost/compress/s2"
	"github.com/parquet-go/bitpack"
)

// A page has so many rows, and of strings about so many bytes.
const (
	pageRows  = 1 << 17
	pageBytes = 1 << 20
)

// longestBound is how long a string may be that goes into a chunk's statistics.
const longestBound = 128

// chunk is an encoded column chunk. Its metadata says that its bytes begin at chunkBase.
type chunk struct {
	data []byte
	own  bool // nobody else has its memory
	meta *pqmeta.ColumnChunkMetaDataBuilder
}

// codec compresses pages.
type codec struct {
	kind  compress.Compression
	props *parquet.WriterProperties // with it, and without any
	none  *parquet.WriterProperties
}

// compress appends nothing to dst: it writes over it.
func (c codec) compress(dst, page []byte) ([]byte, error) {
	if c.kind == compress.Codecs.Snappy {
		// The library takes the encoder that finds more, for several times the work.
		if n := s2.MaxEncodedLen(len(page)); cap(dst) < n {
			spare(dst)
			dst = grab[byte](n)
		}
		return s2.EncodeSnappy(dst[:cap(dst)], page), nil
	}
	by, err := compress.GetCodec(c.kind)
	if err != nil {
		return nil, err
	}
	if n := int(by.CompressBound(int64(len(page)))); cap(dst) < n {
		dst = make([]byte, n)
	}
	return by.Encode(dst[:0], page), nil
}

// tell is a buffer that knows how far it is, in a file that begins with magic.
type tell struct{ *bytes.Buffer }

func (t *tell) Tell() int64 { return chunkBase + int64(t.Len()) }

// chunkBase is where a chunk's metadata says that its bytes begin; the library takes a dictionary at 0 for none.
const chunkBase = 4

// chunkEncoder writes one column chunk.
type chunkEncoder struct {
	codec   codec
	col     *schema.Column
	v       *vec
	out     *tell
	pages   file.PageWriter
	squeeze bool // pages are compressed
	bits    int  // of a code
	buf     []byte
	small   []byte
	left    []int32
}

// encodeChunk encodes a flat column's rows as one chunk: as codes where few values come often, else plainly.
func encodeChunk(v *vec, col *schema.Column, by codec) (*chunk, error) {
	if v.valid != nil && col.MaxDefinitionLevel() == 0 {
		return nil, fmt.Errorf("column %q has nulls, and its file says that it has none", col.Name())
	}
	if v.dict != nil {
		less := v.shrink()
		if less != v {
			less.valid = slices.Clone(v.valid)
			defer less.spare()
		}
		v = less
	}
	e := &chunkEncoder{codec: by, col: col, v: v, out: &tell{&bytes.Buffer{}},
		squeeze: by.kind != compress.Codecs.Uncompressed}
	if v.dict != nil {
		e.bits = bitsFor(v.dict.n)
	}
	defer func() {
		spare(e.buf)
		spare(e.small)
		spare(e.left)
	}()
	if e.squeeze {
		// Packed codes are mostly as dense as they can be: then compressing them again is no use, here and where they
		// are read.
		first, err := e.page(0, e.pageEnd(0))
		if err != nil {
			return nil, err
		}
		if e.small, err = by.compress(e.small, first); err != nil {
			return nil, err
		}
		e.squeeze = len(e.small) < len(first)-len(first)/16 || v.dict != nil && v.dict.bytes() > len(first)
	}
	props, kind := by.props, by.kind
	if !e.squeeze {
		props, kind = by.none, compress.Codecs.Uncompressed
	}
	meta := pqmeta.NewColumnChunkMetaDataBuilder(props, col)
	var err error
	e.pages, err = file.NewPageWriter(e.out, kind, 0, meta, 0, 0, memory.DefaultAllocator, false, nil, nil)
	if err != nil {
		return nil, err
	}
	size := e.size()
	if v.dict != nil {
		size += v.dict.bytes()
	}
	e.out.Buffer = bytes.NewBuffer(grab[byte](size)[:0])
	if v.dict != nil {
		if err := e.dictionary(); err != nil {
			return nil, err
		}
	}
	for from := 0; from < v.n; {
		to := e.pageEnd(from)
		if err := e.write(from, to); err != nil {
			return nil, err
		}
		from = to
	}
	meta.SetStats(v.statistics(col))
	n := e.out.Len()
	if err := e.pages.Close(v.dict != nil, false); err != nil {
		return nil, err
	}
	// Close writes the chunk's metadata behind its pages, where no reader looks.
	return &chunk{data: e.out.Bytes()[:n], own: true, meta: meta}, nil
}

// size is about how many bytes the chunk will have, by its first page.
func (e *chunkEncoder) size() int {
	if e.v.n == 0 {
		return 0
	}
	first := e.pageEnd(0)
	all, part := e.v.n, first
	if e.v.dict == nil && e.v.width == 0 { // the first page may have one long text alone, and all others short ones
		all, part = 4*e.v.n+e.v.ends[e.v.n]-e.v.ends[0], 4*first+e.v.ends[first]-e.v.ends[0]
	}
	n := len(e.buf)
	if e.squeeze {
		n = len(e.small)
	} else if len(e.buf) == 0 {
		n = part * max(e.bits/8+1, e.v.width)
	}
	return int(float64(n)*float64(all)/float64(part)*1.05) + 1<<12
}

// pageEnd is where the page ends that begins at a row.
func (e *chunkEncoder) pageEnd(from int) int {
	to := min(from+pageRows, e.v.n)
	if e.v.dict == nil && e.v.width == 0 {
		over, _ := slices.BinarySearch(e.v.ends[from+1:to+1], e.v.ends[from]+pageBytes)
		to = min(to, from+over+1)
	} else if e.v.dict == nil {
		to = min(to, from+max(1, pageBytes/e.v.width))
	}
	return to
}

// page encodes the rows from … to-1, with their levels.
func (e *chunkEncoder) page(from, to int) ([]byte, error) {
	v, b := e.v.slice(from, to), e.buf[:0]
	if e.col.MaxDefinitionLevel() == 1 {
		b = append(b, 0, 0, 0, 0)
		b = v.packLevels(b)
		binary.LittleEndian.PutUint32(b, uint32(len(b)-4))
	}
	switch {
	case v.dict != nil:
		codes := v.codes
		if v.valid != nil {
			e.left = e.left[:0]
			for i, ok := range v.valid {
				if ok {
					e.left = append(e.left, codes[i])
				}
			}
			codes = e.left
		}
		b = packRuns(append(b, byte(e.bits)), codes, e.bits)
	case v.width > 0 && v.valid == nil:
		b = append(widen(b, len(v.fixed)), v.fixed...)
	case v.width > 0:
		b = widen(b, len(v.fixed))
		for i, ok := range v.valid {
			if ok {
				b = append(b, v.entry(i)...)
			}
		}
	default:
		b = widen(b, 4*v.n+v.ends[v.n]-v.ends[0])
		for i := range v.n {
			if v.valid == nil || v.valid[i] {
				x := v.string(i)
				b = append(binary.LittleEndian.AppendUint32(b, uint32(len(x))), x...)
			}
		}
	}
	e.buf = b
	if len(b) > math.MaxInt32 {
		return nil, fmt.Errorf("a value of %d bytes: a page has room for 2 GiB", len(b))
	}
	return b, nil
}

// packLevels appends which rows are there.
func (v *vec) packLevels(b []byte) []byte {
	if v.valid == nil {
		return append(binary.AppendUvarint(b, uint64(v.n)<<1), 1)
	}
	levels := make([]int32, v.n)
	for i, ok := range v.valid {
		if ok {
			levels[i] = 1
		}
	}
	return packRuns(b, levels, 1)
}

// packed gives what is written of a page.
func (e *chunkEncoder) packed(page []byte) (_ []byte, err error) {
	if !e.squeeze {
		return page, nil
	}
	e.small, err = e.codec.compress(e.small, page)
	return e.small, err
}

func (e *chunkEncoder) write(from, to int) error {
	page, err := e.page(from, to)
	if err != nil {
		return err
	}
	small, err := e.packed(page)
	if err != nil {
		return err
	}
	encoding := parquet.Encodings.Plain
	if e.v.dict != nil {
		encoding = parquet.Encodings.RLEDict
	}
	_, err = e.pages.WriteDataPage(file.NewDataPageV1(memory.NewBufferBytes(small), int32(to-from), encoding,
		parquet.Encodings.RLE, parquet.Encodings.RLE, int32(len(page))))
	return err
}

// dictionary writes the dictionary's page, which the library compresses.
func (e *chunkEncoder) dictionary() error {
	d := e.v.dict
	b := d.fixed
	if d.width == 0 {
		b = make([]byte, 0, len(d.text)+4*d.n)
		for i := range d.n {
			b = binary.LittleEndian.AppendUint32(b, uint32(len(d.string(i))))
			b = append(b, d.string(i)...)
		}
	}
	if len(b) > math.MaxInt32 {
		return fmt.Errorf("a dictionary of %d bytes: a page has room for 2 GiB", len(b))
	}
	_, err := e.pages.WriteDictionaryPage(file.NewDictionaryPage(memory.NewBufferBytes(b), int32(d.n),
		parquet.Encodings.Plain))
	return err
}

// shrink leaves those entries of a dictionary that rows have. Where that are more than half as many as rows, there is
// no dictionary.
func (v *vec) shrink() *vec {
	used, n := make([]bool, v.dict.n), 0
	if v.dict.n > 0 {
		for i, c := range v.codes {
			if v.valid == nil || v.valid[i] {
				used[c] = true
			}
		}
	}
	for _, u := range used {
		if u {
			n++
		}
	}
	if n > v.n/2 || n == 0 {
		return v.plain()
	}
	if n == v.dict.n {
		return v
	}
	rows, to := make([]uint32, 0, n), make([]int32, v.dict.n)
	for i, u := range used {
		if u {
			to[i] = int32(len(rows))
			rows = append(rows, uint32(i))
		}
	}
	out := &vec{n: v.n, width: v.width, dict: v.dict.gather(rows, false), codes: grab[int32](v.n), valid: v.valid}
	for i, c := range v.codes {
		out.codes[i] = to[c]
	}
	return out
}

// packRuns appends numbers of so many bits: those that come 24 times and more in a row as runs, the others packed.
func packRuns(b []byte, codes []int32, width int) []byte {
	const least = 24
	from := 0 // the first that is not written
	packTo := func(to int) {
		if n := to - from; n > 0 {
			groups := (n + 7) / 8
			b = binary.AppendUvarint(b, uint64(groups)<<1|1)
			at := len(b)
			b = slices.Grow(b, groups*width)[:at+groups*width]
			whole := n / 8 * 8
			bitpack.Pack(b[at:], codes[from:from+whole], uint(width))
			if whole < n {
				var last [8]int32
				copy(last[:], codes[from+whole:to])
				bitpack.Pack(b[at+whole/8*width:], last[:], uint(width))
			}
			from = to
		}
	}
	for i := 0; i+8 <= len(codes); {
		g := (*[8]int32)(codes[i : i+8])
		c := g[0]
		if (g[1]^c)|(g[2]^c)|(g[3]^c)|(g[4]^c)|(g[5]^c)|(g[6]^c)|(g[7]^c) != 0 {
			i += 8
			continue
		}
		end := i + 8
		for end < len(codes) && codes[end] == c {
			end++
		}
		if end-i < least {
			i += 8
			continue
		}
		packTo(i)
		b = binary.AppendUvarint(b, uint64(end-i)<<1)
		for k := range (width + 7) / 8 {
			b = append(b, byte(uint32(c)>>(8*k)))
		}
		from = end
		i = end
	}
	packTo(len(codes))
	return b
}

// statistics gives how many rows are null and the least and the largest of the others, where that can be told.
func (v *vec) statistics(col *schema.Column) pqmeta.EncodedStatistics {
	s := pqmeta.EncodedStatistics{Signed: col.SortOrder() == schema.SortSIGNED}
	nulls := 0
	for _, ok := range v.valid {
		if !ok {
			nulls++
		}
	}
	s.SetNullCount(int64(nulls))
	values, valid := v, v.valid
	if v.dict != nil {
		values, valid = v.dict, nil
	}
	lo, hi := -1, -1
	signed := col.SortOrder() == schema.SortSIGNED
	switch col.PhysicalType() {
	case parquet.Types.Int32:
		if signed {
			lo, hi = extremesOf(words[uint32](values.fixed), valid, func(w uint32) int32 { return int32(w) })
		} else if col.SortOrder() == schema.SortUNSIGNED {
			lo, hi = extremesOf(words[uint32](values.fixed), valid, func(w uint32) uint32 { return w })
		}
	case parquet.Types.Int64:
		if signed {
			lo, hi = extremesOf(words[uint64](values.fixed), valid, func(w uint64) int64 { return int64(w) })
		} else if col.SortOrder() == schema.SortUNSIGNED {
			lo, hi = extremesOf(words[uint64](values.fixed), valid, func(w uint64) uint64 { return w })
		}
	case parquet.Types.ByteArray:
		if col.SortOrder() == schema.SortUNSIGNED {
			lo, hi = values.textExtremes(valid)
		}
	}
	if lo >= 0 && len(values.entry(lo)) <= longestBound && len(values.entry(hi)) <= longestBound {
		// Copies: the footer keeps them to the end, and would keep the column with them.
		s.SetMin(bytes.Clone(values.entry(lo)))
		s.SetMax(bytes.Clone(values.entry(hi)))
	}
	return s
}

// extremesOf finds the rows of the least and the largest value; -1 without any.
func extremesOf[W any, T cmp.Ordered](w []W, valid []bool, as func(W) T) (lo, hi int) {
	lo, hi = -1, -1
	var least, most T
	for i, x := range w {
		if valid != nil && !valid[i] {
			continue
		}
		t := as(x)
		if lo < 0 || t < least {
			lo, least = i, t
		}
		if hi < 0 || t > most {
			hi, most = i, t
		}
	}
	return lo, hi
}

func (v *vec) textExtremes(valid []bool) (lo, hi int) {
	lo, hi = -1, -1
	for i := range v.n {
		if valid != nil && !valid[i] {
			continue
		}
		x := v.string(i)
		if lo < 0 || bytes.Compare(x, v.string(lo)) < 0 {
			lo = i
		}
		if hi < 0 || bytes.Compare(x, v.string(hi)) > 0 {
			hi = i
		}
	}
	return lo, hi
}
