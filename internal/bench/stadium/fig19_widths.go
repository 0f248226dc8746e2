package stadium

import (
	"fmt"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/workload"
)

const (
	widthLoad  = 0.85
	widthPairs = 1 << 25
)

// width is a width of keys and values, in bytes.
type width struct {
	key, value int
	measure    func(d *device.Device, o bench.FigOptions, fig *bench.Fig, w width, host bool, t tickets) error
}

// widths are a key and a value that are as wide, and each alone.
var widths = []width{
	{4, 4, ofWidth[uint32, uint32]}, {8, 8, ofWidth[uint64, uint64]}, {16, 16, ofWidth[[2]uint64, [2]uint64]}, {32, 32, ofWidth[[4]uint64, [4]uint64]},
	{16, 4, ofWidth[[2]uint64, uint32]}, {32, 4, ofWidth[[4]uint64, uint32]}, {4, 16, ofWidth[uint32, [2]uint64]}, {4, 32, ofWidth[uint32, [4]uint64]},
}

// Each width of package stadium's table is a program to compile for each of its tickets: so there are two.
var widthTickets = tickets{all.published, []int{8, 16}}

// figure19ac is widths of keys and values in device memory.
func figure19ac(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	return byWidth(d, o, "19a and c", false, widths, widthTickets)
}

// figure19bd is the same in host memory.
func figure19bd(d *device.Device, o bench.FigOptions) (*bench.Fig, error) {
	return byWidth(d, o, "19b and d", true, widths, widthTickets)
}

func byWidth(d *device.Device, o bench.FigOptions, number string, host bool, list []width, t tickets) (*bench.Fig, error) {
	title := "Stadium hashing, Figure " + number
	where := "in device memory"
	if host {
		where = "in pinned host memory"
	}
	fig := &bench.Fig{
		Title:   fmt.Sprintf("%s: %d pairs %s by bytes of key and value, load factor %v", title, o.N, where, widthLoad),
		Columns: append([]string{"key+value bytes", "table", "lanes", "ticket"}, rateColumns...),
		Notes: append(scaled(o.N, widthPairs), "as many look-ups, and then deletions, as pairs; Stash and clStash differ from the hybrid in inserts alone, and are timed for these",
			namesNote, hybridNote, timesNote),
	}
	for i, p := range ratePlots(title, bench.Plot{X: "key+value bytes"}) {
		if i == 0 { // ways to insert, for each size of tickets
			p.Series, p.Facet = "lanes", "ticket"
			fig.Plots = append(fig.Plots, p)
			continue
		}
		part, name := p.Title, p.Name
		for _, way := range []string{hybrid.String(), "stadium"} {
			p.Title, p.Name, p.Series, p.Only = part+", "+way, name+"-"+way, "ticket", map[string]any{"lanes": way}
			fig.Plots = append(fig.Plots, p)
		}
	}
	for _, w := range list {
		if err := w.measure(d, o, fig, w, host, t); err != nil {
			return nil, err
		}
	}
	return right(fig)
}

func ofWidth[K, V workload.Wide](d *device.Device, o bench.FigOptions, fig *bench.Fig, w width, host bool, t tickets) error {
	name := fmt.Sprintf("%d+%d", w.key, w.value)
	b, err := newBatches[K, V](d, o.N)
	if err != nil {
		return err
	}
	defer b.free()
	measure := func(list []subject[K, V], parts int) error {
		for _, sub := range list {
			o.Step(name + ": " + sub.name)
			r, err := b.measure(sub, setting{o.N, widthLoad, host, false}, parts)
			if err != nil {
				return err
			}
			fig.Add(append([]any{name, sub.name, sub.way, sub.ticket}, r.cells()...)...)
		}
		return nil
	}
	if err := measure(with[K, V](tickets{t.published, nil}, plain, together), inserts); err != nil {
		return err
	}
	return measure(with[K, V](t, hybrid), inserts|finds|deletions)
}
