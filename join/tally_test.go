package join

import (
	"encoding/base64"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"github.com/warpmap/warpmap/device"
)

// A tally counts what a Go map counts, also where all keys have one hash.
func TestTally(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for _, rows := range []int{0, 1, 7, 8, 700, 3 * ownRows, pieceRows + 5} {
		for _, different := range []int{1, 2, 600, rows / 2, rows} {
			for _, step := range []uint64{1, 1 << 32, 0x9e3779b97f4a7c15} {
				for _, two := range []bool{false, true} {
					for _, hostile := range []bool{false, true} {
						if hostile && rows > 1000 {
							continue
						}
						t.Run(fmt.Sprintf("%d rows of %d keys, %d apart, two words %t, hostile %t", rows, different, step, two,
							hostile), func(t *testing.T) {
							tallyAgainstMap(t, r, rows, max(1, different), step, two, hostile)
						})
					}
				}
			}
		}
	}
}

func tallyAgainstMap(t *testing.T, r *rand.Rand, rows, different int, step uint64, two, hostile bool) {
	var words, seconds []uint64
	if two {
		seconds = []uint64{}
	}
	want := map[[2]uint64]int64{}
	for i := range rows {
		k := i
		if different < rows {
			k = r.IntN(different)
		}
		key := [2]uint64{uint64(k) * step, 0}
		if two {
			key = [2]uint64{uint64(k/3) * step, uint64(k % 3)}
			seconds = append(seconds, key[1])
		}
		words = append(words, key[0])
		want[key]++
	}
	table := newTally(int64(rows), int64(pieces(rows)), two)
	if hostile {
		table.seeds = seeds{}
	}
	for from := 0; from < rows; from += pieceRows {
		to := min(rows, from+pieceRows)
		if two {
			table.take(words[from:to], seconds[from:to])
		} else {
			table.take(words[from:to], nil)
		}
	}
	table.fill()
	ask, asked := slices.Concat(words, words, []uint64{0, 1, ^uint64(0)}), []uint64(nil)
	if two {
		asked = slices.Concat(seconds, seconds, []uint64{0, 7, 1})
	}
	for i := range rows {
		if ask[rows+i]++; i%2 == 0 {
			ask[rows+i] = words[rows-1-i]
			if two {
				asked[rows+i] = uint64(r.IntN(4))
			}
		}
	}
	times := table.timesOf(ask, asked, nil)
	found, pairs := int64(0), int64(0)
	for i, w := range ask {
		key := [2]uint64{w, 0}
		if two {
			key[1] = asked[i]
		}
		n := want[key]
		pairs += n
		found += min(n, 1)
		if int64(times[i]) != n {
			t.Fatalf("%d comes %d times, want %d", w, times[i], n)
		}
	}
	if f, p := table.count(ask, asked); f != found || p != pairs {
		t.Fatalf("%d rows with %d matches, want %d and %d", f, p, found, pairs)
	}
}

// Of keys that come often there are few buckets.
func TestTallyOfFewKeys(t *testing.T) {
	words := make([]uint64, pieceRows)
	table := newTally(10*pieceRows, 10, false)
	for range 10 {
		for i := range words {
			words[i] = uint64(i % 100)
		}
		table.take(words, nil)
	}
	table.fill()
	for _, p := range table.parts {
		if p.n > tallyFirst {
			t.Fatalf("%d buckets of a part for 100 keys", p.n)
		}
	}
}

// Counts are the same as the rows that would come out, whatever the keys, and where no row of either side has a number.
func TestCounts(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	dir := t.TempDir()
	i32, i64, u64 := arrow.PrimitiveTypes.Int32, arrow.PrimitiveTypes.Int64, arrow.PrimitiveTypes.Uint64
	runs := 60
	if testing.Short() {
		runs = 15
	}
	for run := range runs {
		times, bytes16 := arrow.FixedWidthTypes.Timestamp_us, &arrow.FixedSizeBinaryType{ByteWidth: 16}
		types := [][2][]arrow.DataType{
			{{i64}, {i64}}, {{i32}, {i64}}, {{i64}, {i32}}, {{u64}, {u64}}, {{u64}, {i64}}, {{i64, i32}, {i64, i32}},
			{{i32, i32}, {i32, i64}}, {{i64, i64}, {i64, u64}}, {{times}, {times}},
			{{bytes16}, {bytes16}},
		}[run%10]
		spread := []int64{1, 100, 1 << 19}[r.IntN(3)]
		keys := 1 + r.IntN(3000)
		var paths [2]string
		rows := [2][][]any{}
		nulls := r.IntN(2) == 0
		var on []Pair
		for s := range paths {
			n := r.IntN(5000)
			var columns []column
			rows[s] = make([][]any, n)
			for c, typ := range types[s] {
				col := column{name: fmt.Sprint("k", c), typ: typ}
				run := int64(0)
				for i := range n {
					if r.IntN(3) > 0 || c == 0 {
						run = int64(r.IntN(keys))*spread/int64(1+999*c) + int64(s)*int64(r.IntN(2))
					}
					var v any = run
					if typ == times {
						v = arrow.Timestamp(run).ToTime(arrow.Microsecond).Format(time.RFC3339Nano)
					} else if typ == bytes16 {
						v = base64.StdEncoding.EncodeToString(fmt.Appendf(nil, "%08d%08d", run%7, run/7))
					}
					if nulls && r.IntN(20) == 0 {
						v = nil
					}
					col.values = append(col.values, v)
					rows[s][i] = append(rows[s][i], v)
				}
				columns = append(columns, col)
				if s == 0 {
					on = append(on, Pair{col.name, col.name})
				}
			}
			paths[s] = filepath.Join(dir, fmt.Sprint(run, "-", s, ".parquet"))
			rd := reader(t, columns)
			rd.Next()
			writeAnyhow(t, r, paths[s], rd.RecordBatch(), int64(1+r.IntN(3000)))
		}
		for _, how := range []How{Inner, Left, Semi, Anti, Right, Full} {
			s, err := runWith(t.Context(), nil, tuned{Options{Build: paths[0], Probe: paths[1], On: on, How: how, Count: true,
				Threads: 1 + r.IntN(3), Device: "cpu", Open: func(string, string) ([]*device.Device, error) {
					return nil, device.ErrNoDevices
				}}, tuning{}})
			if want := countOf(rows, how); err != nil || s.OutRows != want || s.BuildRows != int64(len(rows[0])) ||
				s.ProbeRows != int64(len(rows[1])) {
				t.Errorf("%v of %v, %d and %d rows: %+v, want %d; %v", how, types, len(rows[0]), len(rows[1]), s, want, err)
			}
		}
	}
}

// countOf is how many rows come out of a join of keys.
func countOf(rows [2][][]any, how How) (n int64) {
	times := map[string]int64{}
	for _, b := range rows[0] {
		if !slices.Contains(b, nil) {
			times[fmt.Sprint(b)]++
		}
	}
	matched := int64(0)
	seen := map[string]bool{}
	for _, p := range rows[1] {
		m := int64(0)
		if !slices.Contains(p, nil) {
			m = times[fmt.Sprint(p)]
		}
		if m > 0 && !seen[fmt.Sprint(p)] {
			seen[fmt.Sprint(p)] = true
			matched += m
		}
		switch {
		case how.pairs() && m > 0:
			n += m
		case how.keepsProbe() && m == 0, how == Semi && m > 0, how == Anti && m == 0:
			n++
		}
	}
	if how.keepsBuild() {
		n += int64(len(rows[0])) - matched
	}
	return n
}
