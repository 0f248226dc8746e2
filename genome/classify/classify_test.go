package classify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/gzip"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/genome"
	"github.com/warpmap/warpmap/internal/testenv"
)

// A taxonomy of two families, three genera, four species, and a strain without a rank.
const nodes = `1	|	1	|	no rank	|
2	|	1	|	superkingdom	|
10	|	2	|	family	|
11	|	2	|	family	|
20	|	10	|	genus	|
21	|	10	|	genus	|
22	|	11	|	genus	|
30	|	20	|	species	|
31	|	20	|	species	|
32	|	21	|	species	|
33	|	22	|	species	|
40	|	33	|	no rank	|
`

const names = `1	|	root	|		|	scientific name	|
2	|	Bacteria	|	Bacteria <bacteria>	|	scientific name	|
2	|	bugs	|		|	common name	|
30	|	Primus communis	|		|	scientific name	|
33	|	Quartus rarus	|		|	scientific name	|
`

func taxonomyDir(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"nodes.dmp": nodes, "names.dmp": names,
		"merged.dmp":                 "35	|	33	|\n",
		"assembly_summary.txt":       "# accession\ttaxid\nGCF_1.1\t31\n",
		"nucl_gb.accession2taxid.gz": gzipped("accession\taccession.version\ttaxid\tgi\nNC_7\tNC_7.2\t32\t5\n")} {
		write(t, filepath.Join(dir, name), text)
	}
	return dir
}

func gzipped(text string) string {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	io.WriteString(z, text)
	z.Close()
	return b.String()
}

func write(t *testing.T, name, text string) {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
}

func cpu(t *testing.T, o ...device.Option) *device.Device {
	t.Helper()
	d, err := device.Open("cpu", o...)
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func numbered(t *testing.T, n int) *device.Device {
	t.Helper()
	d, err := device.Open(fmt.Sprintf("cpu:%d", n))
	if err != nil {
		t.Skip(err)
	}
	t.Cleanup(func() { d.Close() })
	return d
}

func letters(r *rand.Rand, n int) []byte {
	out := make([]byte, n)
	for i := range out {
		out[i] = "ACGT"[r.IntN(4)]
	}
	return out
}

// relatives are references of which each takes pieces of those before, as they are or as reverse complement; a piece
// that all repeat often; and letters that are none.
func relatives(r *rand.Rand, n, size int) (out []string) {
	common := letters(r, 40)
	for i := range n {
		text := letters(r, size+r.IntN(size))
		for range 6 {
			copy(text[r.IntN(len(text)-len(common)):], common)
		}
		for j := 0; i > 0 && j < 3; j++ {
			from := []byte(out[r.IntN(i)])
			at := r.IntN(len(from) - 300)
			piece := slices.Clone(from[at : at+300])
			if r.IntN(2) == 0 {
				piece = reverseComplement(piece)
			}
			copy(text[r.IntN(len(text)-300):], piece)
		}
		for range 4 {
			text[r.IntN(len(text))] = "Nn-RacgtU"[r.IntN(9)]
		}
		out = append(out, string(text))
	}
	return append(out, "", "ACGT", string(letters(r, 127)), string(letters(r, 128)), string(letters(r, 16)))
}

func reverseComplement(text []byte) []byte {
	out := make([]byte, len(text))
	for i, x := range text {
		y := strings.IndexByte("ACGTUacgtu", x)
		if y < 0 {
			out[len(text)-1-i] = x
			continue
		}
		out[len(text)-1-i] = "TGCAAtgcaa"[y]
	}
	return out
}

func fasta(texts []string, header func(int) string) string {
	var b strings.Builder
	for i, text := range texts {
		fmt.Fprintf(&b, ">%s\n%s\n", header(i), text)
	}
	return b.String()
}

// species of references, in turns.
var species = []int{30, 31, 32, 40, 35}

func referenceHeader(i int) string {
	return fmt.Sprintf("ref%d some words taxid|%d", i, species[i%len(species)])
}

// build makes a database of references, each file in a block of its own, with a table or by sorting.
func build(t *testing.T, d *device.Device, o Options, table bool, references []string) *Database {
	t.Helper()
	if err := o.complete(); err != nil {
		t.Fatal(err)
	}
	dir := taxonomyDir(t)
	tree, err := LoadTaxonomy(dir)
	if err != nil {
		t.Fatal(err)
	}
	b, err := newBuilder([]*device.Device{d}, tree, &assigner{}, o, table)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { b.Close() })
	half := len(references) / 2
	for i, part := range [][]string{references[:half], references[half:]} {
		name := filepath.Join(dir, "part.fa")
		write(t, name, fasta(part, func(j int) string { return referenceHeader(j + i*half) }))
		if _, err := b.Add(t.Context(), []string{name}, genome.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	db, err := b.Database()
	if err != nil {
		t.Fatal(err)
	}
	return db
}

func indexOf(db *Database) map[uint32][]uint64 {
	index := map[uint32][]uint64{}
	if err := db.Each(func(f uint32, locations []uint64) { index[f] = slices.Clone(locations) }); err != nil {
		panic(err)
	}
	return index
}

func TestDatabaseIsItsTwins(t *testing.T) {
	d, stress := cpu(t), cpu(t, device.WithStress(3))
	for _, c := range []struct {
		d     *device.Device
		table bool
		size  int
		o     Options
	}{{d, false, 3000, Options{}}, {d, true, 3000, Options{}}, {d, true, 1500, Options{MaxLocations: 3}}, {d, false, 1500, Options{MaxLocations: 3}},
		{d, false, 1000, Options{K: 11, Sketch: 5, Window: 64, Stride: 20}}, {stress, false, 300, Options{MaxLocations: 5}}, {stress, true, 300, Options{MaxLocations: 5}}} {
		t.Run(fmt.Sprintf("%v,%v,%+v", c.d, c.table, c.o), func(t *testing.T) {
			references := relatives(rand.New(rand.NewPCG(1, 2)), 7, c.size)
			db := build(t, c.d, c.o, c.table, references)
			want := twinIndex(references, db.Options)
			if diff := cmp.Diff(want, indexOf(db)); diff != "" {
				t.Error(diff)
			}
			s := db.Stats()
			n, most := 0, 0
			for _, l := range want {
				n += len(l)
				most = max(most, len(l))
			}
			if s.Features != len(want) || s.Locations != int64(n) || s.Most != most || s.Targets != len(references) {
				t.Errorf("%+v; want %d features, %d locations, %d at most, %d targets", s, len(want), n, most,
					len(references))
			}
			if !slices.IsSorted(db.features) {
				t.Error("features are not in order")
			}
		})
	}
}

// sample draws reads from references: from both strands, with errors; some of several windows, some of none, some of
// two halves.
func sample(r *rand.Rand, references []string, n int) (out []string) {
	for i := range n {
		text := []byte(references[r.IntN(7)])
		size := []int{150, 60, 300, 900, 16, 3}[i%6]
		at := r.IntN(len(text) - min(size, len(text)-1))
		read := slices.Clone(text[at:min(at+size, len(text))])
		if i%7 == 0 {
			other := references[r.IntN(7)]
			read = append(read[:len(read)/2], other[100:100+len(read)/2]...)
		}
		if i%2 == 0 {
			read = reverseComplement(read)
		}
		for range len(read) / 50 {
			read[r.IntN(len(read))] = "ACGTN"[r.IntN(5)]
		}
		out = append(out, string(read))
	}
	return append(out, "", string(letters(r, 150)))
}

func readHeader(i int) string { return fmt.Sprintf("read%d taxid|%d", i, species[i%len(species)]) }

// run classifies texts, in small blocks, and checks that lines are in order.
func run(t *testing.T, c *Classifier, tally *Tally, first, second []string, f Format) (verdicts []Verdict,
	lines string) {
	t.Helper()
	dir := t.TempDir()
	inputs, mates := []string{filepath.Join(dir, "a.fa")}, []string(nil)
	write(t, inputs[0], fasta(first, readHeader))
	if second != nil {
		mates = []string{filepath.Join(dir, "b.fa")}
		write(t, mates[0], fasta(second, readHeader))
	}
	var text bytes.Buffer
	_, err := c.Run(t.Context(), inputs, mates, genome.Options{BlockBytes: 5000}, func(r *Result) error {
		r.Text = c.AppendLines(nil, r, f)
		return nil
	}, func(r *Result) error {
		verdicts = append(verdicts, r.Verdicts...)
		tally.Add(r)
		text.Write(r.Text)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return verdicts, text.String()
}

func TestVerdictsAreTheTwins(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	references := relatives(r, 7, 3000)
	first, second := sample(r, references, 240), sample(r, references, 240)
	d := cpu(t)
	beside := []*device.Device{numbered(t, 1), numbered(t, 2), numbered(t, 3)}
	db := build(t, d, Options{}, false, references)
	index := indexOf(db)
	told := map[uint32]int{}
	for _, o := range []QueryOptions{{}, {Lowest: Species}, {Lowest: Genus, Highest: Family},
		{Lowest: Species, Highest: Root, HitMin: 2, HitDiff: 0.3, Insert: 600}} {
		for i, paired := range []bool{false, true, false, true} {
			c, err := NewClassifier(d, db, o, beside[:i]...)
			if err != nil {
				t.Fatal(err)
			}
			defer c.Close()
			var mates []string
			if paired {
				mates = second
			}
			got, _ := run(t, c, c.NewTally(false), first, mates, KrakenLines)
			for i, v := range got {
				texts := []string{first[i]}
				if paired {
					texts = append(texts, second[i])
				}
				candidates := twinCandidates(db, func(f uint32) []uint64 { return index[f] }, c.o, texts...)
				want := verdict{Taxon: twinVerdict(db, c.o, candidates)}
				for j, x := range candidates[:min(2, len(candidates))] {
					want.Best[j] = candidate{x.target, uint32(x.hits), uint32(x.second)}
				}
				told[want.Taxon]++
				if v.verdict != want {
					t.Fatalf("%+v, paired %v, %d devices, read %d: %+v, want %+v of %+v", o, paired, len(c.parts), i,
						v.verdict, want, candidates)
				}
			}
			if len(got) != len(first) {
				t.Fatalf("%d verdicts of %d reads", len(got), len(first))
			}
		}
	}
	if len(told) < 7 || told[0] < 10 {
		t.Errorf("the reads are told to be of %v: want more taxa, and unclassified ones", told)
	}
}

// Sketches are the twin's for other options, too, and of windows with letters that are no bases, in lower case, with few
// different k-mers, shorter than a k-mer, and of all lengths up to one that is not sketched at once.
func TestSketchesOfOptions(t *testing.T) {
	r := rand.New(rand.NewPCG(9, 10))
	d := cpu(t)
	for _, o := range []Options{{}, {K: 4, Sketch: 1, Window: 30}, {K: 16, Sketch: 64, Window: 256, Stride: 100},
		{K: 13, Sketch: 32, Window: 300, Stride: 300}, {K: 9, Sketch: 20, Window: 9}} {
		if err := o.complete(); err != nil {
			t.Fatal(err)
		}
		var references []string
		for i := range 60 {
			text := letters(r, 1+r.IntN(700))
			switch i % 5 {
			case 1:
				text = bytes.Repeat(text[:1+r.IntN(min(20, len(text)))], 40)
			case 2:
				for range 1 + len(text)/60 {
					text[r.IntN(len(text))] = "NnRU-*"[r.IntN(6)]
				}
			case 3:
				text = bytes.ToLower(text)
			case 4:
				text = bytes.ReplaceAll(text, []byte("T"), []byte("u"))
			}
			references = append(references, string(text))
		}
		db := build(t, d, o, false, references)
		if diff := cmp.Diff(twinIndex(references, o), indexOf(db)); diff != "" {
			t.Errorf("%+v: %s", o, diff)
		}
	}
}

// A warp, of a GPU and in stress mode, tells what a lane of the CPU device tells: of reads with no location, with what
// fits its memory, and with many thousands.
func TestAWarpTellsWhatALaneTells(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	references := relatives(r, 30, 1500)
	often := letters(r, 400) // in most references, with windows that share features
	for i, text := range references {
		if i%4 != 0 && len(text) > 200 {
			references[i] = text[:200] + string(often) + text[200:]
		}
	}
	reads := sample(r, references, 120)
	for _, n := range []int{150, 400, 900, 3000} {
		long := ""
		for len(long) < n {
			from := references[r.IntN(len(references))]
			long += from[:min(len(from), n)]
		}
		reads = append(reads, long[:n], string(often[:min(n, len(often))]))
	}
	reads = append(reads, strings.Repeat(string(often), 12)) // more locations than there is room for at first
	lane := cpu(t)
	db := build(t, lane, Options{}, false, references)
	index, sizes := indexOf(db), [5]int{}
	for _, read := range reads {
		n := 0
		for _, features := range twinSketches([]byte(read), db.Options) {
			for _, f := range features {
				n += len(index[f])
			}
		}
		sizes[sort.SearchInts([]int{0, 32, 256, firstScratch / 4}, n)]++
	}
	if slices.Contains(sizes[:], 0) {
		t.Fatalf("%v reads of no location, of up to 32, 256 and %d, and of more: want some of each", sizes, firstScratch/4)
	}
	for _, x := range []struct {
		name string
		open func(t *testing.T) *device.Device
	}{
		{"stress", func(t *testing.T) *device.Device { return cpu(t, device.WithStress(11)) }},
		{"cuda", func(t *testing.T) *device.Device {
			d, err := device.Open("cuda:0")
			testenv.Require(t, "cuda", err)
			t.Cleanup(func() { d.Close() })
			return d
		}},
	} {
		t.Run(x.name, func(t *testing.T) {
			warp := x.open(t)
			for _, o := range []QueryOptions{{}, {Lowest: Species, HitMin: 2, HitDiff: 0.3}} {
				var got [2][]Verdict
				mates := slices.Clone(reads)
				slices.Reverse(mates)
				for i, d := range []*device.Device{lane, warp} {
					c, err := NewClassifier(d, db, o)
					if err != nil {
						t.Fatal(err)
					}
					defer c.Close()
					got[i], _ = run(t, c, c.NewTally(false), reads, mates, KrakenLines)
				}
				if diff := cmp.Diff(got[0], got[1], cmp.AllowUnexported(Verdict{}, verdict{})); diff != "" {
					t.Errorf("%+v: %s", o, diff)
				}
			}
		})
	}
}

func TestFileIsWhatWasSaved(t *testing.T) {
	d := cpu(t)
	references := relatives(rand.New(rand.NewPCG(1, 9)), 7, 1000)
	db := build(t, d, Options{MaxLocations: 9}, false, references)
	name := filepath.Join(t.TempDir(), "refs.db")
	if err := db.Save(name); err != nil {
		t.Fatal(err)
	}
	got, err := Open(name)
	if err != nil {
		t.Fatal(err)
	}
	defer got.Close()
	if diff := cmp.Diff(indexOf(db), indexOf(got)); diff != "" {
		t.Error(diff)
	}
	if !slices.Equal(db.targets, got.targets) || db.Stats() != got.Stats() || db.Options != got.Options {
		t.Errorf("%+v, %+v; want %+v, %+v", got.targets, got.Stats(), db.targets, db.Stats())
	}
	if diff := cmp.Diff(db.taxonomy, got.taxonomy, cmp.AllowUnexported(Taxonomy{})); diff != "" {
		t.Error(diff)
	}
	table := filepath.Join(t.TempDir(), "table.db")
	if err := build(t, d, Options{MaxLocations: 9}, true, references).Save(table); err != nil {
		t.Fatal(err)
	}
	a, _ := os.ReadFile(name)
	b, _ := os.ReadFile(table)
	if !bytes.Equal(a, b) {
		t.Error("the files of a table and of sorting differ")
	}
}

func TestDamageIsFound(t *testing.T) {
	db := build(t, cpu(t), Options{}, false, relatives(rand.New(rand.NewPCG(1, 9)), 7, 600))
	name := filepath.Join(t.TempDir(), "refs.db")
	if err := db.Save(name); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	check := func(what string, data []byte) {
		write(t, name, string(data))
		got, err := Open(name)
		var input *genome.InputError
		if err == nil {
			err = got.Check()
			got.Close()
		}
		if !errors.As(err, &input) {
			t.Errorf("%s: error %v; want one of the input", what, err)
		}
	}
	for at := 0; at < len(whole); at += 1 + at/97 {
		damaged := slices.Clone(whole)
		damaged[at] ^= 1 << (at % 8)
		check(fmt.Sprintf("byte %d of %d flipped", at, len(whole)), damaged)
	}
	for _, n := range []int{0, 5, headBytes, 300, 5000, len(whole) - 1} {
		check(fmt.Sprintf("cut to %d bytes", n), whole[:n])
	}
	check("longer by a byte", append(slices.Clone(whole), 0))
}

func TestExtendedIsBuiltAtOnce(t *testing.T) {
	d := cpu(t)
	references := relatives(rand.New(rand.NewPCG(3, 9)), 7, 1000)
	for _, o := range []Options{{}, {MaxLocations: 4}} {
		want := build(t, d, o, false, references)
		b, err := Extend(d, build(t, d, o, false, references[:4]), "")
		if err != nil {
			t.Fatal(err)
		}
		defer b.Close()
		name := filepath.Join(t.TempDir(), "more.fa")
		write(t, name, fasta(references[4:], func(i int) string { return referenceHeader(i + 4) }))
		if _, err := b.Add(t.Context(), []string{name}, genome.Options{}); err != nil {
			t.Fatal(err)
		}
		got, err := b.Database()
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(indexOf(want), indexOf(got)); diff != "" || !slices.Equal(want.targets, got.targets) ||
			got.Stats() != want.Stats() {
			t.Errorf("%+v: %s\n%+v; want %+v", o, diff, got.Stats(), want.Stats())
		}
	}
}

// However many devices make a database, with tables or without, and also where tables are full long before the end, it
// is the same.
func TestSeveralDevicesMakeOneDatabase(t *testing.T) {
	devices := []*device.Device{cpu(t), numbered(t, 1), numbered(t, 2)}
	references := relatives(rand.New(rand.NewPCG(3, 9)), 30, 1000)
	dir := taxonomyDir(t)
	tree, err := LoadTaxonomy(dir)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "references.fa")
	write(t, name, fasta(references, referenceHeader))
	o := Options{MaxLocations: 7}
	if err := o.complete(); err != nil {
		t.Fatal(err)
	}
	var want []byte
	for _, n := range []int{1, 2, 3} {
		for _, most := range []int64{-1, 1 << 40, 1000} { // pairs in a table; without one
			b, err := newBuilder(devices[:n], tree, &assigner{}, o, most > 0)
			if err != nil {
				t.Fatal(err)
			}
			defer b.Close()
			for _, s := range b.shares {
				s.most = most
			}
			if _, err := b.Add(t.Context(), []string{name}, genome.Options{BlockBytes: 2000}); err != nil {
				t.Fatal(err)
			}
			if (len(b.runs) > 0) != (most == 1000) {
				t.Errorf("tables of %d pairs were full %d times", most, len(b.runs))
			}
			db, err := b.Database()
			if err != nil {
				t.Fatal(err)
			}
			file := filepath.Join(dir, "refs.db")
			if err := db.Save(file); err != nil {
				t.Fatal(err)
			}
			got, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if want == nil {
				want = got
			}
			if !bytes.Equal(got, want) {
				t.Errorf("%d devices with tables of %d pairs make another database", n, most)
			}
		}
	}
}

// A database that a device has no room for is an error that says how much it takes.
func TestDatabaseThatDoesNotFit(t *testing.T) {
	db := build(t, cpu(t), Options{}, false, relatives(rand.New(rand.NewPCG(1, 9)), 20, 20000))
	d, err := device.Open("cpu:4", device.WithMemory(residentBytes(db.lengths())*3/4))
	if err != nil {
		t.Skip(err)
	}
	defer d.Close()
	if _, err := NewClassifier(d, db, QueryOptions{}); !device.IsOutOfMemory(err) ||
		!strings.Contains(err.Error(), "want more devices") {
		t.Errorf("%v, want an error that there is too little memory", err)
	}
	c, err := NewClassifier(d, db, QueryOptions{}, cpu(t), numbered(t, 1), numbered(t, 2))
	if err != nil {
		t.Fatal(err)
	}
	c.Close()
}

// tell is what an assigner tells of one reference.
func (a *assigner) tell(t *testing.T, header, file string) uint32 {
	if id := a.taxid(header, file); id != 0 {
		return id
	}
	ids, err := a.listed(t.Context(), []string{"other", header})
	if err != nil {
		wantInputError(t, err)
		return 0
	}
	return ids[1]
}

func TestTaxaOfReferences(t *testing.T) {
	dir := taxonomyDir(t)
	a, err := loadAssigner(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		header, file string
		want         uint32
	}{{"NC_7.2 x taxid|40", "GCF_1.1.fa", 40}, {"NC_7.2 x", "d/GCF_1.1_ASM1_genomic.fna.gz", 31}, {"NC_7.2 x", "GCF_1.10.fa", 32}, {"NC_7.3", "x.fa", 32},
		{"gi|5|ref|NC_7.2| x", "x.fa", 32}, {"NC_7\tx y", "x.fa", 32}, {"NC_8.1", "x.fa", 0}, {"taxid|x", "x.fa", 0}, {"", "-", 0}} {
		if got := a.tell(t, c.header, c.file); got != c.want {
			t.Errorf("%q of %s: taxon %d, want %d", c.header, c.file, got, c.want)
		}
	}
}

func TestLineages(t *testing.T) {
	tree, err := LoadTaxonomy(taxonomyDir(t))
	if err != nil {
		t.Fatal(err)
	}
	strain, ok := tree.find(40)
	merged, moved := tree.find(35)
	l := tree.lineage(strain)
	got := map[Rank]uint32{}
	for r, i := range l {
		if i != 0 {
			got[Rank(r)] = tree.ids[i-1]
		}
	}
	want := map[Rank]uint32{Species: 33, Genus: 22, Family: 11, Domain: 2, Root: 1}
	if diff := cmp.Diff(want, got); diff != "" || !ok || !moved || tree.ids[merged] != 33 ||
		tree.names[merged] != "Quartus rarus" {
		t.Errorf("%s%v %v %d", diff, ok, moved, merged)
	}
	for text, says := range map[string]string{
		"1\t|\t1\t|\tno rank\t|\n5\t|\t6\t|\tgenus\t|\n6\t|\t5\t|\tfamily\t|\n": "own ancestor",
		"1\t|\t1\t|\tno rank\t|\nx\t|\t1\t|\tgenus\t|\n":                        "nodes.dmp:2", "1 2 3\n": "nodes.dmp:1"} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "nodes.dmp"), text)
		if _, err := LoadTaxonomy(dir); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v; want %s", text, err, says)
		}
	}
	if _, err := LoadTaxonomy(t.TempDir()); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("no nodes.dmp: %v", err)
	}
}

func TestLinesAndReports(t *testing.T) {
	r := rand.New(rand.NewPCG(5, 6))
	var references []string
	for range species {
		references = append(references, string(letters(r, 2000)))
	}
	d := cpu(t)
	db := build(t, d, Options{}, false, references)
	c, err := NewClassifier(d, db, QueryOptions{Lowest: Species})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	reads := []string{references[0][100:250], references[1][:150], references[2][300:450], references[0][500:650],
		string(letters(r, 20))}
	tally := c.NewTally(true)
	_, lines := run(t, c, tally, reads, nil, KrakenLines)
	want := "C\tread0\t30\t150\t30:32\nC\tread1\t31\t150\t31:32\nC\tread2\t32\t150\t32:32\nC\tread3\t30\t150\t30:32\nU\tread4\t0\t20\t0:0\n"
	// How many features of a read a window of the reference has depends on where it begins.
	hits := func(s string) string {
		var out []string
		for line := range strings.Lines(s) {
			at := strings.LastIndexByte(line, ':')
			out = append(out, line[:at])
		}
		return strings.Join(out, "\n")
	}
	if diff := cmp.Diff(hits(want), hits(lines)); diff != "" {
		t.Error(diff)
	}
	var report, abundances bytes.Buffer
	if err := errors.Join(tally.Report(&report), tally.Abundances(&abundances)); err != nil {
		t.Fatal(err)
	}
	wantReport := " 20.00\t1\t1\tU\t0\tunclassified\n 80.00\t4\t0\tR\t1\troot\n 80.00\t4\t0\tD\t2\t  Bacteria\n " +
		"80.00\t4\t0\tF\t10\t    \n" +
		" 60.00\t3\t0\tG\t20\t      \n 40.00\t2\t2\tS\t30\t        Primus communis\n 20.00\t1\t1\tS\t31\t        \n 20.00\t1\t0\tG\t21\t      \n" +
		" 20.00\t1\t1\tS\t32\t        \n"
	if diff := cmp.Diff(wantReport, report.String()); diff != "" {
		t.Error(diff)
	}
	if !strings.Contains(abundances.String(), "species\t30\tPrimus communis\t2\t40.0000\n") ||
		!strings.Contains(abundances.String(), "genus\t20\t\t3\t60.0000\n") {
		t.Error(abundances.String())
	}
	// The truths of the reads' headers are 30, 31, 32, 40, 35: the fourth is wrong, the fifth is not told.
	s := tally.Summary()[0]
	if s.Rank != "species" || s.Reads != 4 || s.Precision != 0.75 || s.Sensitivity != 0.6 {
		t.Errorf("%+v", s)
	}
	_, lines = run(t, c, c.NewTally(false), reads[:1],
		[]string{string(reverseComplement([]byte(references[0][300:400])))}, KrakenLines)
	f := strings.Split(strings.TrimSpace(lines), "\t")
	if len(f) != 5 || f[3] != "150|100" || !strings.HasPrefix(f[4], "30:") || !strings.Contains(f[4], " |:| 30:") {
		t.Error(lines)
	}
	_, lines = run(t, c, c.NewTally(false), reads[3:], nil, MetaCacheLines)
	if lines != "read0\t|\t30\nread1\t|\t0\n" {
		t.Error(lines)
	}
}

func TestErrors(t *testing.T) {
	d, dir := cpu(t), taxonomyDir(t)
	for _, o := range []Options{{K: 17}, {K: 3}, {Sketch: 65}, {Window: 15}, {Stride: -1}, {Stride: 128},
		{MaxLocations: 1 << 15}} {
		if _, err := NewBuilder(d, dir, o); !errors.As(err, new(*genome.OptionError)) {
			t.Errorf("%+v: %v", o, err)
		}
	}
	db := build(t, d, Options{}, false, []string{"ACGTTGCAACGGTCAGT", "ACG"})
	for _, o := range []QueryOptions{{HitMin: -1}, {HitDiff: -1}, {Insert: -1}, {Lowest: Genus, Highest: Species},
		{Highest: Unranked}} {
		if c, err := NewClassifier(d, db, o); !errors.As(err, new(*genome.OptionError)) {
			c.Close()
			t.Errorf("%+v: %v", o, err)
		}
	}
	_, err := NewBuilder(nil, dir, Options{})
	if _, made := NewClassifier(d, db, QueryOptions{}, nil); err == nil || made == nil {
		t.Errorf("without a device: %v, %v", err, made)
	}
	c, err := NewClassifier(d, db, QueryOptions{})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	name := filepath.Join(dir, "reads.fa")
	write(t, name, fasta(make([]string, 1000), readHeader))
	nothing := func(*Result) error { return nil }
	for _, failing := range []bool{false, true} {
		work, each := func(*Result) error { return io.ErrClosedPipe }, nothing
		if failing {
			work, each = each, work
		}
		if _, err := c.Run(t.Context(), []string{name}, nil, genome.Options{BlockBytes: 10}, work,
			each); !errors.Is(err, io.ErrClosedPipe) {
			t.Error(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := c.Run(ctx, []string{name}, nil, genome.Options{}, nothing, nothing); !errors.Is(err,
		context.Canceled) {
		t.Error(err)
	}
}

// The kernels compile for GPUs, on machines that have none.
func TestKernelsCompileForGPUs(t *testing.T) {
	for arch, o := range map[string]Options{"sm_75": {}, "sm_90": {K: 11, Sketch: 40}} {
		if err := o.complete(); err != nil {
			t.Fatal(err)
		}
		_, err := device.CompileFor(arch, program(o))
		testenv.RequireNVRTC(t, err)
	}
}

// Lists tell of what lies beside them, too; where the taxonomy's folder tells otherwise, it has the word.
func TestListsBesideReferences(t *testing.T) {
	dir, refs := taxonomyDir(t), t.TempDir()
	deep := filepath.Join(refs, "a", "b")
	if err := os.MkdirAll(deep, 0o700); err != nil {
		t.Fatal(err)
	}
	letters := strings.Repeat("ACGTTGCAAC", 30)
	for name, text := range map[string]string{
		"assembly_summary.txt":            "# accession\ttaxid\nGCF_1.1\t33\nGCF_2.1\t33\n",
		"mine.accession2taxid":            "accession\taccession.version\ttaxid\tgi\nNC_7\tNC_7.2\t33\t5\nNC_9\tNC_9.1\t33\t5\n",
		"GCF_1.1_x.fa":                    ">x1\n" + letters,
		"GCF_2.1_x.fa":                    ">x2\n" + letters,
		"c.fa":                            ">NC_7.2 x\n" + letters + "\n>NC_9.1 x\n" + letters + "\n>NC_5.1 x\n" + letters,
		"a/b/GCF_3.1.fna":                 ">x3\n" + letters,
		"a/b/assembly_summary_refseq.txt": "GCF_3.1\ta\tb\tc\td\t31\te\n",
	} {
		write(t, filepath.Join(refs, name), text)
	}
	b, err := NewBuilder(cpu(t), dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if _, err := b.Add(t.Context(), []string{refs}, genome.Options{}); err != nil {
		t.Fatal(err)
	}
	got := map[string]uint32{}
	for _, x := range b.targets {
		got[x.name] = b.taxonomy.ids[x.taxon]
	}
	if diff := cmp.Diff(map[string]uint32{"x1": 31, "x2": 33, "NC_7.2 x": 32, "NC_9.1 x": 33, "NC_5.1 x": rootID,
		"x3": 31}, got); diff != "" {
		t.Error(diff)
	}
	if n, first := b.Unknown(); n != 1 || first[0] != "NC_5.1" {
		t.Error(n, first)
	}
	write(t, filepath.Join(refs, "broken.accession2taxid"), "a\tb\tc\nNC_5\tNC_5.1\tx\n")
	_, err = b.Add(t.Context(), []string{filepath.Join(refs, "GCF_2.1_x.fa")}, genome.Options{})
	if err != nil {
		t.Errorf("a list that nobody asks is read: %v", err)
	}
	other, err := NewBuilder(cpu(t), dir, Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close()
	_, err = other.Add(t.Context(), []string{filepath.Join(refs, "c.fa")}, genome.Options{})
	wantInputError(t, err)
	if !strings.Contains(fmt.Sprint(err), "broken.accession2taxid:2") {
		t.Error(err)
	}
}
