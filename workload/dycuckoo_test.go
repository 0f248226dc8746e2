package workload

import "testing"

// The data sets have exactly the pairs and distinct keys of the paper's Table 2, and so have larger and smaller ones.
func TestDyCuckooSets(t *testing.T) {
	for i, want := range []struct {
		name            string
		pairs, distinct int
	}{{"TW", 50_876_784, 44_523_684}, {"RE", 48_104_875, 41_466_682}, {"LINE", 50_000_000, 45_159_880}, {"COM", 10_000_000, 4_583_941}, {"RAND", 100_000_000, 100_000_000}} {
		if s := DyCuckooSets(100_000_000, 1)[i]; s.Name != want.name || s.Pairs != want.pairs || s.Distinct != want.distinct || s.came(s.Pairs) != s.Distinct {
			t.Errorf("%+v, want %+v", s, want)
		}
		whole := DyCuckooSets(100_000, 1)[i]
		for _, s := range []DataSet{whole, whole.Sized(whole.Distinct * 2 / 3), whole.Sized(1)} {
			keys, values, seen := make([]uint32, s.Pairs), make([]uint32, s.Pairs), map[uint32]bool{}
			s.Fill(0, keys, values)
			for j, k := range keys {
				seen[k] = true
				if values[j] != uint32(Value(uint64(k))) {
					t.Fatalf("%s: pair %d has another value than its key's", s.Name, j)
				}
			}
			for number := range s.Distinct {
				if !seen[uint32(s.Keys.At(uint64(number)))] {
					t.Fatalf("%s: key %d of %d does not come", s.Name, number, s.Distinct)
				}
			}
			if len(seen) != s.Distinct {
				t.Errorf("%s: %d distinct keys, want %d", s.Name, len(seen), s.Distinct)
			}
		}
		if part := whole.Sized(whole.Distinct / 2); part.Pairs < whole.Pairs*49/100 || part.Pairs > whole.Pairs*51/100 {
			t.Errorf("%s: half of the keys come in %d of %d pairs", whole.Name, part.Pairs, whole.Pairs)
		}
	}
}

// A map that does what a Churn says has the answers it expects, and as many pairs.
func TestChurn(t *testing.T) {
	for _, s := range DyCuckooSets(20_000, 3) {
		for _, r := range []float64{0, 0.2, 0.5, 1} {
			batch := 700
			c := NewChurn(s, batch, r)
			keys, values := make([]uint32, s.Pairs), make([]uint32, s.Pairs)
			s.Fill(0, keys, values)
			m, ops, hits := map[uint32]bool{}, 0, 0
			for _, step := range c.Steps {
				pairs, gone := keys[step.Pairs[0]:step.Pairs[1]], c.Deleted[step.Deleted[0]:step.Deleted[1]]
				ops += len(pairs) + len(gone) + step.Finds[1] - step.Finds[0]
				change := func(list []uint32, in bool) {
					for _, k := range list {
						if in {
							m[k] = true
						} else {
							delete(m, k)
						}
					}
				}
				change(pairs, !step.Second)
				for i := step.Finds[0]; i < step.Finds[1]; i++ {
					if m[c.Finds[i]] != (c.Expect[i] == Hit) {
						t.Fatalf("%s, r = %v: look-up %d expects %d", s.Name, r, i, c.Expect[i])
					}
					hits += int(c.Expect[i])
				}
				if !step.Second {
					before := len(m)
					change(gone, false)
					if before-len(m) != len(gone) {
						t.Fatalf("%s, r = %v: of %d deletions, %d delete a key", s.Name, r, len(gone), before-len(m))
					}
				} else {
					change(gone, true)
				}
				if len(m) != step.Live {
					t.Fatalf("%s, r = %v: %d pairs, want %d", s.Name, r, step.Live, len(m))
				}
			}
			if want := int(r * float64(s.Pairs)); ops != c.Ops || hits == 0 || s.Name == "RAND" && (len(c.Deleted) < want-len(c.Steps) || len(c.Deleted) > want+len(c.Steps)) {
				t.Errorf("%s, r = %v: %d operations of %d, %d hits, %d deletions", s.Name, r, c.Ops, ops, hits, len(c.Deleted))
			}
		}
	}
}
