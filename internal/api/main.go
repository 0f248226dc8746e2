// Command api writes down the public API of the module: a file in api/ for each package that others can import, and a
// line in it for each name. After a change to an exported name, run it in the module's root and commit what it writes;
// the test beside it fails until then:
//
//	go run ./internal/api
//
// CONTRIBUTING.md says what may change.
package main

import (
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

const module = "github.com/warpmap/warpmap"

func main() {
	if err := record("."); err != nil {
		fmt.Fprintln(os.Stderr, "api:", err)
		os.Exit(1)
	}
}

// record brings dir/api up to date; dir is the module's root.
func record(dir string) error {
	now, err := public(dir)
	if err != nil {
		return err
	}
	old, err := recorded(dir)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Join(dir, "api"), 0o755); err != nil {
		return err
	}
	for file := range old {
		if _, ok := now[file]; !ok {
			err = errors.Join(err, os.Remove(filepath.Join(dir, "api", file)))
		}
	}
	for file, lines := range now {
		text := strings.Join(lines, "\n") + "\n"
		err = errors.Join(err, os.WriteFile(filepath.Join(dir, "api", file), []byte(text), 0o644))
	}
	return err
}

// recorded is what dir/api says: the lines of each file, by its name.
func recorded(dir string) (map[string][]string, error) {
	files, err := filepath.Glob(filepath.Join(dir, "api", "*.txt"))
	out := map[string][]string{}
	for _, file := range files {
		text, e := os.ReadFile(file)
		err = errors.Join(err, e)
		out[filepath.Base(file)] = strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	}
	return out, err
}

// public is what api/ should say. Packages are checked from their sources, without the bodies of functions, as they are on linux/amd64: so nothing
// needs compiling, and the answer is the same on every machine.
func public(dir string) (map[string][]string, error) {
	list := exec.Command("go", "list", "-deps", "-f", `{{.ImportPath}}|{{.Name}}|{{.Dir}}|{{join .GoFiles "|"}}`, "./...")
	list.Dir = dir
	list.Env = append(os.Environ(), "GOOS=linux", "GOARCH=amd64", "CGO_ENABLED=0")
	list.Stderr = os.Stderr
	text, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("go list: %w", err)
	}
	s := sources{token.NewFileSet(), map[string]source{}, map[string]*types.Package{"unsafe": types.Unsafe}}
	var paths []string
	for line := range strings.Lines(string(text)) {
		f := strings.Split(strings.TrimSpace(line), "|")
		path, name, at, files := f[0], f[1], f[2], f[3:]
		if files[0] == "" { // it has tests alone
			continue
		}
		for i := range files {
			files[i] = filepath.Join(at, files[i])
		}
		s.source[strings.TrimPrefix(path, "vendor/")] = source{name, files}
		if own(path) && name != "main" && !internal(path) {
			paths = append(paths, path)
			if _, err := os.ReadDir(at); err != nil { // a kept result of the test ends when the folder has one file more
				return nil, err
			}
		}
	}
	out := map[string][]string{}
	for _, path := range paths {
		p, err := s.Import(path)
		if err != nil {
			return nil, err
		}
		file := strings.ReplaceAll(strings.TrimPrefix(path, module+"/"), "/", "-")
		if path == module {
			file = p.Name()
		}
		if lines := names(p); len(lines) > 0 {
			out[file+".txt"] = lines
		}
	}
	return out, nil
}

func own(path string) bool { return path == module || strings.HasPrefix(path, module+"/") }

func internal(path string) bool { return slices.Contains(strings.Split(path, "/"), "internal") }

// foreign tells the packages of other modules from the standard library's.
func foreign(path string) bool {
	first, _, _ := strings.Cut(path, "/")
	return !own(path) && strings.Contains(first, ".")
}

// sources imports packages from their files.
type sources struct {
	fset   *token.FileSet
	source map[string]source
	done   map[string]*types.Package
}

type source struct {
	name  string
	files []string
}

func (s sources) Import(path string) (*types.Package, error) {
	if p := s.done[path]; p != nil {
		return p, nil
	}
	var parsed []*ast.File
	for _, file := range s.source[path].files {
		f, err := parser.ParseFile(s.fset, file, nil, parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		parsed = append(parsed, f)
	}
	if len(parsed) == 0 {
		return nil, fmt.Errorf("package %s has no files", path)
	}
	var wrong error
	config := types.Config{Importer: s, IgnoreFuncBodies: true, Sizes: types.SizesFor("gc", "amd64")}
	config.Error = func(err error) {
		// Soft errors are of imports that only bodies use.
		if e, ok := errors.AsType[types.Error](err); ok && !e.Soft && wrong == nil && own(path) {
			wrong = err
		}
	}
	if foreign(path) {
		config.Importer = near{s}
	}
	p, _ := config.Check(path, s.fset, parsed, nil)
	s.done[path] = p
	return p, wrong
}

// near imports for a package of another module. Our API names that package's types and not what they are made of, so what the package takes from further
// modules is left empty: that would be two thirds of all files.
type near struct{ sources }

func (n near) Import(path string) (*types.Package, error) {
	if p := n.done[path]; p != nil || !foreign(path) {
		return n.sources.Import(path)
	}
	p := types.NewPackage(path, n.source[path].name)
	p.MarkComplete()
	return p, nil
}

// names are the lines of a package, sorted: its exported constants, variables, functions and types, and the fields and methods of these.
func names(p *types.Package) []string {
	lines := map[string]bool{}
	short := func(q *types.Package) string {
		if q == p {
			return ""
		}
		return q.Name()
	}
	text := func(t types.Type) string { return types.TypeString(t, short) }
	var fields func(of string, s *types.Struct)
	fields = func(of string, s *types.Struct) {
		for f := range s.Fields() {
			if f.Exported() {
				lines["field "+of+"."+f.Name()+" "+text(f.Type())] = true
			} else if inner, ok := f.Type().Underlying().(*types.Struct); ok && f.Embedded() {
				fields(of, inner)
			}
		}
	}
	for _, name := range p.Scope().Names() {
		o := p.Scope().Lookup(name)
		if !o.Exported() {
			continue
		}
		if c, ok := o.(*types.Const); ok {
			lines["const "+name+" "+text(c.Type())+" = "+c.Val().ExactString()] = true
			continue
		}
		typ, ok := types.Unalias(o.Type()).(*types.Named)
		if _, is := o.(*types.TypeName); !is || !ok || typ.Obj() != o {
			lines[types.ObjectString(o, short)] = true // a variable, a function, another name for a type
			if !is || !ok || typ.Obj().Pkg() == nil || !internal(typ.Obj().Pkg().Path()) {
				continue
			}
			// Others reach that type by this name alone, so its fields and methods stand here.
		} else {
			kind := text(typ.Underlying())
			switch u := typ.Underlying().(type) {
			case *types.Struct:
				kind = "struct"
			case *types.Interface:
				if u.IsMethodSet() {
					kind = "interface"
				}
			}
			lines["type "+text(typ)+" "+kind] = true
		}
		if s, ok := typ.Underlying().(*types.Struct); ok {
			fields(name, s)
		}
		receiver := types.Type(typ)
		if !types.IsInterface(typ) {
			receiver = types.NewPointer(typ)
		}
		for m := range types.NewMethodSet(receiver).Methods() {
			if m.Obj().Exported() {
				lines["method "+name+"."+m.Obj().Name()+strings.TrimPrefix(text(m.Type()), "func")] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(lines))
}
