package classify

import (
	_ "embed"
	"fmt"
	"math"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/genome"
)

//go:embed classify.cu
var classifyCU string

// kernels are those of classify.cu, for one k and one size of sketches.
type kernels struct {
	sketch device.Kernel[sketchParams]
	pair   device.Kernel[pairParams]
	sort   device.Kernel[sortParams]
	decide device.Kernel[decideParams]
	lookUp device.Kernel[lookUpParams] // of the CPU: see resident
}

func program(o Options) *device.Program {
	return &device.Program{
		Name:  "classify",
		Files: []device.File{{Name: "classify.cu", Text: classifyCU}},
		Defines: []device.Define{{Name: "CLASSIFY_K", Value: o.K}, {Name: "CLASSIFY_SKETCH", Value: o.Sketch},
			{Name: "CLASSIFY_RANKS", Value: ranks}, {Name: "CLASSIFY_CHUNK", Value: chunkItems},
			{Name: "CLASSIFY_CHUNK_SLOTS", Value: chunkSlots}, {Name: "CLASSIFY_CHUNK_SLOT_BITS", Value: slotBits},
			{Name: "CLASSIFY_ONE_BIT", Value: oneBit}, {Name: "CLASSIFY_MANY_BIT", Value: manyBit},
			{Name: "CLASSIFY_COUNT_SHIFT", Value: countShift},
			{Name: "CLASSIFY_MOST_LOCATIONS", Value: mostLocations}, {Name: "CLASSIFY_READ_LANES", Value: readLanes}},
		Layouts: []any{sketchParams{}, pairParams{}, sortParams{}, decideParams{}, lookUpParams{}, record{}, window{},
			query{}, candidate{}, verdict{}},
	}
}

func compile(d *device.Device, o Options) (k kernels, err error) {
	m, err := d.CompileApart(program(o))
	if err != nil {
		return k, err
	}
	if k.sketch, err = device.KernelOf[sketchParams](m, "sketch"); err != nil {
		return k, err
	}
	if k.pair, err = device.KernelOf[pairParams](m, "pairs"); err != nil {
		return k, err
	}
	if k.sort, err = device.KernelOf[sortParams](m, "sort_lists"); err != nil {
		return k, err
	}
	if resides(d) {
		if k.lookUp, err = device.KernelOf[lookUpParams](m, "look_up"); err != nil {
			return k, err
		}
	}
	k.decide, err = device.KernelOf[decideParams](m, "decide")
	return k, err
}

// ahead has the kernels of a query compiled that are not yet.
func (k kernels) ahead(d *device.Device) error {
	if resides(d) {
		return device.Ahead(k.sketch, k.decide, k.lookUp)
	}
	return device.Ahead(k.sketch, k.decide)
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

// memory is device memory that is kept from batch to batch, and grows.
type memory[T any] struct{ s device.Slice[T] }

// room gives n elements of undefined content; the stream must have passed what used it before.
func (m *memory[T]) room(d *device.Device, st *device.Stream, n int) (device.Slice[T], error) {
	if m.s.Len() < n {
		if err := m.free(st); err != nil {
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

// put gives a copy of src on the device.
func (m *memory[T]) put(d *device.Device, st *device.Stream, src []T) (device.Slice[T], error) {
	s, err := m.room(d, st, len(src))
	if err == nil && len(src) > 0 {
		err = s.Write(st, src)
	}
	return s, err
}

func (m *memory[T]) free(st *device.Stream) error {
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
	s.text.free(s.st)
	s.windows.free(s.st)
	s.features.free(s.st)
}

// run queues the sketching of windows of texts that lie one after the other. The features are good until the next call.
func (s *sketcher) run(windows []window, texts ...[]byte) (features device.Slice[uint32], err error) {
	n := 0
	for _, t := range texts {
		n += len(t)
	}
	if n > math.MaxUint32 {
		return features, fmt.Errorf("%d letters in one batch: want less than 4 GiB, so no record that is longer", n)
	}
	text, err := s.text.room(s.d, s.st, n)
	if err != nil {
		return features, err
	}
	n = 0
	for _, t := range texts {
		if len(t) > 0 {
			if err := text.Slice(n, n+len(t)).Write(s.st, t); err != nil {
				return features, err
			}
		}
		n += len(t)
	}
	w, err := s.windows.put(s.d, s.st, windows)
	if err != nil {
		return features, err
	}
	if features, err = s.features.room(s.d, s.st, len(windows)*s.o.Sketch); err != nil || len(windows) == 0 {
		return features, err
	}
	p := sketchParams{text.Addr(), w.Addr(), uint64(len(windows)), features.Addr()}
	return features, s.k.sketch.Launch(s.st, device.GridFor(int64(len(windows)), threads), &p)
}
