package operations_test

import (
	"embed"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/internal/operations"
	"github.com/warpmap/warpmap/internal/planted"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
)

// defect is a change of the sources that generated files must find. Its reduced file is testdata/planted-NAME.ops.
type defect struct {
	name     string
	kind     string       // of the files that look for it
	family   table.Family // of their grounds; "" for all, "shards" for all of these
	file     string       // from the module's root
	old, now string
}

var defects = []defect{
	{"slab-tombstone", "map", "slab", "slab/slab.cuh", // a key behind it is then there twice
		"if (next != NONE && !(inserts() && room.any(g))) {",
		"if (next != NONE && !(inserts() && (room.any(g) || (REUSE && tomb_slab)))) {"},
	{"multibucket-last-value", "multibucket", "warpcore", "warpcore/multibucket.cuh",
		"for (int b = WORD; b < C::SLOT_BYTES; b += 8) store_relaxed(at<u64>(to + b), load_relaxed(at<u64>(from + b)));",
		"for (int b = WORD; b < C::SLOT_BYTES; b += 8) store_relaxed(at<u64>(to + b), load_relaxed(at<u64>(from + (b + 8 < C::SLOT_BYTES ? b : WORD))));"},
	{"filter-lost-bits", "filter", "warpcore", "warpcore/filter.cuh",
		"or_of(at_word[j], bits[j]);",
		"store_relaxed(at_word[j], load_relaxed(at_word[j]) | bits[j]);"},
	{"cuckoo-takes-another", "filter", "cuckoo", "cuckoo/cuckoo.cuh", // a deletion takes another key's tag
		"if (take_from<C>(p.first(), home, p.tag)) return true;",
		"if (take_from<C>(p.first(), home, p.tag & ~1u ? p.tag & ~1u : p.tag) || take_from<C>(p.first(), home, p.tag)) return true;"},
	{"dycuckoo-deleted-twice", "map", "dycuckoo", "dycuckoo/dycuckoo.cuh",
		"return and_of(mask(b), ~(1u << s)) >> s & 1; }",
		"return and_of(mask(b), ~(1u << s)) | 1; }"},
	{"stadium-gone-on", "map", "stadium", "stadium/stadium.cuh", // a look-up ends before the key
		"for (u64 i = 0; i < before; i++, p.advance(t)) goes_on<C>(t, p.bucket(t), p);",
		"for (u64 i = 0; i + 1 < before; i++, p.advance(t)) goes_on<C>(t, p.bucket(t), p);"},
	{"gph-mapping", "map", "gph", "gph/gph.cuh",
		"publish(cell, (m << C::LOG_VIRTUAL) + offset);",
		"publish(cell, (mapping << C::LOG_VIRTUAL) + offset);"},
	{"shard-not-chosen", "map", "shards", "shard/exchange.cu", // it reads nothing that the tile has not written, which chance would fill
		"at<T>(out)[tile.first + j] = place[i] < shared.rows ? ((const T*)shared.column)[place[i]] : T{};",
		"at<T>(out)[tile.first + j] = shared.rows ? ((const T*)shared.column)[place[i] < shared.rows ? place[i] : 0] : T{};"},
	{"frame-refused-of-a-part", "map", "", "internal/frame/insert.go",
		"list = append(list, int(p.First)+32*i+j)",
		"list = append(list, 32*i+j)"},
	{"frame-chosen-of-a-part", "map", "", "internal/frame/insert.go",
		"at(b.Out, valueBytes), at(b.When, 1), b.Ordered}",
		"at(b.Out, valueBytes), b.When, b.Ordered}"},
	{"shard-top", "counter", "shards", "shard/counters.go", // a key may be the most frequent of all, and not among a device's share
		"top := func() ([]K, []C, error) { return c.tables[i].Top(n) }",
		"top := func() ([]K, []C, error) { return c.tables[i].Top((n + 1) / 2) }"},
	{"cache-out-of-a-refused", "cache", "", "cache/kernels.cu", // what went out is told with the score of what came in
		"at<u32>(p.out_scores)[to] = old ? x.score : score;",
		"at<u32>(p.out_scores)[to] = score;"},
	{"cache-evicted-tag", "cache", "", "cache/cache.cuh", // an evicted pair is still found by its tag
		"if (x.fate != UPDATES) store_relaxed(tag_at",
		"if (x.fate == ADDS) store_relaxed(tag_at"},
	{"cache-keep-of-one", "cache", "", "cache/core.go", // an Aged cache forgets too often
		"c.used >= agePeriod*uint64(c.slots())",
		"c.used >= agePeriod*c.t.Count"},
}

func (d *defect) kept() string { return path.Join("testdata", "planted-"+d.name+".ops") }

// inKernel tells whether the defect is in the text of kernels, which are compiled when they are first used.
func (d *defect) inKernel() bool { return filepath.Ext(d.file) != ".go" }

// root is the module's folder. Test binaries may run far from the sources: then there is nothing to change.
func root(t *testing.T) string {
	t.Helper()
	dir, err := filepath.Abs(filepath.Join("..", ".."))
	must(t, err)
	if _, err := os.Stat(filepath.Join(dir, "go.mod")); err != nil {
		t.Skip("the sources are not here")
	}
	return dir
}

// text is that of the file, without the defect and with it.
func (d *defect) text(t *testing.T) (before, after string) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(root(t), filepath.FromSlash(d.file)))
	must(t, err)
	if n := strings.Count(string(data), d.old); n != 1 {
		t.Fatalf("%s has %d times\n%s", d.file, n, d.old)
	}
	return string(data), strings.Replace(string(data), d.old, d.now, 1)
}

// plant has the kernels compiled with the defect, while do runs.
func (d *defect) plant(t *testing.T, do func()) {
	before, after := d.text(t)
	planted.Text = func(_, _, text string) string {
		if text == before {
			return after
		}
		return text
	}
	defer func() { planted.Text = nil }()
	do()
}

const (
	mostSeeds = 1000 // among which one finds a planted defect
	mostRuns  = 600  // of a file that is reduced
	mostLines = 19   // of a reduced file
)

// find generates files until one fails, and reduces that. It tells the seed, and how many runs it took to reduce.
func find(g operations.Generator, from uint64) (f *operations.File, seed uint64, runs int, err error) {
	for seed = from; seed < from+mostSeeds; seed++ {
		f = g.Generate(seed)
		if err = watched(&operations.Runner{}, f); err != nil {
			break
		}
	}
	if err == nil {
		return nil, seed, 0, nil
	}
	f, runs = operations.Reduce(f, mostRuns, failure)
	return f, seed, runs, err
}

// failure is the first of several runs of a file, of which races may need more than one.
func failure(f *operations.File) error {
	for range 3 {
		if err := watched(&operations.Runner{}, f); err != nil {
			return err
		}
	}
	return nil
}

func (d *defect) generator() operations.Generator {
	g := operations.Generator{Kind: d.kind, Family: d.family, Short: true}
	if d.family == "shards" {
		g.Family, g.Shards = "", true
	}
	return g
}

// lines are those of a file.
func lines(f *operations.File) int { return strings.Count(f.String(), "\n") }

// Defects that are put into kernels, into the frame, into shards and into caches on purpose are found by generated files, which
// are reduced to a few lines. WARPMAP_KEEP=1 writes these to testdata. It runs beside no other test, because it changes
// the kernels' text.
func TestFindsPlanted(t *testing.T) {
	if !testenv.Long() {
		t.Skip("takes minutes: WARPMAP_LONG=1 has it run")
	}
	for _, d := range defects {
		t.Run(d.name, func(t *testing.T) {
			testenv.Turn(t)
			var f *operations.File
			if d.inKernel() {
				d.plant(t, func() {
					found, seed, runs, err := find(d.generator(), 1)
					if found == nil {
						t.Fatalf("none of %d seeds finds it", mostSeeds)
					}
					t.Logf("seed %d: %v; %d runs reduce it to %d lines:\n%v", seed, err, runs, lines(found), found)
					f = found
				})
			} else {
				f = d.findElsewhere(t)
			}
			if n := lines(f); n > mostLines {
				t.Errorf("reduced it has %d lines, want %d at most", n, mostLines)
			}
			f.Comments = []string{fmt.Sprintf("Found: planted, in %s", d.file), "  " + d.old, "  " + d.now}
			if err := failure(f); err != nil {
				t.Fatalf("without the defect: %v\n%v", err, f)
			}
			if os.Getenv("WARPMAP_KEEP") != "" {
				must(t, os.WriteFile(d.kept(), []byte(f.String()), 0o644))
			}
		})
	}
}

// elsewhere makes a test binary, whose frame has a defect, find that: the folder for the file, and the defect's name.
const elsewhere = "WARPMAP_FIND_IN"

// findElsewhere has the defect of a Go file found by a test binary that is built with it.
func (d *defect) findElsewhere(t *testing.T) *operations.File {
	dir := t.TempDir()
	_, after := d.text(t)
	changed := filepath.Join(dir, "changed.go")
	must(t, os.WriteFile(changed, []byte(after), 0o644))
	overlay, err := json.Marshal(map[string]any{"Replace": map[string]string{filepath.Join(root(t), d.file): changed}})
	must(t, err)
	must(t, os.WriteFile(filepath.Join(dir, "overlay.json"), overlay, 0o644))
	cmd := exec.Command("go", "test", "-count=1", "-v", "-vet=off", "-timeout=30m", "-overlay="+filepath.Join(dir, "overlay.json"),
		"-run=^TestFindHere$", ".")
	cmd.Env = append(os.Environ(), elsewhere+"="+dir, elsewhere+"_NAME="+d.name, "CGO_ENABLED=0")
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	t.Logf("%s", out)
	text, err := os.ReadFile(filepath.Join(dir, "found.ops"))
	must(t, err)
	f, err := operations.Parse(string(text))
	must(t, err)
	return f
}

// TestFindHere is what findElsewhere runs.
func TestFindHere(t *testing.T) {
	dir := os.Getenv(elsewhere)
	if dir == "" {
		t.Skip("TestFindsPlanted runs it in another process")
	}
	for _, d := range defects {
		if d.name != os.Getenv(elsewhere+"_NAME") {
			continue
		}
		f, seed, runs, err := find(d.generator(), 1)
		if f == nil {
			t.Fatalf("none of %d seeds finds it", mostSeeds)
		}
		t.Logf("seed %d: %v; %d runs reduce it to %d lines:\n%v", seed, err, runs, lines(f), f)
		must(t, os.WriteFile(filepath.Join(dir, "found.ops"), []byte(f.String()), 0o644))
	}
}

// The kept files of some planted defects fail with these.
func TestKeptFilesFindPlanted(t *testing.T) {
	for i, d := range defects {
		if !d.inKernel() || i%3 != 2 && !testenv.Long() {
			continue
		}
		t.Run(d.name, func(t *testing.T) {
			f := read(t, testdata, d.kept())
			d.plant(t, func() {
				if err := failure(f); err == nil {
					t.Errorf("it passes with the defect:\n%v", f)
				} else {
					t.Log(err)
				}
			})
		})
	}
}

// testdata has the kept files, also where test binaries run far from the sources.
//
//go:embed testdata/*.ops
var testdata embed.FS

func read(t *testing.T, from fs.FS, name string) *operations.File {
	t.Helper()
	data, err := fs.ReadFile(from, name)
	must(t, err)
	f, err := operations.Parse(string(data))
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	return f
}

// Every file that was once found and reduced runs on the grounds it names, and passes.
func TestKept(t *testing.T) {
	names, err := fs.Glob(testdata, "testdata/*.ops")
	must(t, err)
	for _, name := range names {
		t.Run(strings.TrimSuffix(path.Base(name), ".ops"), func(t *testing.T) {
			f := read(t, testdata, name)
			if len(f.Comments) == 0 || !strings.HasPrefix(f.Comments[0], "Found: ") {
				t.Errorf("%s does not say first what it found", name)
			}
			r := &operations.Runner{}
			if err := watched(r, f); err != nil {
				t.Errorf("%s: %v", name, err)
			}
			if r.Refused > 0 {
				t.Errorf("%s: the options of %d grounds are refused", name, r.Refused)
			}
		})
	}
}
