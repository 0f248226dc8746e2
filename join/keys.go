package join

import (
	"fmt"
	"hash/maphash"
	"math"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
)

// Pair names one key column on each side.
type Pair struct{ Build, Probe string }

// ParseOn reads a list of key columns in the form of the command's --on: build=probe, separated by commas. A name alone
// stands for both sides. A backslash before ',', '=' or '\' makes it part of a name.
func ParseOn(s string) ([]Pair, error) {
	var pairs []Pair
	var names []string
	var name strings.Builder
	end := func() error {
		names = append(names, name.String())
		name.Reset()
		if len(names) > 2 || slices.Contains(names, "") {
			return fmt.Errorf("key columns %q: want build_col=probe_col, separated by commas", s)
		}
		pairs = append(pairs, Pair{names[0], names[len(names)-1]})
		names = names[:0]
		return nil
	}
	escaped := false
	for _, c := range []byte(s) {
		switch {
		case escaped:
			if c != ',' && c != '=' && c != '\\' {
				return nil, fmt.Errorf("key columns %q: a backslash stands before ',', '=' or '\\' only", s)
			}
			name.WriteByte(c)
			escaped = false
		case c == '\\':
			escaped = true
		case c == '=':
			names = append(names, name.String())
			name.Reset()
		case c == ',':
			if err := end(); err != nil {
				return nil, err
			}
		default:
			name.WriteByte(c)
		}
	}
	if escaped {
		return nil, fmt.Errorf("key columns %q: a backslash at the end", s)
	}
	return pairs, end()
}

// FormatOn is the inverse of ParseOn: it writes key columns as a list that ParseOn reads.
func FormatOn(pairs []Pair) string {
	var s []string
	for _, p := range pairs {
		s = append(s, escaped(p.Build)+"="+escaped(p.Probe))
	}
	return strings.Join(s, ",")
}

// escaped is a name as ParseOn and ParseTypes read it.
func escaped(name string) string {
	return strings.NewReplacer(`\`, `\\`, `,`, `\,`, `=`, `\=`).Replace(name)
}

// ParseNames reads a list of columns in the form of the command's --select: names separated by commas. A backslash
// before ',' or '\' makes it part of a name.
func ParseNames(s string) ([]string, error) {
	var names []string
	var name strings.Builder
	escaped := false
	for _, c := range []byte(s + ",") {
		switch {
		case escaped && c != ',' && c != '\\':
			return nil, fmt.Errorf("columns %q: a backslash stands before ',' or '\\' only", s)
		case escaped:
			name.WriteByte(c)
			escaped = false
		case c == '\\':
			escaped = true
		case c == ',' && name.Len() == 0:
			return nil, fmt.Errorf("columns %q: want names, separated by commas", s)
		case c == ',':
			names = append(names, name.String())
			name.Reset()
		default:
			name.WriteByte(c)
		}
	}
	if escaped || name.Len() > 0 {
		return nil, fmt.Errorf("columns %q: a backslash at the end", s)
	}
	return names, nil
}

// domain is what the values of a key column mean. Only columns of one kind can be equal.
type domain struct {
	kind   string // "integer", "date", "time", "timestamp", "timestamp with time zone", "duration", "null"
	unit   int64  // the column's unit, in nanoseconds or (date) milliseconds; 1 for integers; of decimals their scale
	lo, hi int64  // range of the values; of uint64, hi stands for 2⁶⁴-1
	u64    bool
}

var units = map[arrow.TimeUnit]int64{arrow.Second: 1e9, arrow.Millisecond: 1e6, arrow.Microsecond: 1e3,
	arrow.Nanosecond: 1}

func domainOf(t arrow.DataType) (domain, bool) {
	whole := domain{lo: math.MinInt64, hi: math.MaxInt64}
	half := domain{lo: math.MinInt32, hi: math.MaxInt32}
	as := func(d domain, kind string, unit int64) (domain, bool) { d.kind, d.unit = kind, unit; return d, true }
	switch t := t.(type) {
	case *arrow.Int8Type:
		return domain{"integer", 1, math.MinInt8, math.MaxInt8, false}, true
	case *arrow.Int16Type:
		return domain{"integer", 1, math.MinInt16, math.MaxInt16, false}, true
	case *arrow.Int32Type:
		return as(half, "integer", 1)
	case *arrow.Int64Type:
		return as(whole, "integer", 1)
	case *arrow.Uint8Type:
		return domain{"integer", 1, 0, math.MaxUint8, false}, true
	case *arrow.Uint16Type:
		return domain{"integer", 1, 0, math.MaxUint16, false}, true
	case *arrow.Uint32Type:
		return domain{"integer", 1, 0, math.MaxUint32, false}, true
	case *arrow.Uint64Type:
		return domain{"integer", 1, 0, math.MaxInt64, true}, true
	case *arrow.Date32Type:
		return as(half, "date", 86_400_000)
	case *arrow.Date64Type:
		return as(whole, "date", 1)
	case *arrow.Time32Type:
		return as(half, "time", units[t.Unit])
	case *arrow.Time64Type:
		return as(whole, "time", units[t.Unit])
	case *arrow.DurationType:
		return as(whole, "duration", units[t.Unit])
	case *arrow.TimestampType:
		if t.TimeZone != "" {
			return as(whole, "timestamp with time zone", units[t.Unit])
		}
		return as(whole, "timestamp without time zone", units[t.Unit])
	case *arrow.NullType:
		return as(domain{}, "null", 1)
	}
	return wideDomain(t)
}

// meet gives two columns of different kinds that can be equal the same one: numbers of all kinds, and dates with
// timestamps that have no time zone. So does SQL.
func meet(a, b *domain) {
	if a.kind == b.kind {
		return
	}
	for _, d := range [][2]*domain{{a, b}, {b, a}} {
		if x, y := d[0], d[1]; x.kind == "date" && y.kind == "timestamp without time zone" {
			x.kind, x.unit = y.kind, x.unit*1e6
			return
		}
	}
	rank := map[string]int{"integer": 1, "decimal": 2, "float": 3}
	if rank[a.kind] == 0 || rank[b.kind] == 0 {
		return
	}
	if rank[a.kind] > rank[b.kind] {
		a, b = b, a
	}
	a.kind, a.u64 = b.kind, false
	if a.unit = 0; b.kind == "float" { // of decimals: digits behind the point
		b.unit = 0
	}
}

func isFloat32(t arrow.DataType) bool { return t.ID() == arrow.FLOAT32 }
func isFloat64(t arrow.DataType) bool { return t.ID() == arrow.FLOAT64 }

// key is one pair of key columns: how either side's values become the same few bytes. A value that the other side's
// type cannot hold matches nothing, so only the intersection of the two ranges counts, and its width is that of the
// narrower type.
type key struct {
	build, probe       int // column indices
	buildDiv, probeDiv int64
	lo, hi             int64 // of the values after division
	buildDrop          int   // digits behind the point of decimals that the other side does not have
	probeDrop          int
	u64                bool // both sides are uint64: all values count
	none               bool // one side's column is of the null type: nothing matches
	kind               string
	single             bool // of floats: numbers are rounded to float32, as there is no float64
	bytes              int
	word               int  // which word of the packed key
	shift              uint // and where in it
}

// keyPlan is a join's keys, packed into one word of up to 8 bytes or two.
type keyPlan struct {
	keys  []key
	bytes [2]int // used in each word

	wide       bool // keys are hashed, see wide.go
	seed       maphash.Seed
	nullsEqual bool // a null equals a null; such keys are wide
}

// planKeys finds the key columns on both sides and lays out the packed key.
func planKeys(build, probe *arrow.Schema, on []Pair, nullsEqual bool) (*keyPlan, error) {
	if len(on) == 0 {
		return nil, &OptionError{"no key columns: name at least one pair, build_col=probe_col"}
	}
	p := &keyPlan{wide: nullsEqual, nullsEqual: nullsEqual}
	total := 0
	for _, o := range on {
		b, bd, err := keyColumn("build", build, o.Build)
		if err != nil {
			return nil, err
		}
		r, rd, err := keyColumn("probe", probe, o.Probe)
		if err != nil {
			return nil, err
		}
		single := isFloat32(build.Field(b).Type) || isFloat32(probe.Field(r).Type)
		meet(&bd, &rd)
		k := key{build: b, probe: r, buildDiv: 1, probeDiv: 1, lo: max(bd.lo, rd.lo), hi: min(bd.hi, rd.hi),
			u64: bd.u64 && rd.u64, kind: bd.kind,
			single: single && !isFloat64(build.Field(b).Type) && !isFloat64(probe.Field(r).Type)}
		p.wide = p.wide || wideKinds[bd.kind]
		switch {
		case bd.kind == "null" || rd.kind == "null":
			k.none, k.bytes = true, 1
		case bd.kind != rd.kind:
			e := &keyTypeError{side: "build", column: b, both: &[2]int{b, r}, advice: "cast one of them",
				text: fmt.Sprintf("key columns %s (build, %s) and %s (probe, %s) hold different things, %s and %s",
					o.Build, build.Field(b).Type, o.Probe, probe.Field(r).Type, kindNames[bd.kind], kindNames[rd.kind])}
			if rd.kind == "string" {
				e.side, e.column = "probe", r
			}
			return nil, e
		case bd.kind == "decimal":
			// Here, too, the finer side is divided: no number is too large for that.
			k.buildDrop, k.probeDrop = int(max(0, bd.unit-rd.unit)), int(max(0, rd.unit-bd.unit))
		case bd.unit != rd.unit:
			// The finer side is divided; what leaves a remainder has no equal on the other.
			unit := max(bd.unit, rd.unit)
			k.buildDiv, k.probeDiv = unit/bd.unit, unit/rd.unit
			k.lo, k.hi = math.MinInt64, math.MaxInt64
			if bd.unit == unit {
				k.lo, k.hi = bd.lo, bd.hi
			} else {
				k.lo, k.hi = rd.lo, rd.hi
			}
		}
		if !k.none {
			k.bytes = width(k.lo, k.hi, k.u64)
		}
		total += k.bytes
		p.keys = append(p.keys, k)
	}
	if p.wide = p.wide || total > 16; p.wide {
		p.bytes[0], p.seed = 8, maphash.MakeSeed()
		return p, nil
	}
	// Widths are powers of two, so the widest first fill words without a gap.
	order := make([]int, len(p.keys))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return p.keys[b].bytes - p.keys[a].bytes })
	for _, i := range order {
		k := &p.keys[i]
		if p.bytes[0]+k.bytes > 8 {
			k.word = 1
		}
		k.shift = uint(8 * p.bytes[k.word])
		p.bytes[k.word] += k.bytes
	}
	return p, nil
}

// width is how many bytes tell all values of a range apart when they are cut to it.
func width(lo, hi int64, u64 bool) int {
	switch {
	case u64:
		return 8
	case lo >= math.MinInt8 && hi <= math.MaxInt8, lo >= 0 && hi <= math.MaxUint8:
		return 1
	case lo >= math.MinInt16 && hi <= math.MaxInt16, lo >= 0 && hi <= math.MaxUint16:
		return 2
	case lo >= math.MinInt32 && hi <= math.MaxInt32, lo >= 0 && hi <= math.MaxUint32:
		return 4
	}
	return 8
}

func keyColumn(side string, s *arrow.Schema, name string) (int, domain, error) {
	at := s.FieldIndices(name)
	switch len(at) {
	case 0:
		return 0, domain{}, &OptionError{fmt.Sprintf("the %s side has no column %q; its columns: %s", side, name,
			columnNames(s))}
	case 1:
	default:
		return 0, domain{}, fmt.Errorf("the %s side has %d columns named %q: rename all but one", side, len(at), name)
	}
	t := s.Field(at[0]).Type
	d, ok := domainOf(t)
	if !ok {
		return 0, domain{}, &keyTypeError{side: side, column: at[0],
			text: fmt.Sprintf("key column %q of the %s side is %s", name, side, t),
			advice: "not a key type (numbers, text, binary values, UUIDs, booleans, dates, times, timestamps and " +
				"durations are)"}
	}
	return at[0], d, nil
}

// keyTypeError is of a key column whose type cannot be a key, or not one with the other side's.
type keyTypeError struct {
	side   string
	column int
	both   *[2]int // of a pair that does not fit: its columns on the build and on the probe side
	text   string
	advice string
}

func (e *keyTypeError) Error() string { return e.text + ": " + e.advice }

// kindNames are the kinds of key columns as an error says them.
var kindNames = map[string]string{"integer": "an integer", "date": "a date", "time": "a time",
	"timestamp with time zone":    "a timestamp with time zone",
	"timestamp without time zone": "a timestamp without time zone", "duration": "a duration", "string": "text",
	"binary": "a binary value", "float": "a float",
	"boolean": "a boolean", "decimal": "a decimal"}

func columnNames(s *arrow.Schema) string {
	if s.NumFields() == 0 {
		return "none"
	}
	names := make([]string, s.NumFields())
	for i := range names {
		names[i] = s.Field(i).Name
	}
	return strings.Join(names, ", ")
}

// packed is the keys of a stretch of rows: the words, and whether a row can match at all.
type packed struct {
	words [2][]uint64 // the second is nil for keys of up to 8 bytes
	ok    []bool
	wide  []*vec   // the columns of a wide key
	parts [][]*vec // and, until settle, what they are made of
}

func (p *keyPlan) two() bool { return p.bytes[1] > 0 }

// grow adds room for n rows, all zero and able to match.
func (p *keyPlan) grow(out *packed, n int) {
	add := func(words []uint64) []uint64 {
		from := len(words)
		words = slices.Grow(words, n)[:from+n]
		clear(words[from:])
		return words
	}
	out.words[0] = add(out.words[0])
	if p.two() {
		out.words[1] = add(out.words[1])
	}
	from := len(out.ok)
	out.ok = slices.Grow(out.ok, n)[:from+n]
	for i := range out.ok[from:] {
		out.ok[from+i] = true
	}
}

// pack appends the keys of a record batch's rows.
func (p *keyPlan) pack(out *packed, rec arrow.RecordBatch, build bool) error {
	columns := make([]keyData, len(p.keys))
	for i, k := range p.keys {
		at := k.probe
		if build {
			at = k.build
		}
		columns[i] = keyData{arrays: []arrow.Array{rec.Column(at)}}
	}
	from := len(out.ok)
	p.grow(out, int(rec.NumRows()))
	part := out.slice(from, len(out.ok))
	if err := p.packColumns(part, columns, build); err != nil || !p.wide {
		return err
	}
	if out.parts == nil {
		out.parts = make([][]*vec, len(p.keys))
	}
	for i, v := range part.wide {
		out.parts[i] = append(out.parts[i], v)
	}
	return nil
}

// settle puts the columns of wide keys together that came in parts.
func (p *packed) settle() {
	for i, vecs := range p.parts {
		vecs = slices.DeleteFunc(vecs, func(v *vec) bool { return v.n == 0 })
		if len(vecs) == 0 {
			vecs = []*vec{{width: 8}}
		}
		p.wide = append(p.wide[:i], concat(vecs))
	}
	p.parts = nil
}

// packColumns fills in the keys of rows that grow has made room for.
func (p *keyPlan) packColumns(out *packed, columns []keyData, build bool) error {
	for i := range p.keys {
		k, div, drop := &p.keys[i], p.keys[i].probeDiv, p.keys[i].probeDrop
		if build {
			div, drop = k.buildDiv, k.buildDrop
		}
		if p.wide {
			v, err := p.wideColumn(k, columns[i], div, drop, out.ok)
			if err != nil {
				return err
			}
			out.wide = append(out.wide, v)
			continue
		}
		at := 0
		for _, a := range columns[i].arrays {
			k.column(a, div, out.words[k.word][at:at+a.Len()], out.ok[at:at+a.Len()])
			at += a.Len()
		}
	}
	if p.wide {
		p.hash(out.wide, out.words[0])
	}
	return nil
}

func (k *key) column(a arrow.Array, div int64, words []uint64, ok []bool) {
	if k.none {
		clear(ok)
		return
	}
	switch a := a.(type) {
	case *array.Int8:
		packInts(k, a.Values(), div, words, ok)
	case *array.Int16:
		packInts(k, a.Values(), div, words, ok)
	case *array.Int32:
		packInts(k, a.Values(), div, words, ok)
	case *array.Int64:
		packInts(k, a.Values(), div, words, ok)
	case *array.Uint8:
		packInts(k, a.Values(), div, words, ok)
	case *array.Uint16:
		packInts(k, a.Values(), div, words, ok)
	case *array.Uint32:
		packInts(k, a.Values(), div, words, ok)
	case *array.Uint64:
		for i, v := range a.Values() {
			if !k.u64 && v > uint64(k.hi) {
				ok[i] = false
			}
			words[i] |= v & (1<<(8*k.bytes) - 1) << k.shift // 1<<64 is 0 in Go, so 8 bytes keep all
		}
	case *array.Date32:
		packInts(k, a.Values(), div, words, ok)
	case *array.Date64:
		packInts(k, a.Values(), div, words, ok)
	case *array.Time32:
		packInts(k, a.Values(), div, words, ok)
	case *array.Time64:
		packInts(k, a.Values(), div, words, ok)
	case *array.Timestamp:
		packInts(k, a.Values(), div, words, ok)
	case *array.Duration:
		packInts(k, a.Values(), div, words, ok)
	default:
		panic(fmt.Sprintf("join: a key column of type %s", a.DataType())) // keyColumn lets none in
	}
	if a.NullN() > 0 {
		for i := range ok {
			if a.IsNull(i) {
				ok[i] = false
			}
		}
	}
}

func packInts[T ~int8 | ~int16 | ~int32 | ~int64 | ~uint8 | ~uint16 | ~uint32](k *key, values []T, div int64,
	words []uint64, ok []bool) {
	mask := uint64(1)<<(8*k.bytes) - 1
	for i, x := range values {
		v := int64(x)
		if div != 1 {
			if v%div != 0 {
				ok[i] = false
			}
			v /= div
		}
		if v < k.lo || v > k.hi {
			ok[i] = false
		}
		words[i] |= uint64(v) & mask << k.shift
	}
}
