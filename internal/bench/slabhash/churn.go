package slabhash

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/slab"
	"github.com/warpmap/warpmap/table"
)

// churnParts is how many parts of a batch are made and checked beside one another. Each has keys of its own, so what is made
// does not depend on the number of cores.
const churnParts = 16

// churn is a table under batch after batch of Γ1, with as many pairs after each as before.
type churn struct {
	*mixing // one batch; what is present, parts know
	m       *slab.Map[uint32, uint32]
	shares  [4]float64
	parts   [churnParts]churnPart
	came    []uint32 // values, of the last batch
	became  []table.Status
}

type churnPart struct {
	mixingHost // of the batch, this part
	rng        *rand.Rand
	first, end int // of the batch
	fresh      int // index of the next new key
	wrong      int // of the last batch
}

// newChurn fills a table with so many pairs.
func newChurn(d *device.Device, pairs, batch int) (c *churn, err error) {
	c = &churn{shares: gammas[1].shares, came: make([]uint32, batch), became: make([]table.Status, batch)}
	if c.mixing, err = newMixing(d, batch); err != nil {
		return nil, err
	}
	defer func() {
		if err != nil {
			c.free()
		}
	}()
	if c.m, err = slab.New[uint32, uint32](d, slab.Options{Options: table.Options{Capacity: pairs}}); err != nil {
		return nil, err
	}
	h := &c.host
	for i := range c.parts {
		a, b := i*batch/churnParts, (i+1)*batch/churnParts
		p := &c.parts[i]
		*p = churnPart{mixingHost{ops: h.ops[a:b], keys: h.keys[a:b], values: h.values[a:b], kinds: h.kinds[a:b]},
			rand.New(rand.NewPCG(2, uint64(i))), a, b, i * (1 << 31 / churnParts), 0}
		for range (i+1)*pairs/churnParts - i*pairs/churnParts {
			p.present = append(p.present, uint32(c.kinds.At(uint64(p.fresh))))
			p.fresh++
		}
		values := make([]uint32, len(p.present))
		for j, k := range p.present {
			values[j] = valueOf(k)
		}
		if err = c.m.Insert(p.present, values); err != nil {
			return nil, err
		}
	}
	return c, nil
}

func (c *churn) free() {
	c.mixing.free()
	if c.m != nil {
		c.m.Close()
	}
}

// each runs f for all parts, beside one another.
func (c *churn) each(f func(p *churnPart)) {
	var wg crash.WaitGroup
	for i := range c.parts {
		wg.Go(func() { f(&c.parts[i]) })
	}
	wg.Wait()
}

func (c *churn) live() (n int) {
	for i := range c.parts {
		n += len(c.parts[i].present)
	}
	return n
}

// run makes a batch, times it by the wall clock, and counts what came of it wrongly.
func (c *churn) run() (took time.Duration, wrong int, err error) {
	st, h := c.d.Stream(), &c.host
	c.each(func(p *churnPart) { p.fresh += p.next(c.kinds, p.rng, c.shares, p.fresh) })
	if err := errors.Join(c.ops.Write(st, h.ops), c.keys.Write(st, h.keys), c.values.Write(st, h.values)); err != nil {
		return 0, 0, err
	}
	begin := time.Now()
	if err := errors.Join(c.m.MixedOn(st, c.ops, c.keys, c.values, c.results, c.status), st.Sync()); err != nil {
		return 0, 0, err
	}
	took = time.Since(begin)
	if err := errors.Join(c.results.Read(st, c.came), c.status.Read(st, c.became)); err != nil {
		return 0, 0, err
	}
	c.each(func(p *churnPart) { p.wrong = p.unexpected(c.became[p.first:p.end], c.came[p.first:p.end]) })
	for i := range c.parts {
		wrong += c.parts[i].wrong
	}
	return took, wrong, nil
}

// churning runs o.Batches batches, each of a quarter as many operations as there are pairs.
func churning(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	batches, batch := o.Batches, max(1, o.N/4)
	if batches == 0 {
		batches = 50
		if d.Info().CUDA() {
			batches = 1000
		}
	}
	if fresh := gammas[1].shares[0]*float64(batch) + churnParts; float64(o.N)+float64(batches+batches/50+1)*fresh > 1<<31 {
		return nil, fmt.Errorf("%d batches of %d operations want more new keys than there are of 31 bits", batches, batch)
	}
	fig := &bench.Fig{
		Title:   fmt.Sprintf("SlabHash: %d batches of %d mixed operations on %d pairs of 4+4 bytes", batches, batch, o.N),
		Columns: []string{"batches", "pairs", "buckets", "utilization", "slabs a bucket", "mixed G/s", "slowest ms", "table MB", "wrong", "note"},
		Notes: []string{"batches of Γ1: 0.2 inserts of new keys, as many deletes, and look-ups, half of them of keys that are there; the default options and policy, Capacity as many pairs as there are",
			"mixed G/s: operations over the wall-clock time of MixedOn, since the row before; slowest ms: of its batches; all else: after the last of them"},
		Plots: []bench.Plot{
			{Name: "rate", Title: "SlabHash: mixed batches, one after the other", X: "batches", Y: "mixed G/s"},
			{Name: "utilization", Title: "SlabHash: mixed batches, one after the other", X: "batches", Y: "utilization"},
		},
	}
	o.Step(fmt.Sprintf("making %d pairs", o.N))
	c, err := newChurn(d, o.N, batch)
	if err != nil {
		return nil, err
	}
	defer c.free()
	early := 0
	for range max(1, batches/50) { // to warm up
		_, wrong, err := c.run()
		if err != nil {
			return nil, err
		}
		early += wrong
	}
	var rates, utilizations []float64
	for row := range 10 {
		first, end := row*batches/10, (row+1)*batches/10
		if first == end {
			continue
		}
		o.Step(fmt.Sprintf("batches %d to %d", first, end))
		var all, slowest time.Duration
		wrong := early
		early = 0
		for range end - first {
			took, bad, err := c.run()
			if err != nil {
				note, err := bench.Refusal(err)
				fig.Add(end, nil, nil, nil, nil, nil, nil, nil, wrong, note)
				return fig, err
			}
			all, slowest, wrong = all+took, max(slowest, took), wrong+bad
		}
		s, err := c.m.SlabStats()
		if err != nil {
			return nil, err
		}
		wrong += max(s.Len-c.live(), c.live()-s.Len)
		rates, utilizations = append(rates, bench.Rate((end-first)*batch, all)), append(utilizations, s.Utilization)
		fig.Add(end, s.Len, s.Buckets, bench.Round(s.Utilization), bench.Round(s.SlabsPerBucket), bench.Round(rates[len(rates)-1]), bench.Round(slowest.Seconds()*1e3),
			bench.Round(float64(s.Bytes)/1e6), wrong, "")
	}
	last := len(rates) - 1
	fig.Notes = append(fig.Notes, fmt.Sprintf("last row over first: mixed G/s %.3g, utilization %.3g", rates[last]/rates[0], utilizations[last]/utilizations[0]))
	return fig, nil
}
