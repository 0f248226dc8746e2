package join

import (
	"bytes"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
)

// onCores has a join take the cores' own tables, whatever the machine has.
func onCores(o Options) Options {
	o.Device, o.Open = "cpu", func(string, string) ([]*device.Device, error) { return nil, device.ErrNoCompiler }
	return o
}

// randomCSV is a table of n rows with a key column k and others, whose fields are of all kinds. Keys are of one kind.
func randomCSV(g *rand.Rand, n int, key func(i int) string, delimiter string, prefix string) string {
	kinds := [][]string{
		{"a", "word", "two words", "ünï"},
		{"1", "-5", "007", "1e3", "-0", "2.50", "18446744073709551615"},
		{`""`, "", "NA", `"NA"`},
		{` leading`, "\xef\xbb\xbfmark", `"` + delimiter + `"`, `"a""b"`, `""""`, "\"two\nlines\"", "\"\r\"", `in"side`, `"quoted"`},
		{"2024-02-29", "true", "a,b;c\td"},
	}
	columns := 1 + g.IntN(5)
	plain := make([]int, columns) // how many of a column's fields, of ten, are of its first kind
	for c := range plain {
		plain[c] = g.IntN(11)
	}
	at := g.IntN(columns + 1) // of the key
	var b strings.Builder
	for c := range columns + 1 {
		if c > 0 {
			b.WriteString(delimiter)
		}
		if c == at {
			b.WriteString("k")
		} else {
			fmt.Fprintf(&b, "%s%d", prefix, c)
		}
	}
	end := []string{"\n", "\r\n", "\r"}[g.IntN(3)]
	for i := range n {
		b.WriteString(end)
		for c := range columns + 1 {
			if c > 0 {
				b.WriteString(delimiter)
			}
			if c == at {
				b.WriteString(key(i))
				continue
			}
			kind := kinds[0]
			if g.IntN(10) >= plain[c-min(c, 1)] {
				kind = kinds[g.IntN(len(kinds))]
			}
			f := kind[g.IntN(len(kind))]
			if !strings.Contains(f, `"`) {
				f = strings.ReplaceAll(f, delimiter, "")
			}
			b.WriteString(f)
		}
	}
	if g.IntN(2) == 0 {
		b.WriteString(end)
	}
	return b.String()
}

// An output of CSV is the same to the byte, and an error the same, whether its columns are strips or stand apart, and
// whether types are from all rows or from a glance: whatever is in the fields, between them and between the rows,
// whichever columns come out in which order, and however many blocks are looked up side by side.
func TestStripsAndColumnsAreTheSame(t *testing.T) {
	testenv.ByTurns(t)
	dir := t.TempDir()
	t.Setenv("TMPDIR", dir)
	least := leastKept
	leastKept, spoiled = 8, true
	defer func() { leastKept, spoiled = least, false }()
	seeds := 60
	if testenv.Long() {
		seeds = 3000
	}
	rows, strips, failed := 0, 0, 0
	for seed := range uint64(seeds) {
		g := rand.New(rand.NewPCG(seed, 7))
		cutInto(t, 1<<(4+g.IntN(8)))
		keys := []func(i int) string{
			func(int) string { return fmt.Sprint(g.IntN(60)) },
			func(int) string { return fmt.Sprint(g.IntN(60) * 1_000_003) },
			func(int) string { return fmt.Sprintf("%.2f", float64(g.IntN(60))/4) },
			func(int) string { return fmt.Sprintf(`"%d"`, g.IntN(60)) },
			func(int) string { return fmt.Sprintf("2024-01-%02d", 1+g.IntN(30)) },
			func(int) string { return []string{"true", "False", ""}[g.IntN(3)] },
			func(int) string { return fmt.Sprintf(`"k ""%d"`, g.IntN(60)) },
			func(int) string { return fmt.Sprintf("2024-01-02 03:04:%02d", g.IntN(60)) },
		}[g.IntN(8)]
		odd := []string{"-7", "007", "1.5", "1e400", "18446744073709551615", "9007199254740993", "x", "", "+1", "2024-01-09",
			"2024-01-02 03:04:05.000000001", "2024-01-02 03:04:05Z", "0", "-0", "\xff"}[g.IntN(15)]
		rare := 1 + g.IntN(300) // one key of that many is odd, in some joins
		all := keys
		if g.IntN(3) == 0 {
			all = func(i int) string {
				if g.IntN(rare) == 0 {
					return odd
				}
				return keys(i)
			}
		}
		delimiter := []string{",", ";", "|"}[max(0, g.IntN(5)-2)]
		o := onCores(Options{Build: filepath.Join(dir, "b.csv"), Probe: filepath.Join(dir, "p.csv"), On: []Pair{{"k", "k"}},
			How: How(g.IntN(6)), Threads: 1 + g.IntN(4), NullsEqual: g.IntN(4) == 0})
		o.Text.Delimiter = delimiter[0]
		if g.IntN(3) == 0 {
			o.Text.Nulls = []string{"NA", "word"}
		}
		b := randomCSV(g, g.IntN(60), all, delimiter, "b")
		p := randomCSV(g, g.IntN(400), all, delimiter, "p")
		put(t, o.Build, b)
		put(t, o.Probe, p)
		if g.IntN(3) == 0 {
			build, probe, err := openBoth(o)
			if err != nil {
				continue
			}
			schema, err := OutputSchema(build.Schema(), probe.Schema(), o)
			if err != nil {
				continue
			}
			for _, c := range g.Perm(schema.NumFields())[:1+g.IntN(schema.NumFields())] {
				o.Select = append(o.Select, schema.Field(c).Name)
			}
			build.Close()
			probe.Close()
		}
		var outs []string
		name := filepath.Join(dir, []string{"o.csv", "o.tsv"}[g.IntN(2)])
		o.Out = name
		batch := 1 << g.IntN(7)
		for _, t2 := range []tuning{{apart: true}, {batch: batch}, {batch: batch, part: 1 + g.Int64N(2000)}} {
			if o.Limit = 0; t2.apart {
				o.Limit = 1 << 40 // one block at a time
			}
			s, err := runWith(t.Context(), nil, tuned{o, t2})
			if err != nil {
				outs = append(outs, err.Error())
				failed++
				continue
			}
			rows += int(s.OutRows)
			text, err := os.ReadFile(name)
			if err != nil {
				t.Fatal(err)
			}
			outs = append(outs, string(text))
		}
		if slices.ContainsFunc(outs, func(s string) bool { return s != outs[0] }) {
			t.Fatalf("seed %d, %v, %v: apart\n%q\nin strips\n%q\nby parts\n%q", seed, o.How, o.Select, outs[0], outs[1], outs[2])
		}
		build, probe, err := openBoth(o)
		if err != nil {
			continue
		}
		build.asText(func(name string) bool { return name == "k" })
		probe.asText(func(name string) bool { return name == "k" })
		plan, err := planOutput(build.Schema(), probe.Schema(), o)
		if err != nil {
			continue
		}
		for _, w := range plan.inStrips(build, probe, ',').widths {
			strips += w / max(1, w)
		}
		build.Close()
		probe.Close()
	}
	if rows < 300*seeds || strips < seeds || failed < seeds/5 {
		t.Errorf("%d rows and %d strips of %d joins; %d runs failed", rows, strips, seeds, failed)
	}
}

// The parts of a text that several goroutines read are whole records, and all of them are the text, however long its
// records and the parts are.
func TestPartsOfText(t *testing.T) {
	least := leastKept
	leastKept, spoiled = 8, true
	defer func() { leastKept, spoiled = least, false }()
	seeds := 50
	if testenv.Long() {
		seeds = 3000
	}
	as := dialect{delimiter: ',', quote: '"'}
	for seed := range uint64(seeds) {
		g := rand.New(rand.NewPCG(seed, 8))
		cutInto(t, 1<<(6+g.IntN(7)))
		var text []byte
		most := 1 << (6 + g.IntN(9))
		for range g.IntN(30) {
			n := g.IntN(most)
			switch g.IntN(3) {
			case 0:
				text = append(text, strings.Repeat("x", n)+"\n"...)
			case 1:
				text = append(text, "7,\""+strings.Repeat("\n", n)+"\"\n"...)
			case 2:
				text = append(text, "8,\""+strings.Repeat("\"\"", n/2)+"\"\r\n"...)
			}
		}
		if g.IntN(2) == 0 {
			text = append(text, "the end"...)
		}
		from := g.IntN(len(text) + 1)
		for from > 0 && lastRecord(text[:from], as) != from {
			from--
		}
		in := plainText{io.NewSectionReader(bytes.NewReader(text), 0, int64(len(text)))}
		if _, err := in.Seek(int64(from), io.SeekStart); err != nil {
			t.Fatal(err)
		}
		var parts []textPart
		var all []byte
		stop, stops := -1, g.IntN(4) == 0
		if stops {
			stop = 1 + g.IntN(5)
		}
		err := plainBlocks(in, func(b []byte) int { return lastRecord(b, as) }, func(p textPart) bool {
			if len(p.records) == 0 || len(all) > 0 && lastRecord(all, as) != len(all) {
				t.Errorf("seed %d: a part of %d bytes behind %q", seed, len(p.records), all)
			}
			all = append(all, p.records...)
			if g.IntN(2) == 0 { // it is done with at once, or later
				spare(p.room)
			} else {
				parts = append(parts, p)
			}
			stop--
			return stop != 0
		})
		if err != nil || !stops && !bytes.Equal(all, text[from:]) || !bytes.HasPrefix(text[from:], all) {
			t.Fatalf("seed %d: %v, %d bytes of %d", seed, err, len(all), len(text)-from)
		}
		for _, p := range parts { // nobody has written over what is still worked on
			if !bytes.Contains(text[from:], p.records) {
				t.Errorf("seed %d: %q is not of the text", seed, p.records)
			}
		}
	}
}

func openBoth(o Options) (build, probe *Reader, err error) {
	if build, err = openAs(o.Build, "", o.Text); err == nil {
		probe, err = openAs(o.Probe, "", o.Text)
	}
	return build, probe, err
}

// A file that becomes shorter while it is read is an error, wherever it ends then.
func TestTextThatBecomesShorter(t *testing.T) {
	cutInto(t, 64)
	as := dialect{delimiter: ',', quote: '"'}
	text := []byte(strings.Repeat("1,abc\n", 100))
	for left := range len(text) {
		in := plainText{io.NewSectionReader(bytes.NewReader(text[:left]), 0, int64(len(text)))}
		rows := 0
		err := plainBlocks(in, func(b []byte) int { return lastRecord(b, as) }, func(p textPart) bool {
			rows += bytes.Count(p.records, []byte("\n"))
			return true
		})
		if err == nil {
			t.Fatalf("%d of %d bytes: %d rows, and no error", left, len(text), rows)
		}
	}
}

// No batch of those that wait for the writer is large, however wide its rows are; and a bound of memory is shared by all of them.
func TestWideRowsSideBySide(t *testing.T) {
	for _, bound := range []int64{0, 1 << 30} {
		j := &joiner{}
		j.Memory, j.Threads, j.beside = bound, 8, 8
		j.shares = batchShare * (blocksAhead + 1) * 8
		waiting := int64(7*j.beside) * j.atOnce()
		if want := int64(512 << 20); waiting > want || j.blockBytes() > want/8 {
			t.Errorf("with a bound of %d, %d bytes of a column wait, in blocks of %d", bound, waiting, j.blockBytes())
		}
	}
}
