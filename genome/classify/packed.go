package classify

import (
	"encoding/binary"
	"os"
	"slices"

	"github.com/warpmap/warpmap/internal/files"
)

// Pairs that are no more to be sorted are packed. A run has pairs in the order of their features, in parts by the
// features' highest bits. A feature is the difference to the one before in its part, or to the part's begin, the
// number of its locations, the first of them, and the differences from each to the next. All are in the variable length
// of encoding/binary, and so a pair takes about 8 bytes.
const (
	partShift = 16
	parts     = 1 << (32 - partShift)
	runBytes  = 64 << 20 // about: what a packer's memory grows to
)

type packed struct {
	first  int     // part
	begins []int64 // of this part and those behind it, and the end of the last
	data   []byte  // or
	file   *os.File
	at     int64 // in the file
}

// packer makes runs of features, which come in order. A run's data are good until done returns: see keep.
type packer struct {
	most int // locations of a feature
	done func(*packed) error
	run  *packed
	last uint32 // feature
	room []byte // for the next run
}

func newPacker(most int, done func(*packed) error) *packer { return &packer{most: most, done: done} }

// put packs a feature with its locations, which are in order.
func (p *packer) put(feature uint32, locations []uint64) error {
	part := int(feature >> partShift)
	if r := p.run; r != nil && len(r.data) >= runBytes && part > p.part() {
		if err := p.finish(); err != nil {
			return err
		}
	}
	if p.run == nil {
		p.run = &packed{first: part, begins: []int64{0}, data: p.room[:0]}
		p.last = uint32(part) << partShift
	}
	r := p.run
	for part > p.part() {
		r.begins = append(r.begins, int64(len(r.data)))
		p.last = uint32(p.part()) << partShift
	}
	locations = locations[:min(len(locations), p.most)]
	r.data = binary.AppendUvarint(r.data, uint64(feature-p.last))
	r.data = binary.AppendUvarint(r.data, uint64(len(locations)))
	before := uint64(0)
	for _, at := range locations {
		r.data = binary.AppendUvarint(r.data, at-before)
		before = at
	}
	p.last = feature
	return nil
}

// putAll packs features, whose locations begin, in order, where begins tells.
func (p *packer) putAll(features []uint32, begins, locations []uint64) error {
	for i, f := range features {
		if err := p.put(f, locations[begins[i]:begins[i+1]]); err != nil {
			return err
		}
	}
	return nil
}

// part is the one that features are now put in.
func (p *packer) part() int { return p.run.first + len(p.run.begins) - 1 }

// finish ends the run.
func (p *packer) finish() error {
	r := p.run
	if p.run = nil; r == nil {
		return nil
	}
	r.begins = append(r.begins, int64(len(r.data)))
	p.room = r.data
	return p.done(r)
}

// pairs appends the pairs of some parts. packed is memory for those that come from a file, and is given back.
func (r *packed) pairs(of stretch, packed []byte, to []pair) ([]byte, []pair, error) {
	from, end := max(of.from-r.first, 0), min(of.to-r.first, len(r.begins)-1)
	if from >= end {
		return packed, to, nil
	}
	data, n := r.data, r.begins[end]-r.begins[from]
	if r.file != nil {
		packed = slices.Grow(packed[:0], int(n))[:n]
		if _, err := r.file.ReadAt(packed, r.at+r.begins[from]); err != nil {
			return packed, to, err
		}
		data = packed
	} else {
		data = data[r.begins[from]:r.begins[end]]
	}
	for part := from; part < end; part++ {
		n := r.begins[part+1] - r.begins[part]
		to = unpack(data[:n], uint32(r.first+part)<<partShift, to)
		data = data[n:]
	}
	return packed, to, nil
}

// unpack appends the pairs of a part.
func unpack(data []byte, feature uint32, to []pair) []pair {
	for len(data) > 0 {
		more, n := binary.Uvarint(data)
		data = data[n:]
		feature += uint32(more)
		count, n := binary.Uvarint(data)
		data = data[n:]
		at := uint64(0)
		for range count {
			more, n := binary.Uvarint(data)
			data = data[n:]
			at += more
			to = append(to, pair{feature, at})
		}
	}
	return to
}

// keep keeps a run, in memory or, where there is no room, in a temporary file.
func (b *Builder) keep(r *packed) error {
	b.kept.Lock()
	defer b.kept.Unlock()
	n := int64(len(r.data))
	if b.packed+n <= b.MaxMemory/2 {
		b.packed += n
		r.data = append(make([]byte, 0, n), r.data...)
		return nil
	}
	if b.file == nil {
		var err error
		if b.file, err = files.Temporary(""); err != nil {
			return err
		}
	}
	if _, err := b.file.WriteAt(r.data, b.written); err != nil {
		return err
	}
	r.file, r.at, r.data = b.file, b.written, nil
	b.written += n
	return nil
}

// drop forgets runs, the last that were kept.
func (b *Builder) drop(runs []*packed) {
	for _, r := range runs {
		if r.file == nil {
			b.packed -= int64(len(r.data))
		} else {
			b.written = min(b.written, r.at)
		}
	}
}

// sort sorts the pairs that CPU devices have made so far.
func (b *Builder) sort() {
	b.pairs, b.room = sorted(b.pairs, b.room, func(p pair) uint32 { return p.feature }), b.pairs
}

// pack sorts these pairs, and packs them.
func (b *Builder) pack() error {
	b.sort()
	all := b.pairs
	b.pairs = b.pairs[:0]
	if b.packer == nil {
		b.packer = newPacker(b.o.MaxLocations, func(r *packed) error {
			b.runs = append(b.runs, r)
			return b.keep(r)
		})
	}
	p := b.packer
	var l []uint64
	for len(all) > 0 {
		l = l[:0]
		n := 0
		for ; n < len(all) && all[n].feature == all[0].feature; n++ {
			l = append(l, all[n].location)
		}
		if n > 1 && !slices.IsSorted(l) {
			slices.Sort(l)
		}
		if err := p.put(all[0].feature, l); err != nil {
			return err
		}
		all = all[n:]
	}
	return p.finish()
}
