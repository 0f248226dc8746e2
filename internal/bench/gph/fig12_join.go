package gph

import (
	"fmt"
	"time"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/table"
)

// joinPiece is how many times |R| keys of S are on the device at once: the largest S of the paper, of 64 · |R|, would
// take 9 GiB with its results.
const joinPiece = 8

// joined is the join with one family.
type joined struct {
	subject
	m        table.Map[uint32, uint32]
	building time.Duration
	probing  map[int]time.Duration // by |S| / |R|
	wrong    map[int]int
	note     string
}

// figure12 is the hash join of section 7.3 and Figure 12: a table of R, load factor 0.5, whose keys are distinct; S has
// keys of R, each as likely, and every one gets its value. R and S are on the device. S comes in pieces, whose times add;
// the smaller ones are the beginning of the largest.
func figure12(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	fig := &bench.Fig{
		Title:   fmt.Sprintf("GPH, Figure 12: hash join of |R| = %d at load factor 0.5, pairs of 4+4 bytes, all of S in R", o.N),
		Columns: []string{"|S| / |R|", "table", "build ms", "probe ms", "total ms", "build %", "probe G/s", "wrong", "note"},
		Plots: []bench.Plot{
			{Name: "time", Title: "Hash join: building and probing", X: "|S| / |R|", Y: "total ms", Series: "table", LogX: true},
			{Name: "build", Title: "Hash join: building's share of the time", X: "|S| / |R|", Y: "build %", Series: "table", LogX: true},
			{Name: "probe", Title: "Hash join: probing", X: "|S| / |R|", Y: "probe G/s", Series: "table", LogX: true},
		},
	}
	sizes := []int{1, 4, 8, 16, 32, 64}
	o.Step(fmt.Sprintf("making %d pairs", o.N))
	w, err := bench.NewWork[uint32, uint32](d, bench.TableOptions{Keys: "rand", KeyBytes: 4, ValueBytes: 4, N: o.N, Queries: joinPiece * o.N, Hits: 1, Seed: 1})
	if err != nil {
		return nil, err
	}
	defer w.Free()
	families, err := subjects(d, true)
	if err != nil {
		return nil, err
	}
	var joins []*joined
	defer func() {
		for _, j := range joins {
			if j.m != nil {
				j.m.Close()
			}
		}
	}()
	for _, x := range families {
		o.Step("building " + x.String())
		j := &joined{subject: x, probing: map[int]time.Duration{}, wrong: map[int]int{}}
		joins = append(joins, j)
		if err := j.keep(j.buildOf(w)); err != nil {
			return nil, err
		}
	}
	last := sizes[len(sizes)-1]
	for at := 0; at < last; at += joinPiece {
		if at > 0 {
			if err := w.Ask(1, at*o.N); err != nil {
				return nil, err
			}
		}
		for _, j := range joins {
			o.Step(fmt.Sprintf("probing %s, %d to %d of %d", j, at, at+joinPiece, last))
			if j.note == "" {
				if err := j.keep(j.probeOf(w, at, sizes)); err != nil {
					return nil, err
				}
			}
		}
	}
	for _, size := range sizes {
		for _, j := range joins {
			if j.note != "" {
				fig.Add(size, j.String(), nil, nil, nil, nil, nil, nil, j.note)
				continue
			}
			all := j.building + j.probing[size]
			fig.Add(size, j.String(), ms(j.building), ms(j.probing[size]), ms(all), bench.Round(100*float64(j.building)/float64(max(all, 1))),
				bench.Round(bench.Rate(size*o.N, j.probing[size])), j.wrong[size], "")
		}
	}
	return fig, nil
}

func ms(t time.Duration) float64 { return bench.Round(t.Seconds() * 1000) }

// keep remembers why this table has no figures, if it is not fatal.
func (j *joined) keep(err error) error {
	if err == nil {
		return nil
	}
	note, fatal := bench.Refusal(err)
	j.note = note
	return fatal
}

// buildOf makes the table of R and times it.
func (j *joined) buildOf(w *bench.Work[uint32, uint32]) (err error) {
	if j.m, err = bench.NewMap(w.Device, j.family, table.Options{Capacity: w.Options.N, LoadFactor: 0.5}); err != nil {
		return err
	}
	s, err := j.fill(w, j.m)
	if err != nil {
		return err
	}
	j.building, err = bench.Timed(w.Device, w.Device.Stream(), bench.Runs, j.m.Clear, s.Fill)
	return err
}

// probeOf probes with the piece of S that begins at that many times |R|, and adds its time to that of every size that
// has it. Sizes that end within the first piece are timed by themselves.
func (j *joined) probeOf(w *bench.Work[uint32, uint32], at int, sizes []int) error {
	st := w.Device.Stream()
	times := map[int]time.Duration{}
	for _, size := range sizes {
		part := min(size-at, joinPiece)
		if part <= 0 {
			continue
		}
		if times[part] == 0 {
			n := part * w.Options.N
			t, err := bench.Timed(w.Device, st, bench.Runs, nil, func() error {
				return j.m.FindOn(st, w.Queries.Slice(0, n), w.Results.Slice(0, n), w.Found.Slice(0, n))
			})
			if err != nil {
				return err
			}
			times[part] = max(t, 1)
		}
		j.probing[size] += times[part]
	}
	wrong, err := w.Count() // the largest part, the whole piece, was the last
	for _, size := range sizes {
		if size > at {
			j.wrong[size] += wrong
		}
	}
	return err
}
