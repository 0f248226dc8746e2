package shard

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
)

// A mode that does not exist is not called one that does.
func TestModeNames(t *testing.T) {
	names := map[Mode]string{Distributed: "distributed", Independent: "independent", 2: "Mode(2)", -1: "Mode(-1)"}
	for m, want := range names {
		if got := m.String(); got != want {
			t.Errorf("%s, want %s", got, want)
		}
	}
}

// A plan sends every row once, in order, and no owner gets more in a round than its inbox holds.
func TestPlan(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 300 {
		owners, chunk := 1+rng.IntN(5), tileMost
		piece := 1 + rng.IntN(8*chunk)
		most := chunk + rng.IntN(4*chunk)
		sizes, counts, all := make([]int, owners), make([][]uint64, owners), make([][]int, owners)
		for i := range sizes {
			sizes[i], all[i] = rng.IntN(10*chunk)*rng.IntN(2), make([]int, owners)
			for from := 0; from < sizes[i]; from += chunk {
				left := min(chunk, sizes[i]-from)
				row := make([]uint64, owners)
				for j := range row {
					n := rng.IntN(left + 1)
					if j == owners-1 {
						n = left
					}
					row[j], left = uint64(n), left-n
					all[i][j] += n
				}
				counts[i] = append(counts[i], row...)
			}
		}
		p := newPlan(sizes, counts, chunk, piece, most)
		at := make([]int, owners)
		for r, rd := range p.rounds {
			for j := range owners {
				next := 0
				for i := range owners {
					if rd.at[i][j] != next {
						t.Fatalf("round %d: source %d begins at %d of owner %d, want %d", r, i, rd.at[i][j], j, next)
					}
					next += rd.n[i][j]
					all[i][j] -= rd.n[i][j]
				}
				if next != rd.gets[j] || next > most || next > p.rows[j] {
					t.Fatalf("round %d: owner %d gets %d rows, of %d at most", r, j, next, most)
				}
			}
			for i := range owners {
				if rd.from[i] != at[i] || rd.to[i]-rd.from[i] > max(piece, chunk) || rd.to[i]-rd.from[i] > p.sent {
					t.Fatalf("round %d: source %d sends %d to %d, after %d", r, i, rd.from[i], rd.to[i], at[i])
				}
				at[i] = rd.to[i]
			}
		}
		for i := range owners {
			if at[i] != sizes[i] {
				t.Fatalf("source %d sends %d of %d rows", i, at[i], sizes[i])
			}
			for j, n := range all[i] {
				if n != 0 {
					t.Fatalf("%d rows of source %d do not come to %d", n, i, j)
				}
			}
		}
	}
}

// Two devices share memory if both have access, and a device that has no room for more peers is left out of a pair.
func TestFriends(t *testing.T) {
	for _, x := range []struct {
		n     int
		deny  func(i, j int, has []int) bool
		want  func(i, j int) bool
		asked int
	}{
		{3, func(i, j int, has []int) bool { return false }, func(i, j int) bool { return true }, 6},
		{3, func(i, j int, has []int) bool { return true }, func(i, j int) bool { return i == j }, 3},
		{4, func(i, j int, has []int) bool { return i == 2 && j == 1 }, func(i, j int) bool { return i*j != 2 }, 12},
		{4, func(i, j int, has []int) bool { return i == 1 && j == 2 }, func(i, j int) bool { return i*j != 2 }, 11},
		{9, func(i, j int, has []int) bool { return has[i] == 8 }, func(i, j int) bool { return true }, 72},
		{11, func(i, j int, has []int) bool { return has[i] == 8 },
			func(i, j int) bool { return i == j || i < 9 && j < 9 || i > 8 && j > 8 }, 72 + 18 + 2},
	} {
		has, asked := make([]int, x.n), 0
		peers, err := friends(x.n, func(i, j int) (bool, error) {
			asked++
			if x.deny(i, j, has) {
				return false, nil
			}
			has[i]++
			return true, nil
		})
		if err != nil || asked != x.asked {
			t.Errorf("%d devices: asked %d times, want %d; %v", x.n, asked, x.asked, err)
		}
		for i := range x.n {
			for j := range x.n {
				if peers[i][j] != x.want(i, j) {
					t.Errorf("%d devices: %d and %d share memory: %t, want %t", x.n, i, j, peers[i][j], x.want(i, j))
				}
			}
		}
	}
	wrong := errors.New("no answer")
	if _, err := friends(2, func(i, j int) (bool, error) { return j == 1, wrong }); !errors.Is(err, wrong) {
		t.Errorf("%v, want %v", err, wrong)
	}
}

// With Options.Copies no device is asked for peer access, and none needs it.
func TestCopiesAskForNoAccess(t *testing.T) {
	devices, err := device.OpenAll("cpu:0,cpu:1,cpu:2")
	if err != nil {
		t.Fatal(err)
	}
	c := &cluster{opts: Options{Copies: true}}
	for _, d := range devices {
		c.members = append(c.members, &member{d: d})
		if err := d.Close(); err != nil { // a closed device refuses to be asked
			t.Fatal(err)
		}
	}
	if err := c.befriend(); err != nil {
		t.Error(err)
	}
	for i, m := range c.members {
		for j, direct := range m.peers {
			if direct != (i == j) {
				t.Errorf("%d uses the memory of %d: %t", i, j, direct)
			}
		}
	}
}

// All kernels compile for GPUs, on machines that have none.
func TestKernelsCompileForGPUs(t *testing.T) {
	for _, v := range testenv.Some([]struct {
		key, value int
		arch       string
	}{{4, 4, "sm_90"}, {8, 16, "sm_70"}, {4, 0, "sm_80"}, {8, 8, "sm_90"}, {4, 16, "sm_80"}}, 1) {
		t.Run(fmt.Sprintf("%+v", v), func(t *testing.T) {
			t.Parallel()
			programs := []*device.Program{program(v.key, v.value), regionsProgram(v.key, v.value, 64<<10),
				regionsProgram(v.key, v.value, 227<<10), sortProgram(v.key, v.value)}
			for _, p := range testenv.Some(programs, 2) {
				_, err := device.CompileFor(v.arch, p)
				if errors.Is(err, device.ErrNoNVRTC) {
					testenv.RequireNVRTC(t, err)
				}
				if err != nil {
					t.Fatal(err)
				}
			}
		})
	}
}

// The rows of a round fill each box without gaps: the inbox wave after wave, and after it the rows for each other
// owner, region after region.
func TestLayouts(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	for range 50 {
		owners, o := 1+rng.IntN(4), order{regions: 1 + rng.IntN(9)}
		o = o.inSteps(rng.IntN(2) == 0, rng.IntN(2) == 0)
		sizes, counts, owned := make([]int, owners), make([][]uint64, owners), make([][]uint64, owners)
		for i := range sizes {
			sizes[i] = rng.IntN(5 * regionMost)
			for from := 0; from < sizes[i]; from += regionMost {
				chunk := make([]uint64, owners*o.regions)
				for range min(regionMost, sizes[i]-from) {
					chunk[rng.IntN(len(chunk))]++
				}
				counts[i] = append(counts[i], chunk...)
			}
			owned[i] = o.ownersOf(counts[i])
		}
		p := newPlan(sizes, owned, regionMost, regionMost, 2*regionMost)
		p.order = o
		for r, rd := range p.rounds {
			p.layouts = append(p.layouts, o.layoutOf(rd, counts, regionMost))
			if err := layoutIsFull(p, r, counts); err != nil {
				t.Fatalf("round %d of %d owners, %+v: %v", r, owners, o, err)
			}
		}
	}
}

// layoutIsFull checks that the source's rows of all parts and the copies of all waves fill the boxes of a round.
func layoutIsFull(p plan, r int, counts [][]uint64) error {
	b, rd, regions := p.layouts[r], p.rounds[r], p.order.regions
	owners := len(b.rows)
	filled := make([][]int, owners) // of each box: how often each row is written
	for i := range owners {
		filled[i] = make([]int, b.rows[i])
		parts := rd.parts(i, owners*regions, counts[i], regionMost)
		for g, n := range parts {
			for row := b.starts[i][g]; row < b.starts[i][g]+n; row++ {
				if filled[i][row]++; (int(row) < rd.gets[i]) != (g/regions == i) {
					return fmt.Errorf("row %d of part %d is in the wrong half of box %d", row, g, i)
				}
			}
		}
	}
	seen := 0
	for step := range p.order.steps {
		for _, w := range p.step(r, step) {
			seen += w.regions
			for i := range owners {
				for j := range owners {
					x := w.of(i, j)
					for k := range x.n {
						if i != j && filled[i][x.out+k] != 1 {
							return fmt.Errorf("row %d of box %d is sent, and no row was written there", x.out+k, i)
						}
						if i != j {
							filled[j][x.in+k]++
						}
						if at := x.in + k; at < w.at[j] || at >= w.at[j]+w.rows[j] {
							return fmt.Errorf("row %d of inbox %d is not in its wave", at, j)
						}
					}
				}
			}
		}
	}
	if seen != regions {
		return fmt.Errorf("the waves have %d regions", seen)
	}
	for i := range filled {
		for row, times := range filled[i] {
			if times != 1 {
				return fmt.Errorf("row %d of box %d is written %d times", row, i, times)
			}
		}
	}
	return nil
}

// A batch that a piece has room for goes in one round, though its last chunk is short and the keys of one owner are
// some more.
func TestOneRound(t *testing.T) {
	for _, size := range []int{250_000_000, defaultPiece} {
		for _, chunk := range []int{chunkOf(defaultPiece), order{regions: 64}.chunk(size)} {
			var counts []uint64
			for at := 0; at < size; at += chunk {
				n := min(chunk, size-at)
				counts = append(counts, uint64(n/2+500), uint64(n-n/2-500))
			}
			p := newPlan([]int{size, size}, [][]uint64{counts, counts}, chunk, size, max(chunk, min(size+size/8+tileMost, mostPiece)))
			if len(p.rounds) != 1 || p.rows[0]+p.rows[1] != 2*size {
				t.Errorf("%d rows by chunks of %d: %d rounds of %d rows at most", size, chunk, len(p.rounds), p.rows)
			}
		}
	}
}

// Members send a bounded number of counts: if the order that all want takes more, or if smaller pieces would, rows are
// split by owners only.
func TestFewCounts(t *testing.T) {
	jb := &job{values: sent}
	for _, x := range []struct {
		piece, rows int
		regions     [2]int
		want        int
	}{
		{regionMost, 20 * regionMost, [2]int{2, 512}, 512},
		{regionMost, 1025 * regionMost, [2]int{512, anyOrder}, 0},
		{regionMost, 1025 * regionMost, [2]int{2, 512}, 0}, // 2 alone are few counts
		{regionMost, 1025 * regionMost, [2]int{2, 2}, 2},
	} {
		j := &joint{Member: &Member{size: 2}, piece: x.piece}
		o := j.agreedOrder(jb, []request{{N: x.rows, Regions: x.regions[0]}, {Regions: x.regions[1]}})
		if o.regions != x.want {
			t.Errorf("%+v: %d regions", x, o.regions)
		}
		if n := j.words(x.rows, j.piece, o); n > mostWords {
			t.Errorf("%+v: %d counts", x, n)
		}
	}
	const rows = 1 << 28
	j := &joint{Member: &Member{size: 2}, piece: rows, most: rows}
	jb.order = order{regions: 512}
	for step := 0; jb.order.regions > 0; step++ {
		if n := j.words(rows, j.piece, jb.order); n > mostWords || step > 20 {
			t.Fatalf("after %d steps: %d counts of pieces of %d", step, n, j.piece)
		}
		if !j.smaller(jb, rows, rows, rows) {
			t.Fatal("there are no smaller pieces")
		}
	}
	if j.piece != rows {
		t.Errorf("split by owners, pieces have %d rows at first (want %d)", j.piece, rows)
	}
}
