package tabletest

import (
	"context"
	"errors"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/snapshot"
)

// subject is a table of some kind beside a Go map that holds the same. Its operations choose at random among the ways to call
// them: Go slices or device slices, on this stream or that, with all outputs or without. Each compares what came back.
type subject interface {
	base() *rig
	put(keys []uint64) error // with values of its own choice; the error is a FullError
	drop(keys []uint64)      // where the kind has deletions; else it asks
	ask(keys []uint64)
	verify() // compares the whole table
	// chunks calls Chunks, or what the kind has for it, and do with the number of each one's elements.
	chunks(ctx context.Context, do func(n int) error) error
	file() *snapshot.Table // to save the table, or to load it
	order() []uint64       // the keys as the table exports them; nil if it does not
	// share is another subject of the same table, whose keys are its own.
	share(seed uint64) subject
	// queue prepares rounds of operations on the keys that are queued and not waited for.
	queue(keys []uint64, rounds int) queue
}

// queue are operations on fixed keys, or on half of them for drop, which is nil where the kind has no deletions. found is what
// look writes; value, if not nil, compares what else it wrote for key i.
type queue struct {
	put   func(st *device.Stream, round int) error
	drop  func(st *device.Stream) error
	look  func(st *device.Stream, round int) error
	found []device.Slice[bool]
	value func(round, i int)
}

// rig is what the subjects of all kinds have.
type rig struct {
	testing.TB
	d       *device.Device
	t       table.Table
	rng     *rand.Rand
	streams []*device.Stream
	opts    table.Options
	shared  bool   // with other subjects: what the table holds in all is not ours to compare
	keyBits uint64 // a mask
	// model has the keys that are in. What the numbers are is the kind's: of a map those that the key's value may be, several
	// after duplicates in one batch until it is read; of a multimap its values.
	model map[uint64][]uint32
}

func newRig[K any](t testing.TB, d *device.Device, it table.Table, o table.Options, seed uint64) *rig {
	t.Helper()
	r := &rig{TB: t, d: d, t: it, opts: o, keyBits: keyMask[K]()}
	t.Cleanup(func() { must(t, it.Close()) })
	r.begin(seed)
	return r
}

// begin makes what a subject has for itself.
func (r *rig) begin(seed uint64) {
	r.rng, r.streams, r.model = rand.New(rand.NewPCG(seed, 1)), []*device.Stream{nil}, map[uint64][]uint32{}
	for range 2 {
		st, err := r.d.NewStream()
		must(r, err)
		r.streams = append(r.streams, st)
		r.Cleanup(func() { must(r, st.Close()) })
	}
}

// other is a rig of the same table, shared.
func (r *rig) other(seed uint64) *rig {
	o := *r
	o.shared = true
	o.begin(seed)
	return &o
}

func (r *rig) base() *rig { return r }

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

func (r *rig) stream() *device.Stream { return r.streams[r.rng.IntN(len(r.streams))] }

func (r *rig) coin() bool { return r.rng.IntN(2) == 0 }

// NoneForgotten reports the tables of the device that were not closed, by where they were made: for the end of a test.
func NoneForgotten(t testing.TB, d *device.Device) {
	t.Helper()
	for _, where := range frame.OpenTables(d) {
		t.Errorf("a table was not closed; it was made at %s", where)
	}
}

// onDevice copies a Go slice to the device.
func onDevice[T any](t testing.TB, d *device.Device, x []T) device.Slice[T] {
	t.Helper()
	s, err := device.From(d, x)
	must(t, err)
	return s
}

func host[T any](t testing.TB, st *device.Stream, s device.Slice[T]) []T {
	t.Helper()
	x, err := s.Host(st)
	must(t, err)
	return x
}

func free[T any](t testing.TB, slices ...device.Slice[T]) {
	t.Helper()
	for _, s := range slices {
		if s.Addr() != 0 {
			must(t, s.Free())
		}
	}
}

// flags runs an operation that writes a flag for each of n positions, and tells their number: on Go slices, or on the device,
// where the number is not told and is -1. told is false where the flags were left out.
func (r *rig) flags(n int, onHost func([]bool) (int, error), on func(*device.Stream, device.Slice[bool]) error) (flags []bool, count int, told bool, err error) {
	r.Helper()
	flags, told = make([]bool, n), r.rng.IntN(4) > 0
	for i := range flags {
		flags[i] = told // what is not written shows
	}
	if r.coin() {
		out := flags
		if !told {
			out = nil
		}
		count, err = onHost(out)
		return flags, count, told, err
	}
	st := r.stream()
	var out device.Slice[bool]
	if told {
		out = onDevice(r.TB, r.d, flags)
	}
	err = on(st, out)
	if told {
		flags = host(r.TB, st, out)
	}
	must(r, st.SyncOf(r.d))
	free(r.TB, out)
	return flags, -1, told, err
}

// lost turns the error of an insert into the set of positions that are not in.
func (r *rig) lost(err error, n int) map[int]bool {
	r.Helper()
	var full *table.FullError
	if !errors.As(err, &full) {
		must(r, err)
		return nil
	}
	if r.opts.MaxBytes == 0 {
		r.Fatalf("a table without MaxBytes is full: %v", err)
	}
	if !errors.Is(err, table.ErrMaxBytes) || full.Why == nil {
		r.Errorf("a full table does not say that MaxBytes is why: %v", err)
	}
	out := map[int]bool{}
	for i, p := range full.Positions {
		if p < 0 || p >= n || i > 0 && p <= full.Positions[i-1] {
			r.Fatalf("positions %v of a batch of %d", full.Positions, n)
		}
		out[p] = true
	}
	if len(out) == 0 {
		r.Fatalf("full, but every position is in: %v", err)
	}
	if length, err := r.t.Len(); !r.shared && (err != nil || full.Len != length) {
		r.Errorf("the error says %d pairs, Len %d, %v", full.Len, length, err)
	}
	return out
}

// mustBeOut checks that of equal keys all or none are lost, and none that was there before.
func (r *rig) mustBeOut(keys []uint64, lost map[int]bool) {
	r.Helper()
	in := map[uint64]bool{}
	for i, k := range keys {
		in[k] = in[k] || !lost[i]
	}
	for i := range lost {
		if in[keys[i]] {
			r.Fatalf("key %#x is both in and not in (position %d)", keys[i], i)
		}
		if _, ok := r.model[keys[i]]; ok {
			r.Fatalf("key %#x was in the table before, and position %d is told not to be in", keys[i], i)
		}
	}
}

// onceEach checks the flags of a batch: of each key that want says, one position has its flag set, of the others none. It returns
// how many keys want says.
func (r *rig) onceEach(what string, keys []uint64, flags []bool, told bool, want func(k uint64) bool) (n int) {
	r.Helper()
	times := map[uint64]int{}
	for i, k := range keys {
		if flags[i] {
			times[k]++
		}
	}
	for _, k := range distinct(keys) {
		expect := 0
		if want(k) {
			expect, n = 1, n+1
		}
		if told && times[k] != expect {
			r.Fatalf("key %#x was %s %d times, want %d", k, what, times[k], expect)
		}
	}
	return n
}

// dropped checks what a deletion of keys told, and takes them out of the model.
func (r *rig) dropped(keys []uint64, deleted []bool, count int, told bool) {
	r.Helper()
	n := r.onceEach("deleted", keys, deleted, told, func(k uint64) bool { _, there := r.model[k]; return there })
	r.count("keys are deleted by Delete", count, n)
	for _, k := range keys {
		delete(r.model, k)
	}
}

// numbersOf are n numbers for values of type V.
func numbersOf[V any](rng *rand.Rand, n int) []uint32 {
	out := make([]uint32, n)
	for i := range out {
		out[i] = rng.Uint32() & numberMask[V]()
	}
	return out
}

// count compares the number that a call returned; -1 is none.
func (r *rig) count(what string, got, want int) {
	r.Helper()
	if got >= 0 && got != want {
		r.Fatalf("%d %s, want %d", got, what, want)
	}
}

func distinct(keys []uint64) []uint64 {
	out := slices.Clone(keys)
	slices.Sort(out)
	return slices.Compact(out)
}

// keys are those that are in, sorted.
func (r *rig) keys() (keys []uint64) {
	for k := range r.model {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

func (r *rig) clear() {
	r.Helper()
	must(r, r.t.Clear())
	clear(r.model)
}

func (r *rig) grow(n int) {
	r.Helper()
	if err := r.t.Grow(n); err != nil && !(r.opts.MaxBytes > 0 && errors.Is(err, table.ErrMaxBytes)) {
		r.Fatal(err)
	}
}

// sideSlots is the most keys whose pairs a layout may hold beside the slots that it counts: the highest.
const sideSlots = 4

// verifyStats checks Len, Stats and Check against a table that holds n pairs or keys.
func (r *rig) verifyStats(n int) {
	r.Helper()
	must(r, r.t.Check())
	if length, err := r.t.Len(); err != nil || length != n {
		r.Fatalf("Len is %d, %v, want %d", length, err, n)
	}
	st, err := r.t.Stats()
	must(r, err)
	sum := 0
	for _, n := range st.Probes {
		sum += n
	}
	side := sideSlots
	for i := range uint64(sideSlots) {
		side += len(r.model[r.keyBits-i]) // of a multimap, many
	}
	switch {
	case st.Len != n || sum != n:
		r.Fatalf("%d pairs are in, and %d have probe lengths, of %d", st.Len, sum, n)
	case st.Capacity+side < n || st.Bytes <= 0 || st.Tombstones < 0 || st.StagingBytes < 0 || st.ScratchBytes < 0:
		r.Fatalf("%d pairs, and stats %+v", n, st)
	case st.LoadFactor != float64(n)/float64(st.Capacity):
		r.Fatalf("%d pairs, and stats %+v", n, st)
	case n > 0 && (st.MeanProbes < 1 || st.MeanProbes > float64(st.MaxProbes)):
		r.Fatalf("look-ups take %v probes on average, %d at most", st.MeanProbes, st.MaxProbes)
	case r.opts.MaxBytes > 0 && st.Bytes > r.opts.MaxBytes:
		r.Fatalf("a table of %d bytes, MaxBytes %d", st.Bytes, r.opts.MaxBytes)
	}
}

// container is a table that tells which keys are in.
type container[K any] interface {
	Contains(keys []K, found []bool) error
	ContainsOn(st *device.Stream, keys device.Slice[K], found device.Slice[bool]) error
}

// contains asks a table for keys.
func contains[K any](r *rig, keys []K, it container[K]) []bool {
	r.Helper()
	found := make([]bool, len(keys))
	for i := range found {
		found[i] = r.coin() // what is not written shows
	}
	if r.coin() {
		must(r, it.Contains(keys, found))
		return found
	}
	dk, df, st := onDevice(r.TB, r.d, keys), onDevice(r.TB, r.d, found), r.stream()
	must(r, it.ContainsOn(st, dk, df))
	found = host(r.TB, st, df)
	free(r.TB, dk)
	free(r.TB, df)
	return found
}

// eraser is a table that deletes keys.
type eraser[K any] interface {
	Delete(keys []K, deleted []bool) (int, error)
	DeleteOn(st *device.Stream, keys device.Slice[K], deleted device.Slice[bool]) error
}

// erase deletes keys: see flags.
func erase[K any](r *rig, keys []K, it eraser[K]) (deleted []bool, count int, told bool) {
	r.Helper()
	deleted, count, told, err := r.flags(len(keys),
		func(deleted []bool) (int, error) { return it.Delete(keys, deleted) },
		func(st *device.Stream, deleted device.Slice[bool]) error {
			dk := onDevice(r.TB, r.d, keys)
			err := it.DeleteOn(st, dk, deleted)
			must(r, st.SyncOf(r.d))
			free(r.TB, dk)
			return err
		})
	must(r, err)
	return deleted, count, told
}

// inserter is a table that takes pairs.
type inserter[K, V any] interface {
	Insert(keys []K, values []V) error
	InsertOn(st *device.Stream, keys device.Slice[K], values device.Slice[V]) error
}

// insertPairs inserts pairs, from Go slices or from the device.
func insertPairs[K, V any](r *rig, keys []K, values []V, it inserter[K, V]) error {
	r.Helper()
	if r.coin() {
		return it.Insert(keys, values)
	}
	dk, dv, st := onDevice(r.TB, r.d, keys), onDevice(r.TB, r.d, values), r.stream()
	err := it.InsertOn(st, dk, dv)
	must(r, st.SyncOf(r.d))
	free(r.TB, dk)
	free(r.TB, dv)
	return err
}

// contained compares what was found with the model.
func (r *rig) contained(keys []uint64, found []bool) {
	r.Helper()
	for i, key := range keys {
		if _, there := r.model[key]; found[i] != there {
			r.Fatalf("key %#x at position %d: found %t, want %t", key, i, found[i], there)
		}
	}
}

// sameKeys compares all keys, sorted, with the model.
func (r *rig) sameKeys(got []uint64) {
	r.Helper()
	if want := r.keys(); !slices.Equal(want, got) {
		r.Fatalf("All (-want +got):\n%s", cmp.Diff(want, got))
	}
}

// foundFor makes what the look-ups of a queue write.
func (r *rig) foundFor(n, rounds int) []device.Slice[bool] {
	out := make([]device.Slice[bool], rounds)
	for i := range out {
		out[i] = onDevice(r.TB, r.d, make([]bool, n))
	}
	return out
}
