package kmers

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/gzip"
)

// See TestFilesOfAllVersions of the root package.
var keep = flag.String("keep", "", "write the files of this new version into testdata")

// The file of each version, of k-mers of one word and of two, has what its text has.
func TestFilesOfAllVersions(t *testing.T) {
	const sequence = "ACGTTGCANGGATCCATTACGTTGCATTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTTGATTACAGATTACAGATTACAGATTACAGATTACAGATTACA" +
		"GCGCGATATCGGTACCTAGGAATTCCGGAACTAGTCTAGAGCATGCAAGCTTGGCACTGGCCGTCGTTTTACAACGTCGTGACTGGGAAAACCCTGGCGTTACCCAACTTAATCGCC"
	dir := t.TempDir()
	all := map[string]Options{"k21.kmers.gz": {K: 21, Canonical: true}, "k40.kmers.gz": {K: 40}}
	if *keep != "" {
		if err := os.MkdirAll("testdata", 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.Mkdir(filepath.Join("testdata", *keep), 0o755); err != nil {
			t.Fatalf("%v: files of a version that is out stay as they are", err)
		}
		in := filepath.Join(dir, "in.fa")
		must(t, os.WriteFile(in, []byte(">a\n"+sequence+"\n"), 0o600))
		for name, o := range all {
			out := filepath.Join(dir, "out")
			_, err := Count(t.Context(), open(t, "cpu"), []string{in}, o, out)
			must(t, err)
			text, err := os.ReadFile(out)
			must(t, err)
			f, err := os.Create(filepath.Join("testdata", *keep, name))
			must(t, err)
			z := gzip.NewWriter(f)
			_, err = z.Write(text)
			must(t, err)
			must(t, z.Close())
			must(t, f.Close())
		}
	}
	names, err := filepath.Glob(filepath.Join("testdata", "*", "*.kmers.gz"))
	if err != nil || len(names) == 0 {
		t.Fatalf("%v: testdata has no files", err)
	}
	for _, name := range names {
		o, ok := all[filepath.Base(name)]
		if !ok {
			t.Errorf("%s: no test reads it", name)
			continue
		}
		f, err := os.Open(name)
		must(t, err)
		z, err := gzip.NewReader(f)
		must(t, err)
		var text strings.Builder
		_, err = z.WriteTo(&text)
		must(t, err)
		must(t, f.Close())
		plain := filepath.Join(dir, "plain")
		must(t, os.WriteFile(plain, []byte(text.String()), 0o600))
		compare(t, fmt.Sprint(name, " ", o.K), plainly([]string{sequence}, o.K, o.Canonical, 0), plain)
		if _, got := counts(t, plain); got.K != o.K || got.Canonical != o.Canonical {
			t.Errorf("%s: of %d letters, canonical %v", name, got.K, got.Canonical)
		}
	}
}
