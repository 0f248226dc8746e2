package tabletest

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table"
)

// RefusedStayOut inserts n keys that do not all fit, has room made, and inserts two of the refused again, as a later piece of the same batch would: they
// must be refused, though their own number of rows fits. Else their values would be there without what was refused.
func RefusedStayOut(t testing.TB, f *frame.Frame, x frame.Insertion, n int, room func()) {
	t.Helper()
	put := func(keys []uint32) (refused []int) {
		k := onDevice(t, f.Device, keys)
		must(t, f.Writing(nil, func(st *device.Stream) (err error) {
			refused, _, err = x.Put(st, frame.Rows{Keys: k.Addr(), Values: k.Addr(), Out: k.Addr(), N: int64(len(keys))})
			return err
		}))
		free(t, k)
		return refused
	}
	keys := make([]uint32, n)
	for i := range keys {
		keys[i] = uint32(i)
	}
	refused := put(keys)
	if len(refused) < 2 {
		t.Fatalf("%d of %d keys are refused, want some", len(refused), n)
	}
	room()
	if again := put([]uint32{keys[refused[0]], keys[refused[1]]}); len(again) != 2 {
		t.Errorf("keys that were refused are in, later in the batch: positions %v are refused", again)
	}
}

// added is a map of 4-byte keys that a kernel of the user's writes.
type added[V any] interface {
	table.Table
	All() ([]uint32, []V, error)
}

// DeviceSideUpdate checks what a kernel of the user's leaves that, of n rows, adds one to the value of key i%37, and puts key 1000 + i%37 with the value i
// where it is absent: alone, and, where erases is 1, beside lanes that erase keys below 37. launch runs it; failed tells of how many operations the kernel says that they went
// wrong.
func DeviceSideUpdate[V uint32 | uint64](t testing.TB, m added[V], n int, launch func(erases uint64) error, failed func() uint64) {
	t.Helper()
	for erases := range uint64(2) {
		must(t, m.Clear())
		must(t, launch(erases))
		must(t, m.Check())
		if bad := failed(); bad > 0 {
			t.Errorf("%d operations went wrong", bad)
		}
		keys, values, err := m.All()
		must(t, err)
		sum := V(0)
		for i, v := range values {
			if keys[i] < 1000 {
				sum += v
			} else if v%37 != V(keys[i]-1000) {
				t.Errorf("key %d has %d", keys[i], v)
			}
		}
		if erases == 0 && (sum != V(n) || len(values) != 2*37) || sum > V(n) {
			t.Fatalf("%d keys, %d in all", len(values), sum)
		}
	}
}

// AddedUnderStress puts batches of old and new keys, some of which come again and again, into a table that gets full, by Update and FindOrInsert. valueOf
// makes a value of a small number; more is how many keys each batch is drawn from beyond those of the one before. It tells what went wrong.
func AddedUnderStress[K comparable, V uint32 | uint64](m table.Updater[K, V], seed uint64, more int, keyOf func(i int) K, valueOf func(n int) V) error {
	rng, model := rand.New(rand.NewPCG(seed, 1)), map[K]V{}
	for round := range 6 {
		keys, values := make([]K, 300), make([]V, 300)
		for i := range keys {
			keys[i], values[i] = keyOf(rng.IntN(120+more*round)), valueOf(1+rng.IntN(9))
			if rng.IntN(3) == 0 {
				keys[i] = keyOf(round * more)
			}
		}
		out, news := slices.Clone(values), make([]bool, len(keys))
		puts := round%3 == 2
		var err error
		switch round % 3 {
		case 0:
			err = m.Update(keys, values, table.Add)
		case 1:
			err = m.Update(keys, values, ownSum)
		case 2:
			_, err = m.FindOrInsert(keys, values, out, news)
		}
		full := &table.FullError{}
		if err != nil && !errors.As(err, &full) {
			return err
		}
		refused := map[int]bool{}
		for _, i := range full.Positions {
			refused[i] = true
		}
		for i, k := range keys {
			_, there := model[k]
			switch {
			case refused[i]:
			case !puts:
				model[k] += values[i]
			case news[i] && there:
				return fmt.Errorf("round %d: key %v is added again", round, k)
			case news[i]:
				model[k] = values[i]
			}
		}
		for i, k := range keys {
			if v, there := model[k]; there == refused[i] || puts && out[i] != v {
				return fmt.Errorf("round %d, position %d, key %v: there %t, refused %t, told %#x, want %#x", round, i, k, there, refused[i], out[i], v)
			}
		}
		if err := sameAs(m, model); err != nil {
			return fmt.Errorf("round %d: %w", round, err)
		}
	}
	return nil
}

// ownSum is a sum that nobody knows for one: its rows are not brought together.
const ownSum table.Combine = "value + old"

// OnesUnderStress adds ones for keys that come again and again, by an operation that is known and by one that is not: each key has as many as it came
// times. It tells what went wrong.
func OnesUnderStress(m table.Updater[uint32, uint32], keys []uint32) error {
	ones, want := slices.Repeat([]uint32{1}, len(keys)), map[uint32]uint32{}
	for _, k := range keys {
		want[k]++
	}
	for _, with := range []table.Combine{table.Add, ownSum} {
		if err := errors.Join(m.Clear(), m.Update(keys, ones, with)); err != nil {
			return err
		}
		if err := sameAs(m, want); err != nil {
			return fmt.Errorf("%s: %w", with, err)
		}
	}
	return nil
}

// sameAs tells where a map is not its model.
func sameAs[K comparable, V uint32 | uint64](m table.Map[K, V], model map[K]V) error {
	if err := m.Check(); err != nil {
		return err
	}
	keys, values, err := m.All()
	if err != nil {
		return err
	}
	if len(keys) != len(model) {
		return fmt.Errorf("%d keys, want %d", len(keys), len(model))
	}
	for i, k := range keys {
		if want, there := model[k]; !there || values[i] != want {
			return fmt.Errorf("key %v has %#x, want %#x", k, values[i], want)
		}
	}
	return nil
}

// Defect is a change of a program's text that a test must find.
type Defect struct{ Name, File, Old, New string }

// included gives the program's files that include combine.cuh its text.
func included(p *device.Program) {
	combine := ""
	for _, f := range kernel.Files() {
		if f.Name == "combine.cuh" {
			combine = f.Text
		}
	}
	for i := range p.Files {
		p.Files[i].Text = strings.Replace(p.Files[i].Text, "#include \"combine.cuh\"\n", combine, 1)
	}
}

// plant makes the change in the file where there is something to change.
func (c Defect) plant(f *device.File) {
	if c.in(f) {
		f.Text = strings.Replace(f.Text, c.Old, c.New, 1)
	}
}

func (c Defect) in(f *device.File) bool { return f.Name == c.File && strings.Contains(f.Text, c.Old) }

// FindsDefects plants each defect in a copy of the programs that edit is given: the story must find it with one of so many seeds.
func FindsDefects(t *testing.T, defects []Defect, seeds int, story func(t *testing.T, seed uint64, edit func(*device.Program) *device.Program) error) {
	var mu sync.Mutex
	seen := map[string]bool{}
	t.Cleanup(func() { // of those that short runs do not plant, too
		for _, c := range defects {
			if there, ran := seen[c.Name]; ran && !there { // -run may have left all out
				t.Errorf("%s: %s has not\n%s", c.Name, c.File, c.Old)
			}
		}
	})
	for _, c := range testenv.Some(defects, 2) { // each costs compilations
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			edit := func(p *device.Program) *device.Program {
				mu.Lock()
				defer mu.Unlock()
				included(p)
				for i := range p.Files {
					for _, x := range defects {
						seen[x.Name] = seen[x.Name] || x.in(&p.Files[i])
					}
					c.plant(&p.Files[i])
				}
				return p
			}
			for seed := range uint64(seeds) {
				if err := story(t, seed, edit); err != nil {
					t.Logf("seed %d: %.200v", seed, err)
					return
				}
			}
			t.Fatalf("none of %d seeds finds the defect", seeds)
		})
	}
}
