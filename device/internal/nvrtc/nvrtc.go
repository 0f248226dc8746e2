// Package nvrtc finds NVIDIA's runtime compiler on this machine, and compiles CUDA C++ with it, without cgo and
// without a GPU.
//
// NVRTC has no standard headers: a source includes only the headers given with it.
package nvrtc

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"unsafe"

	"github.com/warpmap/warpmap/internal/dl"
)

// The oldest version that compiles the kernels, and that they are tested with.
const OldestMajor, OldestMinor = 11, 8

// compilation is NVRTC_ERROR_COMPILATION, the result of a source that is wrong.
const compilation = 6

// Error is an NVRTC call that failed, with the compiler's log where it wrote one.
type Error struct {
	Call string // the NVRTC function
	Code int32  // an nvrtcResult
	Text string // "NVRTC_ERROR_COMPILATION"
	Log  string
}

func (e *Error) Error() string {
	s := e.Call + ": " + e.Text
	if e.Log != "" {
		s += "\n" + e.Log
	}
	return s
}

// Source tells whether the source is to blame, and not the compiler or how it was called.
func (e *Error) Source() bool { return e.Code == compilation }

type function int

const (
	fnVersion function = iota
	fnGetErrorString
	fnGetNumSupportedArchs
	fnGetSupportedArchs
	fnCreateProgram
	fnDestroyProgram
	fnCompileProgram
	fnGetProgramLogSize
	fnGetProgramLog
	fnGetCUBINSize
	fnGetCUBIN
	functions
)

var symbols = [functions]string{
	fnVersion:              "nvrtcVersion",
	fnGetErrorString:       "nvrtcGetErrorString",
	fnGetNumSupportedArchs: "nvrtcGetNumSupportedArchs",
	fnGetSupportedArchs:    "nvrtcGetSupportedArchs",
	fnCreateProgram:        "nvrtcCreateProgram",
	fnDestroyProgram:       "nvrtcDestroyProgram",
	fnCompileProgram:       "nvrtcCompileProgram",
	fnGetProgramLogSize:    "nvrtcGetProgramLogSize",
	fnGetProgramLog:        "nvrtcGetProgramLog",
	fnGetCUBINSize:         "nvrtcGetCUBINSize",
	fnGetCUBIN:             "nvrtcGetCUBIN",
}

// Library is a loaded NVRTC. It is never unloaded, and is safe to use from several goroutines.
type Library struct {
	Path         string // as it was opened
	Major, Minor int    // its version
	archs        []int  // the architectures it compiles for, ascending: 90 is sm_90
	first        sync.Once
	fn           [functions]uintptr
}

// String is the name and version: "NVRTC 12.4".
func (l *Library) String() string { return fmt.Sprintf("NVRTC %d.%d", l.Major, l.Minor) }

// AtLeast compares versions.
func (l *Library) AtLeast(major, minor int) bool {
	return l.Major > major || l.Major == major && l.Minor >= minor
}

// Swap128 tells whether the library knows the 128-bit compare-and-swap of sm_90.
func (l *Library) Swap128() bool { return l.AtLeast(12, 3) }

var (
	openMu sync.Mutex
	opened = map[string]*Library{}
)

// Open loads the NVRTC at path, or of that name in the loader's path; each path is loaded once, in a few
// milliseconds. Errors: the loader's own; a library that is no NVRTC, or is older than OldestMajor.OldestMinor.
func Open(path string) (*Library, error) {
	openMu.Lock()
	defer openMu.Unlock()
	if l := opened[path]; l != nil {
		return l, nil
	}
	lib, err := dl.OpenLocal(path)
	if err != nil {
		return nil, err
	}
	l := &Library{Path: path}
	for f, name := range symbols {
		if l.fn[f], err = dl.Sym(lib, name); err != nil {
			return nil, fmt.Errorf("%s is no NVRTC, or too old a one: %w", path, err)
		}
	}
	if err := l.describe(); err != nil {
		return nil, err
	}
	if !l.AtLeast(OldestMajor, OldestMinor) {
		return nil, fmt.Errorf("%v (%s) is too old: kernels need %d.%d or newer", l, path, OldestMajor, OldestMinor)
	}
	// NVRTC opens its builtins by name only when it compiles, and finds them where it lies only if the loader looks
	// there: a library that is loaded already is found by name from anywhere.
	if filepath.Base(path) != path {
		if p, err := filepath.EvalSymlinks(path); err == nil {
			builtins, _ := filepath.Glob(filepath.Join(filepath.Dir(p), fmt.Sprintf("libnvrtc-builtins.so.%d.%d*", l.Major, l.Minor)))
			for _, b := range builtins {
				dl.OpenGlobal(b)
			}
		}
	}
	opened[path] = l
	return l, nil
}

func (l *Library) describe() error {
	var major, minor, n int32
	if err := call(l, fnVersion, uintptr(unsafe.Pointer(&major)), uintptr(unsafe.Pointer(&minor))); err != nil {
		return err
	}
	l.Major, l.Minor = int(major), int(minor)
	if err := call(l, fnGetNumSupportedArchs, uintptr(unsafe.Pointer(&n))); err != nil {
		return err
	}
	archs := make([]int32, n+1)
	if err := call(l, fnGetSupportedArchs, uintptr(unsafe.Pointer(&archs[0]))); err != nil {
		return err
	}
	for _, a := range archs[:n] {
		l.archs = append(l.archs, int(a))
	}
	slices.Sort(l.archs)
	return nil
}

// tegras are the architectures of Tegras. Other GPUs do not run their code, though its number is lower, and NVIDIA
// promises none of them that it runs the code of another architecture.
var tegras = []int{53, 62, 72, 87, 88, 101, 110}

// Target returns the newest architecture that the library compiles for and whose code runs on a GPU of the given one: a
// cubin for sm_80 runs on sm_86, but not on sm_75 or sm_90, nor on the Tegra sm_87. An error names the architectures that
// the library compiles for.
func (l *Library) Target(arch string) (string, error) {
	want, err := parseArch(arch)
	if err != nil {
		return "", err
	}
	best, tegra := 0, slices.Contains(tegras, want)
	for _, a := range l.archs {
		if a == want || !tegra && a/10 == want/10 && a < want && !slices.Contains(tegras, a) {
			best = a
		}
	}
	if best == 0 {
		known := make([]string, len(l.archs))
		for i, a := range l.archs {
			known[i] = fmt.Sprintf("sm_%d", a)
		}
		return "", fmt.Errorf("%v (%s) cannot compile for %s, only for %s", l, l.Path, arch, strings.Join(known, " "))
	}
	return fmt.Sprintf("sm_%d", best), nil
}

func parseArch(arch string) (int, error) {
	s, ok := strings.CutPrefix(arch, "sm_")
	n, err := strconv.Atoi(s)
	if !ok || err != nil || n < 10 {
		return 0, fmt.Errorf("architecture %q: want sm_XX, such as sm_90", arch)
	}
	return n, nil
}

// call calls an NVRTC function. A Go pointer among the arguments must be converted to uintptr in the call itself:
// only then does the pragma keep what it points to on the heap, and alive.
//
//go:uintptrescapes
func call(l *Library, f function, args ...uintptr) error {
	r := dl.Call(l.fn[f], args...)
	code := int32(r)
	if code == 0 {
		return nil
	}
	return &Error{Call: symbols[f], Code: code, Text: l.text(code)}
}

func (l *Library) text(code int32) string {
	r := dl.Call(l.fn[fnGetErrorString], uintptr(code))
	// The string is the library's own and outlives us; read through a pointer to r, since vet rightly distrusts
	// making a pointer of a number.
	p := *(**byte)(unsafe.Pointer(&r))
	if p == nil {
		return fmt.Sprintf("nvrtcResult %d", code)
	}
	n := 0
	for *(*byte)(unsafe.Add(unsafe.Pointer(p), n)) != 0 {
		n++
	}
	return string(unsafe.Slice(p, n))
}

// Header is a file that a source may include by its name.
type Header struct{ Name, Text string }

// Compile compiles a source for an architecture that Target gave, and returns the cubin. It takes up to a few
// seconds. Errors: *Error, with the compiler's log, whose lines begin with name(line) or a header's.
func (l *Library) Compile(name, text string, headers []Header, arch string, options ...string) (cubin []byte, err error) {
	// The first compilation of a process takes SIGINT and SIGTERM while it runs, and gives them back without SA_ONSTACK:
	// that of an empty source is the shortest.
	l.first.Do(func() { l.compile("empty.cu", "", nil, arch) })
	return l.compile(name, text, headers, arch, options...)
}

func (l *Library) compile(name, text string, headers []Header, arch string, options ...string) (cubin []byte, err error) {
	texts, names := make([]*byte, len(headers)+1), make([]*byte, len(headers)+1)
	for i, h := range headers {
		texts[i], names[i] = cString(h.Text), cString(h.Name)
	}
	args := []*byte{cString("--gpu-architecture=" + arch)}
	for _, o := range options {
		args = append(args, cString(o))
	}
	for _, s := range append([]Header{{name, text}}, headers...) {
		if strings.ContainsRune(s.Name+s.Text, 0) {
			return nil, fmt.Errorf("source %q holds a zero byte", s.Name)
		}
	}

	var program uintptr
	err = call(l, fnCreateProgram, uintptr(unsafe.Pointer(&program)), uintptr(unsafe.Pointer(cString(text))),
		uintptr(unsafe.Pointer(cString(name))), uintptr(len(headers)), uintptr(unsafe.Pointer(&texts[0])),
		uintptr(unsafe.Pointer(&names[0])))
	if err != nil {
		return nil, err
	}
	defer func() { call(l, fnDestroyProgram, uintptr(unsafe.Pointer(&program))) }()

	dl.KeepSignals(func() {
		err = call(l, fnCompileProgram, program, uintptr(len(args)), uintptr(unsafe.Pointer(&args[0])))
	})
	if e := (*Error)(nil); errors.As(err, &e) {
		log, _ := l.output(program, fnGetProgramLogSize, fnGetProgramLog)
		e.Log = strings.TrimRight(string(log), "\x00\n")
		return nil, e
	}
	return l.output(program, fnGetCUBINSize, fnGetCUBIN)
}

// output fetches what one of a program's pairs of functions gives: the size, then the bytes.
func (l *Library) output(program uintptr, size, get function) ([]byte, error) {
	var n uint64
	if err := call(l, size, program, uintptr(unsafe.Pointer(&n))); err != nil || n == 0 {
		return nil, err
	}
	b := make([]byte, n)
	return b, call(l, get, program, uintptr(unsafe.Pointer(&b[0])))
}

func cString(s string) *byte { return &append([]byte(s), 0)[0] }
