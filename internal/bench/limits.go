package bench

import (
	"errors"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/workload"
)

// Limits are what the machine can do at most, in billions a second, over memory of the given size: random look-ups
// (a 4-byte key read, 32, 64 or 128 bytes read at random, a 4-byte value written) and random compare-and-swaps.
type Limits struct {
	Bytes     int64   `json:"bytes"` // of the memory that is accessed at random
	Lookup32  float64 `json:"lookup32"`
	Lookup64  float64 `json:"lookup64"`
	Lookup128 float64 `json:"lookup128"`
	Swap64    float64 `json:"swap64"`    // a pair read, a 64-bit compare-and-swap
	Swap128   float64 `json:"swap128"`   // a pair read, a 128-bit compare-and-swap; 0 where there is none
	ReadSwap  float64 `json:"read_swap"` // 32 bytes read, then a compare-and-swap in them
	CopyGB    float64 `json:"copy_gb_s"` // device copy, bytes read and written, GB a second
}

// MeasureLimits measures n accesses over memory of the given number of bytes. On the CPU device they are those of its workers, in the loop that serves
// these best: each takes a stretch of the accesses, and asks for memory 32 of them ahead.
func MeasureLimits(d *device.Device, bytes int64, n int) (l Limits, err error) {
	m, err := d.Compile(program())
	if err != nil {
		return l, err
	}
	l.Bytes = bytes
	keys, err := device.Make[uint32](d, n)
	if err != nil {
		return l, err
	}
	defer keys.Free()
	out, err := device.Make[uint32](d, n)
	if err != nil {
		return l, err
	}
	defer out.Free()
	memory, err := device.Make[byte](d, int(bytes))
	if err != nil {
		return l, err
	}
	defer memory.Free()
	host := make([]uint32, n)
	k, err := workload.NewKeys("rand", 4, 7)
	if err != nil {
		return l, err
	}
	workload.Pairs(k, host, make([]uint32, n))
	st := d.Stream()
	// Memory that nobody has written to is one page of zeros on the CPU device.
	if err := errors.Join(keys.Write(st, host), out.Fill(st, 1), memory.Fill(st, 0)); err != nil {
		return l, err
	}
	clear := func() error { return memory.Fill(st, 0) }
	for _, x := range []struct {
		name   string
		bucket int64
		before func() error
		to     *float64
	}{
		{"lookup32", 32, nil, &l.Lookup32},
		{"lookup64", 64, nil, &l.Lookup64},
		{"lookup128", 128, nil, &l.Lookup128},
		{"swap64", 8, clear, &l.Swap64},
		{"swap128", 16, clear, &l.Swap128},
		{"read_swap", 32, clear, &l.ReadSwap},
	} {
		if x.name == "swap128" && !d.Info().CAS128 {
			continue
		}
		kern, err := device.KernelOf[limitParams](m, x.name)
		if err != nil {
			return l, err
		}
		p := limitParams{Keys: keys.Addr(), Out: out.Addr(), Memory: memory.Addr(), Buckets: uint64(bytes / x.bucket), N: uint64(n)}
		t, err := Timed(d, st, Runs, x.before, func() error { return kern.Launch(st, limitGrid(d, int64(n)), &p) })
		if err != nil {
			return l, err
		}
		*x.to = Rate(n, t)
	}
	half := int(bytes / 2)
	do := func() error { return memory.Slice(0, half).CopyFrom(st, memory.Slice(half, 2*half)) }
	if !d.Info().CUDA() { // where a copy is one thread's
		half = int(bytes/128) * 64
		kern, err := device.KernelOf[limitParams](m, "copy_lines")
		if err != nil {
			return l, err
		}
		p := limitParams{Out: memory.Addr(), Memory: memory.Addr() + uint64(half), N: uint64(half / 64)}
		do = func() error { return kern.Launch(st, limitGrid(d, int64(p.N)), &p) }
	}
	t, err := Timed(d, st, Runs, nil, do)
	l.CopyGB = Rate(2*half, t)
	return l, err
}

// limitGrid covers n accesses as tables do: on the CPU device a block is a stretch of items for one worker.
func limitGrid(d *device.Device, n int64) device.Grid {
	if d.Info().CUDA() {
		return device.GridFor(n, 256)
	}
	return (&frame.Frame{Device: d}).Grid(n, 1)
}
