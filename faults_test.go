package warpmap_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/dycuckoo"
	"github.com/warpmap/warpmap/gph"
	"github.com/warpmap/warpmap/internal/faults"
	"github.com/warpmap/warpmap/internal/quick"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/shard"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/snapshot"
)

// bulkCPU is a CPU device whose tables sort batches by regions and stretches, as tables on a GPU do with large batches.
const bulkCPU = "cpu:9"

func init() { quick.Bulk = func(device string) bool { return device == bulkCPU } }

// optionsOn returns options for tables on the device. On bulkCPU they have several stretches.
func optionsOn(name string) table.Options {
	o := table.Options{Seed: 3}
	if name == bulkCPU {
		o.Capacity = 12_000
	}
	return o
}

// newMap makes a map. On bulkCPU its stretches must fit the shared memory of the CPU device.
func newMap(d *device.Device, family table.Family, o table.Options) (table.Map[uint32, uint32], error) {
	bulk := d.Info().Name == bulkCPU
	switch {
	case bulk && family == warpmap.DyCuckoo:
		return dycuckoo.New[uint32, uint32](d, dycuckoo.Options{Options: o, Subtables: 2, Bucket: 32})
	case bulk && family == warpmap.GPH:
		return gph.New[uint32, uint32](d, gph.Options{Options: o, VirtualBuckets: 8})
	}
	return warpmap.New[uint32, uint32](d, family, o)
}

// loading saves a table and loads it into another. After an error of Load the other is empty.
func loading[T table.Table](save, load *snapshot.Table, other T, all func(T) (held, error)) func(h held) error {
	return saving(save, load, other.Len, func() (held, error) { return all(other) })
}

// saving does what loading does, with what length and all say of the other.
func saving(save, load *snapshot.Table, length func() (int, error), all func() (held, error)) func(h held) error {
	return func(h held) error {
		var file bytes.Buffer
		err := save.Save(context.Background(), &file)
		if err == nil {
			if err = load.Load(context.Background(), &file); err != nil {
				if n, wrong := length(); wrong == nil && n > 0 {
					err = fmt.Errorf("a table of %d keys after a load that failed with %v", n, err)
				}
			}
		}
		if err != nil {
			return err
		}
		got, err := all()
		return told(err, got, h, held.equal)
	}
}

// closing makes a table for an operation, and closes it afterwards.
func closing[T interface{ Close() error }](make func() (T, error), do func(T) error) error {
	t, err := make()
	if err != nil {
		return err
	}
	return errors.Join(do(t), t.Close())
}

// mapFaults are operations on a map beside those that short memory is tried with.
func mapFaults(d *device.Device, m table.Map[uint32, uint32]) []scarceOp {
	keys, values := scarceKeys(scarceBefore/2, scarceBatch), scarceValues(scarceBatch, 7)
	ops := []scarceOp{
		{"Save and Load", func(h held) error {
			make := func() (table.Map[uint32, uint32], error) {
				return warpmap.New[uint32, uint32](d, warpmap.WarpCore, table.Options{Seed: 5})
			}
			return closing(make, func(other table.Map[uint32, uint32]) error {
				return loading(snapshot.Map(m), snapshot.Map(other), other, func(t table.Map[uint32, uint32]) (held, error) {
					return pairsOf(func(do func(k, v []uint32) error) error {
						k, v, err := t.All()
						if err == nil {
							err = do(k, v)
						}
						return err
					})
				})(h)
			})
		}},
		{"Batcher", func(h held) (err error) {
			b, err := table.NewBatcher(m, table.BatcherOptions{})
			if err != nil {
				return err
			}
			const few = 40 // go by way of its goroutines
			err = b.Insert(context.Background(), keys[:few], values[:few])
			err = in(few, err, func(i int) { h[keys[i]] = []uint32{values[i]} })
			if err == nil {
				var found [1]bool
				err = b.Find(context.Background(), keys[:1], nil, found[:])
				err = told(err, found[0], true, is)
			}
			return errors.Join(err, b.Close())
		}},
	}
	if u, ok := m.(table.Updater[uint32, uint32]); ok {
		ops = append(ops, scarceOp{"FindOrInsert", func(h held) error {
			out := make([]uint32, len(keys))
			_, err := u.FindOrInsert(keys, values, out, nil)
			return in(len(keys), err, func(i int) {
				if _, there := h[keys[i]]; !there {
					h[keys[i]] = []uint32{values[i]}
				}
			})
		}})
	}
	return ops
}

// between tells whether a key's values may be those of an operation that was done in part.
func between(op string, old, done, got []uint32) bool {
	within := func(a, b []uint32) bool { // all of a are of b
		rest := slices.Clone(b)
		for _, v := range a {
			i := slices.Index(rest, v)
			if i < 0 {
				return false
			}
			rest = slices.Delete(rest, i, i+1)
		}
		return true
	}
	switch {
	case slices.Equal(got, old), slices.Equal(got, done):
		return true
	case strings.HasPrefix(op, "Update"), strings.HasPrefix(op, "Add"): // of several rows of the key some
		return len(got) == 1 && len(done) == 1 && (len(old) == 0 || old[0] <= got[0]) && got[0] <= done[0]
	case op == "Build": // empties the table first
		return within(got, done)
	}
	return within(old, got) && within(got, done) || within(done, got) && within(got, old)
}

// partly says why a table cannot be what an operation leaves that was done in part.
func partly(op string, old, done, got held) error {
	for _, h := range []held{old, done, got} {
		for _, v := range h {
			slices.Sort(v)
		}
	}
	for _, h := range []held{old, done, got} {
		for k := range h {
			_, was := old[k]
			_, will := done[k]
			_, is := got[k]
			if is != was && is != will && op != "Build" || is && !between(op, old[k], done[k], got[k]) {
				return fmt.Errorf("key %#x had %v (%t), is to have %v (%t), and has %v (%t)",
					k, old[k], was, done[k], will, got[k], is)
			}
		}
	}
	return nil
}

// inTime runs what must not hang.
func inTime(t *testing.T, what string, do func() error) error {
	t.Helper()
	ended := make(chan error, 1)
	go func() { ended <- do() }()
	select {
	case err := <-ended:
		return err
	case <-time.After(3 * time.Minute):
		t.Fatalf("%s hangs", what)
		return nil
	}
}

// refused tells of an error whether it is the one of the call that was made to fail, or what is promised where memory
// is short.
func refused(err error) bool {
	return errors.As(err, new(*faults.Error)) || errors.Is(err, table.ErrMaxBytes)
}

// faulty are the sites at which a table's calls fail one by one; those of memory are TestEachAllocationFails's.
var faulty = []faults.Site{faults.Load, faults.Launch, faults.CopyIn, faults.CopyOut, faults.CopyWithin, faults.Stream,
	faults.Event, faults.Sync}

// makesScarce makes a table that is half filled.
type makesScarce = func(d *device.Device) (scarce, held, error)

// withMore makes tables with all their operations.
func withMore(make makesScarce) func(d *device.Device) (scarce, held, error) {
	return func(d *device.Device) (scarce, held, error) {
		s, h, err := make(d)
		s.ops = append(slices.Clip(s.ops), s.more...)
		return s, h, err
	}
}

// chance is a generator of a test's own.
func chance(t *testing.T, seed uint64) *rand.Rand {
	name := fnv.New64()
	fmt.Fprint(name, t.Name())
	return rand.New(rand.NewPCG(name.Sum64(), seed+testenv.FirstSeed()))
}

// isBroken tells whether the error says that the table is not to be trusted any more.
func isBroken(err error) bool {
	call := (*device.CallError)(nil)
	return errors.As(err, &call) && call.Broken
}

// ofTwo tells of an operation whether it makes another table, which may be the one that breaks.
func ofTwo(op string) bool {
	return slices.Contains([]string{"Save and Load", "Union", "Subtract"}, op)
}

// breaks tells whether an error of an operation is that the table is broken.
func breaks(s scarce, op string, err error) bool {
	return isBroken(err) && (!ofTwo(op) || isBroken(s.check()))
}

// saysSo returns what is wrong with a table that said that it is broken.
func saysSo(ds []*device.Device, s scarce) error {
	before := launches(ds)
	for _, op := range s.ops {
		if ofTwo(op.name) {
			continue
		}
		if err := op.do(held{}); !isBroken(err) && !(err == nil && op.name == "Shrink") { // not all can
			return fmt.Errorf("%s of a table that is broken: %v", op.name, err)
		}
	}
	if err := s.check(); !isBroken(err) {
		return fmt.Errorf("Check of a table that is broken: %v", err)
	}
	if n := launches(ds) - before; n > 0 {
		return fmt.Errorf("a table that is broken launches %d kernels", n)
	}
	return nil
}

// Each call of each site fails in turn. The error is that of the call. Either it says that the table is broken: then all
// later calls say so, too, and the operation launches no kernel after the call. Or the table is whole: it has its old
// content and, for each key, all or nothing of the operation, which succeeds when it is tried again. No memory is lost. If
// the call breaks the device, the calls after it say so at once.
func TestEachCallFails(t *testing.T) {
	for _, name := range []string{"cpu", bulkCPU, "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			open(t, name)
			eachTable(map[string]table.Options{"": optionsOn(name)}, func(what string, make makesScarce) {
				t.Run(what, func(t *testing.T) {
					testenv.Turn(t)
					t.Parallel()
					with := withMore(make)
					eachCall(t, []string{name}, faulty, func(ds []*device.Device) (scarce, held, error) { return with(ds[0]) })
				})
			})
		})
	}
}

// makesOver makes a table that is half filled on one device, or over several.
type makesOver = func(ds []*device.Device) (scarce, held, error)

// order is what is set for all devices of a table.
func order(ds []*device.Device, o faults.Order) {
	for _, d := range ds {
		faults.Set(d, o)
	}
}

// alive is what there is on all of the devices.
func alive(ds []*device.Device) (all []string) {
	for _, d := range ds {
		for _, a := range d.Live() {
			all = append(all, fmt.Sprintf("%s: %v", d.Info().Name, a))
		}
	}
	return all
}

// launches is how many kernels the devices have been given.
func launches(ds []*device.Device) (n int64) {
	for _, d := range ds {
		n += int64(d.Launches())
	}
	return n
}

// eachCall has calls of a table on the named devices fail, of any of them.
func eachCall(t *testing.T, names []string, sites []faults.Site, make makesOver) {
	var ds []*device.Device
	for _, name := range names {
		ds = append(ds, open(t, name))
	}
	r := chance(t, 0)
	first, _, err := make(ds)
	if err != nil {
		t.Fatal(err)
	}
	must(t, first.close())
	ways, broke := 0, 0
	for i, op := range first.ops {
		if !testenv.Long() && r.IntN(3) > 0 || names[0] == bulkCPU && strings.HasSuffix(op.name, " of many") {
			continue
		}
		// What the operation does where nothing fails.
		s, old, err := make(ds)
		must(t, err)
		var calls faults.Counter
		order(ds, calls.Order)
		err = s.ops[i].do(old)
		order(ds, nil)
		must(t, err)
		done, err := s.all()
		must(t, errors.Join(err, s.close()))
		for _, site := range sites {
			step := int64(1)
			if len(ds) > 1 || names[0] == bulkCPU { // whose calls are many, and alike
				step += calls.Count(site) / 6
			}
			for n := 1 + int64(i)%step; n <= calls.Count(site); n += step {
				if !testenv.Long() { // one of them
					n = 1 + r.Int64N(calls.Count(site))
				}
				ways++
				if callFails(t, ds, make, i, done, &faults.Counter{Site: site, N: n, Outcome: faults.Fails}) {
					broke++
				}
				if testenv.Long() || r.IntN(6) == 0 {
					for _, outcome := range testenv.Some([]faults.Outcome{faults.Lately, faults.Breaks}, 1) {
						callBreaks(t, names, make, i, &faults.Counter{Site: site, N: n, Outcome: outcome})
						ways++
					}
				}
				if !testenv.Long() {
					break
				}
			}
		}
	}
	testenv.Tried(t, ways, "faults")
	t.Logf("%d calls failed, or broke the device; %d broke the table", ways, broke)
}

func callFails(t *testing.T, ds []*device.Device, make makesOver, i int, done held, c *faults.Counter) (broke bool) {
	atFirst := len(alive(ds))
	s, h, err := make(ds)
	must(t, err)
	op := s.ops[i]
	wrong := func(format string, args ...any) {
		t.Helper()
		t.Fatalf("%s, call %d of %v fails: %s", op.name, c.N, c.Site, fmt.Sprintf(format, args...))
	}
	old := held{}
	for k, v := range h {
		old[k] = slices.Clone(v)
	}
	order(ds, c.Order)
	err = inTime(t, op.name, func() error { return op.do(h) })
	order(ds, nil)
	if err != nil && !refused(err) {
		wrong("%v", err)
	}
	if broke = breaks(s, op.name, err); broke {
		if e := saysSo(ds, s); e != nil {
			wrong("%v; %v", err, e)
		}
		if n := c.Later(); n > 0 && len(ds) == 1 { // other devices go on
			wrong("%v; %d kernels are launched after it", err, n)
		}
	} else {
		if e := s.check(); e != nil {
			wrong("%v; Check: %v", err, e)
		}
		got, e := s.all()
		if e != nil {
			wrong("%v; All: %v", err, e)
		}
		if err == nil && !got.equal(done) {
			wrong("no error, and the table has %d keys, want %d: %s", len(got), len(done), differ(got, done))
		} else if e := partly(op.name, old, done, got); e != nil {
			wrong("%v; %v", err, e)
		}
		if e := inTime(t, op.name, func() error { return op.do(got) }); e != nil {
			wrong("%v; tried again: %v", err, e)
		}
		if e := s.check(); e != nil {
			wrong("%v; tried again: Check: %v", err, e)
		}
		if now, e := s.all(); e != nil || !now.equal(got) {
			wrong("%v; tried again: %v: %s", err, e, differ(now, got))
		}
	}
	if e := s.close(); e != nil {
		wrong("%v; Close: %v", err, e)
	}
	if now := alive(ds); len(now) > atFirst {
		wrong("%v; %v stays behind", err, now)
	}
	return broke
}

func callBreaks(t *testing.T, names []string, make makesOver, i int, c *faults.Counter) {
	var ds []*device.Device
	closing := func() (err error) {
		for _, d := range ds {
			err = errors.Join(err, d.Close())
		}
		return err
	}
	for _, name := range names {
		d, err := device.Open(name)
		must(t, err)
		ds = append(ds, d)
	}
	s, h, err := make(ds)
	must(t, err)
	wrong := func(format string, args ...any) {
		t.Helper()
		t.Fatalf("%s, call %d of %v %v: %s", s.ops[i].name, c.N, c.Site, c.Outcome, fmt.Sprintf(format, args...))
	}
	lost := func(err error) bool { return errors.As(err, new(*device.FaultError)) }
	order(ds, c.Order)
	err = inTime(t, s.ops[i].name, func() error { return s.ops[i].do(h) })
	order(ds, nil)
	if !c.Met() { // an operation makes a few calls more or less, by what its threads did
		must(t, errors.Join(err, s.close(), closing()))
		return
	}
	if !lost(err) && (err != nil || c.Outcome != faults.Lately) {
		wrong("%v", err)
	}
	before := launches(ds)
	for i, op := range s.ops {
		err := inTime(t, op.name, func() error { return op.do(h) })
		if !lost(err) && !(err == nil && op.name == "Shrink") { // not all can
			wrong("afterwards, %s: %v", op.name, err)
		}
		if i == 0 && len(ds) > 1 { // by now the table knows, and until then its other devices may go on
			before = launches(ds)
		}
	}
	if err := s.check(); !lost(err) {
		wrong("Check: %v", err)
	}
	if n := launches(ds) - before; n > 0 {
		wrong("%d kernels are launched afterwards", n)
	}
	if _, _, err := make(ds); !lost(err) {
		wrong("New: %v", err)
	}
	if n := launches(ds) - before; n > 0 && len(ds) == 1 {
		wrong("New launches %d kernels", n)
	}
	if err := inTime(t, "Close", s.close); err != nil && !lost(err) {
		wrong("Close: %v", err)
	}
	if err := inTime(t, "the device's Close", closing); err != nil && !lost(err) {
		wrong("the device's Close: %v", err)
	}
	if now := alive(ds); len(now) > 0 {
		wrong("%v stays behind", now)
	}
}

// Random operations, each call of which fails, or takes long, with one chance in fifty: after each the table is
// whole, and has what the operation may leave.
func TestCallsFailAtRandom(t *testing.T) {
	for _, name := range []string{"cpu", bulkCPU, "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			open(t, name)
			eachTable(map[string]table.Options{"": optionsOn(name)}, func(what string, make makesScarce) {
				t.Run(what, func(t *testing.T) {
					testenv.Turn(t)
					t.Parallel()
					d := open(t, name)
					ordered := 0
					for seed := range testenv.Seeds(16) {
						ordered += atRandom(t, d, withMore(make), uint64(seed))
					}
					testenv.Tried(t, ordered, "faults")
				})
			})
		})
	}
}

// atRandom tells how many calls failed or took long.
func atRandom(t *testing.T, d *device.Device, make makesScarce, seed uint64) int {
	r := chance(t, seed)
	atFirst := len(d.Live())
	s, h, err := make(d)
	must(t, err)
	fails, slow := faults.AtRate(r.Uint64(), 0.02, faults.Fails), faults.AtRate(r.Uint64(), 0.002, faults.Delayed)
	var ordered atomic.Int64
	order := func(site faults.Site, bytes int64) faults.Outcome {
		outcome := max(fails(site, bytes), slow(site, bytes))
		if outcome != faults.Passes {
			ordered.Add(1)
		}
		return outcome
	}
	var steps []string
	for range 12 {
		op := s.ops[r.IntN(len(s.ops))]
		steps = append(steps, op.name)
		old := held{}
		for k, v := range h {
			old[k] = slices.Clone(v)
		}
		faults.Set(d, order)
		err := inTime(t, op.name, func() error { return op.do(h) })
		faults.Set(d, nil)
		wrong := func(format string, args ...any) {
			t.Helper()
			t.Fatalf("seed %d, %s: %v; %s", seed, strings.Join(steps, ", "), err, fmt.Sprintf(format, args...))
		}
		if err != nil && !refused(err) {
			wrong("not what is promised")
		}
		if breaks(s, op.name, err) {
			if e := saysSo([]*device.Device{d}, s); e != nil {
				wrong("%v", e)
			}
			must(t, s.close())
			var e error
			s, h, e = make(d)
			must(t, e)
			steps = append(steps, "New")
			continue
		}
		if e := s.check(); e != nil {
			wrong("Check: %v", e)
		}
		got, e := s.all()
		if e != nil {
			wrong("All: %v", e)
		}
		full := (*table.FullError)(nil)
		switch {
		case err == nil || errors.As(err, &full):
			if !got.equal(h) {
				wrong("the table has %d keys, want %d: %s", len(got), len(h), differ(got, h))
			}
		default:
			partial := held{}
			for k, v := range got {
				partial[k] = slices.Clone(v)
			}
			if e := op.do(got); e != nil { // and brings the model along
				wrong("tried again: %v", e)
			}
			if e := partly(op.name, old, got, partial); e != nil {
				wrong("%v", e)
			}
			if now, e := s.all(); e != nil || !now.equal(got) {
				wrong("tried again: %v: %s", e, differ(now, got))
			}
		}
		h = got
	}
	must(t, s.close())
	if live := d.Live(); len(live) > atFirst {
		t.Fatalf("seed %d, %s: %v stays behind", seed, strings.Join(steps, ", "), live)
	}
	return int(ordered.Load())
}

// A kernel that cannot be loaded, since it is compiled when it is first launched, breaks a table if the operation has
// launched others before. If it is the operation's first, the table stays as it is.
func TestKernelsThatDoNotLoad(t *testing.T) {
	eachTable(map[string]table.Options{"": {Seed: 3}}, func(what string, make makesScarce) {
		if !strings.HasPrefix(what, "map/") {
			return
		}
		t.Run(what, func(t *testing.T) {
			d := open(t, "cpu")
			first, _, err := make(d)
			must(t, err)
			must(t, first.close())
			for i, op := range first.ops {
				if op.name != "Insert" && op.name != "Delete" {
					continue
				}
				s, h, err := make(d)
				must(t, err)
				var calls faults.Counter
				faults.Set(d, calls.Order)
				err = s.ops[i].do(h)
				faults.Set(d, nil)
				must(t, err)
				done, err := s.all()
				must(t, errors.Join(err, s.close()))
				for n := int64(1); n <= min(4, calls.Count(faults.Load)); n++ {
					c := &faults.Counter{Site: faults.Load, N: n, Outcome: faults.Fails}
					if callFails(t, []*device.Device{d}, func(ds []*device.Device) (scarce, held, error) { return make(ds[0]) }, i, done, c) && n == 1 {
						t.Errorf("%s: the first kernel does not load, and breaks the table", op.name)
					}
				}
			}
		})
	})
}

// The same over three devices: calls of any of them fail, also copies from one to another, and with them the table's
// other parts have to do. Where one of the devices is lost, every call of the table says so.
func TestEachCallOfShardsFails(t *testing.T) {
	names := []string{"cpu:0", "cpu:1", "cpu:2"}
	for _, copies := range testenv.Some([]bool{true, false}, 1) {
		o := shard.Options{Options: table.Options{Seed: 3}, Piece: 300, Copies: copies}
		run := func(what string, make makesOver) {
			t.Run(fmt.Sprintf("%s/copies=%t", what, copies), func(t *testing.T) {
				testenv.Turn(t)
				t.Parallel()
				eachCall(t, names, append(slices.Clip(faulty), faults.PeerCopy), make)
			})
		}
		for _, family := range testenv.Some([]table.Family{warpmap.Slab, warpmap.WarpCore}, 1) {
			run(fmt.Sprintf("map/%s", family), func(ds []*device.Device) (s scarce, h held, err error) {
				m, err := shard.NewMap(ds, o, func(d *device.Device, o table.Options) (table.Map[uint32, uint32], error) {
					return warpmap.New[uint32, uint32](d, family, o)
				})
				if err != nil {
					return s, nil, err
				}
				if s = scarceMap(ds[0], m); family == warpmap.WarpCore { // has no mixed batches
					s.ops = slices.DeleteFunc(s.ops, func(op scarceOp) bool { return op.name == "Mixed" })
				}
				h, err = fill(s, m.Insert, func(keys []uint32) error { _, err := m.Delete(keys, nil); return err })
				return s, h, err
			})
		}
		for _, family := range testenv.Some([]table.Family{warpmap.WarpCore, warpmap.Slab}, 1) {
			run(fmt.Sprintf("multimap/%s", family), func(ds []*device.Device) (s scarce, h held, err error) {
				m, err := shard.NewMultiMap(ds, o, func(d *device.Device, o table.Options) (table.MultiMap[uint32, uint32], error) {
					return warpmap.NewMultiMap[uint32, uint32](d, family, o)
				})
				if err != nil {
					return s, nil, err
				}
				s = scarceMultiMap(ds[0], m, false)
				h, err = fill(s, m.Insert, func(keys []uint32) error { _, err := m.Delete(keys, nil); return err })
				return s, h, err
			})
		}
	}
}
