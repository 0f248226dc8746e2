package rules

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/warpmap/warpmap/internal/testenv"
)

// The module is sound Go for arm64, too, and on systems where it has no devices. The checker of types reads it and the
// modules below it from source: to compile them all for another system takes fifty times as long. Long runs read the
// tests, too.
func TestOtherPlatforms(t *testing.T) {
	for _, platform := range []string{"linux/arm64", "linux/riscv64", "darwin/arm64", "windows/amd64", "freebsd/amd64"} {
		t.Run(platform, func(t *testing.T) {
			t.Parallel()
			patterns := []string{"./..."}
			if testenv.Long() {
				patterns = []string{"-test", "./..."}
			}
			if n, err := typeCheck(root(t), platform, patterns); err != nil || n < 40 {
				t.Errorf("%d packages of the module are checked, %v", n, err)
			}
		})
	}
}

// An int must be able to say how large a table is: for 32 bits the module does not compile, and says why.
func TestPlatformsOf32Bits(t *testing.T) {
	for _, platform := range []string{"linux/386", "linux/arm"} {
		_, err := typeCheck(root(t), platform, []string{"./device"})
		if err == nil || !strings.Contains(err.Error(), "needs_an_architecture_of_64_bits") {
			t.Errorf("%s: %v", platform, err)
		}
	}
}

// A package that names what its platform has not is found.
func TestPlatformsThatDoNotCompile(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"go.mod":     "module " + module + "\n\ngo 1.24\n",
		"a.go":       "package a\n\nvar A = most\n",
		"a_amd64.go": "package a\n\nconst most = 1\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	if n, err := typeCheck(dir, "linux/amd64", []string{"."}); n != 1 || err != nil {
		t.Errorf("amd64: %d packages, %v", n, err)
	}
	if _, err := typeCheck(dir, "linux/arm64", []string{"."}); err == nil || !strings.Contains(err.Error(), "undefined: most") {
		t.Errorf("arm64: %v", err)
	}
}

// typeCheck checks the packages and all that they import, for a platform such as linux/arm64, and tells how many are
// the module's own. Of the others it reads what they declare. The flag -test before the packages adds their tests.
func typeCheck(dir, platform string, patterns []string) (own int, err error) {
	goos, arch, _ := strings.Cut(platform, "/")
	list := exec.Command("go", append([]string{"list", "-deps", "-json=ImportPath,Dir,GoFiles,ImportMap,Error"}, patterns...)...)
	list.Dir = dir
	list.Env = append(os.Environ(), "GOOS="+goos, "GOARCH="+arch, "CGO_ENABLED=0")
	out, err := list.Output()
	if exit := (*exec.ExitError)(nil); errors.As(err, &exit) {
		return 0, fmt.Errorf("go list: %w: %s", err, exit.Stderr)
	} else if err != nil {
		return 0, err
	}
	checked := map[string]*types.Package{"unsafe": types.Unsafe}
	for from := json.NewDecoder(strings.NewReader(string(out))); ; { // what is imported comes first
		var p struct {
			ImportPath, Dir string
			GoFiles         []string
			ImportMap       map[string]string
			Error           *struct{ Err string }
		}
		if err := from.Decode(&p); errors.Is(err, io.EOF) {
			return own, nil
		} else if err != nil {
			return own, err
		}
		if p.Error != nil {
			return own, fmt.Errorf("%s: %s", p.ImportPath, p.Error.Err)
		}
		if p.ImportPath == "unsafe" || strings.HasSuffix(p.ImportPath, ".test") { // or a program that go test makes
			continue
		}
		name, _, tests := strings.Cut(p.ImportPath, " ")
		ours := name == module || strings.HasPrefix(name, module+"/") || name == module+"_test"
		if ours && !tests {
			own++
		}
		var parsed []*ast.File
		for _, name := range p.GoFiles {
			f, err := parsedFile(filepath.Join(p.Dir, name), ours)
			if err != nil {
				return own, err
			}
			parsed = append(parsed, f)
		}
		c := types.Config{
			IgnoreFuncBodies: !ours,
			Sizes:            types.SizesFor("gc", arch),
			Importer: importer(func(path string) (*types.Package, error) {
				if other := p.ImportMap[path]; other != "" {
					path = other
				}
				if checked[path] == nil {
					return nil, fmt.Errorf("%s is imported, and not listed", path)
				}
				return checked[path], nil
			}),
		}
		if checked[p.ImportPath], err = c.Check(p.ImportPath, positions, parsed, nil); err != nil {
			return own, fmt.Errorf("%s: %w", platform, err)
		}
	}
}

// Platforms have most files in common, so each is parsed once.
var (
	positions   = token.NewFileSet()
	parsedFiles sync.Map // by name, functions that give an *ast.File
)

// parsedFile parses a file. Without bodies, those of functions are left out, and what is in lists of a type that they
// name: to check the tables of others took most of the time.
func parsedFile(name string, bodies bool) (*ast.File, error) {
	parse, _ := parsedFiles.LoadOrStore(name, sync.OnceValues(func() (*ast.File, error) {
		f, err := parser.ParseFile(positions, name, nil, parser.SkipObjectResolution)
		if err != nil || bodies {
			return f, err
		}
		for _, d := range f.Decls {
			switch d := d.(type) {
			case *ast.FuncDecl:
				if d.Body != nil {
					d.Body = &ast.BlockStmt{Lbrace: d.Body.Lbrace, Rbrace: d.Body.Rbrace}
				}
			case *ast.GenDecl:
				for _, s := range d.Specs {
					if v, ok := s.(*ast.ValueSpec); ok {
						emptyLists(v)
					}
				}
			}
		}
		return f, nil
	}))
	return parse.(func() (*ast.File, error))()
}

// emptyLists leaves out what is in lists whose type does not depend on it.
func emptyLists(v *ast.ValueSpec) {
	for _, value := range v.Values {
		if list, ok := value.(*ast.CompositeLit); ok {
			array, _ := list.Type.(*ast.ArrayType)
			if array == nil || !isEllipsis(array.Len) {
				list.Elts = nil
			}
		}
	}
}

func isEllipsis(e ast.Expr) bool {
	_, is := e.(*ast.Ellipsis)
	return is
}

type importer func(path string) (*types.Package, error)

func (f importer) Import(path string) (*types.Package, error) { return f(path) }
