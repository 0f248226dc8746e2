package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

func TestPublicNamesAreRecorded(t *testing.T) {
	root := filepath.Join("..", "..")
	if text, err := os.ReadFile(filepath.Join(root, "go.mod")); err != nil || !strings.HasPrefix(string(text), "module "+module+"\n") {
		t.Skip("the sources are not here")
	}
	now, err := public(root)
	if err != nil {
		t.Fatal(err)
	}
	old, err := recorded(root)
	if err != nil {
		t.Fatal(err)
	}
	if len(now) == 0 || len(now["warpmap.txt"]) == 0 {
		t.Fatal("the root package has no names: the tool reads the wrong folder")
	}
	var changes []string
	changed := func(sign string, a, b map[string][]string) {
		for file, lines := range a {
			for _, line := range lines {
				if _, ok := slices.BinarySearch(b[file], line); !ok {
					changes = append(changes, "api/"+file+": "+sign+line)
				}
			}
		}
	}
	changed("- ", old, now)
	changed("+ ", now, old)
	if len(changes) > 0 {
		slices.Sort(changes)
		t.Errorf("the public API has changed. If it should, record it with `go run ./internal/api` in the module's root, and tell of it in CHANGELOG.md:\n%s",
			strings.Join(changes, "\n"))
	}
}

func TestNames(t *testing.T) {
	check := func(path, text string, imports importer) *types.Package {
		fset := token.NewFileSet()
		f, err := parser.ParseFile(fset, "a.go", text, 0)
		if err != nil {
			t.Fatal(err)
		}
		p, err := (&types.Config{Importer: imports}).Check(path, fset, []*ast.File{f}, nil)
		if err != nil {
			t.Fatal(err)
		}
		return p
	}
	inner := check("m/internal/inner", `package inner
type Hidden[T any] struct { At T; off int }
func (h *Hidden[T]) Get() T { return h.At }
func (h Hidden[T]) own() {}`, nil)
	p := check("m/p", `package p
import "m/internal/inner"
const (
	Word = "w"
	Few uint8 = 1 + 2
	none = 1
)
var V, w []Pair[int, string]
type Number interface { ~int32 | ~int64 }
type Doer interface { Do(n int) error; undone() }
type Do func(at, n int) (ok bool)
type Pair[A any, B comparable] struct { Left, Right A; b B }
func (p *Pair[A, B]) Swap() {}
type handle struct { Length int; free int }
func (h *handle) Close() error { return nil }
type Table struct { *Pair[int, bool]; handle }
type Shown[T any] = inner.Hidden[T]
type Same = Table
func New[K Number](n ...K) *Table { return nil }
func old() {}`, importer{"m/internal/inner": inner})
	want := []string{
		`const Few uint8 = 3`,
		`const Word untyped string = "w"`,
		`field Pair.Left A`,
		`field Pair.Right A`,
		`field Shown.At T`,
		`field Table.Length int`,
		`field Table.Pair *Pair[int, bool]`,
		`func New[K Number](n ...K) *Table`,
		`method Doer.Do(n int) error`,
		`method Pair.Swap()`,
		`method Shown.Get() T`,
		`method Table.Close() error`,
		`method Table.Swap()`,
		`type Do func(at int, n int) (ok bool)`,
		`type Doer interface`,
		`type Number interface{~int32 | ~int64}`,
		`type Pair[A any, B comparable] struct`,
		`type Same = Table`,
		`type Shown[T any] = inner.Hidden[T]`,
		`type Table struct`,
		`var V []Pair[int, string]`,
	}
	if got := names(p); !slices.Equal(got, want) {
		t.Errorf("names are\n%s\nwant\n%s", strings.Join(got, "\n"), strings.Join(want, "\n"))
	}
}

type importer map[string]*types.Package

func (i importer) Import(path string) (*types.Package, error) { return i[path], nil }
