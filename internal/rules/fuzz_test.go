package rules

import (
	"go/ast"
	"maps"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// A corpus is small, for go test runs all of it: so many files a fuzzer, of so many bytes each, and so many in all. What
// go run ./internal/fuzz -keep chooses is within these.
const (
	mostInputs     = 40
	mostInputBytes = 16 << 10
	mostCorpora    = 1500 << 10
)

// decoders are functions of other modules that take apart what somebody wrote.
var decoders = regexp.MustCompile(`^(json\.(Unmarshal|NewDecoder)|jsontext\.NewDecoder|gob\.NewDecoder|csv\.NewReader|` +
	`strconv\.(Parse\w+|Atoi)|fmt\.F?S?[sS]can\w*|binary\.(Read|Decode|U?[vV]arint)|time\.Parse\w*|netip\.Parse\w+|` +
	`url\.Parse\w*|mime\.ParseMediaType|uuid\.Parse\w*|ipc\.New\w*Reader|file\.(NewParquetReader|OpenParquetFile)|` +
	`gzip\.NewReader|zstd\.NewReader|humanize\.Parse\w+|doublestar\.FilepathGlob)$`)

// parsing are the names of functions that take text apart by themselves.
var parsing = regexp.MustCompile(`^[pP]arse[A-Z]`)

func TestFormatsAreFuzzed(t *testing.T) {
	all, fuzzers := goFiles(t), map[string]bool{}
	for _, f := range all {
		for _, d := range f.Decls {
			if fn, is := d.(*ast.FuncDecl); is && f.test() && strings.HasPrefix(fn.Name.Name, "Fuzz") {
				fuzzers[path.Join(path.Dir(f.name), fn.Name.Name)] = true
			}
		}
	}
	found, declared := map[string]string{}, map[string]bool{}
	for _, f := range all {
		if f.test() || strings.HasPrefix(f.name, "bench/") || strings.HasPrefix(f.name, "internal/fuzz/") {
			continue
		}
		for _, d := range f.Decls {
			fn, is := d.(*ast.FuncDecl)
			if !is {
				continue
			}
			name := path.Dir(f.name) + "." + fn.Name.Name
			declared[name] = true
			if parsing.MatchString(fn.Name.Name) {
				found[name] = f.at(fn)
			}
			ast.Inspect(fn, func(n ast.Node) bool {
				if s, is := n.(*ast.SelectorExpr); is {
					if x, is := s.X.(*ast.Ident); is && decoders.MatchString(x.Name+"."+s.Sel.Name) {
						found[name] = f.at(n)
					}
				}
				return true
			})
		}
	}
	for _, name := range slices.Sorted(maps.Keys(found)) {
		if formats[name] == "" {
			t.Errorf("%s: %s takes apart what somebody wrote: in formats_test.go, say which fuzzer reaches it, or why none does",
				found[name], name)
		}
	}
	named := map[string]bool{}
	for name, by := range formats {
		if !declared[name] {
			t.Errorf("formats_test.go lists %s, which is no more", name)
		}
		for word := range strings.FieldsFuncSeq(by, func(r rune) bool { return r == ' ' || r == ',' || r == ';' }) {
			if base := path.Base(word); strings.HasPrefix(base, "Fuzz") {
				if named[word] = true; !fuzzers[word] {
					t.Errorf("formats_test.go names %s for %s, which is no fuzzer", word, name)
				}
			}
		}
	}
	if len(found) == 0 || len(named) == 0 {
		t.Error("nothing takes anything apart: the rule looks at the wrong files")
	}
}

func TestFuzzersHaveCorpora(t *testing.T) {
	dir, all, fuzzers := root(t), int64(0), 0
	bounded := map[string]bool{}
	for name, text := range tree(t) {
		if strings.HasSuffix(name, "_test.go") && strings.Contains(text, "testenv.Bounded(") {
			bounded[path.Dir(name)] = true
		}
	}
	for _, f := range goFiles(t) {
		for _, d := range f.Decls {
			fn, is := d.(*ast.FuncDecl)
			if !is || !f.test() || !strings.HasPrefix(fn.Name.Name, "Fuzz") {
				continue
			}
			fuzzers++
			if !bounded[path.Dir(f.name)] {
				t.Errorf("%s: %s bounds neither memory nor time: do what it does in testenv.Bounded", f.at(fn), fn.Name.Name)
			}
			corpus := filepath.Join(dir, path.Dir(f.name), "testdata", "fuzz", fn.Name.Name)
			entries, err := os.ReadDir(corpus)
			if err != nil || len(entries) == 0 || len(entries) > mostInputs {
				t.Errorf("%s: %s has a corpus of %d files, want 1 to %d: go run ./internal/fuzz -time 5m -keep -run '%s$'",
					f.at(fn), fn.Name.Name, len(entries), mostInputs, path.Join(path.Dir(f.name), fn.Name.Name))
			}
			for _, e := range entries {
				about, err := e.Info()
				if err != nil {
					t.Fatal(err)
				}
				if all += about.Size(); about.Size() > mostInputBytes {
					t.Errorf("%s has %d bytes, want %d at most", filepath.Join(corpus, e.Name()), about.Size(), mostInputBytes)
				}
			}
		}
	}
	if fuzzers == 0 || all > mostCorpora {
		t.Errorf("%d fuzzers with corpora of %d bytes, want %d at most", fuzzers, all, mostCorpora)
	}
}
