package device

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/warpmap/warpmap/internal/files"
	"github.com/warpmap/warpmap/internal/quick"
)

const installCXX = "install one (Debian, Ubuntu: apt install g++; Fedora: dnf install gcc-c++) or name it in CXX, with arguments if it needs some"

// How long a compiler may take to say its version, and for a program.
var versionLimit, compileLimit = 10 * time.Second, 5 * time.Minute

// cxx is the system's C++ compiler. It is looked for when a device opens, but run only for what the cache lacks.
type cxx struct {
	ctx   context.Context
	found []command // in the order to try
	level level
	cache cache // of what programs are linked with
}

// command is a program and the arguments that come before ours.
type command struct {
	path string // absolute: it is run in another folder
	args []string
}

func (c command) String() string { return strings.Join(append([]string{c.path}, c.args...), " ") }

// findCXX looks for the compiler that WithCompiler or CXX names, else for one by its usual names. There may be none of
// those, as long as the cache holds programs. One that is named must be there: a wrong name is a mistake, which a user
// hears of at once, and not when the cache lacks a kernel.
func findCXX(cfg *config) (*cxx, error) {
	c := &cxx{ctx: cfg.ctx, level: thisLevel(), cache: cfg.cache}
	from, named := "WithCompiler", strings.TrimSpace(cfg.toolchain)
	if named == "" {
		from, named = "CXX", strings.TrimSpace(os.Getenv("CXX"))
	}
	if named != "" {
		cmd, err := parseCommand(named)
		if err != nil {
			return nil, fmt.Errorf("%w: %s is %q: %v; a compiler that is named must be there, even if the cache holds "+
				"all kernels: do without %s to use the cache and what is in the path, or %s",
				ErrNoCompiler, from, named, err, from, installCXX)
		}
		c.found = []command{cmd}
		return c, nil
	}
	for _, name := range []string{"c++", "g++", "clang++"} {
		if cmd, err := parseCommand(name); err == nil {
			c.found = append(c.found, cmd)
		}
	}
	if len(c.found) == 0 && cfg.kernels == nil && !cfg.cache.holds(c.extension()) {
		return nil, c.missing(nil)
	}
	return c, nil
}

// parseCommand reads a path, or a command and its arguments with spaces between them, as make reads CXX.
func parseCommand(s string) (command, error) {
	words := []string{s}
	path, err := exec.LookPath(s)
	if err != nil {
		words = strings.Fields(s)
		path, err = exec.LookPath(words[0])
	}
	if err == nil {
		path, err = filepath.Abs(path)
	}
	return command{path, words[1:]}, err
}

// missing is the error where no compiler works, with what is wrong with those that were found.
func (c *cxx) missing(problems []string) error {
	if len(problems) == 0 {
		problems = []string{"none of c++, g++ and clang++ is in the path"}
	}
	return fmt.Errorf("%w: the CPU device compiles kernels with a C++17 compiler: %s; %s", ErrNoCompiler, strings.Join(problems, "; "), installCXX)
}

// String names the compiler that is tried first, or is empty.
func (c *cxx) String() string {
	if len(c.found) == 0 {
		return ""
	}
	return c.found[0].String()
}

var cxxFlags = []string{"-std=c++17", "-shared", "-fPIC", "-fvisibility=hidden", "-fno-exceptions", "-fno-rtti",
	"-fno-threadsafe-statics", "-fno-strict-aliasing", "-fno-stack-protector", "-Wl,--as-needed", "-w", "-pipe"}

// gccFlags leave out what takes -O1 and -Og time and gives the tests' kernels little. With -Og those without stress compile
// sooner still, but run for twice as long.
var gccFlags = []string{"-fno-tree-loop-optimize", "-fno-ivopts", "-fno-move-loop-invariants", "-fno-tree-slsr", "-fno-tree-sink",
	"-fno-tree-dominator-opts", "-fno-tree-ccp", "-fno-tree-bit-ccp", "-fno-tree-pta", "-fno-tree-dse", "-fno-if-conversion", "-fno-if-conversion2",
	"-fno-forward-propagate", "-fno-cprop-registers", "-fno-compare-elim", "-fno-dse", "-fno-shrink-wrap",
	"-fno-tree-ch", "-fno-tree-sra", "-fno-tree-fre", "-fno-ipa-sra", "-fno-ipa-profile", "-fira-region=one",
	"-fdisable-rtl-combine"} // of which g++ leaves a note

// bareFlags link without the standard libraries, and leave out what unwinds: 30 milliseconds a program, of the tests' hundreds. What a kernel calls of
// the C library is in this process; of the compiler's own, in bareLibrary.
var bareFlags = []string{"-nostdlib", "-fno-asynchronous-unwind-tables", "-fno-unwind-tables"}

const bareLibrary = "-lgcc"

// watchFlag has the compiler call functions of kernel/model.cuh before accesses. clang also replaces atomic operations,
// even in functions that are to stay as they are, unless clangWatchFlags forbid it.
const watchFlag = "-fsanitize=thread"

var clangWatchFlags = []string{"-mllvm", "-tsan-instrument-atomics=0"}

// Tests' programs are not compiled with lanes.cuh each, but linked with an object of it, which is kept beside them. It
// takes g++ 40 ms, a third of what a program without kernels takes.
const linkedFlag, lanesFlag, lanesObject = "-DWARPMAP_LINKED", "-DWARPMAP_LANES", "lanes.o"

func (c *cxx) options(m mode) (options []string) {
	options = slices.Concat(cxxFlags, c.level.flags())
	if quick.Kernels {
		options = append(options, bareFlags...)
		if m != modelling { // which has its own, inside
			options = append(options, linkedFlag)
		}
	}
	switch {
	case m == modelling:
		// Calls that stay calls tell where an access is from. The functions that are called for accesses are the program's own.
		options = append(options, "-DWARPMAP_STRESS", "-DWARPMAP_QUICK", "-DWARPMAP_MODEL", "-Og", "-fno-inline", "-g1", watchFlag)
		if !quick.Kernels {
			options = append(options, bareFlags...)
		}
		return options
	case m == stressed:
		options = append(options, "-DWARPMAP_STRESS", "-DWARPMAP_QUICK", "-Og") // for tests: it compiles faster, and runs as fast
		if quick.Kernels {
			options = append(options, gccFlags...)
		}
		return options
	case quick.Kernels:
		return append(append(options, "-DWARPMAP_QUICK", "-O1"), gccFlags...)
	}
	return append(options, "-O2")
}

func (c *cxx) target() string { return runtime.GOARCH }

func (c *cxx) olderToo() (all []compiler) {
	for _, l := range levels() {
		if l <= c.level {
			older := *c
			older.level = l
			all = append(all, &older)
		}
	}
	return all
}

// ident tells compilers apart without running one: by the file, its size and its time.
func (c *cxx) ident() string {
	if len(c.found) == 0 {
		return ""
	}
	path, err := filepath.EvalSymlinks(c.found[0].path)
	if err != nil {
		path = c.found[0].path
	}
	id := fmt.Sprintf("%q %q", path, c.found[0].args)
	if info, err := os.Stat(path); err == nil {
		id += fmt.Sprintf(" %d %d", info.Size(), info.ModTime().UnixNano())
	}
	return id
}

func (c *cxx) extension() string { return "so" }

var cxxVersions sync.Map // a command's String → first line of --version

// working is the first compiler that answers, and what it says of its version.
func (c *cxx) working() (cmd command, version string, err error) {
	var problems []string
	for _, cmd := range c.found {
		if v, ok := cxxVersions.Load(cmd.String()); ok {
			return cmd, v.(string), nil
		}
		out, err := cmd.run(c.ctx, versionLimit, "", "--version")
		if err == nil {
			line, _, _ := strings.Cut(string(out), "\n")
			cxxVersions.Store(cmd.String(), line)
			return cmd, line, nil
		}
		if c.ctx.Err() != nil {
			return cmd, "", fmt.Errorf("%v --version: %w", cmd, err)
		}
		problems = append(problems, fmt.Sprintf("%v --version: %v", cmd, err))
	}
	return cmd, "", c.missing(problems)
}

func (c *cxx) compile(src *source) ([]byte, error) {
	args, sources := append(c.options(src.mode), "-x", "c++", src.files[0].Name), src.files
	if slices.Contains(args, linkedFlag) {
		object, err := c.lanes(src.mode)
		if err != nil {
			return nil, err
		}
		args = append(args, "-x", "none", lanesObject)
		sources = append(slices.Clone(sources), File{lanesObject, string(object)})
	}
	if slices.Contains(args, bareFlags[0]) {
		args = append(args, bareLibrary)
	}
	return c.output(src.program, sources, args)
}

// lanes is the object that programs of a mode are linked with. It is compiled if the cache has none, by each of several
// that want it at a time.
func (c *cxx) lanes(m mode) ([]byte, error) {
	program := Program{Name: "lanes", Files: []File{{"lanes.cu", "#include \"warpmap.cuh\"\n"}}}
	src, err := program.source(false, hostSharedBytes, m)
	if err != nil {
		return nil, err
	}
	as := objects{c}
	key := src.key(as)
	for _, file := range c.cache.files(key, as) {
		if object, ok := readCached(file); ok {
			return object, nil
		}
	}
	args := c.options(m)
	args[slices.Index(args, linkedFlag)] = lanesFlag
	object, err := c.output(program.Name, src.files, append(args, "-c", "-x", "c++", src.files[0].Name))
	if err == nil {
		c.cache.keep(key, as, object)
	}
	return object, err
}

// objects is a compiler of objects: the cache has them beside programs.
type objects struct{ *cxx }

func (objects) extension() string { return "o" }

// output gives what the compiler makes of files.
func (c *cxx) output(program string, sources []File, args []string) ([]byte, error) {
	cmd, version, err := c.working()
	if err != nil {
		return nil, err
	}
	dir, remove, err := files.TemporaryFolder()
	if err != nil {
		return nil, fmt.Errorf("compiling %s needs a writable directory for temporary files: %w", program, err)
	}
	defer remove()
	for _, f := range sources {
		if err := os.WriteFile(filepath.Join(dir, f.Name), []byte(f.Text), 0o644); err != nil {
			return nil, err
		}
	}
	if strings.Contains(version, "clang") { // which does not know gccFlags
		args = slices.DeleteFunc(args, func(arg string) bool { return slices.Contains(gccFlags, arg) })
		if slices.Contains(args, watchFlag) {
			args = slices.Concat(clangWatchFlags, args)
		}
	}
	out, err := cmd.run(c.ctx, compileLimit, dir, append(args, "-o", "module.so")...)
	switch {
	case c.ctx.Err() != nil && err != nil:
		return nil, fmt.Errorf("compiling %s: %w", program, err)
	case err != nil:
		if !errors.As(err, new(*exec.ExitError)) || len(out) == 0 {
			out = fmt.Appendf(out, "%v", err)
		}
		return nil, &CompileError{program, version, string(out)}
	}
	return os.ReadFile(filepath.Join(dir, "module.so"))
}

// run runs the command in a folder, and returns the beginning of what it wrote. When the limit has passed or ctx is done, it is killed
// with all that it has started: compilers are mostly a driver that waits for others.
func (c command) run(ctx context.Context, limit time.Duration, dir string, args ...string) ([]byte, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, limit, fmt.Errorf("no answer within %v", limit))
	defer cancel()
	cmd := exec.CommandContext(ctx, c.path, slices.Concat(c.args, args)...)
	cmd.Dir = dir
	if dir != "" { // what a compiler leaves that is killed goes with the folder
		cmd.Env = append(os.Environ(), "TMPDIR="+dir)
	}
	killAll(cmd)
	cmd.WaitDelay = 2 * time.Second // for who holds its output, and is in no group of ours
	var out said
	cmd.Stdout, cmd.Stderr = &out, &out
	err := cmd.Run()
	switch {
	case errors.Is(err, exec.ErrWaitDelay): // it ended well; a daemon that it left holds its output
		err = nil
	case err != nil && ctx.Err() != nil:
		err = context.Cause(ctx)
	}
	return out, err
}

// said is the beginning of what a command writes, which may write without end.
type said []byte

const mostSaid = 1 << 20

func (s *said) Write(p []byte) (int, error) {
	*s = append(*s, p[:min(len(p), mostSaid-len(*s))]...)
	return len(p), nil
}
