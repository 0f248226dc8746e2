package classify

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// Lists that are merged have what a map would, in order, whatever the lists share and how many locations are kept.
func TestMerge(t *testing.T) {
	r := rand.New(rand.NewPCG(8, 8))
	for _, lists := range []int{0, 1, 2, 5} {
		for _, most := range []int{1, 2, 3, 254} {
			b := &Builder{o: Options{MaxLocations: most}, MaxMemory: leastMemory, taxonomy: &Taxonomy{}}
			if lists == 5 {
				b.packed = leastMemory // the rest goes to a file
			}
			want := map[uint32][]uint64{}
			for range lists {
				for range 3000 {
					p := pair{uint32(r.Uint64N(2000)) << 21, r.Uint64N(1 << 40)}
					if r.IntN(50) == 0 {
						p.feature = []uint32{0, ^uint32(0)}[r.IntN(2)] // the ends of all ranges
					}
					b.pairs = append(b.pairs, p)
					want[p.feature] = append(want[p.feature], p.location)
				}
				if err := b.pack(); err != nil {
					t.Fatal(err)
				}
			}
			db, err := b.Database()
			if err == nil {
				err = merged(db, want)
			}
			if err = errors.Join(err, b.Close()); err != nil {
				t.Errorf("%d lists, %d locations: %v", lists, most, err)
			}
		}
	}
}

func merged(db *Database, want map[uint32][]uint64) (err error) {
	if len(db.features) != len(want) || len(db.entries) != len(want) || !slices.IsSorted(db.features) {
		return fmt.Errorf("%d features and %d entries, or in no order: want %d", len(db.features), len(db.entries),
			len(want))
	}
	places := 0
	db.Each(func(feature uint32, locations []uint64) {
		l := slices.Sorted(slices.Values(want[feature]))
		l = l[:min(len(l), db.Options.MaxLocations)]
		if !slices.Equal(locations, l) {
			err = fmt.Errorf("feature %d is at %v: want %v", feature, locations, l)
		}
		if len(l) > 1 {
			places += len(l)
		}
	})
	if err == nil && places != len(db.locations) {
		err = fmt.Errorf("%d places of which %d are of a feature", len(db.locations), places)
	}
	return err
}

// Features are sorted however many there are, and whatever share of them is small.
func TestSorted(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 9))
	for _, n := range []int{0, 1, 2, 300, 70_000, 1 << 18} {
		for _, draws := range []int{1, 16, 4096} {
			a := make([]uint32, n)
			for i := range a {
				a[i] = ^uint32(0)
				for range min(draws, 16) {
					a[i] = min(a[i], r.Uint32()/uint32(max(1, draws/16)))
				}
			}
			if n > 2 {
				a[n/3], a[n/2] = 0, ^uint32(0)
			}
			want := slices.Sorted(slices.Values(a))
			if got := sorted(a, nil, func(f uint32) uint32 { return f }); !slices.Equal(got, want) {
				t.Errorf("%d features, the least of %d draws each: not in order", n, draws)
			}
		}
	}
}
