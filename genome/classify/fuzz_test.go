package classify

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/genome"
	"github.com/warpmap/warpmap/internal/testenv"
)

// wantInputError fails if an error does not say which input is wrong.
func wantInputError(t *testing.T, err error) {
	t.Helper()
	var input *genome.InputError
	if !errors.As(err, &input) {
		t.Fatalf("%T %v: want an InputError", err, err)
	}
}

// climb goes from every taxon to the root.
func climb(t *testing.T, tree *Taxonomy) {
	t.Helper()
	for i, id := range tree.ids {
		steps, at := 0, uint32(i)
		for ; at != 0; at = tree.parents[at] {
			if steps++; steps > len(tree.ids) {
				t.Fatalf("taxon %d does not hang on the root", id)
			}
		}
		l := tree.lineage(uint32(i))
		if got, known := tree.find(id); l[Root] != 1 || !known || got != uint32(i) {
			t.Fatalf("taxon %d: lineage %v, found as %d, %v", id, l, got, known)
		}
	}
}

func FuzzTaxonomy(f *testing.F) {
	f.Add([]byte(nodes), []byte(names), []byte("35\t|\t33\t|\n"))
	f.Add([]byte("5\t|\t6\t|\tgenus\t|\n6\t|\t5\t|\tgenus\t|\n"), []byte("# x\r\n"), []byte("1\t|\t1\t|\n"))
	f.Add([]byte("0\t|\t0\t|\troot\t|\n4294967295\t|\t0\t|\tspecies\t|"), []byte("0\t|\t\t|\t\t|\tscientific name"),
		[]byte("4294967296\t|\t2"))
	f.Add([]byte("5\t|\t0\t|\t"), []byte("#"), []byte("1\t|\t0"))
	f.Fuzz(func(t *testing.T, nodes, names, merged []byte) {
		testenv.Bounded(t, len(nodes)+len(names)+len(merged), func() {
			dir := t.TempDir()
			for name, text := range map[string][]byte{"nodes.dmp": nodes, "names.dmp": names, "merged.dmp": merged} {
				write(t, filepath.Join(dir, name), string(text))
			}
			tree, err := LoadTaxonomy(dir)
			if err != nil {
				wantInputError(t, err)
				return
			}
			climb(t, tree)
		})
	})
}

func FuzzAssigner(f *testing.F) {
	f.Add([]byte("# accession\ttaxid\nGCF_1.1\t31\n"),
		[]byte("accession\taccession.version\ttaxid\tgi\nNC_7\tNC_7.2\t32\t5\n"), "NC_7.2 x taxid|40", "GCF_1.1.fa")
	f.Add([]byte("GCF_1.1\ta\tb\tc\td\t31\r\n"), []byte("a\tb\t1\nc\td\tx\n"), "gi|5|ref|NC_7.2| x",
		"d/GCF_1.1_ASM1_genomic.fna.gz")
	f.Add([]byte("._\t1"), []byte("\t\t1\n"), "taxid|99999999999 taxid|", "._._")
	f.Fuzz(func(t *testing.T, summary, accessions []byte, header, file string) {
		testenv.Bounded(t, len(summary)+len(accessions)+len(header), func() {
			dir := t.TempDir()
			write(t, filepath.Join(dir, "assembly_summary.txt"), string(summary))
			write(t, filepath.Join(dir, "x.accession2taxid"), string(accessions))
			a, err := loadAssigner(dir)
			if err != nil {
				wantInputError(t, err)
				return
			}
			id, known := a.tell(t, header, file), headerID([]byte(header)) != 0
			for _, x := range a.assemblies {
				known = known || x == id
			}
			known = known || strings.Contains(string(accessions), fmt.Sprint(id))
			if id != 0 && !known {
				t.Fatalf("taxon %d, which nothing tells", id)
			}
		})
	})
}

// databaseFile is a small database, as a file.
func databaseFile(t testing.TB) []byte {
	t.Helper()
	d, err := device.Open("cpu")
	testenv.Require(t, "cpu", err)
	defer d.Close()
	dir := t.TempDir()
	for name, text := range map[string]string{"nodes.dmp": nodes, "names.dmp": names, "merged.dmp": "35\t|\t33\t|\n",
		"refs.fa": fasta(relatives(rand.New(rand.NewPCG(1, 9)), 3, 330), referenceHeader)} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	b, err := NewBuilder(d, dir, Options{Sketch: 4, MaxLocations: 9})
	if err != nil {
		t.Fatal(err)
	}
	defer b.Close()
	if _, err := b.Add(t.Context(), []string{filepath.Join(dir, "refs.fa")}, genome.Options{}); err != nil {
		t.Fatal(err)
	}
	db, err := b.Database()
	if err != nil {
		t.Fatal(err)
	}
	if err := db.Save(filepath.Join(dir, "db")); err != nil {
		t.Fatal(err)
	}
	file, err := os.ReadFile(filepath.Join(dir, "db"))
	if err != nil {
		t.Fatal(err)
	}
	return file
}

// openFile opens a file with this content; what opens can be used in every way.
func openFile(t *testing.T, content []byte) {
	t.Helper()
	name := filepath.Join(t.TempDir(), "db")
	write(t, name, string(content))
	db, err := Open(name)
	if err != nil {
		wantInputError(t, err)
		return
	}
	defer db.Close()
	checked := db.Check()
	if checked != nil {
		wantInputError(t, checked)
	}
	s, n := db.Stats(), int64(0)
	climb(t, db.taxonomy)
	err = db.Each(func(_ uint32, l []uint64) {
		n += int64(len(l))
		for _, at := range l {
			if target := db.targets[at>>32]; uint32(at) >= target.windows || int(target.taxon) >= len(db.taxonomy.ids) {
				t.Fatalf("a location %x of %+v", at, target)
			}
		}
	})
	if checked != nil { // if only the sums in the description are wrong, all features may be right
		if err != nil {
			wantInputError(t, err)
		}
		return
	}
	if err != nil {
		t.Fatal(err)
	}
	if s.Locations != n {
		t.Fatalf("%d locations, of which Stats tells %d", n, s.Locations)
	}
}

// FuzzDatabaseFile opens any bytes.
func FuzzDatabaseFile(f *testing.F) {
	whole := databaseFile(f)
	f.Add(whole)
	f.Add(whole[:headBytes])
	f.Add([]byte(magic))
	text := []byte(`{"options":{"k":16},"sections":[{"name":"features","offset":4096,"bytes":9223372036854775807}]}`)
	for v := range uint32(version) {
		f.Add(append(append(head(v+1, text), text...), make([]byte, 9000)...))
	}
	f.Fuzz(func(t *testing.T, file []byte) {
		testenv.Bounded(t, len(file), func() { openFile(t, file) })
	})
}

// FuzzDatabaseContent opens files whose sums are right, and whose content a program could have got wrong: some bytes of
// a section, its length, or the description's text are others.
func FuzzDatabaseContent(f *testing.F) {
	whole := databaseFile(f)
	var d description
	n := binary.LittleEndian.Uint64(whole[12:])
	if err := json.Unmarshal(whole[headBytes:headBytes+n], &d); err != nil {
		f.Fatal(err)
	}
	begin := aligned(int64(headBytes + n))
	for i := range d.Sections {
		f.Add(uint8(i), uint16(0), []byte{255, 255, 255, 255}, int16(0), uint8(0), []byte{})
		f.Add(uint8(i), uint16(8), []byte{0, 0, 0, 0, 0, 0, 0, 0x80}, int16(-8), uint8(0), []byte{})
		f.Add(uint8(i), uint16(3), []byte{1}, int16(8), uint8(20*i), []byte("9"))
	}
	f.Fuzz(func(t *testing.T, number uint8, at uint16, bytes []byte, longer int16, textAt uint8, text []byte) {
		testenv.Bounded(t, len(bytes)+len(text), func() {
			changed := d
			changed.Sections = slices.Clone(d.Sections)
			content, offset := make([][]byte, len(d.Sections)), int64(0)
			for i := range changed.Sections {
				s := &changed.Sections[i]
				content[i] = slices.Clone(whole[begin+s.Offset : begin+s.Offset+s.Bytes])
				if i == int(number)%len(content) {
					content[i] = slices.Concat(content[i], make([]byte, max(0, longer)))
					content[i] = content[i][:max(0, len(content[i])+min(0, int(longer)))]
					copy(content[i][min(int(at), len(content[i])):], bytes)
				}
				if s.Name == "chunk_sums" && len(content[i]) == 4 && int(number)%len(content) == 0 { // the chunk is right
					binary.LittleEndian.PutUint32(content[i], crc32.Checksum(content[0], castagnoli))
				}
				*s = section{s.Name, offset, int64(len(content[i])), crc32.Checksum(content[i], castagnoli)}
				offset = aligned(offset + s.Bytes)
			}
			description, err := json.Marshal(changed)
			if err != nil {
				t.Fatal(err)
			}
			if len(text) > 0 {
				copy(description[min(int(textAt), len(description)):], text)
			}
			file := slices.Concat(head(version, description), description)
			for i, c := range content {
				if len(c) > 0 {
					file = append(file, make([]byte, aligned(int64(headBytes+len(description)))+
						changed.Sections[i].Offset-int64(len(file)))...)
					file = append(file, c...)
				}
			}
			openFile(t, file)
		})
	})
}
