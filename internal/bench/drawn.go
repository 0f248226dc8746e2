package bench

import (
	"errors"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/workload"
)

// firstDrawn is the number of the look-up whose key is inserted first: those that Ask makes are far from it.
const firstDrawn = 1 << 40

// newDrawn is NewWork of keys that are drawn from the first Distinct of kinds, as look-ups are. The values of a key are workload.Value of
// it and the next numbers, in the order in which they come.
func newDrawn[K, V workload.Wide](d *device.Device, o TableOptions, kinds workload.Keys) (w *Work[K, V], err error) {
	if !kinds.Unique() {
		return nil, WrongOption("keys %q are hashes that meet: how often each is drawn is not known; want others", kinds.Kind)
	}
	keys, values, times := make([]K, o.N), make([]V, o.N), make([]uint32, o.Distinct)
	came := make([]uint32, o.N) // before: first the key's index
	pick := func(to func(i int, index uint64)) { workload.Pick(kinds, uint64(o.Distinct), 1, firstDrawn, o.N, to) }
	pick(func(i int, index uint64) { came[i] = uint32(index) })
	there := 0
	for i, x := range came {
		if times[x] == 0 {
			there++
		}
		came[i] = times[x]
		times[x]++
	}
	pick(func(i int, index uint64) {
		key := kinds.At(index)
		keys[i], values[i] = workload.Widen[K](key), workload.Widen[V](workload.Value(key)+uint64(came[i]))
	})
	once := o.Queries == 0
	if once {
		o.Queries = there
	}
	if w, err = NewWorkOf(d, o, kinds, there, keys, values); err != nil {
		return w, err
	}
	w.times = times
	if w.came, err = device.Make[uint32](d, o.Queries); err == nil {
		if once {
			err = w.askOnce()
		} else {
			err = w.Ask(o.Hits, 0)
		}
	}
	if err != nil {
		w.Free()
	}
	return w, err
}

// askDrawn is Ask. A key that could have been drawn and was not is not there.
func (w *Work[K, V]) askDrawn(first uint64) error {
	n := w.Options.Queries
	queries, expect, came := make([]K, n), make([]byte, n), make([]uint32, n)
	workload.Pick(w.kinds, uint64(len(w.times)), w.Options.Hits, first, n, func(i int, index uint64) {
		queries[i] = workload.Widen[K](w.kinds.At(index))
		if index < uint64(len(w.times)) && w.times[index] > 0 {
			expect[i], came[i] = workload.Hit, w.times[index]
		}
	})
	return w.asked(queries, expect, came)
}

// askOnce makes look-ups of each key that is there, once.
func (w *Work[K, V]) askOnce() error {
	most := w.Options.Queries
	queries, expect, came := make([]K, 0, most), make([]byte, 0, most), make([]uint32, 0, most)
	for i, n := range w.times {
		if n > 0 {
			queries, expect, came = append(queries, workload.Widen[K](w.kinds.At(uint64(i)))), append(expect, workload.Hit), append(came, n)
		}
	}
	return w.asked(queries, expect, came)
}

func (w *Work[K, V]) asked(queries []K, expect []byte, came []uint32) error {
	st := w.Device.Stream()
	return errors.Join(w.Queries.Write(st, queries), w.Expect.Write(st, expect), w.came.Write(st, came))
}
