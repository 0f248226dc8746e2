package join

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/parquet"
	"github.com/apache/arrow-go/v18/parquet/file"
	pqmeta "github.com/apache/arrow-go/v18/parquet/metadata"
	"github.com/apache/arrow-go/v18/parquet/schema"
)

// Where a file has an index of its pages, those are passed over in which no wanted row stands: pages of keys by their
// least and largest value, pages of other columns by the rows that come out. Rows that are passed over read as nulls,
// which match nothing.

// stretch is a page by the file's index: its rows, and the least and largest of its values.
type stretch struct {
	from, to int
	lo, hi   int64
	known    bool // lo and hi are; of a page of nulls, lo is above hi
}

// wanted says which pages are to be read; nil wants all.
type wanted struct {
	rows      []uint32 // those with some of these, which rise; or, where it is nil,
	low, high int64    // those with values between these
	skipped   *int64   // counts the others
}

func (w *wanted) page(s stretch) (read bool) {
	if w.rows == nil {
		read = !s.known || s.hi >= w.low && s.lo <= w.high
	} else {
		i, _ := slices.BinarySearch(w.rows, uint32(s.from))
		read = i < len(w.rows) && int(w.rows[i]) < s.to
	}
	if !read {
		atomic.AddInt64(w.skipped, 1)
	}
	return read
}

// stretches are a flat field's pages in a row group, with their values' extremes if need be; nil where the file has no
// index of them, or not one that can be.
func (p *parquetFile) stretches(group, field int, values bool) (out []stretch) {
	err := catch(broken, func() error {
		index, err := p.raw.GetPageIndexReader().RowGroup(group)
		if err != nil || index == nil {
			return err
		}
		leaf, rows := p.leaves[field][0], p.pf.MetaData().RowGroup(group).NumRows()
		places, err := index.GetOffsetIndex(leaf)
		if err != nil || places == nil {
			return err
		}
		pages := places.GetPageLocations()
		for i, page := range pages {
			s := stretch{from: int(page.FirstRowIndex), to: int(rows)}
			if i+1 < len(pages) {
				s.to = int(pages[i+1].FirstRowIndex)
			}
			if s.from >= s.to || int64(s.to) > rows || i == 0 && s.from != 0 {
				return fmt.Errorf("%s: an index with a page of the rows from %d to %d", broken, s.from, s.to)
			}
			out = append(out, s)
		}
		if !values {
			return nil
		}
		return p.extremes(index, leaf, p.flat(field), out)
	})
	if err != nil {
		return nil
	}
	return out
}

// extremes fills in what the index says of the values of signed numbers.
func (p *parquetFile) extremes(index *pqmeta.RowGroupPageIndexReader, leaf int, col *schema.Column,
	pages []stretch) error {
	t := col.PhysicalType()
	if col.SortOrder() != schema.SortSIGNED || t != parquet.Types.Int32 && t != parquet.Types.Int64 {
		return nil
	}
	values, err := index.GetColumnIndex(leaf)
	if err != nil || values == nil {
		return err
	}
	if nulls := values.GetNullPages(); len(nulls) != len(pages) {
		return errors.New("an index of other pages")
	}
	for i, null := range values.GetNullPages() {
		s := &pages[i]
		s.known = true
		if s.lo, s.hi = math.MaxInt64, math.MinInt64; null {
			continue
		}
		switch values := values.(type) {
		case *pqmeta.TypedColumnIndex[int32]:
			s.lo, s.hi = int64(values.MinValues()[i]), int64(values.MaxValues()[i])
		case *pqmeta.TypedColumnIndex[int64]:
			s.lo, s.hi = values.MinValues()[i], values.MaxValues()[i]
		}
		s.known = s.lo <= s.hi
	}
	return nil
}

// some decodes the wanted pages of a flat field; nil where all are wanted, or the file's index is none or wrong.
func (p *parquetFile) some(group, field int, want *wanted, each func(v *vec, from int) error) (v *vec) {
	if want == nil {
		return nil
	}
	var read []bool
	pages := p.stretches(group, field, want.rows == nil)
	for _, s := range pages {
		read = append(read, want.page(s))
	}
	if !slices.Contains(read, false) {
		return nil
	}
	err := catch(broken, func() error {
		in, err := p.raw.RowGroup(group).GetColumnPageReader(p.leaves[field][0])
		if err != nil {
			return err
		}
		defer in.Close()
		v, err = decodeSome(in, p.flat(field), pages, read, each)
		return err
	})
	if err != nil {
		return nil
	}
	return v
}

// decodeSome is decodeChunk of some pages.
func decodeSome(in file.PageReader, c *schema.Column, pages []stretch, read []bool,
	each func(v *vec, from int) error) (*vec, error) {
	d := newChunkDecoder(c, pages[len(pages)-1].to, each)
	dict, err := in.GetDictionaryPage()
	if err == nil && dict != nil {
		err = d.dictionary(dict)
	}
	for i, s := range pages {
		if err != nil {
			return nil, err
		}
		switch {
		case !read[i]:
			d.absent(s.to - s.from)
		case i > 0 && read[i-1]:
			if in.Next() {
				err = d.take(in.Page())
			}
		default:
			if err = in.SeekToPageWithRow(int64(s.from)); err == nil {
				err = d.take(in.Page())
			}
		}
		if err == nil && d.passed+d.out.n != s.to {
			err = fmt.Errorf("%s: a page that ends at row %d, and at %d by the index", broken, d.passed+d.out.n, s.to)
		}
		if err == nil && d.each != nil && d.out.n > 0 {
			err = d.pass()
		}
	}
	if err == nil {
		err = in.Err()
	}
	if err != nil {
		return nil, err
	}
	return d.end()
}

// absent appends rows that are not read.
func (d *chunkDecoder) absent(n int) {
	d.mark(make([]bool, n), n)
	d.out.n += n
	switch {
	case d.coded && d.dict != nil:
		if d.out.codes == nil {
			d.out.codes = grab[int32](d.room)[:0]
		}
		d.out.codes, d.out.dict = zeros(d.out.codes, n), d.dict
		return
	case d.out.width > 0:
		d.out.fixed = zeros(d.out.fixed, n*d.out.width)
	default:
		d.out.ends = widen(d.out.ends, n)
		for range n {
			d.out.ends = append(d.out.ends, len(d.out.text))
		}
	}
	d.coded = false
}

// zeros appends zeros.
func zeros[T plainData](s []T, n int) []T {
	s = widen(s, n)[:len(s)+n]
	clear(s[len(s)-n:])
	return s
}
