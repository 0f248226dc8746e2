package stadium

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/internal/bench/baseline"
	"github.com/warpmap/warpmap/stadium"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/workload"
)

// store is a table that takes batches. table.Map is one.
type store[K, V workload.Wide] interface {
	Clear() error
	InsertOn(st *device.Stream, keys device.Slice[K], values device.Slice[V]) error
	FindOn(st *device.Stream, keys device.Slice[K], values device.Slice[V], found device.Slice[bool]) error
	DeleteOn(st *device.Stream, keys device.Slice[K], deleted device.Slice[bool]) error
	Stats() (table.Stats, error)
	Close() error
}

// setting is what a figure wants of its tables.
type setting struct {
	pairs int
	load  float64
	host  bool // the pairs lie in pinned host memory
	mixed bool // inserts run beside look-ups
}

// runs is how often a batch is timed: across the bus it takes long, and hardly varies.
func (s setting) runs() int {
	if s.host {
		return 3
	}
	return bench.Runs
}

// subject is a table to measure.
type subject[K, V workload.Wide] struct {
	name   string
	way    string // the name without the bits of a ticket
	ticket any    // these; nil where there are no tickets
	erases bool
	make   func(d *device.Device, s setting) (store[K, V], error)
}

// opened keeps a nil table from becoming a store that is not nil.
func opened[K, V workload.Wide, T store[K, V]](t T, err error) (store[K, V], error) {
	if err != nil {
		return nil, err
	}
	return t, nil
}

// published is the paper's table.
func published[K, V workload.Wide](l lanes, ticket int) subject[K, V] {
	return subject[K, V]{fmt.Sprintf("%v %d", l, ticket), l.String(), ticket, true, func(d *device.Device, s setting) (store[K, V], error) {
		return opened[K, V](newStash[K, V](d, stashOptions{pairs: s.pairs, load: s.load, ticket: ticket, lanes: l, host: s.host, access: s.mixed}))
	}}
}

// boardless is the paper's table whose look-ups compare keys at once.
func boardless[K, V workload.Wide]() subject[K, V] {
	return subject[K, V]{"Stash, no board in look-ups", "Stash", 1, false, func(d *device.Device, s setting) (store[K, V], error) {
		return opened[K, V](newStash[K, V](d, stashOptions{pairs: s.pairs, load: s.load, ticket: 1, host: s.host, without: true}))
	}}
}

// improved is the table of package stadium.
func improved[K, V workload.Wide](ticket int) subject[K, V] {
	return subject[K, V]{fmt.Sprintf("stadium %d", ticket), "stadium", ticket, true, func(d *device.Device, s setting) (store[K, V], error) {
		o := stadium.Options{Options: table.Options{Capacity: s.pairs, LoadFactor: s.load}, Ticket: ticket}
		if s.host {
			o.DeviceBytes = -1
		}
		return opened[K, V](stadium.New[K, V](d, o))
	}}
}

// cuckoo is CUDPP's table as a store. A batch is added to what is in it.
type cuckoo struct {
	*baseline.Cuckoo
	d     *device.Device
	pairs int
}

// Clear empties the table.
func (c *cuckoo) Clear() error { return c.Begin(c.d.Stream(), c.pairs) }

// InsertOn adds pairs.
func (c *cuckoo) InsertOn(st *device.Stream, keys, values device.Slice[uint32]) error {
	return c.AddOn(st, keys, values)
}

// DeleteOn is none of CUDPP's.
func (c *cuckoo) DeleteOn(*device.Stream, device.Slice[uint32], device.Slice[bool]) error {
	return errors.ErrUnsupported
}

// Stats waits. Pairs without a place are an error: CUDPP would build the table again.
func (c *cuckoo) Stats() (table.Stats, error) {
	homeless, err := c.Homeless(c.d.Stream())
	if err == nil && homeless > 0 {
		err = fmt.Errorf("cuckoo: %d pairs found no place", homeless)
	}
	s, wrong := c.Cuckoo.Stats()
	return s, errors.Join(err, wrong)
}

func cudpp() subject[uint32, uint32] {
	return subject[uint32, uint32]{"cuckoo", "cuckoo", nil, false, func(d *device.Device, s setting) (store[uint32, uint32], error) {
		open := baseline.NewCuckoo
		if s.host {
			open = baseline.NewHostCuckoo
		}
		c, err := open(d, s.pairs, s.load)
		return opened[uint32, uint32](&cuckoo{c, d, s.pairs}, err)
	}}
}

// tickets are the sizes that a figure varies.
type tickets struct{ published, improved []int }

var all = tickets{[]int{1, 2, 4, 8}, []int{1, 2, 4, 8, 16}}

// with are the paper's tables, and those of package stadium.
func with[K, V workload.Wide](t tickets, ways ...lanes) (list []subject[K, V]) {
	for _, l := range ways {
		for _, bits := range t.published {
			list = append(list, published[K, V](l, bits))
		}
	}
	for _, bits := range t.improved {
		list = append(list, improved[K, V](bits))
	}
	return list
}

// sizes are the paper's numbers of pairs, where o.N is the largest.
func sizes(n int) (list []int) {
	for i := 6; i >= 0; i-- {
		if n>>i >= 64 {
			list = append(list, n>>i)
		}
	}
	return list
}

const (
	seed = 1

	namesNote = "Stash, clStash, hybrid: the paper's table as published, the number being the bits of a ticket; stadium: that of package stadium"
	timesNote = "rates are medians of device time; a table is empty at first, and emptying it is not timed. In host memory: of 3 runs, else of 5"
)

var hybridNote = fmt.Sprintf("hybrid: lanes work together from %g, %g, %g and %g of the buckets on, with tickets of 1, 2, 4 and 8 bits", hybridFrom[1], hybridFrom[2], hybridFrom[4], hybridFrom[8])

// batches are pairs, and look-ups of which all hit, and of which half do.
type batches[K, V workload.Wide] struct {
	*bench.Work[K, V]
	asked [2]questions[K]
}

type questions[K any] struct {
	keys   device.Slice[K]
	expect device.Slice[byte]
}

var hitShares = [2]float64{1, 0.5}

func newBatches[K, V workload.Wide](d *device.Device, n int) (b *batches[K, V], err error) {
	var key K
	var value V
	b = &batches[K, V]{}
	o := bench.TableOptions{Keys: "rand", KeyBytes: int(unsafe.Sizeof(key)), ValueBytes: int(unsafe.Sizeof(value)), N: n, Queries: n, Hits: hitShares[0], Seed: seed}
	if b.Work, err = bench.NewWork[K, V](d, o); err != nil {
		return nil, err
	}
	b.asked[0] = questions[K]{b.Queries, b.Expect}
	var wrong error
	b.asked[1].keys, err = device.Make[K](d, n)
	b.asked[1].expect, wrong = device.Make[byte](d, n)
	if err = errors.Join(err, wrong); err == nil {
		b.ask(1)
		err = b.Ask(hitShares[1], 0)
	}
	if err != nil {
		b.free()
		return nil, err
	}
	return b, nil
}

func (b *batches[K, V]) ask(i int) { b.Queries, b.Expect = b.asked[i].keys, b.asked[i].expect }

func (b *batches[K, V]) free() {
	b.ask(0)
	b.Work.Free()
	bench.Free(b.asked[1].keys, b.asked[1].expect)
}

// rates are billions a second; nil where there is none.
type rates struct {
	insert, erase any
	find          [2]any // by hitShares
	wrong         any
	note          string
}

// cells are those of rateColumns.
func (r rates) cells() []any {
	return []any{r.insert, r.find[0], r.find[1], r.erase, r.wrong, r.note}
}

var rateColumns = []string{"insert G/s", "find G/s, all hits", "find G/s, half hits", "delete G/s", "wrong", "note"}

// parts of a measurement.
const (
	inserts = 1 << iota
	finds
	deletions
)

// measure times a table. An error that leaves the device working is a note.
func (b *batches[K, V]) measure(x subject[K, V], s setting, parts int) (rates, error) {
	r, err := b.try(x, s, parts)
	if err != nil {
		note, err := bench.Refusal(err)
		return rates{note: note}, err
	}
	return r, nil
}

func (b *batches[K, V]) try(x subject[K, V], s setting, parts int) (r rates, err error) {
	t, err := x.make(b.Device, s)
	if err != nil {
		return r, err
	}
	defer func() { err = errors.Join(err, t.Close()) }()
	st, n, wrong := b.Device.Stream(), b.Options.N, 0
	fill := func() error { return t.InsertOn(st, b.Keys, b.Values) }
	if parts&inserts != 0 {
		took, err := bench.Timed(b.Device, st, s.runs(), t.Clear, fill)
		if err != nil {
			return r, fmt.Errorf("insert: %w", err)
		}
		r.insert = bench.Round(bench.Rate(n, took))
	} else if err = errors.Join(t.Clear(), fill()); err != nil {
		return r, err
	}
	stats, err := t.Stats()
	if err != nil {
		return r, err
	}
	if wrong += max(stats.Len-n, n-stats.Len); s.host != (stats.HostBytes > 0) {
		return r, fmt.Errorf("%d bytes of the table are in host memory", stats.HostBytes)
	}
	for i := range b.asked {
		b.ask(i)
		look := func() error { return t.FindOn(st, b.Queries, b.Results, b.Found) }
		if parts&finds != 0 {
			took, err := bench.Timed(b.Device, st, s.runs(), nil, look)
			if err != nil {
				return r, fmt.Errorf("find: %w", err)
			}
			r.find[i] = bench.Round(bench.Rate(n, took))
		} else if err = look(); err != nil {
			return r, err
		}
		bad, err := b.Count()
		if err != nil {
			return r, err
		}
		wrong += bad
	}
	if parts&deletions != 0 && x.erases {
		took, err := bench.Timed(b.Device, st, s.runs(), func() error { return errors.Join(t.Clear(), fill()) },
			func() error { return t.DeleteOn(st, b.Keys, b.Found) })
		if err != nil {
			return r, fmt.Errorf("delete: %w", err)
		}
		r.erase = bench.Round(bench.Rate(n, took))
		deleted, err := b.Found.Host(st)
		if err != nil {
			return r, err
		}
		for _, is := range deleted {
			if !is {
				wrong++
			}
		}
		if stats, err = t.Stats(); err != nil {
			return r, err
		}
		wrong += stats.Len
	}
	r.wrong = wrong
	return r, nil
}

// right refuses a figure with wrong answers.
func right(fig *bench.Fig) (*bench.Fig, error) {
	c := fig.Column("wrong")
	for _, r := range fig.Rows {
		if n, ok := r[c].(int); ok && n > 0 {
			return nil, fmt.Errorf("%s: %d wrong answers of %v", fig.Title, n, r)
		}
	}
	return fig, nil
}

// scaled says that a figure is not of the paper's size.
func scaled(n, paper int) []string {
	if n == paper {
		return nil
	}
	return []string{fmt.Sprintf("%.6g times as many pairs as the paper's", float64(n)/float64(paper))}
}

// versus are the factors by which tables are faster than another, over a figure.
type versus struct{ meansOf }

// add takes one point. Either rate may be nil.
func (v *versus) add(name string, rate, other any) (factor any) {
	a, ok := bench.Number(rate)
	b, too := bench.Number(other)
	if !ok || !too || a <= 0 || b <= 0 {
		return nil
	}
	v.meansOf.add(name, a/b)
	return bench.Round(a / b)
}

func (v *versus) note(of string) string {
	return of + ", times as fast as cuckoo, geometric means: " + v.String()
}

// meansOf are geometric means by names, in the order in which these came.
type meansOf struct {
	names []string
	of    map[string]*bench.Mean
}

func (m *meansOf) add(name string, x float64) {
	if m.of[name] == nil {
		if m.of == nil {
			m.of = map[string]*bench.Mean{}
		}
		m.names, m.of[name] = append(m.names, name), &bench.Mean{}
	}
	m.of[name].Add(x)
}

func (m *meansOf) String() (s string) {
	for i, n := range m.names {
		if i > 0 {
			s += "; "
		}
		s += fmt.Sprintf("%s %.3g", n, m.of[n].Of())
	}
	return s
}
