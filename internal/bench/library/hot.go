package library

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"unsafe"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/sketch"
)

// hot measures sketches that count keys: AddOn of keys in device memory into an empty sketch. Every key of a stream
// has a rank, and the device counts exactly how often each came.
func hot(d *device.Device, o bench.FigOptions) (fig *bench.Fig, err error) {
	fig = &bench.Fig{
		Title:   fmt.Sprintf("sketches of %d keys that count", o.N),
		Columns: []string{"stream", "key bytes", "sketch", "MiB", "G/s", "GB/s", "error ppm", "bound ppm", "wrong"},
		Notes: []string{"device time of AddOn into an empty sketch, the median of 5 runs. Streams have as many ranks as " +
			"keys. Error, in millionths of all keys: of CountMin the bound, halved as long as all estimates but a " +
			"share of Delta are within; of Top what it tells. Wrong are estimates that are too low, counts that are " +
			"not within the error told, and keys beyond the share promised that are not told"},
		Plots: []bench.Plot{{Title: "sketches that count", X: "key bytes", Y: "G/s", Series: "sketch",
			Only: map[string]any{"stream": "Zipf 1"}}},
	}
	err = cmp.Or(hotStreams[uint32](d, o, fig), hotStreams[uint64](d, o, fig))
	return fig, err
}

// A stream is segments of ranks: the first of each, and the share of all keys that comes before it.
type stream struct {
	name   string
	Firsts []uint64
	Shares []float64
}

// Zipf1 has rank r, from 0, with a probability ∝ 1/(r+1): exactly for the first ranks, and in segments of at most a
// 64th of their first rank beyond.
func Zipf1(ranks uint64) stream {
	const exact, fine = 1 << 12, 64
	s, sum := stream{name: "Zipf 1"}, 0.0
	for r := uint64(0); r < ranks; {
		s.Firsts, s.Shares = append(s.Firsts, r), append(s.Shares, sum)
		next := min(ranks, r+max(1, r/fine))
		if r < exact {
			next = r + 1
		}
		sum += harmonic(next) - harmonic(r)
		r = next
	}
	for i := range s.Shares {
		s.Shares[i] /= sum
	}
	return s
}

// harmonic is 1 + 1/2 + … + 1/n.
func harmonic(n uint64) float64 {
	if n > 1000 {
		x := float64(n)
		return math.Log(x) + 0.57721566490153286 + 1/(2*x) - 1/(12*x*x)
	}
	sum := 0.0
	for ; n > 0; n-- {
		sum += 1 / float64(n)
	}
	return sum
}

func hotStreams[K uint32 | uint64](d *device.Device, o bench.FigOptions, fig *bench.Fig) error {
	n := uint64(o.N)
	one := []uint64{0}
	for _, s := range []stream{Zipf1(n), {"uniform", one, []float64{0}}, {"all equal", one, []float64{0}}} {
		ranks := n
		if s.name == "all equal" {
			ranks = 1
		}
		o.Step(fmt.Sprintf("%d keys of %d bytes, %s", n, unsafe.Sizeof(*new(K)), s.name))
		h := &hotRun[K]{d: d, o: o, fig: fig, ranks: ranks, name: s.name}
		if err := errors.Join(h.make(s), h.free()); err != nil {
			return err
		}
	}
	return nil
}

// hotRun is a stream on the device, and how often each of its ranks came.
type hotRun[K uint32 | uint64] struct {
	d     *device.Device
	o     bench.FigOptions
	fig   *bench.Fig
	name  string
	ranks uint64

	draw, keysOf, check, often device.Kernel[hotParams]
	keys, some                 device.Slice[K]
	came                       device.Slice[uint32]
	most, least, told          device.Slice[uint64]
}

// atOnce is how many ranks are checked at once.
const atOnce = 1 << 24

func (h *hotRun[K]) make(s stream) (err error) {
	width := int(unsafe.Sizeof(*new(K)))
	m, err := h.d.Compile(HotProgram())
	if err != nil {
		return err
	}
	for name, k := range map[string]*device.Kernel[hotParams]{fmt.Sprint("hot_draw", width): &h.draw,
		fmt.Sprint("hot_keys", width): &h.keysOf, fmt.Sprint("hot_check", width): &h.check, "hot_often": &h.often} {
		if err := device.Bind(m, name, k); err != nil {
			return err
		}
	}
	shares := make([]uint64, len(s.Shares))
	for i, x := range s.Shares {
		shares[i] = uint64(x * (1 << 32) * (1 << 32))
	}
	rows := int(min(h.ranks, atOnce))
	h.keys, err = frame.Alloc[K](h.d, h.o.N)
	for _, make := range []func() error{
		func() (err error) { h.some, err = frame.Alloc[K](h.d, rows); return err },
		func() (err error) { h.came, err = frame.Alloc[uint32](h.d, int(h.ranks)); return err },
		func() (err error) { h.most, err = frame.Alloc[uint64](h.d, rows); return err },
		func() (err error) { h.least, err = frame.Alloc[uint64](h.d, rows); return err },
		func() (err error) { h.told, err = frame.Alloc[uint64](h.d, 3); return err },
	} {
		if err == nil {
			err = make()
		}
	}
	if err != nil {
		return err
	}
	firsts, err := device.From(h.d, append(s.Firsts, h.ranks))
	if err != nil {
		return err
	}
	before, err := device.From(h.d, shares)
	if err == nil {
		err = h.came.Fill(nil, 0)
	}
	if err == nil {
		err = h.launch(h.draw, uint64(h.o.N), hotParams{Keys: h.keys.Addr(), Shares: before.Addr(), Firsts: firsts.Addr(),
			Segments: uint64(len(shares)), Seed: 1})
	}
	if err == nil {
		err = h.measure()
	}
	return errors.Join(err, firsts.Free(), before.Free())
}

func (h *hotRun[K]) free() error {
	return errors.Join(h.keys.Free(), h.some.Free(), h.came.Free(), h.most.Free(), h.least.Free(), h.told.Free())
}

func (h *hotRun[K]) launch(k device.Kernel[hotParams], n uint64, p hotParams) error {
	p.N, p.Came, p.Told = n, h.came.Addr(), h.told.Addr()
	grid := device.GridFor(int64(n), 256)
	if info := h.d.Info(); info.CUDA() {
		grid.Blocks = min(grid.Blocks, 32*int64(info.Multiprocessors))
	} else {
		grid = device.Grid{Blocks: max(1, int64(n)>>13), Threads: 32}
	}
	return k.Launch(nil, grid, &p)
}

// tell waits for what kernels have told, and begins anew.
func (h *hotRun[K]) tell() ([]uint64, error) {
	told, err := h.told.Host(nil)
	return told, errors.Join(err, h.told.Fill(nil, 0))
}

func (h *hotRun[K]) measure() error {
	if err := h.told.Fill(nil, 0); err != nil {
		return err
	}
	for _, c := range []struct {
		name string
		o    sketch.CountMinOptions
	}{
		{"CountMin", sketch.CountMinOptions{}},
		{"CountMin, conservative", sketch.CountMinOptions{Conservative: true}},
		{"CountMin, epsilon 1e-6", sketch.CountMinOptions{Epsilon: 1e-6}},
	} {
		if err := h.countMin(c.name, c.o); err != nil {
			return err
		}
	}
	for _, m := range []int{100, 1000, 1 << 17} {
		if err := h.top(m); err != nil {
			return err
		}
	}
	return nil
}

// add adds a row.
func (h *hotRun[K]) add(name string, bytes int64, add, clear func() error,
	found func() (off, bound float64, wrong int, err error)) error {
	t, err := bench.Timed(h.d, h.d.Stream(), bench.Runs, clear, add)
	if err != nil {
		return err
	}
	off, bound, wrong, err := found()
	if err != nil {
		return err
	}
	n, rate, million := float64(h.o.N), bench.Rate(h.o.N, t), 1e6
	h.fig.Add(h.name, int(unsafe.Sizeof(*new(K))), name, bench.Round(float64(bytes)/(1<<20)), bench.Round(rate),
		bench.Round(rate*float64(unsafe.Sizeof(*new(K)))), bench.Round(off/n*million), bench.Round(bound/n*million), wrong)
	return nil
}

func (h *hotRun[K]) countMin(name string, o sketch.CountMinOptions) (err error) {
	c, err := sketch.NewCountMin[K](h.d, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	st := h.d.Stream()
	s, err := c.Stats()
	if err != nil {
		return err
	}
	add := func() error { return c.AddOn(st, h.keys) }
	return h.add(name, s.Bytes, add, c.Clear, func() (off, bound float64, wrong int, err error) {
		if s, err = c.Stats(); err != nil {
			return 0, 0, 0, err
		}
		if s.Added != uint64(h.o.N) {
			wrong++
		}
		off = 2 * s.Bound
		for bound := s.Bound; off > s.Bound || bound >= 1; bound /= 2 {
			low, far, err := h.beyond(c, uint64(bound))
			if err != nil {
				return 0, 0, 0, err
			}
			wrong += int(low)
			if float64(far) > s.Delta*float64(h.ranks) {
				break
			}
			off = bound
		}
		if off > s.Bound {
			wrong++
		}
		return off, s.Bound, wrong, nil
	})
}

// beyond tells how many estimates are too low, and how many are too high by more than a bound.
func (h *hotRun[K]) beyond(c *sketch.CountMin[K], bound uint64) (low, far uint64, err error) {
	st := h.d.Stream()
	for first := uint64(0); first < h.ranks; first += atOnce {
		n := min(atOnce, h.ranks-first)
		keys, most := h.some.Slice(0, int(n)), h.most.Slice(0, int(n))
		p := hotParams{Keys: keys.Addr(), First: first, Most: most.Addr(), Bound: bound}
		if err := frame.InTurn(
			func() error { return h.launch(h.keysOf, n, p) },
			func() error { return c.EstimateOn(st, keys, most) },
			func() error { return h.launch(h.check, n, p) },
		); err != nil {
			return 0, 0, err
		}
	}
	told, err := h.tell()
	if err != nil {
		return 0, 0, err
	}
	return told[0], told[1], nil
}

func (h *hotRun[K]) top(counters int) (err error) {
	c, err := sketch.NewTop[K](h.d, sketch.TopOptions{Counters: counters})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	s, err := c.Stats()
	if err != nil {
		return err
	}
	st := h.d.Stream()
	return h.add(fmt.Sprintf("Top of %d", counters), s.Bytes, func() error { return c.AddOn(st, h.keys) }, c.Clear,
		func() (off, bound float64, wrong int, err error) {
			top, err := c.Top(counters)
			if err != nil {
				return 0, 0, 0, err
			}
			s, err := c.Stats()
			if err != nil {
				return 0, 0, 0, err
			}
			n := uint64(h.o.N)
			if s.Added != n || s.Error*uint64(counters) > n {
				wrong++
			}
			lost, err := h.missed(top, n/uint64(counters))
			return float64(s.Error), float64(n) / float64(counters), wrong + int(lost), err
		})
}

// missed tells how many counts are not within their error, and how many keys that came more often than `often` are not
// among those told.
func (h *hotRun[K]) missed(top []sketch.TopKey[K], often uint64) (uint64, error) {
	st := h.d.Stream()
	if len(top) == 0 {
		return 1, nil
	}
	var told [2][]uint64
	for from := 0; from < len(top); from += h.some.Len() {
		part := top[from:min(len(top), from+h.some.Len())]
		inverse := uint64(hotInverse)
		keys, least, most := make([]K, len(part)), make([]uint64, len(part)), make([]uint64, len(part))
		for i, x := range part {
			keys[i], least[i], most[i] = x.Key, x.Count, x.Count+x.Error
			if rank := uint64(x.Key * K(inverse)); rank >= h.ranks {
				return 1, nil // a key that nobody added
			}
		}
		if err := cmp.Or(h.some.Slice(0, len(part)).Write(st, keys), h.least.Slice(0, len(part)).Write(st, least),
			h.most.Slice(0, len(part)).Write(st, most), h.launch(h.check, uint64(len(part)), hotParams{Keys: h.some.Addr(),
				Least: h.least.Addr(), Most: h.most.Addr(), Often: often})); err != nil {
			return 0, err
		}
	}
	var err error
	if told[0], err = h.tell(); err != nil {
		return 0, err
	}
	if err := h.launch(h.often, h.ranks, hotParams{Often: often}); err != nil {
		return 0, err
	}
	if told[1], err = h.tell(); err != nil {
		return 0, err
	}
	return told[0][0] + told[1][2] - told[0][2], nil
}
