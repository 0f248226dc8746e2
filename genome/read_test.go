package genome

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/zstd"

	"github.com/warpmap/warpmap/internal/testenv"
)

// read is what Read gives, as text: a line of name, tab and letters for each record.
func read(inputs []string, o Options) (string, Counts, error) {
	var out strings.Builder
	n := map[string]int64{}
	counts, err := Read(context.Background(), inputs, o, func(b *Block) error {
		if b.First != n[b.Input] {
			return fmt.Errorf("a block of %s begins with record %d, want %d", b.Input, b.First, n[b.Input])
		}
		n[b.Input] += int64(len(b.Records))
		end := 0
		for _, r := range b.Records {
			if r.Start != end || b.Text[r.End] != '\n' {
				return fmt.Errorf("record %s has letters %d to %d, where the one before ends at %d", r.Name, r.Start,
					r.End, end)
			}
			end = r.End + 1
			fmt.Fprintf(&out, "%s\t%s\n", r.Name, b.Text[r.Start:r.End])
		}
		if end != len(b.Text) {
			return fmt.Errorf("a block of %d bytes, of which records take %d", len(b.Text), end)
		}
		b.Release()
		return nil
	})
	return out.String(), counts, err
}

func put(t testing.TB, name, text string) string {
	t.Helper()
	if err := os.WriteFile(name, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return name
}

func gzipped(texts ...string) string {
	var b bytes.Buffer
	for _, text := range texts {
		z := gzip.NewWriter(&b)
		z.Write([]byte(text))
		z.Close()
	}
	return b.String()
}

func zstded(text string) string {
	z, _ := zstd.NewWriter(nil)
	return string(z.EncodeAll([]byte(text), nil))
}

// sample makes records, how they stand in FASTA and FASTQ, and what is to be read of them.
func sample(seed uint64, n int) (fasta, fastq, want string) {
	r := rand.New(rand.NewPCG(seed, 1))
	var a, q, w strings.Builder
	for i := range n {
		letters := make([]byte, r.IntN(300))
		quality := make([]byte, len(letters))
		for j := range letters {
			letters[j], quality[j] = "ACGTacgtNUu*-"[r.IntN(13)], byte('!'+r.IntN(94))
		}
		if i%3 == 0 && len(quality) > 0 {
			quality[0] = "@+>"[r.IntN(3)]
		}
		name := fmt.Sprintf("read %d @+>", i)
		fmt.Fprintf(&a, ">%s\n", name)
		for rest := letters; len(rest) > 0; {
			k := min(len(rest), 1+r.IntN(80))
			fmt.Fprintf(&a, "%s\n", rest[:k])
			rest = rest[k:]
			if r.IntN(8) == 0 {
				a.WriteString("\n")
			}
		}
		fmt.Fprintf(&q, "@%s\n%s\n+\n%s\n%s", name, letters, quality, strings.Repeat("\n", r.IntN(8)/7))
		fmt.Fprintf(&w, "%s\t%s\n", name, letters)
	}
	return a.String(), q.String(), w.String()
}

func TestFormats(t *testing.T) {
	dir := t.TempDir()
	a, q, want := sample(1, 300)
	for kind, text := range map[string]string{"fasta": a, "fastq": q} {
		crlf := strings.ReplaceAll(text, "\n", "\r\n")
		for name, content := range map[string]string{"plain": text, "crlf": crlf,
			"unended": strings.TrimRight(text, "\n"), "blank": "\n \r\n" + text + "\n\n",
			"gzip": gzipped(text), "members": gzipped(text[:len(text)/3], text[len(text)/3:]), "padded": gzipped(text) + strings.Repeat("\x00", 700), "zstd": zstded(text)} {
			file := put(t, filepath.Join(dir, kind+name), content)
			for _, o := range []Options{{}, {BlockBytes: 1}, {BlockBytes: 100, Threads: 1},
				{BlockBytes: 1000, Threads: 3}, {BlockBytes: 20000, Threads: 2, SkipBroken: true},
				{BlockBytes: 700, Threads: 9}, {BlockBytes: 5000, Threads: 16}} {
				got, counts, err := read([]string{file}, o)
				if err != nil {
					t.Fatalf("%s, %s, %+v: %v", kind, name, o, err)
				}
				if d := cmp.Diff(want, got); d != "" {
					t.Fatalf("%s, %s, %+v: %s", kind, name, o, d)
				}
				if letters := int64(len(want) - strings.Count(want, "\t")*2 - len(names(want))); counts != (Counts{1,
					300, letters, 0}) {
					t.Fatalf("%s, %s, %+v: counted %+v, want %d letters", kind, name, o, counts, letters)
				}
			}
		}
	}
}

func names(text string) (all string) {
	for line := range strings.Lines(text) {
		name, _, _ := strings.Cut(line, "\t")
		all += name
	}
	return all
}

func TestInputs(t *testing.T) {
	dir := t.TempDir()
	os.Mkdir(filepath.Join(dir, "below"), 0o700)
	put(t, filepath.Join(dir, "b.fa"), ">b\nC\n")
	put(t, filepath.Join(dir, "a.FASTQ.gz"), gzipped("@a\nA\n+\n!\n"))
	put(t, filepath.Join(dir, "below", "c.fna.zst"), zstded(">c\nG\n"))
	put(t, filepath.Join(dir, "notes.txt"), "no sequences")
	put(t, filepath.Join(dir, "._b.fa"), "what other systems keep of b.fa")
	link := filepath.Join(t.TempDir(), "link")
	if err := os.Symlink(dir, link); err != nil {
		t.Fatal(err)
	}
	stdin := os.Stdin
	defer func() { os.Stdin = stdin }()
	for _, c := range []struct {
		inputs []string
		want   string
	}{
		{[]string{dir}, "a\tA\nb\tC\nc\tG\n"},
		{[]string{dir + "/b.fa", dir + "/a*"}, "b\tC\na\tA\n"},
		{[]string{dir + "/**/*.fna.zst", "-"}, "c\tG\nin\tT\n"},
		{[]string{link}, "a\tA\nb\tC\nc\tG\n"},
	} {
		var err error
		if os.Stdin, err = os.Open(put(t, filepath.Join(dir, "stdin"), ">in\nT\n")); err != nil {
			t.Fatal(err)
		}
		got, _, err := read(c.inputs, Options{Threads: 2})
		if err != nil || got != c.want {
			t.Errorf("%q: %q, %v; want %q", c.inputs, got, err, c.want)
		}
		os.Stdin.Close()
	}
}

func TestBroken(t *testing.T) {
	dir := t.TempDir()
	random := make([]byte, 1<<16) // does not pack
	for i := range random {
		random[i] = "ACGT"[rand.IntN(4)]
	}
	whole := ">a\n" + string(random) + "\n"
	for name, c := range map[string]struct {
		text, says, rest string
		broken           int64
	}{
		"empty":         {"", "no records", "", 1},
		"blank":         {"\n\n", "no records", "", 1},
		"text":          {"\nhello", "neither FASTA", "", 1},
		"short":         {"@a\nACGT\n+\n!!!\n@b\nC\n+\n!\n", ":4: 3 qualities for 4 letters", "b\tC\n", 1},
		"long":          {"@b\nC\n+\n!\n\n@a\nACGT\n+\n!!!!!\n", ":9: 5 qualities for 4 letters", "b\tC\n", 1},
		"no quality":    {"@a\nAC\n+\n@b\nC\n+\n!\n", ":6: ", "", 1},
		"no plus":       {"@a\nACGT\n!!!!\n@b\nC\n+\n!\n", ":3: a line \"!!!!\"", "b\tC\n", 1},
		"no letters":    {"@a\n+\n!!!!\n@b\nC\n+\n!\n", ":2: a line \"+\"", "b\tC\n", 1},
		"wrapped":       {"@a\nACGT\nACGT\n+\n!!!!\n!!!!\n@b\nC\n+\n!\n", ":3: a line \"ACGT\"", "b\tC\n", 1},
		"ends":          {"@b\nC\n+\n!\n@a\nACGT\n", ":5: the input ends within", "b\tC\n", 1},
		"no header":     {"@b\nC\n+\n!\nACGT\n@c\nC\n+\n!\n", ":5: a record of FASTQ begins with \"ACGT\"", "b\tC\nc\tC\n", 1},
		"zeros":         {">a\nAC\x00\nAC\n>b\nC\n", ":2: a zero byte", "b\tC\n", 1},
		"zeros in name": {">b\nC\n>a\x00\nAC\n", ":3: a zero byte", "b\tC\n", 1},
		"zeros in read": {"@a\nA\x00\n+\n!!\n@b\nC\n+\n!\n", ":1: a zero byte", "b\tC\n", 1},
		"returns":       {">a\rAC\r>b\rC\r", ":1: a carriage return", "", 1},
		"plus":          {">a\nAC\n>b\nAC\n+\nII\n>c\nC\n", ":5: a line \"+\", as records of FASTQ have", "a\tAC\nc\tC\n", 1},
		"at":            {">a\nAC\nAC@\n>b\nC\n", ":3: '@' in a line of letters, \"AC@\": want A to Z", "b\tC\n", 1},
		"at first":      {">a\nAC\n@C\n>b\nC\n", ":3: a line that begins with @", "b\tC\n", 1},
		"reads":         {">a\nAC\n@r\nAC\n+\n@I\n@s\nA\n+s\nI\n>b\nC\n", ":3: a line that begins with @", "a\tAC\nb\tC\n", 2},
		"digits":        {">a\nACGTACGTACGTACGTACGTAC7GTACG\n>b\nC\n", ":2: '7' in a line of letters, \"GTACGTAC7GTACG", "b\tC\n", 1},
		"returns in":    {">a\nAC\rAC\n>b\nC\n", ":2: a carriage return", "b\tC\n", 1},
		"blanks in":     {">a\nAC GT\n>b\nC\n", ":2: ' ' in a line of letters", "b\tC\n", 1},
		"quality":       {"@a\nA#\n+\nII\n@b\nC\n+\n!\n", ":2: '#' in a line of letters", "b\tC\n", 1},
		"before":        {" >a\nAC\n>b\nC\n", ":1: \" >a\" before the first line", "b\tC\n", 2},
		"cut gzip":      {gzipped(whole)[:10000], "the gzip data ends too early", "", -1},
		"behind gzip":   {gzipped(whole) + "garbage", "other data stands behind it", "", -1},
		"cut header":    {gzipped(whole)[:6], "the gzip data ends too early", "", -1},
		"bad gzip":      {"\x1f\x8b>a\nACGT\nCGTACGTACGT", "cannot be unpacked", "", -1},
		"cut zstd":      {zstded(whole)[:10000], "the zstd data ends too early", "", -1},
		"bad sum":       {gzipped(whole)[:len(gzipped(whole))-5] + "x2345", "cannot be unpacked", "", -1},
	} {
		file := put(t, filepath.Join(dir, name), c.text)
		_, _, err := read([]string{file}, Options{})
		var of *InputError
		if !errors.As(err, &of) || !strings.Contains(err.Error(), c.says) || !strings.HasPrefix(err.Error(), file) {
			if name != "no quality" {
				t.Errorf("%s: %v; want %s", name, err, c.says)
			}
		}
		got, counts, err := read([]string{file}, Options{SkipBroken: true})
		switch {
		case c.broken < 0:
			if !errors.As(err, &of) {
				t.Errorf("%s, skipping broken records: %v; want the same error", name, err)
			}
		case name == "no quality": // the header of the next is as long as the qualities should be
		case err != nil || got != c.rest || counts.Broken != c.broken:
			t.Errorf("%s, skipping broken records: %q, %+v, %v; want %q and %d broken", name, got, counts, err, c.rest,
				c.broken)
		}
	}
	for _, input := range []string{dir + "/none", dir + "/none*", t.TempDir()} {
		if _, _, err := read([]string{input}, Options{}); err == nil || !strings.HasPrefix(err.Error(), input) {
			t.Errorf("%s: %v", input, err)
		}
	}
}

// Lines of errors are those of the file, in whichever block they are.
func TestLineOfError(t *testing.T) {
	_, q, _ := sample(2, 200)
	file := put(t, filepath.Join(t.TempDir(), "x"), q+"@last\nACGT\n+\n!\n")
	for _, size := range []int{1, 50, 1000, 1 << 20} {
		_, counts, err := read([]string{file}, Options{BlockBytes: size})
		if want := fmt.Sprintf("%s:%d: 1 qualities for 4 letters", file, strings.Count(q, "\n")+4); err == nil ||
			err.Error() != want {
			t.Errorf("blocks of %d: %v; want %s", size, err, want)
		}
		if size < 1000 && counts.Records < 180 {
			t.Errorf("blocks of %d: %d records before the error, want most of 200", size, counts.Records)
		}
	}
}

func TestPaired(t *testing.T) {
	dir := t.TempDir()
	a, _, want := sample(3, 200)
	_, q, other := sample(4, 200)
	fa, fq := put(t, dir+"/a.fa", a), put(t, dir+"/b.fq", q)
	one := put(t, dir+"/c.fa", ">one\nA\n")
	pairs := func(first, second []string, o Options) (x, y string, c Counts, err error) {
		c, err = ReadPaired(t.Context(), first, second, o, func(a, b *Block) error {
			if len(a.Records) != len(b.Records) {
				return fmt.Errorf("%d records and %d mates", len(a.Records), len(b.Records))
			}
			for i, r := range a.Records {
				s := b.Records[i]
				x += fmt.Sprintf("%s\t%s\n", r.Name, a.Text[r.Start:r.End])
				y += fmt.Sprintf("%s\t%s\n", s.Name, b.Text[s.Start:s.End])
			}
			if a.Text[len(a.Text)-1] != '\n' || b.Text[len(b.Text)-1] != '\n' {
				return errors.New("a block does not end behind a record")
			}
			a.Release()
			b.Release()
			return nil
		})
		return x, y, c, err
	}
	for _, size := range []int{1, 300, 5000, 1 << 20} {
		x, y, c, err := pairs([]string{fa}, []string{fq}, Options{BlockBytes: size})
		if err != nil || x != want || y != other || c.Records != 400 || c.Inputs != 2 {
			t.Errorf("blocks of %d: %+v, %v\n%s%s", size, c, err, cmp.Diff(want, x), cmp.Diff(other, y))
		}
		for _, c := range []struct{ first, second []string }{{[]string{fa, one}, []string{fq}},
			{[]string{fa}, []string{fq, one}}} {
			_, _, _, err := pairs(c.first, c.second, Options{BlockBytes: size})
			short := c.first[0]
			if len(c.second) == 1 {
				short = c.second[0]
			}
			if err == nil || !strings.HasPrefix(err.Error(), short+": ends after 200 records") {
				t.Errorf("one mate too few: %v", err)
			}
		}
	}
}

// One program may write the mates to two pipes by turns, as samtools fastq -1 -2 does. A pipe that nobody reads stops it
// before the first side has a block.
func TestPairsFromOneWriter(t *testing.T) {
	for _, threads := range []int{1, 4} {
		type pipe struct {
			*io.PipeReader
			to *io.PipeWriter
		}
		pipes := map[string]pipe{}
		for _, name := range []string{"1", "2", "3", "4"} {
			r, w := io.Pipe()
			pipes[name] = pipe{r, w}
			defer r.Close()
		}
		go func() {
			for _, lane := range [][2]string{{"1", "2"}, {"3", "4"}} {
				for i := range 100 {
					for _, side := range lane {
						fmt.Fprintf(pipes[side].to, ">r%d\nACGT\n", i)
					}
				}
				for _, side := range lane {
					pipes[side].to.Close()
				}
			}
		}()
		o := Options{Threads: threads, Open: func(name string) (io.ReadCloser, error) { return pipes[name], nil }}
		ended := make(chan string, 1)
		go func() {
			c, err := ReadPaired(t.Context(), []string{"1", "3"}, []string{"2", "4"}, o, func(a, b *Block) error {
				return nil
			})
			ended <- fmt.Sprint(c.Records, err)
		}()
		select {
		case got := <-ended:
			if got != "400 <nil>" {
				t.Errorf("%d threads: %s", threads, got)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("%d threads: the reader waits for one pipe, and the writer for the other", threads)
		}
	}
}

// A side that cannot be read ends the reading, although the other waits for its input, and its error is the one that
// is returned.
func TestPairsEndWithOneSide(t *testing.T) {
	for _, bad := range []string{"1", "2"} {
		silent, w := io.Pipe()
		defer w.Close()
		o := Options{Open: func(name string) (io.ReadCloser, error) {
			if name == bad {
				return io.NopCloser(strings.NewReader("no sequences")), nil
			}
			return silent, nil
		}}
		ended := make(chan error, 1)
		go func() {
			_, err := ReadPaired(t.Context(), []string{"1"}, []string{"2"}, o, func(a, b *Block) error { return nil })
			ended <- err
		}()
		select {
		case err := <-ended:
			if !errors.Is(err, errNeither) || !strings.HasPrefix(err.Error(), bad+":") {
				t.Error(err)
			}
		case <-time.After(10 * time.Second):
			t.Fatalf("side %s is broken, and the other is waited for", bad)
		}
	}
}

func TestEnds(t *testing.T) {
	a, _, _ := sample(5, 100)
	file := put(t, filepath.Join(t.TempDir(), "x"), a)
	ctx, cancel := context.WithCancel(t.Context())
	calls := 0
	_, err := Read(ctx, []string{file, file}, Options{BlockBytes: 50}, func(*Block) error {
		calls++
		cancel()
		return nil
	})
	if !errors.Is(err, context.Canceled) || calls > 2 {
		t.Errorf("%d calls, %v", calls, err)
	}
	stop := errors.New("stop")
	if _, err = Read(t.Context(), []string{file}, Options{BlockBytes: 50}, func(*Block) error {
		return stop
	}); err != stop {
		t.Error(err)
	}
}

// Records of all lengths, blocks of all sizes, and any number of readers: chunks begin in all places of a record, and
// have several or a part of one.
func TestChunks(t *testing.T) {
	dir := t.TempDir()
	for _, letters := range []int{0, 1, 61, 62, 1500} {
		var a, q, want strings.Builder
		for i := range 6 + 3000/(letters+10) {
			line := strings.Repeat("ACGT"[i%4:i%4+1], letters)
			fmt.Fprintf(&a, ">%d\n%s\n", i%10, line)
			fmt.Fprintf(&q, "@%d\n%s\n+\n%s\n", i%10, line, strings.Repeat("@", letters))
			fmt.Fprintf(&want, "%d\t%s\n", i%10, line)
		}
		for name, text := range map[string]string{"fasta": a.String(), "fastq": q.String()} {
			file, again := put(t, filepath.Join(dir, name), text), put(t, filepath.Join(dir, name+" again"), text)
			// a record of 61 letters takes 65 bytes of FASTA
			for _, block := range []int{1, 2, 4, 64, 65, 66, 127, 500, 1 << 12, 1 << 20} {
				for _, o := range []Options{{}, {Threads: 16}} {
					o.BlockBytes = block
					got, _, err := read([]string{file, again}, o)
					if err != nil || got != want.String()+want.String() {
						t.Fatalf("%s of %d letters, %+v: %v, %s", name, letters, o, err,
							cmp.Diff(want.String()+want.String(), got))
					}
				}
			}
		}
	}
}

// Blocks are about as large as they are wanted, wherever the chunks end.
func TestBlockSizes(t *testing.T) {
	dir := t.TempDir()
	for name, record := range map[string]string{"aligned": ">a\n" + strings.Repeat("A", 60) + "\n", "odd": ">abc\n" +
		strings.Repeat("A", 60) + "\n",
		"fastq": "@a\n" + strings.Repeat("A", 60) + "\n+\n" + strings.Repeat("F", 60) + "\n"} {
		file := put(t, filepath.Join(dir, name), strings.Repeat(record, 1000))
		for _, block := range []int{1, 64, 128, 1000} {
			_, err := Read(t.Context(), []string{file}, Options{BlockBytes: block, Threads: 16}, func(b *Block) error {
				defer b.Release()
				if most := 8 * max(block, len(record)); len(b.Text) > most {
					return fmt.Errorf("a block of %d bytes, want %d at most", len(b.Text), most)
				}
				return nil
			})
			if err != nil {
				t.Errorf("%s, blocks of %d: %v", name, block, err)
			}
		}
	}
}

// A file that others change while it is read: its records come up to where it was changed, and then it ends, or is
// broken.
func TestChangedMeanwhile(t *testing.T) {
	_, q, want := sample(7, 4000)
	more := "@more\nACGT\n+\n!!!!\n"
	for name, change := range map[string]func(file string) error{
		"shorter": func(file string) error { return os.Truncate(file, int64(len(q)/2)) },
		"empty":   func(file string) error { return os.Truncate(file, 0) },
		"longer": func(file string) error {
			f, err := os.OpenFile(file, os.O_APPEND|os.O_WRONLY, 0)
			if err != nil {
				return err
			}
			_, err = f.WriteString(strings.Repeat(more, 1000))
			return errors.Join(err, f.Close())
		},
	} {
		for _, threads := range []int{1, 16} {
			file, changed := put(t, filepath.Join(t.TempDir(), "x"), q), false
			var got strings.Builder
			_, err := Read(t.Context(), []string{file}, Options{BlockBytes: 3000, Threads: threads},
				func(b *Block) error {
					defer b.Release()
					for _, r := range b.Records {
						fmt.Fprintf(&got, "%s\t%s\n", r.Name, b.Text[r.Start:r.End])
					}
					if changed {
						return nil
					}
					changed = true
					return change(file)
				})
			var of *InputError
			if err != nil && !errors.As(err, &of) {
				t.Errorf("%s, %d threads: %v", name, threads, err)
			}
			switch {
			case name == "longer" && (err != nil || !strings.HasPrefix(got.String(), want) ||
				strings.ReplaceAll(got.String()[len(want):], "more\tACGT\n", "") != ""):
				t.Errorf("%d threads: a file that grew gave other records: %v", threads, err)
			case name != "longer" && (!strings.HasPrefix(want, got.String()) || len(got.String()) > len(want)*3/4):
				t.Errorf("%s, %d threads: %d bytes of records of %d, and they are not those of the file", name, threads,
					got.Len(), len(want))
			}
		}
	}
}

// A pipe is read from one end to the other, and a file that cannot be read is an error with its name.
func TestPipe(t *testing.T) {
	dir := t.TempDir()
	_, q, want := sample(8, 1000)
	pipe := filepath.Join(dir, "pipe")
	if err := testenv.Mkfifo(pipe, 0o600); err != nil {
		t.Skip(err)
	}
	written := make(chan error, 1)
	go func() { written <- os.WriteFile(pipe, []byte(q), 0o600) }()
	got, _, err := read([]string{pipe}, Options{BlockBytes: 1000, Threads: 16})
	if err = errors.Join(err, <-written); err != nil || got != want {
		t.Errorf("%v, %s", err, cmp.Diff(want, got))
	}
}

// A reader that is told to end leaves no goroutine, whatever it waits for.
func TestLeavesNothing(t *testing.T) {
	_, q, _ := sample(9, 4000)
	file := put(t, filepath.Join(t.TempDir(), "x"), q)
	before := runtime.NumGoroutine()
	for calls := range 4 {
		stop := errors.New("stop")
		n := 0
		_, err := Read(t.Context(), []string{file, file, file, file}, Options{BlockBytes: 1000, Threads: 16},
			func(*Block) error {
				if n++; n > 100*calls {
					return stop
				}
				return nil
			})
		if err != stop {
			t.Error(err)
		}
	}
	for wait := time.Millisecond; runtime.NumGoroutine() > before; wait *= 2 {
		if wait > 10*time.Second {
			t.Fatalf("%d goroutines, where there were %d", runtime.NumGoroutine(), before)
		}
		time.Sleep(wait)
	}
}

// FuzzRead: what is read does not depend on how the text is cut, and is what a plain reading of the lines gives.
func FuzzRead(f *testing.F) {
	a, q, _ := sample(6, 5)
	for _, text := range []string{a, q, "", "\n", ">", "@", ">a", ">\n>\n", "@\n\n+\n", "@a\r\nA\r\n+\r\n@\r\n",
		"@a\nA\n+\n@\n@b\nA\n+\n@\n", gzipped(a), zstded(q), ">a\x00\nA\n>b\nC\x00"} {
		f.Add([]byte(text), uint16(7), false)
	}
	f.Add([]byte("\x1f\x8b\b\x0000000020000"), uint16(3), true) // unpacks to what is neither, and is cut off
	file := filepath.Join(f.TempDir(), "x")
	f.Fuzz(func(t *testing.T, text []byte, size uint16, skip bool) {
		testenv.Bounded(t, len(text), func() {
			file := fmt.Sprintf("%s%d", file, os.Getpid())
			if len(text) > 1<<16 {
				return
			}
			put(t, file, string(text))
			whole, counts, err := read([]string{file}, Options{BlockBytes: 1 << 17, Threads: 1, SkipBroken: skip})
			cut, other, also := read([]string{file}, Options{BlockBytes: int(size), Threads: 1 + int(size)%16,
				SkipBroken: skip})
			if err == nil && counts.Broken == 0 && (also != nil || cut != whole || other != counts) {
				t.Fatalf("in blocks of %d: %v, %+v\n%q\nwhole: %+v\n%q", size, also, other, cut, counts, whole)
			}
			if skip && (err == nil) != (also == nil) {
				t.Fatalf("in blocks of %d: %v; whole: %v", size, also, err)
			}
			if err == nil && counts.Broken == 0 && len(text) > 4 && text[0] != 0x1f && text[0] != 0x28 {
				if want := plainly(string(text)); whole != want {
					t.Fatalf("read %q, want %q", whole, want)
				}
			}
		})
	})
}

// plainly reads whole records line by line.
func plainly(text string) (out string) {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = strings.TrimRightFunc(lines[i], func(r rune) bool { return r <= ' ' && r != 0 })
	}
	for i := 0; i < len(lines); i++ {
		switch line := lines[i]; {
		case strings.HasPrefix(line, ">"):
			out += line[1:] + "\t"
			for ; i+1 < len(lines) && !strings.HasPrefix(lines[i+1], ">"); i++ {
				out += lines[i+1]
			}
			out += "\n"
		case strings.HasPrefix(line, "@"):
			out += line[1:] + "\t" + lines[i+1] + "\n"
			i += 3
		}
	}
	return out
}

// benchmarkFiles are 64 Mi letters as lines of 80 in contigs of 4 Mi, as one chromosome, and as reads of 150.
func benchmarkFiles(b *testing.B) map[string]string {
	dir := b.TempDir()
	r := rand.New(rand.NewPCG(1, 2))
	letters := make([]byte, 64<<20)
	for i := range letters {
		letters[i] = "ACGT"[r.IntN(4)]
	}
	var a, q bytes.Buffer
	for i := 0; i < len(letters); i += 80 {
		if i%(4<<20) == 0 {
			fmt.Fprintf(&a, ">contig %d\n", i)
		}
		a.Write(letters[i:min(i+80, len(letters))])
		a.WriteByte('\n')
	}
	for i := 0; i+150 <= len(letters); i += 150 {
		fmt.Fprintf(&q, "@read.%d/1\n%s\n+\n%s\n", i, letters[i:i+150], strings.Repeat("F", 150))
	}
	files := map[string]string{}
	for name, text := range map[string]string{"fasta": a.String(), "fastq": q.String(), "chromosome": ">" +
		strings.ReplaceAll(a.String(), ">", "")} {
		files[name] = put(b, filepath.Join(dir, name), text)
	}
	return files
}

func size(b *testing.B, file string) int64 {
	s, err := os.Stat(file)
	if err != nil {
		b.Fatal(err)
	}
	return s.Size()
}

// Threads of 1 and 2 have one reader, 4 have two, and so on.
func BenchmarkRead(b *testing.B) {
	for name, file := range benchmarkFiles(b) {
		for _, block := range []int{1 << 20, 8 << 20} {
			for _, threads := range []int{1, 2, 4, 8, 16} {
				b.Run(fmt.Sprintf("%s/block=%d/threads=%d", name, block, threads), func(b *testing.B) {
					b.SetBytes(size(b, file))
					for b.Loop() {
						o := Options{Threads: threads, BlockBytes: block}
						if _, err := Read(b.Context(), []string{file}, o, func(x *Block) error {
							x.Release()
							return nil
						}); err != nil {
							b.Fatal(err)
						}
					}
				})
			}
		}
	}
}

// What blocks are cut of: copied from the page cache, and searched for the last record.
func BenchmarkCopy(b *testing.B) {
	for name, file := range benchmarkFiles(b) {
		for _, block := range []int{1 << 20, 8 << 20} {
			for _, readers := range []int{1, 2, 4, 8} {
				b.Run(fmt.Sprintf("%s/block=%d/readers=%d", name, block, readers), func(b *testing.B) {
					s, err := newStream(b.Context(), []string{file}, Options{BlockBytes: block})
					if err != nil {
						b.Fatal(err)
					}
					s.readers = readers
					first := make(chan struct{})
					close(first)
					b.SetBytes(size(b, file))
					for b.Loop() {
						f, err := s.open(&input{name: file, first: first})
						if err != nil {
							b.Fatal(err)
						}
						for end := false; !end; {
							c := f.next()
							if c.err != nil {
								b.Fatal(c.err)
							}
							if err := f.know(c); err != nil {
								b.Fatal(err)
							}
							end = c.end
							c.release()
						}
						f.close()
					}
				})
			}
		}
	}
}

// opened gives texts for inputs, by their names.
func opened(texts map[string]string) func(string) (io.ReadCloser, error) {
	return func(name string) (io.ReadCloser, error) { return io.NopCloser(strings.NewReader(texts[name])), nil }
}

func TestInterleaved(t *testing.T) {
	fasta, fastq, want := sample(3, 600)
	lines := strings.SplitAfter(strings.TrimSuffix(want, "\n"), "\n")
	for _, text := range []string{fasta, fastq, zstded(fasta)} {
		for _, o := range []Options{{}, {BlockBytes: 1}, {BlockBytes: 300}, {BlockBytes: 7000, Threads: 3}} {
			o.Open = opened(map[string]string{"in": text})
			var got []string
			counts, err := ReadInterleaved(t.Context(), []string{"in"}, o, func(a, b *Block) error {
				if len(a.Records) != len(b.Records) || len(a.Records) == 0 {
					return fmt.Errorf("%d reads and %d mates", len(a.Records), len(b.Records))
				}
				for i, r := range a.Records {
					m := b.Records[i]
					got = append(got, fmt.Sprintf("%s\t%s\n", r.Name, a.Text[r.Start:r.End]),
						fmt.Sprintf("%s\t%s\n", m.Name, b.Text[m.Start:m.End]))
				}
				a.Release()
				b.Release()
				return nil
			})
			if err != nil || counts.Records != 600 {
				t.Fatal(counts, err)
			}
			if d := cmp.Diff(strings.Join(lines, ""), strings.TrimSuffix(strings.Join(got, ""), "\n")); d != "" {
				t.Fatal(d)
			}
		}
	}
	o := Options{Open: opened(map[string]string{"in": ">a\nA\n>b\nC\n>c\nG\n"})}
	if _, err := ReadInterleaved(t.Context(), []string{"in"}, o, func(a, b *Block) error { return nil }); err == nil ||
		!strings.Contains(err.Error(), `in: "c", the last record, has no mate`) {
		t.Error(err)
	}
	// Mates do not come from two inputs: an input that was cut off would shift all mates of the next.
	for _, size := range []int{1, 1 << 20} {
		o := Options{BlockBytes: size, Open: opened(map[string]string{"cut": ">a\nA\n>b\nC\n>c\nG\n", "odd": ">d\nA\n"})}
		pairs := 0
		if _, err := ReadInterleaved(t.Context(), []string{"cut", "odd"}, o, func(a, b *Block) error {
			pairs += len(a.Records)
			return nil
		}); err == nil || !strings.Contains(err.Error(), `cut: "c", the last record, has no mate`) || pairs != 1 {
			t.Errorf("%d pairs, %v", pairs, err)
		}
	}
}

func TestBounds(t *testing.T) {
	long := ">a\nAC\n>b\n" + strings.Repeat("A", 1000) + "\n"
	for name, c := range map[string]struct {
		text string
		most int
		says string
	}{
		"as long as it may be": {long, 1000, ""},
		"longer by one":        {long, 999, `in: a record that is too long: "b" has 1000 letters, want 999 at most`},
		"lines of a letter":    {">a\n" + strings.Repeat("A\r\n", 1<<15), 1 << 15, ""},
		"much longer":          {">a\nAC\n>b\n" + strings.Repeat("A", 1<<20) + "\n", 100, "in:3: a record that is too long: more than"},
		"blank":                {strings.Repeat("\n", 1<<20), 100, "too long"},
		"name":                 {">" + strings.Repeat("A", 1<<20), 100, "too long"},
	} {
		_, _, err := read([]string{"in"}, Options{BlockBytes: 1 << 12, MaxLetters: c.most,
			Open: opened(map[string]string{"in": c.text})})
		switch {
		case c.says == "" && err != nil:
			t.Errorf("%s: %v", name, err)
		case c.says != "" && (!errors.Is(err, ErrTooLong) || !strings.Contains(err.Error(), c.says)):
			t.Errorf("%s: %v, want %s", name, err, c.says)
		}
	}
	if _, _, err := read([]string{"in"}, Options{Open: func(string) (io.ReadCloser, error) {
		return nil, io.ErrClosedPipe
	}}); !errors.Is(err, io.ErrClosedPipe) {
		t.Error(err)
	}
}

// Mates behind a broken record would be others' mates.
func TestSkipMates(t *testing.T) {
	one := func(a, b *Block) error { return nil }
	_, err := ReadPaired(t.Context(), nil, nil, Options{SkipBroken: true}, one)
	_, other := ReadInterleaved(t.Context(), nil, Options{SkipBroken: true}, one)
	if err != errSkipMates || other != errSkipMates {
		t.Errorf("%v, %v", err, other)
	}
}

// What is packed otherwise, or begins with a mark, is told by its name, and never left out.
func TestForeign(t *testing.T) {
	dir := t.TempDir()
	for _, f := range foreign {
		file := put(t, filepath.Join(dir, "x"), f.first+">a\nACGT\n")
		for _, skip := range []bool{false, true} {
			if _, _, err := read([]string{file}, Options{SkipBroken: skip}); err == nil ||
				!strings.Contains(err.Error(), f.what) {
				t.Errorf("%q: %v, want %s", f.first, err, f.what)
			}
		}
	}
}

// gzip that is cut anywhere is not whole, alone or behind other members: also within a header with names.
func TestCutGzip(t *testing.T) {
	var b bytes.Buffer
	z := gzip.NewWriter(&b)
	z.Name, z.Comment, z.Extra = "genomes.fa", "of some", []byte("XX\x01\x00y")
	z.Write([]byte(">b\nAC\n"))
	z.Close()
	whole, file := gzipped(">a\nACGT\n"), filepath.Join(t.TempDir(), "x")
	for _, before := range []string{"", whole} {
		for n := 2; n < b.Len(); n++ {
			put(t, file, before+b.String()[:n])
			for _, skip := range []bool{false, true} {
				if _, _, err := read([]string{file}, Options{SkipBroken: skip}); err == nil ||
					!strings.Contains(err.Error(), "ends too early") {
					t.Errorf("%d bytes behind %d: %v", n, len(before), err)
				}
			}
		}
		for _, tail := range []string{"\n", "x", "\x00\n", "xy"} {
			put(t, file, before+b.String()+tail)
			if _, _, err := read([]string{file}, Options{}); err == nil ||
				!strings.Contains(err.Error(), "other data stands behind it") {
				t.Errorf("%q behind: %v", tail, err)
			}
		}
	}
}

// Every byte is looked at, wherever it stands, and only those are letters that sequences have.
func TestLetters(t *testing.T) {
	const good = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz*-."
	for n := range 20 {
		for at := range n {
			for b := range 256 {
				line := bytes.Repeat([]byte("z"), n)
				line[at] = byte(b)
				want := at
				if strings.IndexByte(good, byte(b)) >= 0 {
					want = -1
				}
				if got := oddLetter(line); got != want {
					t.Fatalf("byte %d of %d is %q: %d, want %d", at, n, byte(b), got, want)
				}
			}
		}
	}
}

// FuzzPairs: mates that take turns in one input are those of two inputs, and each block has as many of both sides.
func FuzzPairs(f *testing.F) {
	a, q, _ := sample(6, 5)
	b, _, _ := sample(7, 5)
	for _, text := range []string{a, q, "", "\n", ">", ">a\nA\n>b\nC\n>c\n", "@a\nA\n+\nI\n>b\nC\n", gzipped(a), zstded(q)} {
		f.Add([]byte(text), []byte(b), uint16(7))
		f.Add([]byte(text), []byte(text), uint16(300))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, first, second []byte, size uint16) {
		testenv.Bounded(t, len(first)+len(second), func() {
			one, two := put(t, filepath.Join(dir, "1"), string(first)), put(t, filepath.Join(dir, "2"), string(second))
			o := Options{BlockBytes: int(size), Threads: 1 + int(size)%4}
			var paired, turns [2]strings.Builder
			into := func(to *[2]strings.Builder) func(a, b *Block) error {
				return func(a, b *Block) error {
					if len(a.Records) != len(b.Records) {
						return fmt.Errorf("a block of %d records and %d mates", len(a.Records), len(b.Records))
					}
					for i, block := range []*Block{a, b} {
						for _, r := range block.Records {
							fmt.Fprintf(&to[i], "%s\t%s\n", r.Name, block.Text[r.Start:r.End])
						}
						block.Release()
					}
					return nil
				}
			}
			counts, err := ReadPaired(t.Context(), []string{one}, []string{two}, o, into(&paired))
			x, xCounts, xErr := read([]string{one}, o)
			y, yCounts, yErr := read([]string{two}, o)
			both := xErr == nil && yErr == nil && xCounts.Records == yCounts.Records
			if (err == nil) != both {
				t.Fatalf("%v: the sides have %+v, %v and %+v, %v", err, xCounts, xErr, yCounts, yErr)
			}
			var input *InputError
			if err != nil && !errors.As(err, &input) {
				t.Fatalf("%T %v: want an InputError", err, err)
			}
			if err == nil && (paired[0].String() != x || paired[1].String() != y ||
				counts.Records != xCounts.Records+yCounts.Records) {
				t.Fatalf("%+v, %q and %q: want %q and %q", counts, paired[0].String(), paired[1].String(), x, y)
			}
			_, err = ReadInterleaved(t.Context(), []string{one}, o, into(&turns))
			if (err == nil) != (xErr == nil && xCounts.Records%2 == 0) {
				t.Fatalf("in turns: %v; alone: %+v, %v", err, xCounts, xErr)
			}
			if lines := strings.SplitAfter(x, "\n"); err == nil && !strings.Contains(x, "\r") {
				var want [2]string
				for i, line := range lines[:len(lines)-1] {
					want[i%2] += line
				}
				if turns[0].String() != want[0] || turns[1].String() != want[1] {
					t.Fatalf("in turns %q and %q: want %q", turns[0].String(), turns[1].String(), want)
				}
			}
		})
	})
}
