package stadium

import (
	"errors"
	"fmt"
	"math"
	"slices"
	"time"

	"gonum.org/v1/gonum/mat"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
)

const (
	thresholdLoad  = 0.95
	thresholdPairs = 1 << 26
	samples        = 50
)

// figure13 is by how much lanes that work together are faster, the fuller the table: from where the difference stays above zero, they are worth it.
func figure13(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	return threshold(d, o, all.published)
}

func threshold(d *device.Device, o bench.FigOptions, ticket []int) (*bench.Fig, error) {
	const title = "Stadium hashing, Figure 13: time of Stash less that of clStash"
	fig := &bench.Fig{
		Title:   fmt.Sprintf("%s, for each of %d parts of %d pairs of 8+8 bytes in device memory", title, samples, o.N),
		Columns: []string{"ticket", "load factor", "Stash ms", "clStash ms", "difference ms", "fit ms", "wrong"},
		Notes:   append(scaled(o.N, thresholdPairs), "load factor: in the middle of the part; fit: of the second order, by least squares; the paper's hybrid goes over to clStash at its second root"),
		Plots:   []bench.Plot{{Title: title, X: "load factor", Y: "difference ms", Series: "ticket", Bound: "fit ms"}},
	}
	if o.N < samples {
		return nil, fmt.Errorf("%d pairs: want %d at least", o.N, samples)
	}
	b, err := newBatches[uint64, uint64](d, o.N)
	if err != nil {
		return nil, err
	}
	defer b.free()
	for _, bits := range ticket {
		var took [2][]float64
		wrong, size := 0, 0
		for i, l := range []lanes{plain, together} {
			o.Step(fmt.Sprintf("%v %d", l, bits))
			t, err := newStash[uint64, uint64](d, stashOptions{pairs: o.N, load: thresholdLoad, ticket: bits, lanes: l})
			if err != nil {
				return nil, err
			}
			size = t.size
			bad := 0
			took[i], bad, err = b.inParts(t)
			if err = errors.Join(err, t.Close()); err != nil {
				return nil, err
			}
			wrong += bad
		}
		var x, y []float64
		for i := range samples {
			x = append(x, (float64(i)+0.5)/samples*float64(o.N)/float64(size))
			y = append(y, took[0][i]-took[1][i])
		}
		c, err := parabola(x, y)
		if err != nil {
			return nil, err
		}
		for i := range x {
			fig.Add(bits, bench.Round(x[i]), bench.Round(took[0][i]), bench.Round(took[1][i]), bench.Round(y[i]), bench.Round(c[0]+x[i]*(c[1]+x[i]*c[2])), wrong)
		}
		fig.Notes = append(fig.Notes, fmt.Sprintf("tickets of %d bits: %s", bits, crossing(c, x[0], x[samples-1])))
	}
	return right(fig)
}

// inParts inserts all pairs in so many parts as there are samples, and gives the median of each part's time in milliseconds.
func (b *batches[K, V]) inParts(t *stash[K, V]) (ms []float64, wrong int, err error) {
	st, n := b.Device.Stream(), b.Options.N
	var events [samples + 1]*device.Event
	defer func() {
		for _, e := range events {
			if e != nil {
				err = errors.Join(err, e.Close())
			}
		}
	}()
	for i := range events {
		if events[i], err = b.Device.NewEvent(); err != nil {
			return nil, 0, err
		}
	}
	var times [samples][]time.Duration
	for run := range bench.Runs + 1 {
		if err := errors.Join(t.Clear(), st.Sync(), events[0].Record(st)); err != nil {
			return nil, 0, err
		}
		for i := range samples {
			from, to := i*n/samples, (i+1)*n/samples
			if err := errors.Join(t.InsertOn(st, b.Keys.Slice(from, to), b.Values.Slice(from, to)), events[i+1].Record(st)); err != nil {
				return nil, 0, err
			}
		}
		if err := st.Sync(); err != nil {
			return nil, 0, err
		}
		for i := range samples {
			took, err := events[i+1].Since(events[i])
			if err != nil {
				return nil, 0, err
			}
			if run > 0 { // the first warms up
				times[i] = append(times[i], took)
			}
		}
	}
	for _, x := range times {
		slices.Sort(x)
		ms = append(ms, float64(x[len(x)/2])/1e6)
	}
	if _, err := t.Stats(); err != nil {
		return nil, 0, err
	}
	b.ask(0)
	if err := t.FindOn(st, b.Queries, b.Results, b.Found); err != nil {
		return nil, 0, err
	}
	wrong, err = b.Count()
	return ms, wrong, err
}

// parabola fits y = c[0] + c[1]·x + c[2]·x² by least squares.
func parabola(x, y []float64) (c [3]float64, err error) {
	powers := mat.NewDense(len(x), 3, nil)
	for i, v := range x {
		powers.SetRow(i, []float64{1, v, v * v})
	}
	var solved mat.VecDense
	if err := solved.SolveVec(powers, mat.NewVecDense(len(y), y)); err != nil {
		return c, err
	}
	for i := range c {
		c[i] = solved.AtVec(i)
	}
	return c, nil
}

// crossing tells of the second root of a parabola, if that lies in the range.
func crossing(c [3]float64, from, to float64) string {
	if d := c[1]*c[1] - 4*c[2]*c[0]; d >= 0 && c[2] != 0 {
		roots := [2]float64{(-c[1] - math.Sqrt(d)) / (2 * c[2]), (-c[1] + math.Sqrt(d)) / (2 * c[2])}
		for _, r := range []float64{max(roots[0], roots[1]), min(roots[0], roots[1])} {
			if r >= from && r <= to {
				return fmt.Sprintf("the threshold is a load factor of %.3f", r)
			}
		}
	}
	if middle := (from + to) / 2; c[0]+middle*(c[1]+middle*c[2]) > 0 {
		return "clStash is faster throughout"
	}
	return "Stash is faster throughout"
}
