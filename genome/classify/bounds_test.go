package classify

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/genome"
)

// What is kept of a line is its name alone: lists of NCBI are packed, and a small one may have long lines.
func TestLinesAreNotKept(t *testing.T) {
	dir := t.TempDir()
	pad := strings.Repeat(" ", 1<<19)
	var nodes, names, summary, accessions strings.Builder
	for i := range 64 {
		fmt.Fprintf(&nodes, "%d\t|\t1\t|\tspecies\t|\n", i+2)
		fmt.Fprintf(&names, "%d\t|\tname %d\t|\t%s\t|\tscientific name\t|\n", i+2, i, pad)
		fmt.Fprintf(&summary, "GCF_%d\t%d\t%s\n", i, i+2, pad)
		fmt.Fprintf(&accessions, "A%d\tA%d.1\t%d\t%s\n", i, i, i+2, pad)
	}
	for name, text := range map[string]string{"nodes.dmp": nodes.String(), "names.dmp": names.String(),
		"assembly_summary.txt": summary.String(), "x.accession2taxid": accessions.String()} {
		write(t, filepath.Join(dir, name), gzipped(text))
	}
	held := func() uint64 {
		var m runtime.MemStats
		runtime.GC()
		runtime.ReadMemStats(&m)
		return m.HeapAlloc
	}
	before := held()
	tree, err := LoadTaxonomy(dir)
	if err != nil {
		t.Fatal(err)
	}
	a, err := loadAssigner(dir)
	if err != nil {
		t.Fatal(err)
	}
	if took := int64(held()) - int64(before); took > 8<<20 {
		t.Errorf("%d MiB are held", took>>20)
	}
	if tree.names[64] != "name 63" || a.tell(t, "A7.1 x", "") != 9 || a.tell(t, "x", "GCF_5.fa") != 7 {
		t.Error(tree.names[64], a)
	}
	write(t, filepath.Join(dir, "nodes.dmp"), gzipped("1\t|\t1\t|\tno rank\t|\n"+strings.Repeat("x", mostLine+1)+"\n"))
	_, err = LoadTaxonomy(dir)
	wantInputError(t, err)
	if !strings.Contains(err.Error(), "nodes.dmp:2: a line of more than") {
		t.Error(err)
	}
}

// A file of few bytes can declare a column that it has, for its disk keeps no zeros, and memory has not.
func TestColumnsThatNoMemoryHolds(t *testing.T) {
	whole := databaseFile(t)
	n := int64(binary.LittleEndian.Uint64(whole[12:]))
	var d description
	if err := json.Unmarshal(whole[headBytes:headBytes+n], &d); err != nil {
		t.Fatal(err)
	}
	d.Sections[1].Bytes = 1 << 41
	text, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(t.TempDir(), "db")
	write(t, name, string(head(version, text))+string(text))
	if err := os.Truncate(name, 1<<42); err != nil {
		t.Skip(err)
	}
	_, err = Open(name)
	wantInputError(t, err)
	if !strings.Contains(err.Error(), "memory") {
		t.Error(err)
	}
}

// With little memory blocks are small. Where the database does not fit, or memory is
// negative, an error says what to want.
func TestQueryMemory(t *testing.T) {
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(2))
	d, db := cpu(t), openedAs(t, saved(t, synthetic(t, 100_000)))
	for memory, want := range map[int64]string{1 << 20: " or more: the database takes ", -1: "want 0 or more"} {
		if _, err := NewClassifier(d, db, QueryOptions{Memory: memory}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("memory of %d: %v, want %q", memory, err, want)
		}
	}
	const enough = 8 << 20 // for one device, which has the file's features alone
	for _, beside := range [][]*device.Device{nil, {cpu(t)}} {
		c, err := NewClassifier(d, db, QueryOptions{Memory: enough}, beside...)
		if err == nil {
			c.Close()
		}
		if (err == nil) != (beside == nil) {
			t.Errorf("%d devices: %v", 1+len(beside), err)
		}
	}
	var most []int
	for _, memory := range []int64{0, 1 << 40, 64 << 20} {
		c, err := NewClassifier(d, db, QueryOptions{Memory: memory})
		if err != nil {
			t.Fatal(err)
		}
		c.Close()
		most = append(most, c.block)
	}
	if most[0] != mostBlock || most[1] != mostBlock || most[2] >= mostBlock || most[2] < leastBlock {
		t.Errorf("blocks of %d bytes", most)
	}
}

// Windows begin at numbers of 32 bits. A sequence that has more letters is an error, and not one whose windows begin
// again at its first letter. The text is memory that nobody touches, of which the system gives none.
func TestSequencesOf4GiB(t *testing.T) {
	b := &Builder{o: Options{}, taxonomy: &Taxonomy{}, assigner: &assigner{}}
	if err := b.o.complete(); err != nil {
		t.Fatal(err)
	}
	const end = 1<<32 + 1000
	block := &genome.Block{Input: "large.fa", Text: make([]byte, end+1),
		Records: []genome.Record{{Name: []byte("a taxid|1"), Start: end - 500, End: end}}}
	r, err := b.cut(block)
	if err == nil {
		t.Fatalf("the window of letter %d begins at %d", end-500, r.windows[0].Start)
	}
	wantInputError(t, err)
	if !strings.Contains(err.Error(), "large.fa") {
		t.Error(err)
	}
}
