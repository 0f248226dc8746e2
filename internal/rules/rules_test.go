// Package rules holds the rules of the house as tests; CONTRIBUTING.md says what they are.
package rules

import (
	"bytes"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
)

const module = "github.com/warpmap/warpmap"

// root is the module's folder. Test binaries may run far from the sources: then there is nothing to check.
func root(t *testing.T) string {
	t.Helper()
	dir := filepath.Join("..", "..")
	if data, err := os.ReadFile(filepath.Join(dir, "go.mod")); err != nil || !strings.HasPrefix(string(data), "module "+module+"\n") {
		t.Skip("the sources are not here")
	}
	return dir
}

// tree is every text file of the checkout that git does not ignore, by its path from the root.
func tree(t *testing.T) map[string]string {
	t.Helper()
	root(t)
	return readTree()
}

var readTree = sync.OnceValue(func() map[string]string {
	dir, files := filepath.Join("..", ".."), map[string]string{}
	add := func(name string) {
		data, err := os.ReadFile(filepath.Join(dir, name))
		if err == nil && !bytes.ContainsRune(data, 0) {
			files[filepath.ToSlash(name)] = string(data)
		}
	}
	git := exec.Command("git", "ls-files", "-z", "--cached", "--others", "--exclude-standard")
	git.Dir = dir
	if out, err := git.Output(); err == nil {
		for name := range strings.SplitSeq(string(out), "\x00") {
			add(name)
		}
		return files
	}
	filepath.WalkDir(dir, func(name string, e os.DirEntry, err error) error {
		if err == nil && !e.IsDir() {
			rel, _ := filepath.Rel(dir, name)
			if !strings.HasPrefix(rel, ".git/") {
				add(rel)
			}
		}
		return nil
	})
	return files
})

// goFile is a parsed Go file.
type goFile struct {
	*ast.File
	name string // from the root
	fset *token.FileSet
}

func (f goFile) test() bool { return strings.HasSuffix(f.name, "_test.go") }

func (f goFile) at(n ast.Node) string {
	return f.name + ":" + strconv.Itoa(f.fset.Position(n.Pos()).Line)
}

// imports are the import paths, those of this module from its root: "" is the root package.
func (f goFile) imports() (own, others []string) {
	for _, i := range f.Imports {
		p, _ := strconv.Unquote(i.Path.Value)
		if p == module {
			own = append(own, "")
		} else if rel, ok := strings.CutPrefix(p, module+"/"); ok {
			own = append(own, rel)
		} else {
			others = append(others, p)
		}
	}
	return own, others
}

func goFiles(t *testing.T) []goFile {
	t.Helper()
	root(t)
	all, err := parseTree()
	if err != nil {
		t.Fatal(err)
	}
	return all
}

var parseTree = sync.OnceValues(func() (out []goFile, err error) {
	for name, text := range readTree() {
		if path.Ext(name) != ".go" || strings.Contains(name, "testdata/") {
			continue
		}
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, name, text, parser.ParseComments)
		if err != nil {
			return nil, err
		}
		out = append(out, goFile{f, name, fset})
	}
	return out, nil
})

// families are the folders with a table.
func families(t *testing.T) (out []string) {
	t.Helper()
	for name := range tree(t) {
		if dir, file := path.Split(name); file == "map.go" && strings.Count(dir, "/") == 1 {
			out = append(out, path.Clean(dir))
		}
	}
	if len(out) == 0 {
		t.Fatal("no folder has a map.go: a table's folder is known by it")
	}
	slices.Sort(out)
	return out
}

// rank is a package's place in the house; imports go to lower ranks only. CONTRIBUTING.md draws it.
func rank(pkg string, families []string) int {
	top, rest, _ := strings.Cut(pkg, "/")
	switch {
	case top == "cmd" || top == "examples":
		return 10
	case pkg == "shard/operations": // tests alone
		return 9
	case top == "bench" || strings.HasPrefix(pkg, "internal/bench/") && pkg != "internal/bench/baseline" || strings.HasPrefix(rest, "classify/"), top == "serve": // a paper's studies; what serves
		return 9
	case pkg == "internal/operations", pkg == "internal/columnar", strings.HasPrefix(pkg, "internal/bench") || top == "join" || top == "genome" && rest != "":
		return 8
	case pkg == "" || pkg == "genome" || pkg == "sketch" || pkg == "internal/tabletest":
		return 7
	case pkg == "table/snapshot":
		return 6
	case slices.Contains(families, top), pkg == "shard", pkg == "table/text":
		return 5
	case pkg == "internal/frame":
		return 4
	case top == "table" || top == "workload":
		return 3
	case pkg == "device", pkg == "internal/journal":
		return 2
	case pkg == "internal/dl": // how the packages beside it load libraries
		return 0
	case strings.HasSuffix(pkg, "/standin"): // what the tests of the folder above need
		return 0
	case pkg == "internal/quick", pkg == "internal/witness", pkg == "internal/planted", pkg == "internal/faults": // what tests ask of device
		return 0
	case pkg == "internal/crash", pkg == "internal/inflate":
		return 0
	case top == "device" || top == "internal" || strings.HasPrefix(pkg, "shard/internal/"):
		return 1
	case top == "kernel":
		return 0
	}
	return -1
}

func TestArrowsRunDown(t *testing.T) {
	fams := families(t)
	for _, f := range goFiles(t) {
		pkg := path.Dir(f.name)
		if pkg == "." {
			pkg = ""
		}
		from := rank(pkg, fams)
		if from < 0 {
			t.Errorf("%s: the house has no place for package %s: give it one in rank, in rules_test.go, or move it", f.name, pkg)
			continue
		}
		own, _ := f.imports()
		for _, to := range own {
			if f.test() { // tests may look anywhere
				continue
			}
			if rank(to, fams) >= from {
				t.Errorf("%s imports %q, which is not below it: what both need is a function in kernel, device or internal/frame", f.name, to)
			}
		}
	}
}

func TestFamiliesAreListed(t *testing.T) {
	files := tree(t)
	var listed []string
	for _, f := range goFiles(t) {
		if f.name == "families.go" {
			listed, _ = f.imports()
		}
	}
	for _, family := range families(t) {
		if !slices.Contains(listed, family) || !strings.Contains(files["families.go"], strconv.Quote(family)) {
			t.Errorf("families.go does not list %s: add its line, and tests, benchmarks and the command line have it", family)
		}
		if !regexp.MustCompile("(?m)^[-|] *`?" + family + "`?[ :|]").MatchString(files["README.md"]) {
			t.Errorf("README.md does not say when to use %s: add a line that begins \"- `%s`\" to its list of tables", family, family)
		}
	}
}

// What is the same in two families is the frame's, and stands in internal/frame: see CONTRIBUTING.md.
func TestFamiliesShareNoText(t *testing.T) {
	const lines = 6
	fams := families(t)
	first := map[string]string{} // by the text of so many lines, where it stood first
	for _, f := range goFiles(t) {
		dir, base := path.Split(f.name)
		family := path.Clean(dir)
		if f.test() || !slices.Contains(fams, family) || base == "doc.go" || base == "layout.go" {
			continue
		}
		text := strings.Split(tree(t)[f.name], "\n")
		for _, d := range f.Decls {
			if g, ok := d.(*ast.GenDecl); ok && g.Tok == token.IMPORT {
				continue
			}
			var body []string
			from := f.fset.Position(d.Pos()).Line
			for _, line := range text[from-1 : f.fset.Position(d.End()).Line] {
				line, _, _ = strings.Cut(line, "//")
				if line = strings.TrimSpace(line); line != "" {
					body = append(body, line)
				}
			}
			for i := 0; i+lines <= len(body); i++ {
				window := strings.Join(body[i:i+lines], "\n")
				at, known := first[window]
				if !known {
					first[window] = family + " " + f.at(d)
				} else if other, where, _ := strings.Cut(at, " "); other != family {
					t.Errorf("%s and %s have the same %d lines: make of them a function in internal/frame\n%s", where, f.at(d), lines, window)
					break
				}
			}
		}
	}
}

func TestFamiliesLookAlike(t *testing.T) {
	files := tree(t)
	for _, family := range families(t) {
		for _, want := range []string{"doc.go", "layout.go", "map.go", "kernels.cu", family + ".cuh"} {
			if _, ok := files[family+"/"+want]; !ok {
				t.Errorf("%s/%s is missing: every family has the same files, see CONTRIBUTING.md", family, want)
			}
		}
	}
}

func TestNoCgo(t *testing.T) {
	for _, f := range goFiles(t) {
		if _, others := f.imports(); slices.Contains(others, "C") {
			t.Errorf("%s imports \"C\": everything must build with CGO_ENABLED=0; call C through internal/dl, as device/internal/cu does", f.name)
		}
	}
}

func TestExportedNamesAreExplained(t *testing.T) {
	// What fmt and errors ask for explains itself.
	plain := []string{"Error", "Unwrap", "String"}
	complain := func(f goFile, n ast.Node, name string) {
		t.Errorf("%s: %s has no doc comment: say what it does, with shapes, units, cost and errors", f.at(n), name)
	}
	for _, f := range goFiles(t) {
		if f.test() || f.Name.Name == "main" {
			continue
		}
		shared, end := "", 0 // the comment of the function before, and the line where that ends
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				name := d.Name.Name
				if d.Doc != nil || end+1 != f.fset.Position(d.Pos()).Line {
					shared = d.Doc.Text()
				}
				end = f.fset.Position(d.End()).Line
				if ast.IsExported(name) && receiverExported(d) && !(d.Recv != nil && slices.Contains(plain, name)) &&
					(d.Doc == nil && !strings.Contains(shared, name)) {
					complain(f, d, name)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						if s.Name.IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
							complain(f, s, s.Name.Name)
						}
					case *ast.ValueSpec: // the comment of a group stands for its members
						if s.Names[0].IsExported() && d.Doc == nil && s.Doc == nil && s.Comment == nil {
							complain(f, s, s.Names[0].Name)
						}
					}
				}
			}
		}
	}
}

// Package table has the words of users; what only families need goes elsewhere.
func TestTableStaysSmall(t *testing.T) {
	const most = 60
	names := 0
	count := func(i *ast.Ident) {
		if i.IsExported() {
			names++
		}
	}
	for _, f := range goFiles(t) {
		if path.Dir(f.name) != "table" || f.test() {
			continue
		}
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Recv == nil {
					count(d.Name)
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					switch s := s.(type) {
					case *ast.TypeSpec:
						count(s.Name)
					case *ast.ValueSpec:
						for _, n := range s.Names {
							count(n)
						}
					}
				}
			}
		}
	}
	if names == 0 || names > most {
		t.Errorf("package table exports %d names, at most %d are its share: what only families need goes into the frame", names, most)
	}
}

func receiverExported(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	typ := d.Recv.List[0].Type
	for {
		switch x := typ.(type) {
		case *ast.StarExpr:
			typ = x.X
		case *ast.IndexExpr:
			typ = x.X
		case *ast.IndexListExpr:
			typ = x.X
		case *ast.Ident:
			return x.IsExported()
		default:
			return false
		}
	}
}

func TestPackagesAreExplained(t *testing.T) {
	explained := map[string]bool{}
	for _, f := range goFiles(t) {
		if !f.test() {
			explained[path.Dir(f.name)] = explained[path.Dir(f.name)] || f.Doc != nil
		}
	}
	for dir, ok := range explained {
		if !ok {
			t.Errorf("package %s has no comment: say in one of its files what it is for", dir)
		}
	}
}

// Patterns are written in pieces here, so that this file does not match itself.
var (
	machinePath = regexp.MustCompile(`(?:^|[\s"'` + "`" + `(=:,])(/(?:work|root|home)` + `(?:/[\w.-]*|\b))`)
	registry    = regexp.MustCompile(`\b(?:proxy\.golang|sum\.golang|registry\.npmjs|pypi|files\.pythonhosted|deb\.debian|archive\.ubuntu)` + `\.org\b|\bindex\.crates` + `\.io\b|\barchive\.ubuntu` + `\.com\b`)
	unfinished  = regexp.MustCompile(`\b(?:TO` + `DO|FIX` + `ME|XX` + `X)\b`)
)

func eachLine(t *testing.T, visit func(where, line string)) {
	t.Helper()
	for name, text := range tree(t) {
		n := 0
		for line := range strings.Lines(text) {
			n++
			visit(name+":"+strconv.Itoa(n), line)
		}
	}
}

func TestNoMachinePaths(t *testing.T) {
	eachLine(t, func(where, line string) {
		if m := machinePath.FindStringSubmatch(line); m != nil {
			t.Errorf("%s has %s, a path of one machine: take it from the environment, or from the folder of the test", where, m[1])
		}
		if m := registry.FindString(line); m != "" {
			t.Errorf("%s names %s: packages come from where the machine is set up to take them", where, m)
		}
	})
}

func TestNothingUnfinished(t *testing.T) {
	eachLine(t, func(where, line string) {
		if m := unfinished.FindString(line); m != "" {
			t.Errorf("%s says %s: do it, or open an issue", where, m)
		}
	})
}

var (
	link  = regexp.MustCompile(`\]\(([^)\s]+)\)`)
	fence = regexp.MustCompile("(?ms)^```.*?^```") // a block of code, in which Go's instances look like links
)

func TestLinksResolve(t *testing.T) {
	dir, files := root(t), tree(t)
	for name, text := range files {
		if path.Ext(name) != ".md" {
			continue
		}
		for _, m := range link.FindAllStringSubmatch(fence.ReplaceAllString(text, ""), -1) {
			target, heading, _ := strings.Cut(m[1], "#")
			if strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
				continue
			}
			to := name
			if target != "" {
				to = path.Join(path.Dir(name), target)
			}
			if _, err := os.Stat(filepath.Join(dir, to)); err != nil {
				t.Errorf("%s links to %s, which is not there: mend the link or drop it", name, m[1])
			} else if heading != "" && !slices.Contains(headings(files[to]), heading) {
				t.Errorf("%s links to %s, a heading that is not there: mend the link or drop it", name, m[1])
			}
		}
	}
}

// headings are those of a Markdown file, as links name them.
func headings(text string) (names []string) {
	for _, m := range regexp.MustCompile("(?m)^#+ +(.*)$").FindAllStringSubmatch(text, -1) {
		name := regexp.MustCompile(`[^\pL\pN _-]`).ReplaceAllString(strings.ToLower(m[1]), "")
		names = append(names, strings.ReplaceAll(name, " ", "-"))
	}
	return names
}
