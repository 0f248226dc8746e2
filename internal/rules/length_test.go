package rules

import (
	"go/ast"
	"path"
	"strings"
	"testing"
	"unicode/utf8"
)

const (
	mostColumns = 120 // a tab counts for four
	mostLines   = 100
)

// measured are the packages whose lines and functions are short.
var measured = []string{"cmd/warpmap", "join", "genome", "internal/files", "internal/inflate", "sketch",
	"table/snapshot", "serve", "internal/columnar"}

// isMeasured tells whether a file that is no test is of one of them, or below one.
func isMeasured(name string) bool {
	for _, dir := range measured {
		if strings.HasPrefix(name, dir+"/") {
			return path.Ext(name) == ".go" && !strings.HasSuffix(name, "_test.go")
		}
	}
	return false
}

func TestLinesAreShort(t *testing.T) {
	eachLine(t, func(where, line string) {
		name, _, _ := strings.Cut(where, ":")
		if !isMeasured(name) {
			return
		}
		line = strings.TrimSuffix(line, "\n")
		if n := utf8.RuneCountInString(line) + 3*strings.Count(line, "\t"); n > mostColumns {
			t.Errorf("%s has %d columns, want %d at most: break it where a reader would", where, n, mostColumns)
		}
	})
}

func TestFunctionsAreShort(t *testing.T) {
	found := 0
	for _, f := range goFiles(t) {
		if !isMeasured(f.name) {
			continue
		}
		for _, d := range f.Decls {
			fn, is := d.(*ast.FuncDecl)
			if !is {
				continue
			}
			found++
			if n := f.fset.Position(fn.End()).Line - f.fset.Position(fn.Pos()).Line + 1; n > mostLines {
				t.Errorf("%s: %s has %d lines, want %d at most: cut it at a seam", f.at(fn), fn.Name.Name, n, mostLines)
			}
		}
	}
	if found == 0 {
		t.Error("no functions are measured")
	}
}
