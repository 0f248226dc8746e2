package programs

import (
	"bytes"
	"context"
	"errors"
	"fmt"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/dycuckoo"
	"github.com/warpmap/warpmap/gph"
	"github.com/warpmap/warpmap/shard"
	"github.com/warpmap/warpmap/slab"
	"github.com/warpmap/warpmap/stadium"
	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/snapshot"
	"github.com/warpmap/warpmap/warpcore"
)

// types make keys and values of numbers, and add values up where they are numbers.
type types[K comparable, V comparable] struct {
	key   func(uint64) K
	value func(uint64) V
	add   func(a, b V) V // nil where values are none
}

func identity[T uint32 | uint64](x uint64) T { return T(x) }
func sum[T uint32 | uint64](a, b T) T        { return a + b }
func twice(x uint64) [2]uint64               { return [2]uint64{x, ^x} }

// The second half of a wide key is the same in all.
func wideKey(x uint64) [2]uint64 { return [2]uint64{7, x} }

func mapProgram(p *program) error {
	switch p.IntN(8) {
	case 0, 1, 2:
		return mapOf(p, types[uint32, uint32]{identity[uint32], identity[uint32], sum[uint32]})
	case 3, 4, 5:
		return mapOf(p, types[uint64, uint64]{identity[uint64], identity[uint64], sum[uint64]})
	case 6:
		return mapOf(p, types[uint32, [2]uint64]{identity[uint32], twice, nil})
	}
	return mapOf(p, types[[2]uint64, uint64]{wideKey, identity[uint64], sum[uint64]})
}

// newMap makes a map of a random family with random options; nil where the options are refused.
func newMap[K, V comparable](p *program, wide bool) (table.Map[K, V], error) {
	shards := 0
	if !p.gpu && !wide && p.chance(5) {
		shards = 2 + p.IntN(2)
	}
	family := pick(p, warpmap.Families(table.KindMap)...)
	if wide {
		family = pick(p, warpmap.DyCuckoo, warpmap.Stadium)
	}
	p.say("%s, %T → %T, %d devices,", family, *new(K), *new(V), max(shards, 1))
	if err := p.openDevices(shards); err != nil {
		return nil, err
	}
	o := p.random()
	if shards > 0 {
		p.say(", %+v", o)
		x := shard.Options{Options: o, Piece: pick(p, 0, 100, 5000), AskAll: pick(p, 0, 1000), Copies: p.chance(3)}
		return made[table.Map[K, V]](p)(shard.NewMap(p.devices, x,
			func(d *device.Device, o table.Options) (table.Map[K, V], error) {
				return warpmap.New[K, V](d, family, o)
			}))
	}
	plain := p.plain()
	switch family {
	case warpmap.WarpCore:
		x := warpcore.Options{Options: o}
		if !plain {
			x.Layout, x.Window = warpcore.Layout(p.IntN(4)), pick(p, 0, 1, 2, 4, 8, 16, 32)
			x.InsertGroup, x.FindGroup = pick(p, 0, 0, 1, 2), pick(p, 0, 0, 1, 4)
		}
		p.say(", %+v", x)
		return made[table.Map[K, V]](p)(warpcore.New[K, V](p.d(), x))
	case warpmap.DyCuckoo:
		x := dycuckoo.Options{Options: o, Low: pick(p, 0, 0, 0.01, 0.3), Balance: dycuckoo.Balance(p.IntN(2))}
		if !plain {
			x.Subtables, x.Bucket, x.Layout = pick(p, 0, 2, 3, 4, 5, 7, 8), pick(p, 0, 32, 64, 128), dycuckoo.Layout(p.IntN(4))
			x.InsertGroup, x.FindGroup = pick(p, 0, 1, 2), pick(p, 0, 1, 4)
		}
		p.say(", %+v", x)
		return made[table.Map[K, V]](p)(dycuckoo.New[K, V](p.d(), x))
	case warpmap.Slab:
		x := slab.Options{Options: o, Light: p.chance(2), NoPolicy: p.chance(2)}
		if !plain {
			x.Group = pick(p, 0, 0, 1, 2, 8, 32)
		}
		p.say(", %+v", x)
		return made[table.Map[K, V]](p)(slab.New[K, V](p.d(), x))
	case warpmap.GPH:
		x := gph.Options{Options: o, KeysPerCell: pick(p, 0, 0, 4.0, 20)}
		if !plain {
			x.Bucket, x.VirtualBuckets, x.CellBytes = pick(p, 0, 0, 4, 8, 16, 32), pick(p, 0, 0, 2, 4, 8, 32), pick(p, 0, 1, 2)
			x.InsertGroup, x.FindGroup = pick(p, 0, 0, 1, 2), pick(p, 0, 0, 1, 4)
		}
		p.say(", %+v", x)
		return made[table.Map[K, V]](p)(gph.New[K, V](p.d(), x))
	}
	x := stadium.Options{Options: o}
	x.DeviceBytes, x.HostBytes = pick[int64](p, 0, -1, 4<<10, 100<<10), pick[int64](p, 0, 0, -1, 64<<10, 1<<20)
	if !plain {
		x.Ticket = pick(p, 0, 1, 2, 4, 8, 16)
	}
	p.say(", %+v", x)
	return made[table.Map[K, V]](p)(stadium.New[K, V](p.d(), x))
}

// made counts what options are refused for, and keeps a nil table from becoming an interface that is not nil.
func made[T table.Table](p *program) func(t T, err error) (T, error) {
	return func(t T, err error) (T, error) {
		if err != nil {
			p.count(fmt.Sprintf("refused: %.50s", err))
			p.say("\n  New: %v", err)
			var none T
			return none, nil
		}
		return t, nil
	}
}

// mapRun is a map beside its model.
type mapRun[K, V comparable] struct {
	*program
	types[K, V]
	m              table.Map[K, V]
	model          map[K]V
	universe, most int
	last           uint64 // number of a value
}

func mapOf[K, V comparable](p *program, of types[K, V]) (err error) {
	_, wide := any(*new(K)).([2]uint64)
	m, err := newMap[K, V](p, wide)
	if err != nil || m == nil {
		return err
	}
	defer func() {
		p.next("Close")
		if e := m.Close(); err == nil {
			err = e
		}
	}()
	r := &mapRun[K, V]{program: p, types: of, m: m, model: map[K]V{}}
	r.universe, r.most = p.sizes()
	for range 4 + p.IntN(12) {
		if err := r.one(); err != nil {
			return err
		}
	}
	return r.all()
}

func (r *mapRun[K, V]) one() error {
	n := r.rows(r.most)
	switch op := r.IntN(24); {
	case op < 5:
		return r.put("Insert", n)
	case op < 7:
		return r.put("InsertNew", n)
	case op < 9:
		return r.put("InsertIf", n)
	case op < 11:
		return r.put("Update", n)
	case op < 13:
		return r.put("FindOrInsert", n)
	case op < 16:
		return r.drop(n)
	case op < 18:
		return r.mixed(n)
	case op < 19:
		r.next("Grow")
		return r.grow(r.m, int(r.Uint64N(uint64(2*r.universe))))
	case op < 20:
		return r.shrink()
	case op < 21:
		if !r.chance(3) {
			return nil
		}
		r.next("Clear")
		clear(r.model)
		return r.m.Clear()
	case op < 22:
		return r.build(n)
	case op < 23:
		return r.saved()
	}
	return r.all()
}

// batch has new values, and keys that may come several times.
func (r *mapRun[K, V]) batch(n int) (keys []K, values []V) {
	keys, values = make([]K, n), make([]V, n)
	few := r.universe
	if r.chance(4) {
		few = 3
	}
	for i := range keys {
		r.last++
		keys[i], values[i] = r.key(r.number(few)), r.value(r.last)
	}
	return keys, values
}

// put brings a batch in by one of the five ways, and holds what each key has then against what it may have.
func (r *mapRun[K, V]) put(way string, n int) error {
	keys, values := r.batch(n)
	updater, updates := r.m.(table.Updater[K, V])
	updates = updates && r.combines()
	chooser, chooses := r.m.(table.Chooser[K, V])
	if (way == "Update" || way == "FindOrInsert") && (!updates || r.add == nil) || way == "InsertIf" && !chooses {
		way = "Insert"
	}
	onDevice := r.chance(4) && len(r.devices) == 1
	r.next("%s of %d, on the device %t, %d in", way, n, onDevice, len(r.model))
	added, out, when := make([]bool, n), make([]V, n), make([]bool, n)
	for i := range when {
		when[i] = r.chance(2)
	}
	var gone int
	var err error
	if onDevice {
		var short bool
		if gone, short, err = r.putOn(way, keys, values, out, added, when); short {
			return nil
		}
	} else {
		switch way {
		case "Insert":
			err = r.m.Insert(keys, values)
		case "InsertIf":
			err = chooser.InsertIf(keys, values, when)
		case "InsertNew":
			gone, err = r.m.InsertNew(keys, values, added)
		case "Update":
			err = updater.Update(keys, values, table.Add)
		case "FindOrInsert":
			gone, err = updater.FindOrInsert(keys, values, out, added)
		}
	}
	refused, err := r.refused(err, n)
	if err != nil {
		return err
	}
	got, found := make([]V, n), make([]bool, n)
	if err := r.m.Find(keys, got, found); err != nil {
		return fmt.Errorf("Find: %w", err)
	}
	// what each key may have now
	sums, may, let := map[K]V{}, map[K]map[V]bool{}, map[K]bool{} // let: a position of the key is not refused
	for i, k := range keys {
		if way == "InsertIf" && !when[i] {
			if refused[i] {
				return fmt.Errorf("position %d was not chosen, and is refused", i)
			}
			continue
		}
		if may[k] == nil {
			may[k] = map[V]bool{}
		}
		may[k][values[i]] = true
		if !refused[i] {
			let[k] = true
			if r.add != nil {
				sums[k] = r.add(sums[k], values[i])
			}
		}
	}
	times := map[K]int{}
	after := map[K]V{}
	for i, k := range keys {
		old, was := r.model[k]
		fail := func(what string) error {
			return fmt.Errorf("position %d, key %v: %s (was in %t, %v; refused %t; is in %t, %v; with %v; out %v, added %t)",
				i, k, what, was, old, refused[i], found[i], got[i], values[i], out[i], added[i])
		}
		if may[k] == nil { // no position of the key was chosen
			if found[i] != was || was && got[i] != old {
				return fail("was not chosen, and is another")
			}
			continue
		}
		chosen := way != "InsertIf" || when[i]
		if chosen && refused[i] == found[i] {
			return fail("FullError does not tell whether it is in")
		}
		if found[i] != (was || let[k]) {
			return fail("it is in, or is not, though its positions say otherwise")
		}
		if !found[i] {
			continue
		}
		switch way {
		case "Insert", "InsertIf":
			if !may[k][got[i]] {
				return fail("a value that did not come")
			}
		case "InsertNew", "FindOrInsert":
			if was && got[i] != old || !was && !may[k][got[i]] {
				return fail("not its value")
			}
			if added[i] {
				times[k]++
				if was || got[i] != values[i] {
					return fail("added, but not so")
				}
			}
			if way == "FindOrInsert" && out[i] != got[i] {
				return fail("out is not what it has")
			}
		case "Update":
			want := sums[k]
			if was {
				want = r.add(old, want)
			}
			if got[i] != want {
				return fail(fmt.Sprintf("the sum is %v", want))
			}
		}
		if v, seen := after[k]; seen && v != got[i] {
			return fail("two values")
		}
		after[k] = got[i]
	}
	if way == "InsertNew" || way == "FindOrInsert" {
		news := 0
		for k := range after {
			_, was := r.model[k]
			if !was {
				news++
			}
			if (times[k] == 1) == was {
				return fmt.Errorf("key %v was in %t, and is told to be added %d times", k, was, times[k])
			}
		}
		if gone != news {
			return fmt.Errorf("%d are told to be added, %d were", gone, news)
		}
	}
	for k, v := range after {
		r.model[k] = v
	}
	return nil
}

// putOn is put with device slices, on some stream. none: there was no memory for the slices.
func (r *mapRun[K, V]) putOn(way string, keys []K, values, out []V, added, when []bool) (gone int, none bool, err error) {
	st, closeStream, err := r.stream()
	if err != nil {
		return 0, false, err
	}
	var frees []func() error
	defer func() {
		for _, free := range frees {
			err = errors.Join(err, free())
		}
		if e := closeStream(); e != nil {
			err = errors.Join(err, e)
		}
	}()
	dk, e1 := device.From(r.d(), keys)
	dv, e2 := device.From(r.d(), values)
	do, e3 := device.From(r.d(), out)
	da, e4 := device.From(r.d(), added)
	dw, e5 := device.From(r.d(), when)
	frees = append(frees, dk.Free, dv.Free, do.Free, da.Free, dw.Free)
	if e := errors.Join(e1, e2, e3, e4, e5); e != nil {
		if device.IsOutOfMemory(e) {
			return 0, true, nil
		}
		return 0, false, e
	}
	switch way {
	case "Insert":
		err = r.m.InsertOn(st, dk, dv)
	case "InsertIf":
		err = r.m.(table.Chooser[K, V]).InsertIfOn(st, dk, dv, dw)
	case "InsertNew":
		err = r.m.InsertNewOn(st, dk, dv, da)
	case "Update":
		err = r.m.(table.Updater[K, V]).UpdateOn(st, dk, dv, table.Add)
	case "FindOrInsert":
		err = r.m.(table.Updater[K, V]).FindOrInsertOn(st, dk, dv, do, da)
	}
	if e := errors.Join(do.Read(st, out), da.Read(st, added)); e != nil {
		return 0, false, e
	}
	for _, a := range added {
		if a {
			gone++
		}
	}
	return gone, false, err
}

func (r *mapRun[K, V]) drop(n int) error {
	keys, _ := r.batch(n)
	r.next("Delete of %d, %d in", n, len(r.model))
	deleted := make([]bool, n)
	gone, err := r.m.Delete(keys, deleted)
	if err != nil {
		return err
	}
	times, want := map[K]int{}, 0
	for i, k := range keys {
		if deleted[i] {
			times[k]++
		}
	}
	found := make([]bool, n)
	if err := r.m.Contains(keys, found); err != nil {
		return fmt.Errorf("Contains: %w", err)
	}
	for i, k := range keys {
		if found[i] {
			return fmt.Errorf("key %v is in, though deleted", k)
		}
		_, was := r.model[k]
		if was {
			want++
			delete(r.model, k)
			if times[k] != 1 {
				return fmt.Errorf("key %v was deleted %d times", k, times[k])
			}
			times[k] = -1
		} else if times[k] > 0 {
			return fmt.Errorf("key %v was not in, and is told to be deleted", k)
		}
	}
	if gone != want {
		return fmt.Errorf("%d are told to be deleted, %d were", gone, want)
	}
	return nil
}

// combines tells whether the family has Update and FindOrInsert. A table over shards has the methods, whatever its family.
func (r *mapRun[K, V]) combines() bool { return r.m.Family() != warpmap.GPH }

// mixed has one operation a key, so that what comes of it is sure, beside finds of keys that nothing changes.
func (r *mapRun[K, V]) mixed(n int) error {
	m, ok := r.m.(table.Mixed[K, V])
	if family := r.m.Family(); !ok || family == warpmap.GPH || family == warpmap.WarpCore {
		return nil
	}
	all, vals := r.batch(n)
	keys, values, ops, seen := []K{}, []V{}, []table.Op{}, map[K]bool{}
	for i, k := range all {
		if !seen[k] {
			seen[k] = true
			keys, values, ops = append(keys, k), append(values, vals[i]), append(ops, table.Op(r.IntN(4)))
		}
	}
	r.next("Mixed of %d, %d in", len(keys), len(r.model))
	results, status := make([]V, len(keys)), make([]table.Status, len(keys))
	refused, err := r.refused(m.Mixed(ops, keys, values, results, status), len(keys))
	if err != nil {
		return err
	}
	for i, k := range keys {
		old, was := r.model[k]
		want := table.Absent
		switch {
		case was:
			want = table.Present
		case refused[i]:
			want = table.NoRoom
		case ops[i] == table.OpInsert || ops[i] == table.OpInsertNew:
			want = table.Added
		}
		if status[i] != want || refused[i] && (was || ops[i] == table.OpFind || ops[i] == table.OpDelete) {
			return fmt.Errorf("%v of key %v: %v, want %v, refused %t", ops[i], k, status[i], want, refused[i])
		}
		if ops[i] == table.OpFind && was && results[i] != old {
			return fmt.Errorf("key %v has %v, want %v", k, results[i], old)
		}
		switch {
		case ops[i] == table.OpDelete:
			delete(r.model, k)
		case want == table.Added, want == table.Present && ops[i] == table.OpInsert:
			r.model[k] = values[i]
		}
	}
	return nil
}

// shrink is what families have to give memory back.
func (r *mapRun[K, V]) shrink() error {
	r.next("Shrink")
	var err error
	switch m := r.m.(type) {
	case interface{ Shrink() error }:
		err = m.Shrink()
	case interface{ Flush() error }:
		err = m.Flush()
	}
	if device.IsOutOfMemory(err) {
		return nil
	}
	return err
}

// build is gph's Build.
func (r *mapRun[K, V]) build(n int) error {
	m, ok := r.m.(interface{ Build([]K, []V) error })
	if !ok {
		return nil
	}
	keys, values := r.batch(n)
	r.next("Clear, and Build of %d", n)
	if err := r.m.Clear(); err != nil {
		return err
	}
	clear(r.model)
	err := m.Build(keys, values)
	if device.IsOutOfMemory(err) { // all pairs must lie on the device
		return nil
	}
	refused, err := r.refused(err, n)
	if err != nil {
		return err
	}
	got, found := make([]V, n), make([]bool, n)
	if err := r.m.Find(keys, got, found); err != nil {
		return fmt.Errorf("Find: %w", err)
	}
	may := map[K]map[V]bool{}
	for i, k := range keys {
		if may[k] == nil {
			may[k] = map[V]bool{}
		}
		may[k][values[i]] = true
	}
	for i, k := range keys {
		if found[i] == refused[i] || found[i] && !may[k][got[i]] {
			return fmt.Errorf("position %d, key %v: refused %t, found %t, has %v", i, k, refused[i], found[i], got[i])
		}
		if found[i] {
			r.model[k] = got[i]
		}
	}
	return nil
}

// saved saves the map, and loads it as a map of another family.
func (r *mapRun[K, V]) saved() error {
	if r.stress && len(r.model) > 300 || len(r.devices) > 1 || r.options.Hash == 3 {
		return nil
	}
	families := warpmap.Families(table.KindMap)
	if _, wide := any(*new(K)).([2]uint64); wide {
		families = []table.Family{warpmap.DyCuckoo, warpmap.Stadium}
	}
	family := pick(r.program, families...)
	r.next("Save, and Load into %s", family)
	var file bytes.Buffer
	err := snapshot.Map(r.m).Save(context.Background(), &file)
	if device.IsOutOfMemory(err) {
		return nil
	}
	if err != nil {
		return err
	}
	other, err := warpmap.LoadMap[K, V](context.Background(), &file, r.d(), family, table.Options{Seed: r.Uint64() | 1})
	if device.IsOutOfMemory(err) {
		return nil
	}
	var full *table.FullError
	if errors.As(err, &full) && full.Why != nil {
		return nil
	}
	if err != nil {
		return fmt.Errorf("Load: %w", err)
	}
	defer other.Close()
	keys, values, err := other.All()
	if device.IsOutOfMemory(err) {
		return nil
	}
	if err != nil {
		return err
	}
	return r.same("what was loaded", keys, values)
}

// same compares an export with the model.
func (r *mapRun[K, V]) same(what string, keys []K, values []V) error {
	if len(keys) != len(r.model) || len(values) != len(keys) {
		return fmt.Errorf("%s has %d keys and %d values, want %d", what, len(keys), len(values), len(r.model))
	}
	seen := map[K]bool{}
	for i, k := range keys {
		if v, ok := r.model[k]; !ok || v != values[i] || seen[k] {
			return fmt.Errorf("%s has key %v with %v, want %v, in %t, twice %t", what, k, values[i], v, ok, seen[k])
		}
		seen[k] = true
	}
	return nil
}

// all compares the whole table, by All and by Chunks, and look-ups of keys that are not in.
func (r *mapRun[K, V]) all() error {
	r.next("All, %d in", len(r.model))
	if err := r.whole(r.m, len(r.model)); err != nil {
		return err
	}
	keys, values, err := r.m.All()
	if err == nil {
		err = r.same("All", keys, values)
	}
	if err != nil && !device.IsOutOfMemory(err) {
		return err
	}
	keys, values = nil, nil
	err = r.m.Chunks(context.Background(), func(k []K, v []V) error {
		keys, values = append(keys, k...), append(values, v...)
		return nil
	})
	if err == nil {
		err = r.same("Chunks", keys, values)
	}
	if err != nil && !device.IsOutOfMemory(err) {
		return err
	}
	ask, _ := r.batch(r.rows(r.most))
	got, found := make([]V, len(ask)), make([]bool, len(ask))
	if err := r.m.Find(ask, got, found); err != nil {
		return fmt.Errorf("Find: %w", err)
	}
	for i, k := range ask {
		if v, ok := r.model[k]; ok != found[i] || v != got[i] {
			return fmt.Errorf("Find of key %v: %v, %t, want %v, %t", k, got[i], found[i], v, ok)
		}
	}
	return nil
}
