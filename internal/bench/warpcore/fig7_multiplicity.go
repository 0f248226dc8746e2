package warpcore

import (
	"fmt"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
)

// figure7 is Figure 7: n keys drawn from n/r, each as likely, so that a key has r values on average; inserted at load factor 0.8. The paper
// then looks up all of 1 … n, most of which are not there; here each key that is there is looked up once. Where r is 1 all keys are
// different, so that the same pairs can go into maps. A table that was "built" was made from all pairs at once.
func figure7(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	const load = 0.8
	fig := &bench.Fig{
		Title: fmt.Sprintf("WarpCore, Figure 7: %d pairs of 4+4 bytes at load factor %v, by values per key", o.N, load),
		Columns: []string{"values a key", "table", "keys", "insert G/s", "retrieve G/s", "keys G/s", "count G/s", "single-value find G/s",
			"bytes a pair", "wrong", "note"},
		Notes: []string{"retrieve: values that are found, keys: keys that they are found of, of which each is asked for once; single-value find: " +
			"keys, in the family's map of the same pairs, where each key has one value; built: made from all pairs at once, in place of inserts"},
		Plots: []bench.Plot{
			{Name: "insert", Title: "WarpCore, Figure 7a: inserts", X: "values a key", Y: "insert G/s", Series: "table", LogX: true},
			{Name: "retrieve", Title: "WarpCore, Figure 7b: values found", X: "values a key", Y: "retrieve G/s", Series: "table", LogX: true},
		},
	}
	for _, r := range []int{1, 2, 4, 8, 16, 32, 64, 256, 1024, manyValues} {
		if r > o.N {
			break
		}
		if err := multiplicity(d, o, fig, r, load); err != nil {
			return nil, err
		}
	}
	return fig, nil
}

// manyValues are so many that a multimap whose pairs stand in slots of their own takes the square of them: then the numbers of lanes are not varied.
const manyValues = 16 << 10

// multiplicity adds the rows with r values a key.
func multiplicity(d *device.Device, o bench.FigOptions, fig *bench.Fig, r int, load float64) error {
	t := bench.TableOptions{Keys: "rand", KeyBytes: 4, ValueBytes: 4, N: o.N, Seed: uint64(r)}
	if r > 1 {
		t.Distinct = max(1, o.N/r)
	}
	w, err := bench.NewWork[uint32, uint32](d, t)
	if err != nil {
		return err
	}
	defer w.Free()
	for _, x := range multiMaps(groupsOn(d, []int{4, 8, 16, 32}, []int{1})) {
		if x.varied && r >= manyValues {
			continue
		}
		o.Step(fmt.Sprintf("%d values a key: %s", r, x.name))
		row, err := measured(w, x.make, load)
		var single any
		if err == nil && r == 1 && x.single != nil {
			var one bench.Row
			one, err = measured(w, x.single, load)
			single, row.Wrong = bench.Round(one.Find), row.Wrong+one.Wrong
		}
		if err != nil {
			note, err := bench.Refusal(err)
			if err != nil {
				return err
			}
			fig.Add(r, x.name, w.Options.Queries, nil, nil, nil, nil, nil, nil, nil, note)
			continue
		}
		fig.Add(r, x.name, row.Asked, bench.Round(row.Insert), bench.Round(row.Values), bench.Round(row.Find), bench.Round(row.Count), single,
			bench.Round(float64(row.Bytes)/float64(o.N)), row.Wrong, "")
	}
	return nil
}
