package join

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"
)

// A table of the join's own finds what a Go map finds: the first row of each word.
func TestOwnTable(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	for _, rows := range []int{0, 1, 2, 1000, 1100, ownRows + 5, 3 * pieceRows} {
		for _, different := range []int{1, 2, 3, 600, 5000, rows / 2, rows} {
			for _, step := range []uint64{1, 1 << 32, 0x9e3779b97f4a7c15} { // of words
				words, ok := make([]uint64, rows), make([]bool, rows)
				for i := range words {
					k := i
					if different < rows {
						k = r.IntN(max(1, different))
					}
					words[i], ok[i] = uint64(k)*step-1, r.IntN(10) > 0
				}
				t.Run(fmt.Sprintf("%d rows of %d words, %d apart", rows, different, step), func(t *testing.T) {
					ownAgainstMap(t, words, ok, rows%2 == 1)
				})
			}
		}
	}
}

func ownAgainstMap(t *testing.T, words []uint64, ok []bool, always bool) {
	want, all := map[uint64]int{}, 0
	for i, w := range words {
		if ok[i] {
			all++
			if _, in := want[w]; !in {
				want[w] = i
			}
		}
	}
	table := newOwn()
	check := func() {
		t.Helper()
		ask := make([]uint64, 0, 2*len(words)+3)
		for _, w := range words {
			ask = append(ask, w, w+1)
		}
		ask = append(ask, 0, 1, ^uint64(0))
		rows, found := make([]uint32, len(ask)), make([]bool, len(ask))
		if err := table.find(ask, rows, found); err != nil {
			t.Fatal(err)
		}
		for i, w := range ask {
			if row, in := want[w]; in != found[i] || in && row != int(rows[i]) {
				t.Fatalf("word %#x: row %d, found %t; want %d, %t", w, rows[i], found[i], row, in)
			}
		}
	}
	unique, reps := table.fill(words, ok, always)
	if unique != (len(want) == all) || (reps == nil) != (unique && !always) {
		t.Fatalf("unique %t, with %d rows of %d words; rows told: %t", unique, all, len(want), reps != nil)
	}
	for i, rep := range reps {
		if ok[i] && int(rep) != want[words[i]] {
			t.Fatalf("row %d stands for row %d, want %d", i, rep, want[words[i]])
		}
	}
	check()
}

// Two words of a key are one to the table, so both are compared with those of the row that it finds.
func TestTwoWordsAreCompared(t *testing.T) {
	keys := &packed{words: [2][]uint64{{1, 3}, {2, 4}}, ok: []bool{true, true}}
	x, err := buildIndex[uint32](t.Context(), opener{cores: true}, &keyPlan{bytes: [2]int{8, 8}}, keys, nil)
	if err != nil {
		t.Fatal(err)
	}
	found := func() []int64 {
		ask, reps := &packed{words: [2][]uint64{{3, 1, 1, 2}, {4, 2, 4, 1}}, ok: []bool{true, true, true, true}}, make([]int64, 4)
		if err := x.find(ask, reps); err != nil {
			t.Fatal(err)
		}
		return reps
	}
	if got := found(); !slices.Equal(got, []int64{1, 0, -1, -1}) {
		t.Errorf("keys stand for rows %d", got)
	}
	x.(*index[uint32]).pair[1] = []uint64{2, 5} // as if another key had the second row's word
	if got := found(); !slices.Equal(got, []int64{-1, 0, -1, -1}) {
		t.Errorf("a key of the same word is taken for another: rows %d", got)
	}
}

// Words that come often take memory once.
func TestOwnTableOfFewWords(t *testing.T) {
	const rows = 1 << 20
	words, ok := make([]uint64, rows), make([]bool, rows)
	for i := range words {
		words[i], ok[i] = uint64(i%100), true
	}
	table := newOwn()
	table.fill(words, ok, false)
	used := uint64(0)
	for _, p := range table.parts {
		used += p.n
	}
	if most := uint64(len(table.parts)) * ownFirst; used > most {
		t.Errorf("%d cells are used for 100 words, want %d at most", used, most)
	}
}
