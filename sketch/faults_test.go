package sketch

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"runtime"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/faults"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/testenv"
)

// Whatever call of the device fails within an operation, the error is a line, and the registers are those from before
// or those of the whole operation. Tried again, it is done, unless the error says that the sketch is broken; what is
// merged into it stays whole; and nothing stays open.
func TestFaults(t *testing.T) {
	d, other := open(t, "cpu"), open(t, "cpu:1")
	o := HyperLogLogOptions{Precision: 6, Seed: 3}
	first, more := randomKeys[uint32](500, 1), randomKeys[uint32](2000, 2)
	before, after, empty := newTwin(o), newTwin(o), newTwin(o)
	before.addAll(bytesOf(first), 4)
	after.addAll(bytesOf(first), 4)
	after.addAll(bytesOf(more), 4)
	on, err := device.From(d, more)
	must(t, err)
	defer on.Free()
	near, far := newSketch[uint32](t, d, o), newSketch[uint32](t, other, o)
	must(t, errors.Join(near.Add(more), far.Add(more)))
	file := func(h *HyperLogLog[uint32]) (b bytes.Buffer) {
		must(t, h.Save(context.Background(), &b))
		return b
	}
	saved := file(near)
	for _, op := range []struct {
		name string
		do   func(h *HyperLogLog[uint32]) error
		then *twin
	}{
		{"Add", func(h *HyperLogLog[uint32]) error { return h.Add(more) }, after},
		{"AddOn", func(h *HyperLogLog[uint32]) error { return h.AddOn(nil, on) }, after},
		{"Merge", func(h *HyperLogLog[uint32]) error { return h.Merge(near) }, after},
		{"Merge of another device's", func(h *HyperLogLog[uint32]) error { return h.Merge(far) }, after},
		{"Clear", func(h *HyperLogLog[uint32]) error { return h.Clear() }, empty},
		{"Estimate", func(h *HyperLogLog[uint32]) error {
			e, err := h.Estimate()
			if want := before.estimate(); err == nil && e != want {
				return fmt.Errorf("an estimate of %v, want %v", e, want)
			}
			return err
		}, before},
		{"Save and load", func(h *HyperLogLog[uint32]) error {
			var b bytes.Buffer
			err := h.Save(context.Background(), &b)
			if err != nil {
				return err
			}
			again, err := LoadHyperLogLog[uint32](context.Background(), &b, d)
			if err != nil {
				return err
			}
			return errors.Join(before.differs(again), again.Close())
		}, before},
		{"Load and Merge", func(h *HyperLogLog[uint32]) error {
			again, err := LoadHyperLogLog[uint32](context.Background(), bytes.NewReader(saved.Bytes()), d)
			if err != nil {
				return err
			}
			return errors.Join(h.Merge(again), again.Close())
		}, after},
	} {
		t.Run(op.name, func(t *testing.T) {
			failed := 0
			for site := range faults.Sites {
				for n := int64(1); n < 1000; n++ {
					h, err := NewHyperLogLog[uint32](d, o)
					must(t, err)
					must(t, h.Add(first))
					open := len(frame.OpenTables(d))
					order := &faults.Counter{Site: site, N: n, Outcome: faults.Fails}
					faults.Set(d, order.Order)
					err = op.do(h)
					faults.Set(d, nil)
					if now := len(frame.OpenTables(d)); now != open {
						t.Fatalf("%s %d fails: %d sketches are open, were %d", site, n, now, open)
					}
					if err != nil {
						failed++
						var call *device.CallError
						if strings.Contains(err.Error(), "\n") {
							t.Errorf("%s %d fails: %q", site, n, err)
						}
						if errors.As(err, &call) && call.Broken {
							if err := errors.Join(h.Close(), near.Check(), far.Check()); err != nil {
								t.Fatalf("%s %d fails: what was only read: %v", site, n, err)
							}
							if !order.Met() {
								t.Fatalf("the sketch is broken, though no call failed: %v", err)
							}
							continue
						}
						if got := errors.Join(before.differs(h), op.then.differs(h)); got != nil &&
							before.differs(h) != nil && op.then.differs(h) != nil {
							t.Fatalf("%s %d fails: %v: %v", site, n, err, got)
						}
						if err := op.do(h); err != nil {
							t.Fatalf("%s %d failed, and again: %v", site, n, err)
						}
					}
					if err := op.then.differs(h); err != nil {
						t.Fatalf("%s %d fails: %v", site, n, err)
					}
					must(t, h.Close())
					if !order.Met() {
						break
					}
				}
			}
			if failed == 0 {
				t.Error("no call failed")
			}
		})
	}
}

// What CompileAhead has compiled is all that a sketch launches: there, no compiler is needed.
func TestCompileAhead(t *testing.T) {
	level := runtime.GOARCH
	if level == "amd64" {
		level = "x86-64-v2"
	}
	dir := t.TempDir()
	must(t, os.Chmod(dir, 0o700))
	ahead, err := device.OpenAhead(level, device.WithCache(dir))
	testenv.Require(t, "cpu", err)
	must(t, errors.Join(CompileAhead[uint64](ahead), CompileAheadCountMin[uint64](ahead, CountMinOptions{}),
		CompileAheadTop[uint64](ahead), ahead.Close()))
	t.Setenv("PATH", t.TempDir())
	t.Setenv("CXX", "")
	d := open(t, "cpu", device.WithKernels(os.DirFS(dir)), device.WithCache(""))
	o := HyperLogLogOptions{Precision: 8, Seed: 3}
	for _, n := range []int{10, 100_000} {
		a, b, w := newSketch[uint64](t, d, o), newSketch[uint64](t, d, o), newTwin(o)
		keys := randomKeys[uint64](n, 4)
		w.addAll(bytesOf(keys), 8)
		must(t, errors.Join(a.Add(keys), b.Merge(a), w.differs(b)))
		c, came := newCounts[uint64](t, d, CountMinOptions{}), make([]uint64, n)
		must(t, errors.Join(c.Add(keys), c.AddCounts(keys, came), c.Merge(c), c.Estimate(keys, came), c.Check()))
		top := newTop[uint64](t, d, TopOptions{})
		must(t, errors.Join(top.Add(keys), top.AddCounts(keys, came), top.Merge(top), top.Check()))
	}
}

// Whatever call of the device fails within an operation of a CountMin, the error is a line, and the words are those
// from before or those of the whole operation. Tried again where they are those from before, it is done; and nothing
// stays open.
func TestFaultsOfCounts(t *testing.T) {
	d, other := open(t, "cpu"), open(t, "cpu:1")
	o := CountMinOptions{Epsilon: 0.3, Delta: 0.1, Seed: 3}
	first, more := skewed[uint32](500, 1), skewed[uint32](2000, 2)
	near, far := newCounts[uint32](t, d, o), newCounts[uint32](t, other, o)
	must(t, errors.Join(near.Add(more), far.Add(more)))
	before, after, empty := newCountTwin(near.s.form), newCountTwin(near.s.form), newCountTwin(near.s.form)
	before.addAll(bytesOf(first), 4, nil)
	after.addAll(bytesOf(first), 4, nil)
	after.addAll(bytesOf(more), 4, nil)
	on, err := device.From(d, more)
	must(t, err)
	defer on.Free()
	for _, op := range []struct {
		name string
		do   func(h *CountMin[uint32]) error
		then *countTwin
	}{
		{"Add", func(h *CountMin[uint32]) error { return h.Add(more) }, after},
		{"AddOn", func(h *CountMin[uint32]) error { return h.AddOn(nil, on) }, after},
		{"Merge", func(h *CountMin[uint32]) error { return h.Merge(near) }, after},
		{"Merge of another device's", func(h *CountMin[uint32]) error { return h.Merge(far) }, after},
		{"Clear", func(h *CountMin[uint32]) error { return h.Clear() }, empty},
		{"Estimate", func(h *CountMin[uint32]) error { return h.Estimate(more[:9], make([]uint64, 9)) }, before},
		{"Save and load", func(h *CountMin[uint32]) error {
			var b bytes.Buffer
			err := h.Save(context.Background(), &b)
			if err != nil {
				return err
			}
			again, err := LoadCountMin[uint32](context.Background(), &b, d)
			if err != nil {
				return err
			}
			return errors.Join(before.differs(again), again.Close())
		}, before},
	} {
		t.Run(op.name, func(t *testing.T) {
			failed := 0
			for site := range faults.Sites {
				for n := int64(1); n < 1000; n++ {
					h, err := NewCountMin[uint32](d, o)
					must(t, err)
					must(t, h.Add(first))
					open := len(frame.OpenTables(d))
					order := &faults.Counter{Site: site, N: n, Outcome: faults.Fails}
					faults.Set(d, order.Order)
					err = op.do(h)
					faults.Set(d, nil)
					if now := len(frame.OpenTables(d)); now != open {
						t.Fatalf("%s %d fails: %d sketches are open, were %d", site, n, now, open)
					}
					var call *device.CallError
					switch {
					case err != nil && strings.Contains(err.Error(), "\n"):
						t.Errorf("%s %d fails: %q", site, n, err)
					case errors.As(err, &call) && call.Broken && !order.Met():
						t.Fatalf("the sketch is broken, though no call failed: %v", err)
					case err != nil && before.differs(h) == nil:
						err = op.do(h)
						failed++
					case err != nil:
						err = nil
						failed++
					}
					if errors.As(err, &call) && call.Broken || errors.As(h.Check(), &call) && call.Broken {
						must(t, errors.Join(h.Close(), near.Check(), far.Check()))
						continue
					}
					must(t, err)
					if err := op.then.differs(h); err != nil {
						t.Fatalf("%s %d fails: %v", site, n, err)
					}
					must(t, h.Close())
					if !order.Met() {
						break
					}
				}
			}
			if failed == 0 {
				t.Error("no call failed")
			}
		})
	}
}

// The same of a Top, whose table is cut in the middle of what fails. A sketch that the error does not call broken keeps
// its promise for what it had before or for the whole operation.
func TestFaultsOfTop(t *testing.T) {
	smallParts(t, 100)
	d, other := open(t, "cpu"), open(t, "cpu:1")
	o := TopOptions{Counters: 30, Seed: 3}
	first, more := randomKeys[uint32](190, 1), randomKeys[uint32](150, 2)
	near, far := newTop[uint32](t, d, o), newTop[uint32](t, other, o)
	must(t, errors.Join(near.Add(more), far.Add(more)))
	_, before := tally(first)
	_, after := tally(append(first, more...))
	on, err := device.From(d, more)
	must(t, err)
	defer on.Free()
	for _, op := range []struct {
		name string
		do   func(h *Top[uint32]) error
		then map[uint32]uint64
	}{
		{"Add", func(h *Top[uint32]) error { return h.Add(more[:100]) }, nil},
		{"AddOn", func(h *Top[uint32]) error { return h.AddOn(nil, on.Slice(0, 100)) }, nil},
		{"Merge", func(h *Top[uint32]) error { return h.Merge(near) }, after},
		{"Merge of another device's", func(h *Top[uint32]) error { return h.Merge(far) }, after},
		{"Clear", func(h *Top[uint32]) error { return h.Clear() }, map[uint32]uint64{}},
		{"Top", func(h *Top[uint32]) error { _, err := h.Top(9); return err }, before},
		{"Save and load", func(h *Top[uint32]) error {
			var b bytes.Buffer
			err := h.Save(context.Background(), &b)
			if err != nil {
				return err
			}
			again, err := LoadTop[uint32](context.Background(), &b, d)
			if err != nil {
				return err
			}
			return errors.Join(within(again, before), again.Close())
		}, before},
	} {
		if op.then == nil {
			_, op.then = tally(append(first, more[:100]...))
		}
		t.Run(op.name, func(t *testing.T) {
			failed := 0
			for site := range faults.Sites {
				for n := int64(1); n < 1000; n++ {
					h, err := NewTop[uint32](d, o)
					must(t, err)
					must(t, h.Add(first))
					open := len(frame.OpenTables(d))
					order := &faults.Counter{Site: site, N: n, Outcome: faults.Fails}
					faults.Set(d, order.Order)
					err = op.do(h)
					faults.Set(d, nil)
					if now := len(frame.OpenTables(d)); now != open {
						t.Fatalf("%s %d fails: %d sketches are open, were %d", site, n, now, open)
					}
					if err != nil {
						failed++
						if strings.Contains(err.Error(), "\n") {
							t.Errorf("%s %d fails: %q", site, n, err)
						}
					}
					var call *device.CallError
					if broken := h.Check(); errors.As(broken, &call) && call.Broken {
						if !order.Met() {
							t.Fatalf("the sketch is broken, though no call failed: %v", broken)
						}
						must(t, errors.Join(h.Close(), near.Check(), far.Check()))
						continue
					}
					if err != nil && within(h, before) == nil {
						err = op.do(h)
					} else if err != nil {
						err = within(h, op.then)
					}
					must(t, err)
					if err := within(h, op.then); err != nil {
						t.Fatalf("%s %d fails: %v", site, n, err)
					}
					must(t, h.Close())
					if !order.Met() {
						break
					}
				}
			}
			if failed == 0 {
				t.Error("no call failed")
			}
		})
	}
}
