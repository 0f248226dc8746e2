package kmers

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/genome"
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
	if err := f.Each(func(kmer uint64, n uint32) error { got[string(Append(nil, kmer, f.K))] = n; return nil }); err != nil {
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
			for _, canonical := range []bool{false, true} {
				o := Options{K: k, Canonical: canonical, Min: uint32(k % 3), Read: genome.Options{BlockBytes: 3000}}
				s, err := Count(t.Context(), d, []string{in}, o, out)
				if err != nil {
					t.Fatal(err)
				}
				want := plainly(sequences, k, canonical, o.Min)
				compare(t, fmt.Sprintf("k %d, canonical %v", k, canonical), want, out)
				if s.Read.Records != 60 || s.Passes != 1 || s.Distinct != uint64(len(want)) {
					t.Errorf("%+v", s)
				}
			}
		}
	})
}

// A counter gives the same in parts, with memory that is used up, and where text comes in pieces.
func TestParts(t *testing.T) {
	d := open(t, "cpu")
	_, sequences := reads(2, 100, 1000)
	m, err := d.Compile(program())
	if err != nil {
		t.Fatal(err)
	}
	const k = 11
	want := plainly(sequences, k, true, 0)
	for name, make := range map[string]func(*device.Module, texts, Options) (counter, error){"sorted": newSorted, "tabled": newTabled} {
		for _, memory := range []int64{1 << 30, 4 * 12 * int64(len(want)) / 2} {
			got := map[string]uint32{}
			for first := 0; first < parts; first += parts / 4 {
				c, err := make(m, texts{d: d, k: k, room: 5000, p: textParams{K: k, Canonical: 1, First: uint64(first), End: uint64(first + parts/4)}}, Options{K: k, MaxMemory: memory})
				if err != nil {
					t.Fatal(err)
				}
				last := first - 1
				for i, s := range sequences {
					if err := c.add([]byte(s + "\n")); err != nil {
						t.Fatal(name, memory, err)
					}
					if x, ok := c.(*sorted); ok && i%10 == 0 {
						if err := x.flush(); err != nil {
							t.Fatal(name, memory, err)
						}
					}
				}
				err = c.finish(func(part int, mixes []uint64, counts []uint32) error {
					if part != last+1 {
						return fmt.Errorf("part %d behind %d", part, last)
					}
					last = part
					for i, m := range mixes {
						if i > 0 && mixes[i-1] >= m || m>>(64-partBits) != uint64(part) {
							return fmt.Errorf("part %d is not in order", part)
						}
						got[string(Append(nil, unmix(m), k))] = counts[i]
					}
					return nil
				})
				if err := errors.Join(err, c.close()); err != nil {
					t.Fatal(name, memory, err)
				}
				if last != first+parts/4-1 {
					t.Fatalf("%s: the last part is %d", name, last)
				}
			}
			if !maps.Equal(got, want) {
				t.Errorf("%s with %d bytes: %d k-mers, want %d, or other counts", name, memory, len(got), len(want))
			}
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
	var kmers []uint64
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
	// The same with less memory than all k-mers take: the inputs are read several times.
	first, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	s, err = Count(t.Context(), d, []string{in}, Options{K: k, MaxMemory: leastMemory}, out)
	second, _ := os.ReadFile(out)
	if err != nil || s.Passes < 2 || !bytes.Equal(first, second) {
		t.Errorf("with little memory: %+v, %v, the same file: %v", s, err, bytes.Equal(first, second))
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
	var kmers []uint64
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
	for _, s := range []string{"", "ACN", strings.Repeat("A", 33)} {
		if _, err := Pack(s); err == nil {
			t.Errorf("%q is packed", s)
		}
	}
}

func TestUnmix(t *testing.T) {
	for range 1000 {
		if x := rand.Uint64(); unmix(kernel.Fmix64(x)) != x {
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
	for _, o := range []Options{{}, {K: 33}, {K: -1}, {K: 21, MaxMemory: 1000}, {K: 21, MaxMemory: -1}} {
		if _, err := Count(t.Context(), d, []string{in}, o, out); err == nil {
			t.Errorf("%+v was taken", o)
		}
	}
}

// Kernels compile for GPUs.
func TestNVRTC(t *testing.T) {
	for _, arch := range []string{"sm_70", "sm_90"} {
		_, err := device.CompileFor(arch, program())
		if errors.Is(err, device.ErrNoNVRTC) {
			testenv.RequireNVRTC(t, err)
		}
		if err != nil {
			t.Fatal(err)
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
		if _, err := Count(b.Context(), d, []string{in}, Options{K: 21, Canonical: true}, filepath.Join(dir, "out")); err != nil {
			b.Fatal(err)
		}
	}
}
