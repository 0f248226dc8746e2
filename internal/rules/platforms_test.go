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
	"testing"
)

// library is what a user imports, and all below it.
var library = []string{".", "./device/...", "./table/...", "./warpcore", "./slab", "./stadium", "./dycuckoo", "./gph", "./shard", "./workload", "./internal/tabletest"}

// The library is sound Go for arm64, too. The checker of types reads it and the modules below it from source: to
// compile them all for another architecture takes fifty times as long.
func TestOtherPlatforms(t *testing.T) {
	if n, err := typeCheck(root(t), "linux/arm64", library); err != nil || n < 15 {
		t.Errorf("%d packages of the module are checked, %v", n, err)
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
// the module's own. Of the others it reads what they declare.
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
	files, checked := token.NewFileSet(), map[string]*types.Package{"unsafe": types.Unsafe}
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
		if p.ImportPath == "unsafe" {
			continue
		}
		ours := p.ImportPath == module || strings.HasPrefix(p.ImportPath, module+"/")
		if ours {
			own++
		}
		var parsed []*ast.File
		for _, name := range p.GoFiles {
			f, err := parser.ParseFile(files, filepath.Join(p.Dir, name), nil, parser.SkipObjectResolution)
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
		if checked[p.ImportPath], err = c.Check(p.ImportPath, files, parsed, nil); err != nil {
			return own, fmt.Errorf("%s: %w", platform, err)
		}
	}
}

type importer func(path string) (*types.Package, error)

func (f importer) Import(path string) (*types.Package, error) { return f(path) }
