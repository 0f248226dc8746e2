package kmers

import (
	"errors"
	"fmt"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/warpcore"
)

// TableOptions say what a Table counts.
type TableOptions struct {
	K         int  // letters of a k-mer, 1 to 32
	Canonical bool // a k-mer and its reverse complement count as one
	Capacity  int  // how many different k-mers there is room for at once
	Batch     int  // how many k-mers are made at a time, 8 bytes each; 0: 2²⁶
}

// Table counts the k-mers of packed letters that are already in a device's memory, and keeps the counts there. It is
// for one goroutine.
type Table struct {
	o       TableOptions
	packed  device.Kernel[packedParams]
	counter *warpcore.Counter[uint64, uint32]
	mixes   device.Slice[uint64]
}

// NewTable makes an empty table. The caller closes it. Errors: options out of range; *device.OutOfMemoryError; what
// device.Compile returns.
func NewTable(d *device.Device, o TableOptions) (*Table, error) {
	if d == nil {
		return nil, errNoDevice
	}
	if o.K < 1 || o.K > wordK {
		return nil, fmt.Errorf("packed k-mers of %d letters: want 1 to %d", o.K, wordK)
	}
	if o.Batch == 0 {
		o.Batch = 1 << 26
	}
	m, err := d.CompileApart(program(1))
	if err != nil {
		return nil, err
	}
	t := &Table{o: o}
	if err := device.Bind(m, "packed_kmers", &t.packed); err != nil {
		return nil, err
	}
	if err := t.packed.Ahead(); err != nil {
		return nil, err
	}
	if t.mixes, err = device.Make[uint64](d, o.Batch); err != nil {
		return nil, err
	}
	t.counter, err = warpcore.NewCounter[uint64, uint32](d,
		warpcore.CounterOptions{Options: warpcore.Options{Options: table.Options{Capacity: o.Capacity}},
			Saturate: true})
	if err != nil {
		return nil, errors.Join(err, t.mixes.Free())
	}
	return t, nil
}

// Add counts the k-mers of n letters in a row. A word holds 32 letters, the first highest, with A, C, G, T = 0 … 3. The
// table grows as it must.
//
// Errors: fewer words than n letters take; *device.OutOfMemoryError; *table.FullError.
func (t *Table) Add(st *device.Stream, letters device.Slice[uint64], n int) error {
	if n < 0 || n > wordK*letters.Len() {
		return fmt.Errorf("%d letters of %d words: want 0 to %d", n, letters.Len(), wordK*letters.Len())
	}
	p := packedParams{Letters: letters.Addr(), K: uint64(t.o.K), Mixes: t.mixes.Addr()}
	if t.o.Canonical {
		p.Canonical = 1
	}
	for first, all := 0, n-t.o.K+1; first < all; first += t.o.Batch {
		some := min(t.o.Batch, all-first)
		p.First, p.N = uint64(first), uint64(some)
		if err := t.packed.Launch(st, device.GridFor(int64(some), 256), &p); err != nil {
			return err
		}
		if err := t.counter.AddOn(st, t.mixes.Slice(0, some)); err != nil {
			return err
		}
	}
	return nil
}

// Len counts the different k-mers that the table has.
func (t *Table) Len() (int, error) { return t.counter.Len() }

// Clear forgets all k-mers, and keeps the memory.
func (t *Table) Clear() error { return t.counter.Clear() }

// Find tells how often each packed k-mer came. If k-mers are counted as canonical, it tells how often the k-mer and its
// reverse complement came.
func (t *Table) Find(kmers []Kmer) ([]uint32, error) {
	keys, out := make([]uint64, len(kmers)), make([]uint32, len(kmers))
	for i, x := range kmers {
		if t.o.Canonical {
			x = Canonical(x, t.o.K)
		}
		keys[i] = mix(x, 1)[0]
	}
	return out, t.counter.Find(keys, out, nil)
}

// Close frees the device's memory.
func (t *Table) Close() error { return errors.Join(t.counter.Close(), t.mixes.Free()) }
