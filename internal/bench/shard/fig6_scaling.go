package shard

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"strconv"
	"time"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/shard"
)

// way is a way in which a table over several devices works.
type way struct {
	name   string
	o      shard.Options
	strong bool // strong scaling has it, too
}

var ways = []way{
	{"step by step", shard.Options{Apart: true}, false},
	{"copies", shard.Options{Regions: -1, Copies: true}, false},
	{"remote writes", shard.Options{Regions: -1}, true},
	{"default", shard.Options{}, true},
	{"independent", shard.Options{Mode: shard.Independent}, true},
}

// processes is the way of a process a device.
const processes = "a process a device, NCCL"

// figureRuns is how often a point is measured, after one run to warm up: runs of so many pairs differ by little.
const figureRuns = 3

// devicesOf are those of the options; else d, or four CPU devices in place of one.
func devicesOf(d *device.Device, o bench.FigOptions) (devices []*device.Device, closeAll func() error, err error) {
	if len(o.Devices) > 0 {
		return o.Devices, func() error { return nil }, nil
	}
	if d.Info().CUDA() {
		return []*device.Device{d}, func() error { return nil }, nil
	}
	devices, err = device.OpenAll("cpu:0,cpu:1,cpu:2,cpu:3")
	return devices, func() (err error) {
		for _, d := range devices {
			err = errors.Join(err, d.Close())
		}
		return err
	}, err
}

// counts are 1, 2, 4, … devices, and all.
func counts(all int) (out []int) {
	for n := 1; n < all; n *= 2 {
		out = append(out, n)
	}
	return append(out, all)
}

// scaled is a point of Figure 6.
type scaled struct {
	scaling string // weak or strong
	devices int
	n       int // pairs a device
	way     way
}

// points are those of Figure 6, the most telling first: a run that is cut off has these.
func points(devices int, n int) (out []scaled) {
	one := way{name: "one device"}
	for _, k := range counts(devices) {
		if k == 1 {
			out = append(out, scaled{"weak", 1, n, one})
			continue
		}
		for i := range ways {
			out = append(out, scaled{"weak", k, n, ways[len(ways)-1-i]})
		}
	}
	for _, k := range counts(devices) {
		if k == 1 {
			out = append(out, scaled{"strong", 1, 4 * n, one})
			continue
		}
		for _, w := range ways {
			if w.strong {
				out = append(out, scaled{"strong", k, max(1, 4*n/k), w})
			}
		}
	}
	return out
}

const load, hits = 0.8, 0.5 // of Figure 6

// figure6 measures Figure 6 of the WarpCore paper, which is weak scaling of insertion with the shares of its steps. It
// also measures look-ups, strong scaling, the independent mode, other ways of sending rows, and a process for each
// device. Efficiency is against one device without any splitting.
func figure6(d *device.Device, o bench.FigOptions) (fig *bench.Fig, err error) {
	fig = &bench.Fig{
		Title: fmt.Sprintf("WarpCore, Figure 6: %d pairs of 4+4 bytes on each device (weak) or %d on all (strong), "+
			"load factor %v, half of the look-ups hit", o.N, 4*o.N, load),
		Columns: []string{"scaling", "way", "devices", "pairs a device",
			"insert G/s", "insert efficiency", "find G/s", "find efficiency",
			"count ms", "split ms", "send ms", "insert ms", "splitting share", "exchange share", "insertion share",
			"find: count ms", "find: split ms", "find: send ms", "find: look up ms", "find: fetch ms",
			"filled", "wrong", "note"},
		Notes: []string{"default: if the tables want it, which those of CPU devices do not, rows are sorted at the " +
			"source and copied to their owners in steps",
			"copies, remote writes: rows are not sorted, and are sent by copies or written by kernels",
			"rates are of all devices together, by the wall clock; efficiency is against one device, with as many " +
				"pairs (weak) or all pairs (strong)",
			"step by step: events measure each step, and the slowest device counts; splitting includes counting and, " +
				"without sorting, remote writes"},
		Plots: []bench.Plot{
			{Name: "insert", Title: "Scaling of insertion", X: "devices", Y: "insert efficiency", Series: "way",
				Facet: "scaling"},
			{Name: "find", Title: "Scaling of look-ups", X: "devices", Y: "find efficiency", Series: "way",
				Facet: "scaling"},
		},
	}
	devices, closeAll, err := devicesOf(d, o)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, closeAll()) }()
	one := map[string]Row{} // of each scaling
	add := func(p scaled, measure func() (Row, error)) error {
		o.Step(fmt.Sprintf("%s scaling, %d devices, %s, %d pairs each", p.scaling, p.devices, p.way.name, p.n))
		row, err := measure()
		if err != nil {
			note, err := bench.Refusal(err)
			if err != nil {
				return err
			}
			cells := append(make([]any, len(fig.Columns)-5), note)
			fig.Add(append([]any{p.scaling, p.way.name, p.devices, p.n}, cells...)...)
			return o.Done(fig)
		}
		if p.devices == 1 {
			one[p.scaling] = row
		}
		first := one[p.scaling]
		cells := append([]any{p.scaling, p.way.name, p.devices, p.n,
			bench.Round(row.Insert), efficiency(row.Insert, first.Insert, p.devices),
			bench.Round(row.Find), efficiency(row.Find, first.Find, p.devices)}, stepCells(row)...)
		fig.Add(append(cells, bench.Round(row.Filled), row.Wrong, "")...)
		return o.Done(fig)
	}
	for _, p := range points(len(devices), o.N) {
		err := add(p, func() (Row, error) {
			return Measure(devices[:p.devices],
				Options{N: p.n, Load: load, Hits: hits, Runs: figureRuns, Shard: p.way.o})
		})
		if err != nil {
			return nil, err
		}
	}
	for _, k := range counts(len(devices))[1:] {
		if len(o.Self) == 0 {
			break
		}
		err := add(scaled{"weak", k, o.N, way{name: processes}}, func() (Row, error) { return launched(d, o, k) })
		if err != nil {
			return nil, err
		}
	}
	return fig, nil
}

// launched measures a process a device, which it starts.
func launched(d *device.Device, o bench.FigOptions, n int) (row Row, err error) {
	self := o.Self[0]
	args := []string{"launch", "-n", strconv.Itoa(n), "--", self, "bench", "--devices", "joined",
		"--n", strconv.Itoa(o.N), "--load", fmt.Sprint(load), "--hits", fmt.Sprint(hits), "--json"}
	if !d.Info().CUDA() {
		args = append(args, "--device", "cpu")
	}
	cmd := exec.Command(self, args...)
	var said limited
	cmd.Stderr = &said
	cmd.Env = os.Environ()
	// Launch, which ends its ranks, gets the signal when this thread ends: with this process, and not before.
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	endWithThread(cmd)
	out, err := cmd.Output()
	if err != nil {
		return row, fmt.Errorf("%d processes: %w: %s", n, err, said.text)
	}
	var result struct {
		Rows []Row `json:"rows"`
	}
	if err := json.Unmarshal(out, &result); err != nil || len(result.Rows) != 1 {
		return row, fmt.Errorf("%d processes gave %q: %w", n, out, err)
	}
	return result.Rows[0], nil
}

// limited keeps the beginning of what a process says.
type limited struct{ text []byte }

func (l *limited) Write(b []byte) (int, error) {
	l.text = append(l.text, b[:min(len(b), max(0, 1000-len(l.text)))]...)
	return len(b), nil
}

func efficiency(rate, one float64, n int) any {
	if one == 0 {
		return nil
	}
	return bench.Round(rate / one / float64(n))
}

// stepCells are the milliseconds of the steps, and the shares of an insert; nil where they were not apart.
func stepCells(row Row) (cells []any) {
	i, f := row.InsertSteps, row.FindSteps
	if i.Work == 0 {
		return make([]any, 12)
	}
	ms := func(times ...time.Duration) {
		for _, t := range times {
			cells = append(cells, bench.Round(float64(t)/1e6))
		}
	}
	ms(i.Count, i.Split, i.Send, i.Work)
	all := float64(i.Count + i.Split + i.Send + i.Work)
	for _, t := range []time.Duration{i.Count + i.Split, i.Send, i.Work} {
		cells = append(cells, bench.Round(float64(t)/all))
	}
	ms(f.Count, f.Split, f.Send, f.Work, f.Fetch)
	return cells
}
