package genome

import (
	"errors"
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
)

// repeated is begin, then a unit so often that both take about so many bytes, then end, packed in members.
func repeated(begin, unit, end string, size int) string {
	many := strings.Repeat(unit, max(1, (1<<20)/len(unit)))
	return gzipped(begin) + strings.Repeat(gzipped(many), size/len(many)) + gzipped(end)
}

// allocated is how many bytes do has allocated.
func allocated(do func()) uint64 {
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	do()
	runtime.ReadMemStats(&after)
	return after.TotalAlloc - before.TotalAlloc
}

// A small packed file of blank lines, wherever they stand, costs no more memory than a few chunks, and lines of errors
// count them.
func TestBlankLinesTakeNoMemory(t *testing.T) {
	dir := t.TempDir()
	const size = 8 << 20
	for name, c := range map[string]struct{ begin, unit, end, want, says string }{
		"before fasta":     {"", "\n", ">a\nAC\n", "a\tAC\n", ""},
		"before fastq":     {"", "\r\n", "@a\nAC\n+\nII\n", "a\tAC\n", ""},
		"alone":            {"", " \n", "", "", "no records"},
		"behind a name":    {">a", "\n", "AC\n>b\nG\n", "a\tAC\nb\tG\n", ""},
		"among letters":    {">a\nAC", "\r\n", "GT\n", "a\tACGT\n", ""},
		"between reads":    {"@a\nAC\n+\nII", "\n", "@b\nG\n+\nI\n", "a\tAC\nb\tG\n", ""},
		"within a read":    {"@a\n", "\n", "+\n\n", "", "x:3: a line \"\""},
		"before an error":  {">a\nAC\n", "\n", "A\x00\n", "", "x:8388611: a zero byte"},
		"before a bad one": {"@a\nAC\n+\nII\n", "\n", "@b\nG\n+\nII\n", "", "x:8388616: 2 qualities"},
	} {
		text := repeated(c.begin, c.unit, c.end, size)
		file := put(t, filepath.Join(dir, "x"), text)
		var got string
		var err error
		took := allocated(func() { got, _, err = read([]string{file}, Options{BlockBytes: 1 << 16, Threads: 2}) })
		if c.says == "" && (err != nil || got != c.want) || c.says != "" &&
			(err == nil || !strings.Contains(err.Error(), c.says)) {
			t.Errorf("%s: %.100q, %v; want %q, %s", name, got, err, c.want, c.says)
		}
		if took > 4<<20 {
			t.Errorf("%s: %d bytes took %d KiB", name, len(text), took>>10)
		}
	}
}

// Names are bounded, and an error tells the line, but not the name.
func TestLongNames(t *testing.T) {
	dir := t.TempDir()
	long, most := strings.Repeat("n", 300<<10), strings.Repeat("n", mostName)
	for name, c := range map[string]struct{ text, says, rest string }{
		"fasta":        {">a\nAC\n>" + long + "\nAC\n>b\nG\n", ":3: a record that is too long: a name of 307200 bytes, want 65536 at most", "a\tAC\nb\tG\n"},
		"fastq":        {"@a\nAC\n+\nII\n@" + long + "\nAC\n+\nII\n@b\nG\n+\nI\n", ":5: a record that is too long: a name of 307200 bytes, want 65536 at most", "a\tAC\nb\tG\n"},
		"longer by 1":  {">" + most + "n\nAC\n", ":1: a record that is too long: a name of 65537 bytes, want 65536 at most", ""},
		"fasta, fits":  {">" + most + "\nAC\n", "", most + "\tAC\n"},
		"fastq, fits":  {"@" + most + "\nAC\n+" + long + "\nII\n", "", most + "\tAC\n"},
		"not ended":    {">" + long, ":1: a record that is too long: a name of 307200 bytes, want 65536 at most", ""},
		"long, blanks": {">a " + strings.Repeat(" ", 1<<20) + "\nAC\n", "", "a\tAC\n"},
	} {
		file := put(t, filepath.Join(dir, "x"), c.text)
		for _, block := range []int{1 << 10, 0} {
			got, _, err := read([]string{file}, Options{BlockBytes: block})
			var of *InputError
			if c.says == "" && (err != nil || got != c.rest) || c.says != "" &&
				(!errors.As(err, &of) || !strings.Contains(err.Error(), c.says) || len(err.Error()) > 300) {
				t.Errorf("%s, blocks of %d: %.100q, %.300v; want %s", name, block, got, err, c.says)
			}
			got, counts, err := read([]string{file}, Options{BlockBytes: block, SkipBroken: true})
			if err != nil || got != c.rest || (counts.Broken == 1) != (c.says != "") {
				t.Errorf("%s, skipping broken records: %.100q, %+v, %.300v", name, got, counts, err)
			}
		}
	}
}

// Records of two bytes cost twenty times as much: they come in blocks of so many that this does not show.
func TestManySmallRecords(t *testing.T) {
	dir := t.TempDir()
	for name, unit := range map[string]string{"fasta": ">\n", "fastq": "@\n\n+\n\n"} {
		const size, block = 8 << 20, 1 << 18
		file := put(t, filepath.Join(dir, name), repeated("", unit, "", size))
		records, most, blocks, held := int64(0), 0, 0, uint64(0)
		_, err := Read(t.Context(), []string{file}, Options{BlockBytes: block, Threads: 2}, func(b *Block) error {
			if b.First != records || len(b.Text) != len(b.Records) || b.Records[0].Start != 0 ||
				b.Records[len(b.Records)-1].End != len(b.Text)-1 {
				return fmt.Errorf("a block from %d on, of %d records and %d bytes, behind %d", b.First, len(b.Records),
					len(b.Text), records)
			}
			records += int64(len(b.Records))
			most = max(most, len(b.Records))
			if blocks++; blocks%16 == 8 {
				var now runtime.MemStats
				runtime.GC()
				runtime.ReadMemStats(&now)
				held = max(held, now.HeapAlloc)
			}
			b.Release()
			return nil
		})
		if err != nil {
			t.Error(name, err)
		}
		if want := int64(size / len(unit)); records < want-64 || records > want {
			t.Errorf("%s: %d records, want about %d", name, records, want)
		}
		if most > block/16 || held > 16<<20 {
			t.Errorf("%s: blocks of %d records, and %d MiB", name, most, held>>20)
		}
	}
}

// What a text declares is not believed: a window of zstd costs memory before any text is there.
func TestLargeWindows(t *testing.T) {
	const window = 29 - 10 // log2 of 512 MiB, from 1 KiB on
	text := ">x\nACGT\n"
	frame := "\x28\xb5\x2f\xfd\x00" + string([]byte{window << 3, byte(len(text))<<3 | 1, 0, 0}) + text
	file := put(t, filepath.Join(t.TempDir(), "x"), frame)
	if _, _, err := read([]string{file}, Options{}); err == nil || !strings.Contains(err.Error(), "zstd -d --long=31") {
		t.Errorf("%v; want what to do", err)
	}
}

// A record that the machine's memory has no room for ends with an error, not with the process.
func TestRecordsThatMemoryDoesNotHold(t *testing.T) {
	file := put(t, filepath.Join(t.TempDir(), "x"), repeated(">a\n", "A", "\n", 8<<20))
	before := recordRoom
	defer func() { recordRoom = before }()
	recordRoom = func() int64 { return 4 << 20 }
	if _, _, err := read([]string{file}, Options{BlockBytes: 1 << 16}); err == nil ||
		!strings.Contains(err.Error(), "memory") || !errors.Is(err, ErrTooLong) {
		t.Error(err)
	}
	recordRoom = func() int64 { return 64 << 20 }
	if got, _, err := read([]string{file}, Options{BlockBytes: 1 << 16}); err != nil || len(got) < 8<<20 {
		t.Error(len(got), err)
	}
}

// A file that is FASTA and FASTQ is no input: letters and qualities of the other would be taken for records.
func TestFormatsAreNotMixed(t *testing.T) {
	dir := t.TempDir()
	a, q, _ := sample(7, 40)
	lines := func(text string) int { return strings.Count(text, "\n") }
	for name, c := range map[string]struct {
		text    string
		line    int
		says    string
		headers int64
	}{
		"fastq behind fasta":      {a + q, lines(a) + 1, "FASTQ in the middle of FASTA", 40},
		"fastq between fasta":     {a + "\n@x\nACGT\n+\nIIII\n" + a, lines(a) + 2, "FASTQ in the middle of FASTA", 1},
		"fasta behind fastq":      {q + a, lines(q) + 1, "FASTA in the middle of FASTQ", 40},
		"fasta between fastq":     {q + "\n\n>x\nACGT\n" + q, lines(q) + 3, "FASTA in the middle of FASTQ", 1},
		"fastq behind an empty 1": {">\n@\n\n+\n\n", 2, "FASTQ in the middle of FASTA", 1},
	} {
		for kind, content := range map[string]string{"plain": c.text, "packed": gzipped(c.text)} {
			file := put(t, filepath.Join(dir, "x"), content)
			for _, o := range []Options{{}, {BlockBytes: 100}, {BlockBytes: 5000, Threads: 3}, {SkipBroken: true},
				{SkipBroken: true, BlockBytes: 64}} {
				_, counts, err := read([]string{file}, o)
				var of *InputError
				if o.SkipBroken {
					if err != nil || counts.Broken != c.headers {
						t.Errorf("%s, %s, %+v: %v, %d broken records, want %d", name, kind, o, err, counts.Broken,
							c.headers)
					}
					continue
				}
				if !errors.As(err, &of) || of.Line != int64(c.line) || of.Input != file ||
					!strings.Contains(err.Error(), c.says) {
					t.Errorf("%s, %s, %+v: %v; want line %d, %s", name, kind, o, err, c.line, c.says)
				}
			}
		}
	}
}
