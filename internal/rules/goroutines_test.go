package rules

import (
	"go/ast"
	"path"
	"strings"
	"testing"
)

// ownGoroutines are the packages that start goroutines themselves: what starts them for all others, and what only tests and examples run.
var ownGoroutines = []string{"internal/crash", "internal/tabletest", "examples", "bench/duckdb", "bench/caches"}

// A panic in a goroutine ends the process at once, and leaves its files. So each goes to the one that waits: goroutines are started by internal/crash, or
// what they do is in one of its functions, or recovers.
func TestGoroutinesHandTheirPanicsOn(t *testing.T) {
	found := 0
	for _, f := range goFiles(t) {
		if f.test() || strings.Contains(f.name, "/standin/") || strings.Contains(f.name, "/cufake/") {
			continue
		}
		own := false
		for _, dir := range ownGoroutines {
			own = own || strings.HasPrefix(path.Dir(f.name)+"/", dir+"/")
		}
		if own {
			continue
		}
		if _, others := f.imports(); strings.Contains(strings.Join(others, " "), "errgroup") {
			t.Errorf("%s imports errgroup, whose goroutines end the process by a panic: want crash.Group", f.name)
		}
		groups := map[string]bool{} // variables and fields that are a sync.WaitGroup
		ast.Inspect(f.File, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.ValueSpec:
				if isWaitGroup(n.Type) {
					for _, name := range n.Names {
						groups[name.Name] = true
					}
				}
			case *ast.Field:
				if isWaitGroup(n.Type) {
					for _, name := range n.Names {
						groups[name.Name] = true
					}
				}
			}
			return true
		})
		ast.Inspect(f.File, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.GoStmt:
				if found++; !handsOn(n.Call) {
					t.Errorf("%s starts a goroutine whose panic nobody gets: want crash.Go, crash.Group or crash.WaitGroup, or crash.Catch within it", f.at(n))
				}
			case *ast.CallExpr:
				s, is := n.Fun.(*ast.SelectorExpr)
				if !is || s.Sel.Name != "Go" {
					break
				}
				name := ""
				switch x := s.X.(type) {
				case *ast.Ident:
					name = x.Name
				case *ast.SelectorExpr:
					name = x.Sel.Name
				}
				if groups[name] && f.name != "table/batcher.go" { // whose goroutines recover in what they do
					t.Errorf("%s starts a goroutine of a sync.WaitGroup, whose panic ends the process: want crash.WaitGroup", f.at(n))
				}
			}
			return true
		})
	}
	if found == 0 {
		t.Error("no package starts a goroutine")
	}
}

func isWaitGroup(t ast.Expr) bool {
	s, is := t.(*ast.SelectorExpr)
	if !is || s.Sel.Name != "WaitGroup" {
		return false
	}
	of, is := s.X.(*ast.Ident)
	return is && of.Name == "sync"
}

// handsOn tells whether a goroutine recovers, or calls a function that does; close alone cannot break off.
func handsOn(call *ast.CallExpr) bool {
	if name, is := call.Fun.(*ast.Ident); is && name.Name == "close" {
		return true
	}
	body, is := call.Fun.(*ast.FuncLit)
	if !is {
		return false
	}
	does := false
	ast.Inspect(body, func(n ast.Node) bool {
		switch n := n.(type) {
		case *ast.Ident:
			does = does || n.Name == "recover" || n.Name == "catch"
		case *ast.SelectorExpr:
			of, is := n.X.(*ast.Ident)
			does = does || is && of.Name == "crash"
		}
		return !does
	})
	return does
}
