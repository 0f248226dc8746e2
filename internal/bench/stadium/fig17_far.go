package stadium

import (
	"fmt"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/internal/bench/baseline"
)

// paperPairs is the largest number of pairs of Figures 14 to 17 here: the text does not tell the paper's.
const paperPairs = 1 << 26

// figure17 is batches of one kind, in host memory.
func figure17(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	return exclusive(d, o, all, sizes(o.N))
}

func exclusive(d *device.Device, o bench.FigOptions, t tickets, pairs []int) (*bench.Fig, error) {
	const title = "Stadium hashing, Figure 17"
	fig := &bench.Fig{
		Title:   fmt.Sprintf("%s: up to %d pairs of 4+4 bytes in pinned host memory, load factor %v", title, o.N, speedLoad),
		Columns: append([]string{"pairs", "table", "ticket"}, rateColumns...),
		Notes:   append(scaled(o.N, paperPairs), "as many look-ups, and then deletions, as pairs", namesNote, hybridNote, baseline.CuckooNote, timesNote),
		Plots:   ratePlots(title, bench.Plot{X: "pairs", LogX: true}),
	}
	for i, p := range []string{"a", "b", "c"} {
		fig.Plots[i].Name, fig.Plots[i].Title = p+"-"+fig.Plots[i].Name, title+p+fig.Plots[i].Title[len(title):]
	}
	var v [3]versus
	for _, n := range pairs {
		b, err := newBatches[uint32, uint32](d, n)
		if err != nil {
			return nil, err
		}
		var first rates // cuckoo's
		for _, sub := range append([]subject[uint32, uint32]{cudpp()}, with[uint32, uint32](t, hybrid)...) {
			o.Step(fmt.Sprintf("%d pairs: %s", n, sub.name))
			r, err := b.measure(sub, setting{n, speedLoad, true, false}, inserts|finds|deletions)
			if err != nil {
				b.free()
				return nil, err
			}
			if sub.ticket == nil {
				first = r
			}
			v[0].add(sub.name, r.insert, first.insert)
			v[1].add(sub.name, r.find[0], first.find[0])
			v[2].add(sub.name, r.find[1], first.find[1])
			fig.Add(append([]any{n, sub.name, sub.ticket}, r.cells()...)...)
		}
		b.free()
	}
	for i := range v {
		fig.Notes = append(fig.Notes, v[i].note([]string{"inserts", "look-ups, all hits", "look-ups, half hits"}[i]))
	}
	return right(fig)
}

// ratePlots are inserts, look-ups and deletions as p says beside.
func ratePlots(title string, p bench.Plot) (list []bench.Plot) {
	for i, part := range []struct{ name, title string }{{"insert", "inserts"}, {"hits", "look-ups, all hits"}, {"half", "look-ups, half hits"}, {"delete", "deletions"}} {
		p.Name, p.Title, p.Y, p.Series = part.name, title+": "+part.title, rateColumns[i], "table"
		list = append(list, p)
	}
	return list
}
