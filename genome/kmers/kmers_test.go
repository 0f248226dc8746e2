package kmers

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/genome"
	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/kernel"
)

// reads makes records of random letters in FASTA, some of them several times, and their sequences.
func reads(seed uint64, records, letters int) (fasta string, sequences []string) {
	r := rand.New(rand.NewPCG(seed, 7))
	var out strings.Builder
	for i := range records {
		s := make([]byte, r.IntN(2*letters))
		for j := range s {
			s[j] = "ACGTacgtUuNnR"[min(r.IntN(260), 255)*13/260%13]
			if r.IntN(60) > 0 {
				s[j] = "ACGTacgt"[r.IntN(8)]
			}
		}
		if i%3 == 2 {
			s = append(s, sequences[r.IntN(len(sequences))]...)
		}
		if i%5 == 1 {
			s = append(s, strings.Repeat("A", r.IntN(200))...)
		}
		sequences = append(sequences, string(s))
		fmt.Fprintf(&out, ">%d\n", i)
		for len(s) > 0 {
			n := min(len(s), 70)
			fmt.Fprintf(&out, "%s\r\n", s[:n])
			s = s[n:]
		}
	}
	return out.String(), sequences
}

// plainly counts with a Go map.
func plainly(sequences []string, k int, canonical bool, least uint32) map[string]uint32 {
	counts := map[string]uint32{}
	for _, s := range sequences {
		s = strings.ReplaceAll(strings.ToUpper(s), "U", "T")
		for i := 0; i+k <= len(s); i++ {
			x := s[i : i+k]
			if strings.Trim(x, "ACGT") != "" {
				continue
			}
			if canonical {
				r := make([]byte, k)
				for j := range k {
					r[k-1-j] = "TGCA"[strings.IndexByte("ACGT", x[j])]
				}
				x = min(x, string(r))
			}
			counts[x]++
		}
	}
	maps.DeleteFunc(counts, func(_ string, n uint32) bool { return n < least })
	return counts
}

func counts(t *testing.T, path string) (map[string]uint32, *File) {
	t.Helper()
	f, err := Open(path)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { f.Close() })
	got := map[string]uint32{}
	if err := f.Each(func(kmer Kmer, n uint32) error {
		got[string(Append(nil, kmer, f.K))] = n
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return got, f
}

func compare(t *testing.T, what string, want map[string]uint32, path string) {
	t.Helper()
	got, f := counts(t, path)
	if !maps.Equal(got, want) {
		t.Fatalf("%s: %d k-mers, want %d, or other counts", what, len(got), len(want))
	}
	var s Stats
	for _, n := range want {
		s.Distinct++
		s.Total += uint64(n)
		s.MaxCount = max(s.MaxCount, uint64(n))
		if n == 1 {
			s.Unique++
		}
	}
	if f.Stats != s {
		t.Errorf("%s: %+v, want %+v", what, f.Stats, s)
	}
	histogram, err := f.Histogram(3)
	if err != nil || histogram[0] != 0 || histogram[1] != s.Unique || histogram[1]+histogram[2] != s.Distinct {
		t.Errorf("%s: a histogram %d, %v of %+v", what, histogram, err, s)
	}
}

func open(t *testing.T, name string) *device.Device {
	t.Helper()
	d, err := device.Open(name)
	if name != "cpu" {
		testenv.Require(t, "cuda", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func devices(t *testing.T, do func(t *testing.T, d *device.Device)) {
	for _, name := range []string{"cpu", "cuda"} {
		t.Run(name, func(t *testing.T) {
			do(t, open(t, name))
		})
	}
}

func TestCount(t *testing.T) {
	devices(t, func(t *testing.T, d *device.Device) {
		dir := t.TempDir()
		text, sequences := reads(1, 60, 200)
		in, out := filepath.Join(dir, "in.fa"), filepath.Join(dir, "out.wk")
		if err := os.WriteFile(in, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
		for k := 1; k <= MaxK; k++ {
			if k > 34 && k < 63 && k%8 != 7 {
				continue
			}
			if k > 3 && (k+1)%8 > 2 && !d.Info().CUDA() && !testenv.Long() {
				continue // those left are at the ends of words, and on either side
			}
			for _, canonical := range []bool{false, true} {
				o := Options{K: k, Canonical: canonical, Min: uint32(k % 3), Read: genome.Options{BlockBytes: 3000}}
				s, err := Count(t.Context(), d, []string{in}, o, out)
				if err != nil {
					t.Fatal(err)
				}
				want := plainly(sequences, k, canonical, o.Min)
				compare(t, fmt.Sprintf("k %d, canonical %v", k, canonical), want, out)
				if s.Read.Records != 60 || s.Rounds != 1 || s.Stored != 0 || s.Distinct != uint64(len(want)) {
					t.Errorf("%+v", s)
				}
			}
		}
	})
}

// A counter gives the same in parts, with memory that is used up, and where text comes in pieces.
func TestParts(t *testing.T) {
	d := open(t, "cpu")
	n := 100
	if !testenv.Long() {
		n = 40
	}
	_, sequences := reads(2, n, 1000)
	for _, k := range []int{11, 35} {
		words := wordsOf(k)
		m, err := d.Compile(program(words))
		if err != nil {
			t.Fatal(err)
		}
		want := plainly(sequences, k, true, 0)
		onCores := func(_ *device.Module, t texts, memory int64) (counter, error) { return newCores(t.wanted, memory) }
		for name, make := range map[string]func(*device.Module, texts, int64) (counter, error){
			"cores": onCores, "tabled": newTabled, "eager": eager} {
			for _, memory := range []int64{1 << 30, 2 * countedBytes(words) * int64(len(want))} {
				if name == "cores" {
					memory = max(memory, leastMemory)
				} else if words > 1 && memory < 1<<30 {
					memory *= 4
				}
				got := map[string]uint32{}
				for first := 0; first < parts; first += parts / 4 {
					c, err := make(m, texts{room: 5000, wanted: wanted{d: d, k: k, words: words, canonical: 1,
						first: uint64(first), end: uint64(first + parts/4)}}, memory)
					if err != nil {
						t.Fatal(err)
					}
					last := first - 1
					for i, s := range sequences {
						if err := c.add([]byte(s+"\n"), func() {}); err != nil {
							t.Fatal(name, k, memory, err)
						}
						if x, ok := c.(*cores); ok && i%10 == 0 {
							if err := x.count(false); err != nil {
								t.Fatal(name, k, memory, err)
							}
						}
					}
					err = c.finish(func(part int, x counted) error {
						if part != last+1 {
							return fmt.Errorf("part %d behind %d", part, last)
						}
						last = part
						for i, n := range x.counts {
							if i > 0 && x.compare(i-1, x, i) >= 0 || x.part(i) != part {
								return fmt.Errorf("part %d is not in order", part)
							}
							got[string(Append(nil, unmix(x.mix(i)), k))] = n
						}
						return nil
					})
					if err := errors.Join(err, c.close()); err != nil {
						t.Fatal(name, k, memory, err)
					}
					if last != first+parts/4-1 {
						t.Fatalf("%s: the last part is %d", name, last)
					}
				}
				if !maps.Equal(got, want) {
					t.Errorf("%s of k %d with %d bytes: %d k-mers, want %d, or other counts", name, k, memory, len(got),
						len(want))
				}
			}
		}
	}
}

// eager makes a counter with room ahead that is given text, however little, whenever it has nothing to do.
func eager(m *device.Module, t texts, memory int64) (counter, error) {
	c, err := newTabledAhead(m, t, memory, 100)
	if err == nil {
		c.(*tabled).eager = 1
	}
	return c, err
}

// A counter takes all k-mers of texts of any length, and nothing that stands behind them in the memory; also where it
// takes them in the smallest pieces, and counts often.
func TestShortTexts(t *testing.T) {
	d := open(t, "cpu")
	r := rand.New(rand.NewPCG(5, 5))
	for _, k := range []int{1, 9, 10, 16, 17, 21, 31, 32, 33, 49, 64} {
		m, err := d.Compile(program(wordsOf(k)))
		must(t, err)
		var sequences []string
		for _, n := range []int{3000, 0, 1, 15, 16, 17, 31, 32, 33, 47, 48, 49, 62, 63, 64, 65, 79, 80, 81, 95, 127,
			128, 129, 200, 1} {
			s := make([]byte, n)
			for i := range s {
				s[i] = "ACGTACGTACGTACGTACGTACGTACGTacgtuUN\x00\xff"[r.IntN(37)]
			}
			sequences = append(sequences, string(s))
		}
		sequences = append(sequences, strings.Repeat("A", 700), strings.Repeat("ACG", 300)) // long stretches
		for _, canonical := range []uint64{0, 1} {
			w := wanted{d: d, k: k, words: wordsOf(k), canonical: canonical, end: parts}
			want := plainly(sequences, k, canonical == 1, 0)
			for name, make := range map[string]func() (counter, error){
				"tabled": func() (counter, error) { return eager(m, texts{wanted: w, room: 5001}, 1<<30) },
				"cores":  func() (counter, error) { return newCores(w, 1<<30) },
				"pieces": func() (counter, error) {
					c, err := newCores(w, 1<<30)
					if err == nil {
						c.(*cores).letters = 7
					}
					return c, err
				}} {
				c, err := make()
				must(t, err)
				for i, s := range sequences {
					text := append([]byte(s), '\n')
					must(t, c.add(text[:len(text):len(text)], func() {}))
					if x, ok := c.(*cores); ok && name == "pieces" && i%4 == 0 {
						must(t, x.count(false))
					}
				}
				got := map[string]uint32{}
				err = c.finish(func(part int, x counted) error {
					for i, n := range x.counts {
						got[string(Append(nil, unmix(x.mix(i)), k))] = n
					}
					return nil
				})
				must(t, errors.Join(err, c.close()))
				if !maps.Equal(got, want) {
					t.Errorf("%s, k %d, canonical %d: %d k-mers, want %d, or other counts", name, k, canonical,
						len(got), len(want))
				}
			}
		}
	}
}

// Where the memory that the inputs' size asks for is not there, a counter begins with less.
func TestLessThanAhead(t *testing.T) {
	d, err := device.Open("cpu", device.WithMemory(12<<20))
	if err != nil {
		t.Fatal(err)
	}
	defer d.Close()
	for _, k := range []int{5, 21, 40} {
		m, err := d.Compile(program(wordsOf(k)))
		if err != nil {
			t.Fatal(err)
		}
		room := texts{wanted: wanted{d: d, k: k, words: wordsOf(k), end: parts}, room: 1 << 16}
		c, err := newTabledFor(m, room, 1<<30, 1<<40)
		if err != nil {
			t.Fatal(k, err)
		}
		text, got := "ACGTACGTAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA", map[string]uint32{}
		err = errors.Join(c.add([]byte(text+"\n"), func() {}), c.finish(func(part int, x counted) error {
			for i, n := range x.counts {
				got[string(Append(nil, unmix(x.mix(i)), k))] = n
			}
			return nil
		}), c.close())
		if want := plainly([]string{text}, k, false, 0); err != nil || !maps.Equal(got, want) {
			t.Errorf("k %d: %v, %v, want %v", k, err, got, want)
		}
	}
}

// Text that is longer than the device is given at a time has the k-mers over the seams.
func TestLongText(t *testing.T) {
	d := open(t, "cpu")
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(3, 3))
	const piece = leastMemory / textShare
	letters := make([]byte, 6*piece)
	for i := range letters {
		letters[i] = "ACGT"[r.IntN(4)]
	}
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	if err := os.WriteFile(in, append([]byte(">a\nACGTACGT\n>b\n"), letters...), 0o600); err != nil {
		t.Fatal(err)
	}
	const k = 30
	s, err := Count(t.Context(), d, []string{in}, Options{K: k, MaxMemory: 4 * leastMemory}, out)
	if want := uint64(len(letters) - k + 1); err != nil || s.Total != want || s.Distinct != want {
		t.Fatalf("%+v, %v; want %d", s, err, want)
	}
	f, err := Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var kmers []Kmer
	for i := 4*piece - 60; i < 4*piece+10; i++ {
		x, _ := Pack(string(letters[i : i+k]))
		kmers = append(kmers, x)
	}
	found, err := f.Find(kmers)
	for i, n := range found {
		if n != 1 || err != nil {
			t.Errorf("the %d-th k-mer about the seam came %d times, %v", i, n, err)
		}
	}
}

// However little memory there is, and on however many devices, the file is the same: also of a pipe, which can be read
// once only.
func TestStored(t *testing.T) {
	d := open(t, "cpu")
	beside := []*device.Device{open(t, "cpu:1"), open(t, "cpu:2")}
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(3, 9))
	letters := make([]byte, 5<<19)
	for i := range letters {
		letters[i] = "ACGT"[r.IntN(4)]
	}
	copy(letters[2<<19:], letters[:1<<19])
	copy(letters[1<<20:], strings.Repeat("AC", 5000))
	some, _ := reads(8, 400, 1500)
	in, out, whole := filepath.Join(dir, "in"), filepath.Join(dir, "out"), filepath.Join(dir, "whole")
	if err := os.WriteFile(in, fmt.Appendf(nil, "%s>long\n%s\n", some, letters), 0o600); err != nil {
		t.Fatal(err)
	}
	temporary := filepath.Join(dir, "temporary")
	if err := os.Mkdir(temporary, 0o700); err != nil {
		t.Fatal(err)
	}
	for i, k := range testenv.Some([]int{8, 21, 64, 9, 33}, 3) {
		o := Options{K: k, Canonical: i%2 == 0, Min: uint32(i % 3), Temporary: temporary}
		if _, err := Count(t.Context(), d, []string{in}, o, whole); err != nil {
			t.Fatal(err)
		}
		want, err := os.ReadFile(whole)
		if err != nil {
			t.Fatal(err)
		}
		same := func(what string, s Summary, err error) {
			t.Helper()
			got, _ := os.ReadFile(out)
			if err != nil || !bytes.Equal(got, want) {
				t.Errorf("k %d, %s: %+v, %v, the same file: %v", k, what, s, err, bytes.Equal(got, want))
			}
			if left, err := os.ReadDir(temporary); err != nil || len(left) > 0 {
				t.Errorf("k %d, %s: %v are left, %v", k, what, left, err)
			}
		}
		for j, more := range [][]*device.Device{nil, beside[:1], beside} {
			if i%3 != j && !testenv.Long() {
				continue
			}
			o := o
			o.Beside = more
			s, err := Count(t.Context(), d, []string{in}, o, out)
			same(fmt.Sprintf("%d devices", 1+len(more)), s, err)
			o.MaxMemory = leastMemory * int64(1+len(more))
			s, err = Count(t.Context(), d, []string{in}, o, out)
			same(fmt.Sprintf("%d devices with little memory", 1+len(more)), s, err)
			if k > 10 && len(more) < 2 && (s.Rounds < 2 || s.Stored == 0) {
				t.Errorf("k %d: %+v with little memory", k, s)
			}
		}
		if i%2 > 0 && !testenv.Long() {
			continue
		}
		pipe := filepath.Join(dir, "pipe")
		os.Remove(pipe)
		if err := testenv.Mkfifo(pipe, 0o600); err != nil {
			t.Fatal(err)
		}
		go func() {
			text, _ := os.ReadFile(in)
			os.WriteFile(pipe, text, 0)
		}()
		s, err := Count(t.Context(), d, []string{pipe}, o, out)
		same("a pipe", s, err)
		if s.Rounds != 1 || s.Stored == 0 {
			t.Errorf("a pipe: %+v", s)
		}
	}
}

// leastWord is the word with the least hash: the minimizer of all k-mers that have it.
func leastWord() (word uint32) {
	least := ^uint32(0)
	for w := range uint32(1) << (2 * minimizerLetters) {
		if h := kernel.Fmix32(uint32(Canonical(Kmer{Lo: uint64(w)}, minimizerLetters).Lo)); h < least {
			least, word = h, w
		}
	}
	return word
}

// k-mers of one bin alone that are more than memory holds are counted some parts after the other.
func TestOneBin(t *testing.T) {
	testenv.ByTurns(t)
	d := open(t, "cpu")
	word := leastWord()
	const k, lines = 21, 1_200_000
	r := rand.New(rand.NewPCG(5, 5))
	text := []byte{}
	for range lines {
		text = Append(append(text, '>', '\n'), Kmer{Lo: uint64(word)<<24 | uint64(r.Uint32N(1<<24))}, k)
		text = append(text, '\n')
	}
	dir := t.TempDir()
	in, out, whole := filepath.Join(dir, "in"), filepath.Join(dir, "out"), filepath.Join(dir, "whole")
	if err := os.WriteFile(in, text, 0o600); err != nil {
		t.Fatal(err)
	}
	if s, err := Count(t.Context(), d, []string{in}, Options{K: k}, whole); err != nil || s.Total != lines {
		t.Fatal(s, err)
	}
	s, err := Count(t.Context(), d, []string{in}, Options{K: k, MaxMemory: leastMemory}, out)
	want, _ := os.ReadFile(whole)
	if got, _ := os.ReadFile(out); err != nil || s.Rounds > 3 || !bytes.Equal(got, want) {
		t.Errorf("%+v, %v, the same file: %v", s, err, bytes.Equal(got, want))
	}
}

// Where the folder for temporary files is not there, or ctx ends, there is no file.
func TestStoredFails(t *testing.T) {
	d := open(t, "cpu")
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(4, 4))
	letters := make([]byte, 3<<20)
	for i := range letters {
		letters[i] = "ACGT"[r.IntN(4)]
	}
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	if err := os.WriteFile(in, append([]byte(">a\n"), letters...), 0o600); err != nil {
		t.Fatal(err)
	}
	fails := func(ctx context.Context, o Options, want string) {
		t.Helper()
		_, err := Count(ctx, d, []string{in}, o, out)
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
		if left, err := os.ReadDir(dir); err != nil || len(left) != 1 {
			t.Errorf("%v are left, %v", left, err)
		}
	}
	fails(t.Context(), Options{K: 21, MaxMemory: leastMemory, Temporary: filepath.Join(dir, "absent")},
		"temporary files in "+filepath.Join(dir, "absent"))
	for _, step := range []Step{Reading, Storing, Counting, Merging} {
		ctx, stop := context.WithCancel(t.Context())
		fails(ctx, Options{K: 21, MaxMemory: leastMemory, Temporary: dir, Progress: func(p Progress) {
			if p.Step == step {
				stop()
			}
		}}, "context canceled")
		stop()
	}
}

func TestFind(t *testing.T) {
	d := open(t, "cpu")
	dir := t.TempDir()
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	if err := os.WriteFile(in, []byte(">a\nAACGTTT\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Count(t.Context(), d, []string{in}, Options{K: 3, Canonical: true}, out); err != nil {
		t.Fatal(err)
	}
	f, err := Open(out)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	var kmers []Kmer
	for _, s := range []string{"AAC", "gtt", "CCC", "uuu", "ACG"} {
		x, err := Pack(s)
		if err != nil {
			t.Fatal(err)
		}
		kmers = append(kmers, x)
	}
	n, err := f.Find(kmers)
	if want := []uint32{2, 2, 0, 1, 2}; err != nil || fmt.Sprint(n) != fmt.Sprint(want) {
		t.Errorf("%d, %v; want %d", n, err, want)
	}
	for _, s := range []string{"", "ACN", strings.Repeat("A", 65)} {
		if _, err := Pack(s); err == nil {
			t.Errorf("%q is packed", s)
		}
	}
}

// A table has the k-mers of letters that come packed.
func TestTable(t *testing.T) {
	devices(t, func(t *testing.T, d *device.Device) {
		r := rand.New(rand.NewPCG(6, 6))
		letters := make([]byte, 3000)
		for i := range letters {
			letters[i] = "ACGT"[r.IntN(4)]
		}
		copy(letters[1000:], letters[:500])
		words := make([]uint64, (len(letters)+31)/32)
		for i, x := range letters {
			words[i/32] |= uint64(strings.IndexByte("ACGT", x)) << (62 - 2*(i%32))
		}
		packed, err := device.From(d, words)
		if err != nil {
			t.Fatal(err)
		}
		defer packed.Free()
		for _, k := range []int{1, 2, 15, 21, 31, 32} {
			for _, canonical := range []bool{false, true} {
				x, err := NewTable(d, TableOptions{K: k, Canonical: canonical, Batch: 700})
				if err != nil {
					t.Fatal(err)
				}
				defer x.Close()
				for _, n := range []int{0, k - 1, 2999} {
					if err := x.Add(d.Stream(), packed, n); err != nil {
						t.Fatal(err)
					}
				}
				want := plainly([]string{string(letters[:2999])}, k, canonical, 0)
				var kmers []Kmer
				var counts []uint32
				for s, n := range want {
					m, _ := Pack(s)
					kmers, counts = append(kmers, m), append(counts, n)
				}
				got, err := x.Find(kmers)
				if n, _ := x.Len(); err != nil || !slices.Equal(got, counts) || n != len(want) {
					t.Errorf("k %d, canonical %v: %d k-mers, want %d, or other counts, %v", k, canonical, n, len(want),
						err)
				}
				if err := x.Add(d.Stream(), packed, 32*len(words)+1); err == nil {
					t.Error("more letters than words were counted")
				}
			}
		}
		if _, err := NewTable(d, TableOptions{K: 33}); err == nil {
			t.Error("33-mers were taken")
		}
	})
}

func TestUnmix(t *testing.T) {
	for range 1000 {
		x := Kmer{rand.Uint64(), rand.Uint64()}
		wide, narrow := mix(x, 2), mix(x, 1)
		if unmix(wide[:]) != x || unmix(narrow[:1]) != (Kmer{Lo: x.Lo}) {
			t.Fatalf("%#x", x)
		}
	}
}

func TestDamagedFile(t *testing.T) {
	d := open(t, "cpu")
	dir := t.TempDir()
	text, _ := reads(4, 20, 100)
	in, out := filepath.Join(dir, "in"), filepath.Join(dir, "out")
	if err := os.WriteFile(in, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := Count(t.Context(), d, []string{in}, Options{K: 21}, out); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	damaged := func(what string, data []byte) {
		t.Helper()
		if err := os.WriteFile(out, data, 0o600); err != nil {
			t.Fatal(err)
		}
		f, err := Open(out)
		if err == nil {
			_, err = f.Histogram(10)
			f.Close()
		}
		var of *FileError
		if !errors.As(err, &of) || !strings.HasPrefix(err.Error(), out) {
			t.Errorf("%s: %v", what, err)
		}
	}
	for _, at := range []int{0, 8, 12, 30, 60, 3000, 30000, headerBytes, headerBytes + 1000, len(whole) - 1} {
		data := bytes.Clone(whole)
		data[at] ^= 4
		damaged(fmt.Sprintf("byte %d", at), data)
	}
	for _, n := range []int{0, 5, 100, headerBytes, len(whole) - 1} {
		damaged(fmt.Sprintf("%d bytes", n), whole[:n])
	}
	// What fails leaves nothing behind, and what was there stands.
	os.WriteFile(in, []byte("@a\nACGT\n+\n!!\n"), 0o600)
	os.WriteFile(out, whole, 0o600)
	if _, err := Count(t.Context(), d, []string{in}, Options{K: 21}, out); err == nil {
		t.Error("a broken input was counted")
	}
	files, err := os.ReadDir(dir)
	if now, _ := os.ReadFile(out); err != nil || len(files) != 2 || !bytes.Equal(now, whole) {
		t.Errorf("there are %v, %v", files, err)
	}
	for _, o := range []Options{{}, {K: 65}, {K: -1}, {K: 21, MaxMemory: 1000}, {K: 21, MaxMemory: -1}} {
		if _, err := Count(t.Context(), d, []string{in}, o, out); !errors.As(err, new(*genome.OptionError)) {
			t.Errorf("%+v was taken: %v", o, err)
		}
	}
	_, err = Count(t.Context(), nil, []string{in}, Options{K: 21}, out)
	if _, made := NewTable(nil, TableOptions{K: 21}); err == nil || made == nil {
		t.Errorf("without a device: %v, %v", err, made)
	}
}

// Kernels compile for GPUs.
func TestKernelsCompileForGPUs(t *testing.T) {
	for _, arch := range testenv.Some([]string{"sm_90", "sm_75"}, 1) {
		for _, p := range testenv.Some([]*device.Program{program(2), coresProgram(1), program(1), coresProgram(2), binProgram()}, 2) {
			_, err := device.CompileFor(arch, p)
			if errors.Is(err, device.ErrNoNVRTC) {
				testenv.RequireNVRTC(t, err)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}

// BenchmarkCount is of random letters, of which most k-mers are distinct, as those of genomes are.
func BenchmarkCount(b *testing.B) {
	d, err := device.Open("cpu")
	if err != nil {
		b.Fatal(err)
	}
	defer d.Close()
	dir := b.TempDir()
	r := rand.New(rand.NewPCG(3, 3))
	letters := make([]byte, 32<<20)
	for i := range letters {
		letters[i] = "ACGT"[r.IntN(4)]
	}
	in := filepath.Join(dir, "in")
	if err := os.WriteFile(in, append([]byte(">a\n"), letters...), 0o600); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(letters)))
	for b.Loop() {
		if _, err := Count(b.Context(), d, []string{in}, Options{K: 21, Canonical: true},
			filepath.Join(dir, "out")); err != nil {
			b.Fatal(err)
		}
	}
}

// A device that finds only at the end that its share takes more memory than there is says so before another gives parts
// away.
func TestNarrowAtTheEnd(t *testing.T) {
	a, err := device.Open("cpu")
	must(t, err)
	defer a.Close()
	b, err := device.Open("cpu")
	must(t, err)
	defer b.Close()
	const letters, k = 1_048_450, 33
	for _, seed := range []uint64{0, 3} {
		rng := rand.New(rand.NewPCG(seed, 2))
		text := []byte(">r\n")
		for range letters {
			text = append(text, "ACGT"[rng.IntN(4)])
		}
		in, out := filepath.Join(t.TempDir(), "in.fa"), filepath.Join(t.TempDir(), "out.wk")
		must(t, os.WriteFile(in, append(text, '\n'), 0o600))
		s, err := Count(t.Context(), a, []string{in}, Options{K: k, MaxMemory: 2 * leastMemory,
			Beside: []*device.Device{b}, Read: genome.Options{Threads: 1}}, out)
		must(t, err)
		if s.Stats.Total != letters-k+1 {
			t.Errorf("seed %d: %d k-mers of %d letters", seed, s.Stats.Total, letters)
		}
		f, err := Open(out)
		must(t, err)
		must(t, f.Close())
	}
}

// K-mers that are one and the same take memory for one, however long they are.
func TestLongRepeat(t *testing.T) {
	d, err := device.Open("cpu")
	must(t, err)
	defer d.Close()
	rng := rand.New(rand.NewPCG(7, 2))
	text := []byte(">r\n")
	for range 600_000 {
		text = append(text, "ACGT"[rng.IntN(4)])
	}
	text = append(text, bytes.Repeat([]byte{'A'}, 2_400_000)...)
	in := filepath.Join(t.TempDir(), "in.fa")
	must(t, os.WriteFile(in, append(text, '\n'), 0o600))
	for _, k := range []int{31, 33} {
		s, err := Count(t.Context(), d, []string{in}, Options{K: k, MaxMemory: 4 * leastMemory},
			filepath.Join(t.TempDir(), "out.wk"))
		must(t, err)
		if want := uint64(3_000_000 - k + 1); s.Stats.Total != want {
			t.Errorf("k = %d: %d k-mers, want %d", k, s.Stats.Total, want)
		}
	}
}

func must(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// A panic while parts are sorted is an error of who waits for them.
func TestSortingPanics(t *testing.T) {
	ended := make(chan error, 1)
	go func() {
		ended <- ahead(0, parts, func(part int) {
			if part == 3 {
				panic("part 3")
			}
		}, func(int) error { return nil })
	}()
	select {
	case err := <-ended:
		if e := (*crash.Error)(nil); !errors.As(err, &e) || e.Value != "part 3" {
			t.Error(err)
		}
	case <-time.After(10 * time.Second):
		t.Error("it is waited for")
	}
}

// Two parts that have nearly all k-mers are too large to be sorted with little memory: that turns out before any part is
// given away, on one core, too.
func TestPartsTooLargeToSort(t *testing.T) {
	testenv.ByTurns(t)
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	d := open(t, "cpu")
	const k, n = 32, 300_000
	r := rand.New(rand.NewPCG(5, 5))
	text := []byte{}
	put := func(x uint64) { text = append(Append(append(text, '>', '\n'), Kmer{Lo: x}, k), '\n') }
	for range 300 {
		put(r.Uint64())
	}
	word := uint64(leastWord()) // all are in one bin, whose table takes half of the memory
	for i := 0; i < n; {
		x := word<<(2*(k-minimizerLetters)) | r.Uint64()>>(2*minimizerLetters)
		if part := kernel.Fmix64(x) >> (64 - partBits); part == 1000 || part == 2000 {
			put(x)
			i++
		}
	}
	dir := t.TempDir()
	in, out, whole := filepath.Join(dir, "in"), filepath.Join(dir, "out"), filepath.Join(dir, "whole")
	must(t, os.WriteFile(in, text, 0o600))
	s, err := Count(t.Context(), d, []string{in}, Options{K: k}, whole)
	must(t, err)
	if s.Total != n+300 {
		t.Errorf("%d k-mers, want %d", s.Total, n+300)
	}
	want, _ := os.ReadFile(whole)
	for mib := int64(13); mib <= 20; mib++ {
		_, err := Count(t.Context(), d, []string{in}, Options{K: k, MaxMemory: mib << 20}, out)
		if got, _ := os.ReadFile(out); err != nil || !bytes.Equal(got, want) {
			t.Errorf("%d MiB: %v, the same file: %v", mib, err, bytes.Equal(got, want))
		}
	}
}

// After a panic while text is added, nothing is left of the counter.
func TestPanicInAdd(t *testing.T) {
	d := open(t, "cpu")
	dir := t.TempDir()
	r := rand.New(rand.NewPCG(1, 1))
	text := []byte(">a\n")
	for range 2 << 20 {
		text = append(text, "ACGT"[r.IntN(4)])
	}
	in := filepath.Join(dir, "in")
	must(t, os.WriteFile(in, text, 0o600))
	live := len(d.Live())
	var once atomic.Bool
	crash.Plant = func() {
		stack := make([]byte, 1<<16)
		if s := string(stack[:runtime.Stack(stack, false)]); strings.Contains(s, "beside") && !once.Swap(true) {
			panic("planted")
		}
	}
	defer func() { crash.Plant = nil }()
	func() {
		defer func() {
			if p := recover(); p == nil || !strings.Contains(fmt.Sprint(p), "planted") {
				t.Errorf("the panic is %v", p)
			}
		}()
		Count(t.Context(), d, []string{in}, Options{K: 21, MaxMemory: leastMemory}, filepath.Join(dir, "out"))
	}()
	if now := len(d.Live()); now > live {
		t.Errorf("%d allocations are left of %d", now-live, now)
	}
	stacks := make([]byte, 1<<20)
	if n := strings.Count(string(stacks[:runtime.Stack(stacks, true)]), "core).take"); n > 0 {
		t.Errorf("%d goroutines are left", n)
	}
}
