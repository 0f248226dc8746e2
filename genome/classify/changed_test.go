package classify

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/warpmap/warpmap/genome"
)

// changes are what others do to a file; all but the last two write to the file that is open.
var changes = map[string]func(name string, whole []byte) error{
	"cut to nothing": func(name string, whole []byte) error { return os.Truncate(name, 0) },
	"cut within a column": func(name string, whole []byte) error {
		return os.Truncate(name, int64(len(whole)/2))
	},
	"written over": func(name string, whole []byte) error {
		f, err := os.OpenFile(name, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = f.WriteAt(bytes.Repeat([]byte{0xff}, len(whole)-sectionAlign), sectionAlign)
		return errors.Join(err, f.Close())
	},
	"copied over": func(name string, whole []byte) error {
		other := slices.Clone(whole)
		for i := range other {
			other[i] ^= 1
		}
		return os.WriteFile(name, other, 0o600)
	},
	"renamed over": func(name string, whole []byte) error {
		return errors.Join(os.WriteFile(name+".new", whole[:len(whole)-9000], 0o600), os.Rename(name+".new", name))
	},
	"removed": func(name string, whole []byte) error { return os.Remove(name) },
}

// A file that is cut off, written over or replaced harms no classifier that has been loaded, and is an error, or what
// it was, for all that read it.
func TestChangedFile(t *testing.T) {
	d, other := cpu(t), numbered(t, 6)
	references := relatives(rand.New(rand.NewPCG(1, 9)), 7, 20_000)
	db := build(t, d, Options{}, false, references)
	want := indexOf(db)
	reads := filepath.Join(t.TempDir(), "reads.fa")
	write(t, reads, fasta(sample(rand.New(rand.NewPCG(2, 9)), references, 200), func(i int) string {
		return fmt.Sprint("r", i)
	}))
	lines := func(c *Classifier) string {
		var out []byte
		_, err := c.Run(t.Context(), []string{reads}, nil, genome.Options{}, func(*Result) error {
			return nil
		}, func(r *Result) error {
			out = c.AppendLines(out, r, KrakenLines)
			return nil
		})
		if err != nil {
			t.Error(err)
		}
		return string(out)
	}
	for name, change := range changes {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "db")
			if err := db.Save(file); err != nil {
				t.Fatal(err)
			}
			whole, err := os.ReadFile(file)
			if err != nil {
				t.Fatal(err)
			}
			if err := os.Chtimes(file, time.Time{}, time.Now().Add(-time.Minute)); err != nil {
				t.Fatal(err)
			}
			opened, err := Open(file)
			if err != nil {
				t.Fatal(err)
			}
			defer opened.Close()
			loaded, err := NewClassifier(d, opened, QueryOptions{})
			if err != nil {
				t.Fatal(err)
			}
			defer loaded.Close()
			before := lines(loaded)
			if err := loaded.Load(); err != nil {
				t.Fatal(err)
			}
			if err := opened.Changed(); err != nil {
				t.Error(err)
			}
			if err := change(file, whole); err != nil {
				t.Fatal(err)
			}
			if err := opened.Changed(); err == nil || !strings.Contains(err.Error(), "since it was loaded") {
				t.Errorf("Changed: %v", err)
			}
			if lines(loaded) != before {
				t.Error("a classifier that has been loaded says other lines")
			}
			gone := !strings.HasPrefix(name, "re")
			tell := func(what string, err error) {
				if gone && (err == nil || !errors.Is(err, errChanged)) || !gone && err != nil {
					t.Errorf("%s: %v", what, err)
				}
				if err != nil {
					wantInputError(t, err)
				}
			}
			got := map[uint32][]uint64{}
			err = opened.Each(func(f uint32, l []uint64) { got[f] = slices.Clone(l) })
			tell("Each", err)
			if d := cmp.Diff(want, got); err == nil && d != "" {
				t.Error(d)
			}
			c, err := NewClassifier(d, opened, QueryOptions{})
			if err != nil {
				t.Fatal(err)
			}
			err = c.Load()
			tell("Load", err)
			if err == nil && lines(c) != before {
				t.Error("a classifier of the file says other lines")
			}
			c.Close()
			c, err = NewClassifier(d, opened, QueryOptions{}, other)
			tell("NewClassifier of two devices", err)
			if err == nil {
				c.Close()
			}
			b, err := Extend(d, opened, "")
			if err != nil {
				t.Fatal(err)
			}
			_, err = b.Database()
			tell("Database", err)
			if err := b.Close(); err != nil {
				t.Error(err)
			}
			tell("Save", opened.Save(filepath.Join(t.TempDir(), "copy")))
		})
	}
}

// Columns of several chunks, and lists of locations that lie in two of them, are read as they were written.
func TestSeveralChunks(t *testing.T) {
	db := &Database{taxonomy: &Taxonomy{ids: []uint32{rootID}, parents: []uint32{0}, ranks: []Rank{Root},
		names: []string{"root"}, merged: map[uint32]uint32{}, index: map[uint32]uint32{rootID: 0}},
		targets: []target{{"a", 0, 1 << 30}}}
	if err := db.Options.complete(); err != nil {
		t.Fatal(err)
	}
	r, at := rand.New(rand.NewPCG(3, 9)), uint64(0)
	for f := range chunkItems + chunkItems/3 {
		var l []uint64
		for range []int{1, 1, 2, 3, 5}[r.IntN(5)] {
			l = append(l, at)
			at++
		}
		db.features = append(db.features, uint32(3*f))
		db.append(l)
	}
	file := filepath.Join(t.TempDir(), "db")
	if err := db.Save(file); err != nil {
		t.Fatal(err)
	}
	opened, err := Open(file)
	if err != nil {
		t.Fatal(err)
	}
	defer opened.Close()
	if opened.Stats() != db.Stats() {
		t.Errorf("%+v; want %+v", opened.Stats(), db.Stats())
	}
	again := &Database{}
	err = opened.Each(func(f uint32, l []uint64) {
		again.features = append(again.features, f)
		again.append(l)
	})
	if err != nil {
		t.Fatal(err)
	}
	same := func(what string, features []uint32, entries, locations []uint64) {
		if !bytes.Equal(raw(features), raw(db.features)) || !bytes.Equal(raw(entries), raw(db.entries)) ||
			!bytes.Equal(raw(locations), raw(db.locations)) {
			t.Errorf("%s: %d features, %d entries, %d locations are not those that were written", what, len(features),
				len(entries), len(locations))
		}
	}
	same("Each", again.features, again.entries, again.locations)
	var features []uint32
	var entries, locations []uint64
	d := cpu(t)
	err = opened.batches(d, func(b *batch) error {
		features, entries = append(features, b.features...), append(entries, b.entries...)
		locations = append(locations, b.locations...)
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	same("batches", features, entries, locations)
	stop := errors.New("stop")
	if err := opened.batches(d, func(b *batch) error { return stop }); err != stop {
		t.Error(err)
	}
}
