package classify

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/genome"
	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/internal/files"
	"github.com/warpmap/warpmap/internal/testenv"
)

// synthetic is a database of many features at random, of whom most have one location, in one target.
func synthetic(t testing.TB, features int) *Database {
	t.Helper()
	db := &Database{taxonomy: &Taxonomy{ids: []uint32{rootID}, parents: []uint32{0}, ranks: []Rank{Root},
		names: []string{"root"}, merged: map[uint32]uint32{}, index: map[uint32]uint32{rootID: 0}},
		targets: []target{{"a", 0, 1 << 30}}}
	if err := db.Options.complete(); err != nil {
		t.Fatal(err)
	}
	r, f := rand.New(rand.NewPCG(3, 9)), uint64(0)
	for i := range features {
		f += 1 + r.Uint64N(1<<31/uint64(features)) // and so less than half of all
		db.features = append(db.features, uint32(f))
		l := []uint64{uint64(i)}
		for range r.IntN(3) {
			l = append(l, l[len(l)-1]+1)
		}
		db.append(l)
	}
	return db
}

func saved(t testing.TB, db *Database) (name string) {
	t.Helper()
	name = filepath.Join(t.TempDir(), "db")
	if err := db.Save(name); err != nil {
		t.Fatal(err)
	}
	return name
}

// openedAs opens a database for as long as the test runs.
func openedAs(t testing.TB, name string) *Database {
	t.Helper()
	db, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	return db
}

// Opening a database reads the directory of its chunks, of some bytes a chunk, and the first read what its features may
// be in, however large the database is.
func TestOpeningReadsNoChunks(t *testing.T) {
	d := cpu(t)
	sequence := relatives(rand.New(rand.NewPCG(5, 9)), 1, 130)[0]
	for _, chunks := range []int{2, 40, 160} {
		name := saved(t, synthetic(t, chunks*chunkItems))
		db, err := Open(name)
		if err != nil {
			t.Fatal(err)
		}
		defer db.Close()
		c, err := NewClassifier(d, db, QueryOptions{})
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if n := db.stored.taken.Load(); n > int64(20*sectionAlign+16*chunks) {
			t.Errorf("%d chunks: opening reads %d bytes", chunks, n)
		}
		if _, err := classifyAll(t, c, sequence); err != nil {
			t.Fatal(err)
		}
		const most = 2 * 16 * chunkItems * 40 // two windows of 16 features, and a feature takes less than 40 bytes
		if n := db.stored.taken.Load(); n > most || chunks > 40 && n > db.stored.about.Size()/2 {
			t.Errorf("%d chunks: the first read takes %d bytes of %d", chunks, n, db.stored.about.Size())
		}
	}
}

// classifyAll gives the lines of sequences.
func classifyAll(t testing.TB, c *Classifier, sequences ...string) (string, error) {
	t.Helper()
	reads := filepath.Join(t.TempDir(), "reads.fa")
	if err := os.WriteFile(reads, []byte(fasta(sequences, func(i int) string { return fmt.Sprint("r", i) })),
		0o600); err != nil {
		t.Fatal(err)
	}
	var out []byte
	_, err := c.Run(t.Context(), []string{reads}, nil, genome.Options{}, func(*Result) error { return nil },
		func(r *Result) error {
			out = c.AppendLines(out, r, KrakenLines)
			return nil
		})
	return string(out), err
}

// However features lie, and whichever chunks are there, a lookup finds each that there is, and no other.
func TestLookups(t *testing.T) {
	d := cpu(t)
	r := rand.New(rand.NewPCG(4, 9))
	for name, next := range map[string]func(i int) uint64{
		"dense": func(i int) uint64 { return 1 },
		"even":  func(i int) uint64 { return 1 + r.Uint64N(1<<15) },
		"in clusters": func(i int) uint64 {
			if i%5000 == 4999 {
				return 1 << 27
			}
			return 1
		},
		"at the end": func(i int) uint64 {
			if i == 0 {
				return 1<<32 - 20_000
			}
			return 1
		},
	} {
		for _, n := range []int{0, 1, 2, chunkItems, chunkItems + 1, 5*chunkItems - 1} {
			db := synthetic(t, 0)
			f, want := uint64(0), map[uint32]uint64{}
			for i := range n {
				if f += next(i); f >= 1<<32-1 {
					break
				}
				db.features = append(db.features, uint32(f))
				db.append(slices.Repeat([]uint64{uint64(i)}, 1+i%3))
				want[uint32(f)] = db.entries[i]
			}
			opened, err := Open(saved(t, db))
			if err != nil {
				t.Fatal(err)
			}
			for _, db := range []*Database{db, opened} {
				c, err := NewClassifier(d, db, QueryOptions{})
				if err != nil {
					t.Fatal(err)
				}
				lookUpSome(t, name, c, want, r)
				c.Close()
			}
			opened.Close()
		}
	}
}

// lookUpParams: the entries of n features, or 0.
type lookUpParams struct {
	Resident             residentParams
	Features, Entries, N uint64
	Missing              uint64
}

// lookUpCU looks features up by what the kernel of reads.cu does it by.
const lookUpCU = `
WARPMAP_KERNEL(look_up, lookUpParams) {
    Stretch s = Stretch::alone(p.n);
    Resident r{p.resident};
    u64 missing = 0;
    for (u64 i = s.start; i < s.n; i++) {
        u32 feature = at<u32>(p.features)[i], home = 0;
        u64 found = 0;
        if (r.may_be(feature)) {
            if (!r.home(feature, home)) missing++;
            else if ((found = r.entry(feature, home)) == LATER) found = r.entry_farther_on(feature, home);
        }
        at<u64>(p.entries)[i] = found;
    }
    if (missing) add(at<u64>(p.missing), missing);
}
`

func lookUpKernel(t *testing.T, c *Classifier) (k device.Kernel[lookUpParams]) {
	t.Helper()
	p := readsProgram(c.db.Options)
	p.Name = "classify-look-up"
	p.Files[0].Text += lookUpCU
	p.Layouts = append(p.Layouts, lookUpParams{})
	m, err := c.parts[0].d.CompileApart(p)
	if err == nil {
		err = device.Bind(m, "look_up", &k)
	}
	if err != nil {
		t.Fatal(err)
	}
	return k
}

// entryFinder looks features up, and brings chunks as decided does.
type entryFinder struct {
	*partWorker
	lookUp device.Kernel[lookUpParams]
}

func (x *entryFinder) find(features device.Slice[uint32], entries device.Slice[uint64]) error {
	next, err := x.next.room(x.d, x.st, 1)
	if err != nil {
		return err
	}
	for {
		if err := next.Fill(x.st, 0); err != nil {
			return err
		}
		n := features.Len()
		p := lookUpParams{x.p.resident.params(), features.Addr(), entries.Addr(), uint64(n), next.Addr()}
		if err := x.lookUp.Launch(x.st, device.GridFor(int64(max(1, n)), threads), &p); err != nil {
			return err
		}
		missing, err := next.Host(x.st)
		if err != nil || missing[0] == 0 {
			return err
		}
		if err := x.p.resident.bring(false); err != nil {
			return err
		}
	}
}

// lookUpSome looks features up, these or some at random, a few more each time.
func lookUpSome(t *testing.T, name string, c *Classifier, want map[uint32]uint64, r *rand.Rand, these ...uint32) {
	t.Helper()
	w, err := c.NewWorker()
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	lookUp := lookUpKernel(t, c)
	all := c.db.features
	if c.db.stored != nil {
		all = nil
		for f := range want {
			all = append(all, f)
		}
	}
	for _, n := range []int{0, 1, 40, 3000, 40_000} {
		features := []uint32{noFeature, 0, 1, noFeature - 1}
		if len(these) > 0 {
			features, n = these, 0
		}
		for range n {
			f := r.Uint32()
			if len(all) > 0 && r.IntN(3) > 0 {
				f = all[r.IntN(len(all))] + uint32(r.IntN(3)) - 1
			}
			features = append(features, f)
		}
		x := &entryFinder{partWorker: w.parts[0], lookUp: lookUp}
		from, err := x.features.put(x.d, x.st, features)
		if err != nil {
			t.Fatal(err)
		}
		to, err := x.entries.room(x.d, x.st, len(features))
		if err != nil {
			t.Fatal(err)
		}
		if err := x.find(from, to); err != nil {
			t.Fatal(err)
		}
		got, err := to.Host(x.st)
		if err != nil {
			t.Fatal(err)
		}
		for i, f := range features {
			if got[i] != want[f] {
				t.Fatalf("%s: feature %d of %d: entry %x, want %x", name, f, len(want), got[i], want[f])
			}
		}
	}
}

// Workers that ask for chunks at the same time give the lines of a database in memory, and no chunk is read twice. One
// that is damaged is an error of each call that needs it.
func TestReadsBringChunks(t *testing.T) {
	d := cpu(t)
	references := relatives(rand.New(rand.NewPCG(1, 9)), 7, 60_000)
	reads := sample(rand.New(rand.NewPCG(2, 9)), references, 3000)
	db := build(t, d, Options{}, false, references)
	if n := db.chunks(); n < 4 {
		t.Fatalf("%d chunks: want some", n)
	}
	name := saved(t, db)
	open := func(db *Database) *Classifier {
		t.Helper()
		c, err := NewClassifier(d, db, QueryOptions{})
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { c.Close() })
		return c
	}
	want, err := classifyAll(t, open(db), reads...)
	if err != nil {
		t.Fatal(err)
	}
	opened := openedAs(t, name)
	c := open(opened)
	directory := opened.stored.taken.Load()
	var work crash.Group
	for range 4 {
		work.Go(func() error {
			if got, err := classifyAll(t, c, reads...); err != nil || got != want {
				return fmt.Errorf("other lines than by a database in memory, or an error: %w", err)
			}
			return nil
		})
	}
	if err := work.Wait(); err != nil {
		t.Fatal(err)
	}
	if err := c.Load(); err != nil {
		t.Fatal(err)
	}
	chunks := int64(len(db.features)*12 + len(db.locations)*8)
	if n := opened.stored.taken.Load() - directory; n != chunks {
		t.Errorf("%d bytes of chunks are read: want all once, %d", n, chunks)
	}

	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	whole[opened.stored.begins(1)[1]]++
	write(t, name, string(whole))
	damaged, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer damaged.Close()
	c = open(damaged)
	for range 3 {
		got, err := classifyAll(t, c, reads...)
		if wantInputError(t, err); got != "" {
			t.Errorf("lines of a damaged database: %.100s", got)
		}
	}
}

// A flipped byte, wherever it is in a file, is an error or changes no line.
func TestDamageChangesNoLine(t *testing.T) {
	d := cpu(t)
	references := relatives(rand.New(rand.NewPCG(1, 9)), 7, 4000)
	whole, err := os.ReadFile(saved(t, build(t, d, Options{}, false, references)))
	if err != nil {
		t.Fatal(err)
	}
	reads := sample(rand.New(rand.NewPCG(2, 9)), references, 50)
	name := filepath.Join(t.TempDir(), "db")
	lines := func(file []byte) (string, error) {
		write(t, name, string(file))
		db, err := Open(name)
		if err != nil {
			return "", err
		}
		defer db.Close()
		c, err := NewClassifier(d, db, QueryOptions{})
		if err != nil {
			return "", err
		}
		defer c.Close()
		return classifyAll(t, c, reads...)
	}
	want, err := lines(whole)
	if err != nil {
		t.Fatal(err)
	}
	found := 0
	for at := 0; at < len(whole); at += 1 + len(whole)/150 {
		damaged := bytes.Clone(whole)
		damaged[at] ^= 1 << (at % 8)
		got, err := lines(damaged)
		if err != nil {
			wantInputError(t, err)
			found++
		} else if got != want {
			t.Errorf("byte %d of %d: other lines, and no error", at, len(whole))
		}
	}
	if found < 100 {
		t.Errorf("%d damaged files are errors: want most", found)
	}
}

// Places beyond 4 GiB of a file are found, and a read that needs them takes little of it.
func TestLargeFile(t *testing.T) {
	if !testenv.Long() {
		t.Skip("WARPMAP_LONG=1 has it run, which takes 5 GB of disk")
	}
	db := synthetic(t, 0)
	db.Options.MaxLocations = mostLocations
	name := filepath.Join(t.TempDir(), "db")
	const features, step = 18_000, 200_000
	locations := make([]uint64, mostLocations)
	err := files.WriteFile(name, func(f *os.File) error {
		w := newWriter(f)
		for i := range features {
			for j := range locations {
				locations[j] = uint64(i + j)
			}
			x := &chunk{features: []uint32{uint32(i * step)}}
			x.add(locations, mostLocations)
			if err := w.take(x); err != nil {
				return err
			}
		}
		return w.finish(db)
	})
	if err != nil {
		t.Fatal(err)
	}
	opened := openedAs(t, name)
	if s := opened.stored; s.about.Size() < 1<<32 || s.taken.Load() > 1<<20 {
		t.Fatalf("%d bytes, of which %d were read", s.about.Size(), s.taken.Load())
	}
	c, err := NewClassifier(cpu(t), opened, QueryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	want := map[uint32]uint64{(features - 1) * step: entryOf(locations, (features-1)*mostLocations)}
	lookUpSome(t, "large", c, want, rand.New(rand.NewPCG(1, 9)), (features-1)*step, 1, noFeature-1)
	r := c.parts[0].resident
	for i, at := range r.locations.Slice()[(features-1)*mostLocations:] {
		if at != uint64(features-1+i) {
			t.Fatalf("location %d of the last feature is %x", i, at)
		}
	}
}
