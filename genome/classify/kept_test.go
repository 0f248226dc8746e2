package classify

import (
	"bytes"
	"flag"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/klauspost/compress/gzip"
)

// See TestFilesOfAllVersions of the root package.
var keep = flag.String("keep", "", "write the files of this new version into testdata")

// The database of each version, which lies beside the sequences that it was built of and the lines that it gave for them, holds the features of these, and
// gives these lines.
func TestFilesOfAllVersions(t *testing.T) {
	d := cpu(t)
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	lines := func(db *Database, references []string) string {
		c, err := NewClassifier(d, db, QueryOptions{})
		must(err)
		defer c.Close()
		_, lines := run(t, c, c.NewTally(false), references, nil, KrakenLines)
		return lines
	}
	if *keep != "" {
		must(os.MkdirAll("testdata", 0o755))
		dir := filepath.Join("testdata", *keep)
		if err := os.Mkdir(dir, 0o755); err != nil {
			t.Fatalf("%v: files of a version that is out stay as they are", err)
		}
		references := relatives(rand.New(rand.NewPCG(3, 5)), 5, 400)
		db := build(t, d, Options{}, false, references)
		plain := filepath.Join(t.TempDir(), "plain")
		must(db.Save(plain))
		text, err := os.ReadFile(plain)
		must(err)
		write(t, filepath.Join(dir, "refs.db.gz"), gzipped(string(text)))
		write(t, filepath.Join(dir, "refs.txt"), strings.Join(references, "\n"))
		write(t, filepath.Join(dir, "lines.txt"), lines(db, references))
	}
	dirs, err := filepath.Glob(filepath.Join("testdata", "*", "refs.db.gz"))
	if err != nil || len(dirs) == 0 {
		t.Fatalf("%v: testdata has no files", err)
	}
	for _, name := range dirs {
		dir := filepath.Dir(name)
		packed, err := os.ReadFile(name)
		must(err)
		z, err := gzip.NewReader(bytes.NewReader(packed))
		must(err)
		text, err := io.ReadAll(z)
		must(err)
		plain := filepath.Join(t.TempDir(), "plain")
		write(t, plain, string(text))
		sequences, err := os.ReadFile(filepath.Join(dir, "refs.txt"))
		must(err)
		want, err := os.ReadFile(filepath.Join(dir, "lines.txt"))
		must(err)
		db, err := Open(plain)
		must(err)
		references := strings.Split(string(sequences), "\n")
		if diff := cmp.Diff(twinIndex(references, db.Options), indexOf(db)); diff != "" {
			t.Errorf("%s: %s", name, diff)
		}
		if got := lines(db, references); got != string(want) || strings.Count(got, "C\t") < 5 {
			t.Errorf("%s: the lines are\n%swant\n%s", name, got, want)
		}
		must(db.Close())
	}
}
