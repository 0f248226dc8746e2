package classify

import (
	_ "embed"
	"errors"
	"fmt"
	"math"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/genome"
)

//go:embed classify.cu
var classifyCU string

//go:embed classify.cuh
var classifyCUH string

//go:embed reads.cu
var readsCU string

// kernels are those of classify.cu, for one k and one size of sketches.
type kernels struct {
	sketch device.Kernel[sketchParams]
	pair   device.Kernel[pairParams]
	sort   device.Kernel[sortParams]
	decide device.Kernel[decideParams] // not of a plain CPU
}

func program(o Options) *device.Program {
	return &device.Program{
		Name:    "classify",
		Files:   []device.File{{Name: "classify.cu", Text: classifyCU}, {Name: "classify.cuh", Text: classifyCUH}},
		Defines: defines(o),
		Layouts: layouts(),
	}
}

func defines(o Options) []device.Define {
	return []device.Define{{Name: "CLASSIFY_K", Value: o.K}, {Name: "CLASSIFY_SKETCH", Value: o.Sketch},
		{Name: "CLASSIFY_RANKS", Value: ranks},
		{Name: "CLASSIFY_ONE_BIT", Value: oneBit}, {Name: "CLASSIFY_MANY_BIT", Value: manyBit},
		{Name: "CLASSIFY_COUNT_SHIFT", Value: countShift},
		{Name: "CLASSIFY_MOST_LOCATIONS", Value: mostLocations}, {Name: "CLASSIFY_READ_LANES", Value: readLanes}}
}

func layouts() []any {
	return []any{sketchParams{}, pairParams{}, sortParams{}, decideParams{}, window{}, query{}, candidate{}, verdict{}}
}

// readsProgram has the kernel of reads.cu.
func readsProgram(o Options) *device.Program {
	return &device.Program{
		Name:  "classify-reads",
		Files: []device.File{{Name: "reads.cu", Text: readsCU}, {Name: "classify.cuh", Text: classifyCUH}},
		Defines: append(defines(o), device.Define{Name: "CLASSIFY_BUCKETS", Value: chunkBuckets},
			device.Define{Name: "CLASSIFY_BUCKET_ITEMS", Value: bucketItems},
			device.Define{Name: "CLASSIFY_BUCKET_FACTOR", Value: bucketFactor},
			device.Define{Name: "CLASSIFY_FILTER_BITS", Value: filterBits}),
		Layouts: append(layouts(), residentParams{}, chunkHead{}, bucket{}, readsParams{}),
	}
}

// plain tells whether a device is a CPU that takes reads one by one: see reads.cu.
func plain(d *device.Device) bool { return !d.Info().CUDA() && !d.Info().Stress }

func compile(d *device.Device, o Options) (k kernels, err error) {
	m, err := d.CompileApart(program(o))
	if err != nil {
		return k, err
	}
	err = errors.Join(device.Bind(m, "sketch", &k.sketch), device.Bind(m, "pairs", &k.pair),
		device.Bind(m, "sort_lists", &k.sort))
	if err == nil && !plain(d) {
		err = device.Bind(m, "decide", &k.decide)
	}
	return k, err
}

// threads of a block. A thread has a window or a read.
const threads = 128

// windowsOf appends the windows of a record whose block's text begins at base: one, if it is no longer than a window;
// else full ones by stride, then the rest if it has a k-mer.
func (o Options) windowsOf(to []window, r genome.Record, base int) []window {
	at, end := base+r.Start, base+r.End
	if end-at <= o.Window {
		return append(to, window{uint32(at), uint32(end - at)})
	}
	for ; at+o.Window <= end; at += o.Stride {
		to = append(to, window{uint32(at), uint32(o.Window)})
	}
	if end-at >= o.K {
		to = append(to, window{uint32(at), uint32(end - at)})
	}
	return to
}

// memory is device memory that is kept from batch to batch, and grows. A GPU's has pinned memory of the host beside it:
// copies by way of it go at the bus's rate, and nobody waits for them.
type memory[T any] struct {
	s    device.Slice[T]
	host device.Host[T]
}

// room gives n elements of undefined content; the stream must have passed what used it before.
func (m *memory[T]) room(d *device.Device, st *device.Stream, n int) (device.Slice[T], error) {
	if m.s.Len() < n {
		if err := m.freeDevice(st); err != nil {
			return m.s, err
		}
		s, err := device.Make[T](d, n+n/4)
		if err != nil {
			return s, err
		}
		m.s = s
	}
	return m.s.Slice(0, n), nil
}

// pinned has n elements of the host's memory.
func (m *memory[T]) pinned(d *device.Device, n int) error {
	if m.host.Len() >= n {
		return nil
	}
	old := m.host
	m.host = device.Host[T]{}
	err := old.Free()
	if err == nil {
		m.host, err = device.MakeHost[T](d, n+n/4)
	}
	return err
}

// put gives a copy of what lies in some slices, one behind the other, on the device. The stream must have passed what
// was put before.
func (m *memory[T]) put(d *device.Device, st *device.Stream, from ...[]T) (device.Slice[T], error) {
	n := 0
	for _, x := range from {
		n += len(x)
	}
	s, err := m.room(d, st, n)
	if err != nil || n == 0 {
		return s, err
	}
	cuda := d.Info().CUDA()
	if cuda {
		if err := m.pinned(d, n); err != nil {
			return s, err
		}
	}
	at := 0
	for _, x := range from {
		if cuda {
			copy(m.host.Slice()[at:], x)
		} else if len(x) > 0 {
			if err := s.Slice(at, at+len(x)).Write(st, x); err != nil {
				return s, err
			}
		}
		at += len(x)
	}
	if cuda {
		err = s.WriteAsync(st, m.host, n)
	}
	return s, err
}

func (m *memory[T]) free(st *device.Stream) error {
	return errors.Join(m.freeDevice(st), m.host.Free())
}

func (m *memory[T]) freeDevice(st *device.Stream) error {
	if m.s.Len() == 0 {
		return nil
	}
	err := m.s.FreeAfter(st)
	m.s = device.Slice[T]{}
	return err
}

// sketcher makes the features of a batch's windows.
type sketcher struct {
	d        *device.Device
	st       *device.Stream
	o        Options
	k        kernels
	text     memory[byte]
	windows  memory[window]
	features memory[uint32]
}

func (s *sketcher) free() {
	s.st.Sync() // copies may be under way
	s.text.free(s.st)
	s.windows.free(s.st)
	s.features.free(s.st)
}

// run queues the sketching of windows of texts that lie one after the other. The features are good until the next call.
func (s *sketcher) run(windows []window, texts ...[]byte) (features device.Slice[uint32], err error) {
	text, w, err := s.bring(windows, texts)
	if err != nil {
		return features, err
	}
	if features, err = s.features.room(s.d, s.st, len(windows)*s.o.Sketch); err != nil || len(windows) == 0 {
		return features, err
	}
	p := sketchParams{text.Addr(), w.Addr(), uint64(len(windows)), features.Addr()}
	return features, s.k.sketch.Launch(s.st, device.GridFor(int64(len(windows)), threads), &p)
}

// bring brings texts, one after the other, and their windows to the device.
func (s *sketcher) bring(windows []window, texts [][]byte) (text device.Slice[byte], w device.Slice[window],
	err error) {
	n := 0
	for _, t := range texts {
		n += len(t)
	}
	if n > math.MaxUint32 {
		return text, w, fmt.Errorf("%d letters in one batch: want less than 4 GiB, so no record that is longer", n)
	}
	if err := s.st.Sync(); err != nil { // after an error, copies may be under way
		return text, w, err
	}
	if text, err = s.text.put(s.d, s.st, texts...); err == nil {
		w, err = s.windows.put(s.d, s.st, windows)
	}
	return text, w, err
}
