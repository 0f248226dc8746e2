package nvrtc_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/warpmap/warpmap/device/internal/cu/cufake"
	"github.com/warpmap/warpmap/device/internal/nvrtc"
	"github.com/warpmap/warpmap/internal/testenv"
)

// find returns this machine's NVRTC.
func find(t *testing.T, arch string) (*nvrtc.Library, string) {
	t.Helper()
	l, target, err := nvrtc.Find("", arch, 0)
	testenv.Require(t, "nvrtc", err)
	return l, target
}

func TestCompile(t *testing.T) {
	for _, arch := range []string{"sm_75", "sm_80", "sm_89", "sm_90"} {
		l, target := find(t, arch)
		if target != arch {
			t.Errorf("%v compiles for %s in place of %s", l, target, arch)
		}
		cubin, err := l.Compile("a.cu", `#include "b.h"
extern "C" __global__ void a(const P p) { if constexpr (sizeof(P) == 16) p.x[threadIdx.x] = p.n; }`,
			[]nvrtc.Header{{Name: "b.h", Text: `#include "c.h"`}, {Name: "c.h", Text: "struct P { int *x; long long n; };"}}, target, "--std=c++17")
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.HasPrefix(cubin, []byte("\x7fELF")) || !bytes.Contains(cubin, []byte(".text.a")) {
			t.Errorf("%s: %d bytes that are no cubin", arch, len(cubin))
		}
	}
}

func TestCompileError(t *testing.T) {
	l, target := find(t, "sm_90")
	_, err := l.Compile("bad.cu", "#include \"bad.h\"\nint f() { return x; }\n",
		[]nvrtc.Header{{Name: "bad.h", Text: "\n\nunknown y;\n"}}, target)
	var e *nvrtc.Error
	if !errors.As(err, &e) || !e.Source() {
		t.Fatalf("%v", err)
	}
	for _, want := range []string{"bad.cu(2): error", "bad.h(3): error", `"unknown"`} {
		if !strings.Contains(e.Log, want) {
			t.Errorf("the log lacks %q:\n%s", want, e.Log)
		}
	}
	if _, err = l.Compile("a.cu", "", nil, target, "--no-such-option"); !errors.As(err, &e) || e.Source() || !strings.Contains(err.Error(), "INVALID_OPTION") {
		t.Errorf("a bad option: %v", err)
	}
	if _, err = l.Compile("a.cu", "int x;\x00", nil, target); err == nil {
		t.Error("a source with a zero byte was compiled")
	}
}

func TestCompileConcurrently(t *testing.T) {
	l, target := find(t, "sm_80")
	var wg sync.WaitGroup
	for i := range 8 {
		wg.Go(func() {
			name := "kernel" + string(rune('a'+i))
			cubin, err := l.Compile("a.cu", `extern "C" __global__ void `+name+`(int *p) { *p = 1; }`, nil, target)
			if err != nil || !bytes.Contains(cubin, []byte(".text."+name)) {
				t.Errorf("%s: %d bytes, %v", name, len(cubin), err)
			}
		})
	}
	wg.Wait()
}

func TestTarget(t *testing.T) {
	f := cufake.New(t)
	l, err := nvrtc.Open(f.Path) // sm_50 to sm_90
	if err != nil {
		t.Fatal(err)
	}
	if l.String() != "NVRTC 12.4" {
		t.Errorf("%v", l)
	}
	for arch, want := range map[string]string{"sm_70": "sm_70", "sm_72": "", "sm_87": "", "sm_88": "", "sm_90": "sm_90", "sm_100": "", "sm_60": "", "sm_120": ""} {
		got, err := l.Target(arch)
		if got != want || (err != nil) != (want == "") {
			t.Errorf("%s: compiled for %q, %v; want %q", arch, got, err, want)
		}
		if err != nil && (!strings.Contains(err.Error(), "sm_90") || !strings.Contains(err.Error(), f.Path)) {
			t.Errorf("%s: the error does not say what there is: %v", arch, err)
		}
	}
	for _, arch := range []string{"", "90", "sm_", "sm_x", "sm_9", "compute_90"} {
		if _, err := l.Target(arch); err == nil {
			t.Errorf("architecture %q was taken", arch)
		}
		if _, _, err := nvrtc.Find(f.Path, arch, 0); err == nil {
			t.Errorf("architecture %q was taken", arch)
		}
	}
}

func TestFindNamed(t *testing.T) {
	f := cufake.New(t)
	missing := filepath.Join(t.TempDir(), "libnvrtc.so")
	t.Setenv(nvrtc.Env, missing)
	if l, target, err := nvrtc.Find(f.Path, "sm_80", 0); err != nil || l.Path != f.Path || target != "sm_80" {
		t.Errorf("named: %v %v %v", l, target, err)
	}
	if _, _, err := nvrtc.Find("", "sm_80", 0); err == nil || !strings.Contains(err.Error(), missing) {
		t.Errorf("%s names a missing file: %v", nvrtc.Env, err)
	}
	t.Setenv(nvrtc.Env, f.Path)
	if l, _, err := nvrtc.Find("", "sm_80", 0); err != nil || l.Path != f.Path {
		t.Errorf("%s: %v %v", nvrtc.Env, l, err)
	}
	if _, _, err := nvrtc.Find("libc.so.6", "sm_80", 0); err == nil || !strings.Contains(err.Error(), "no NVRTC") {
		t.Errorf("a library that is no NVRTC: %v", err)
	}
}

func TestFindNothing(t *testing.T) {
	dir := t.TempDir()
	nvrtc.SearchOnly(t, []string{"libnvrtc-none.so"}, []string{dir + "/*/lib", "$WARPMAP_UNSET/lib"})
	if _, _, err := nvrtc.Find("", "sm_80", 0); err == nil || !strings.Contains(err.Error(), dir+"/*/lib") {
		t.Errorf("the error does not say where it looked: %v", err)
	}
}

// Libraries that will not do are passed over, and named where none will.
func TestFindSearches(t *testing.T) {
	old, young, dir := cufake.New(t), cufake.New(t), t.TempDir()
	young.Set("nvrtc version", 12080)
	young.Set("nvrtc newest", 120)
	link := func(from, to string) string {
		to = filepath.Join(dir, to)
		if err := os.MkdirAll(filepath.Dir(to), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.Symlink(from, to); err != nil {
			t.Fatal(err)
		}
		return to
	}
	oldPath := link(old.Path, "a/lib/libnvrtc.so.12")
	link(old.Path, "a/lib/libnvrtc.so")
	link(old.Path, "a/lib/libnvrtc.alt.so.12")
	broken := filepath.Join(dir, "a/lib/libnvrtc.so.13")
	if err := os.WriteFile(broken, []byte("not a library"), 0o600); err != nil {
		t.Fatal(err)
	}
	youngPath := link(young.Path, "b/lib/libnvrtc.so.12.8.1")

	t.Setenv("WARPMAP_TEST_DIR", dir)
	nvrtc.SearchOnly(t, nil, []string{"$WARPMAP_TEST_DIR/a/lib", dir + "/b/*"})
	if got := nvrtc.Candidates(dir + "/*/lib"); !slices.Equal(got, []string{broken, youngPath, oldPath}) {
		t.Errorf("candidates %v", got)
	}
	for arch, want := range map[string]string{"sm_80": oldPath, "sm_120": youngPath} {
		if l, target, err := nvrtc.Find("", arch, 0); err != nil || l.Path != want || target != arch {
			t.Errorf("%s: %v %v %v", arch, l, target, err)
		}
	}
	_, _, err := nvrtc.Find("", "sm_110", 0)
	if err == nil {
		t.Fatal("sm_110 was found")
	}
	for _, want := range []string{broken, oldPath, youngPath, "cannot compile for sm_110"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
}

// A library that is too old is passed over, wherever it lies; alone, it is refused by version and path.
func TestFindPassesOverTooOld(t *testing.T) {
	old, young := cufake.New(t), cufake.New(t)
	old.Set("nvrtc version", 11020)
	nvrtc.SearchOnly(t, []string{old.Path}, nil)
	_, _, err := nvrtc.Find("", "sm_80", 0)
	for _, want := range []string{"NVRTC 11.2", old.Path, "too old", "11.8 or newer"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
	nvrtc.SearchOnly(t, []string{old.Path, young.Path}, nil)
	if l, _, err := nvrtc.Find("", "sm_80", 0); err != nil || l.Path != young.Path {
		t.Errorf("%v, %v", l, err)
	}
	if _, _, err := nvrtc.Find(old.Path, "sm_80", 0); err == nil {
		t.Error("it was taken because it was named")
	}
}

// For a GPU that can swap 16 bytes, a library that knows how goes before one that comes first but does not.
func TestFindPrefersSwaps(t *testing.T) {
	old, young := cufake.New(t), cufake.New(t)
	old.Set("nvrtc version", 12000)
	nvrtc.SearchOnly(t, []string{old.Path, young.Path}, nil)
	for arch, want := range map[string]string{"sm_80": old.Path, "sm_90": young.Path} {
		if l, target, err := nvrtc.Find("", arch, 0); err != nil || l.Path != want || target != arch {
			t.Errorf("%s: %v %s %v, want %s", arch, l, target, err, want)
		}
	}
	nvrtc.SearchOnly(t, []string{old.Path}, nil)
	if l, _, err := nvrtc.Find("", "sm_90", 0); err != nil || l.Path != old.Path {
		t.Errorf("%v, %v", l, err)
	}
}

// A library with a higher major version than the driver's CUDA is passed over, and refused if it is the only one. One
// that is named is taken, and without a driver any.
func TestFindPassesOverNewerThanDriver(t *testing.T) {
	newer, older := cufake.New(t), cufake.New(t)
	newer.Set("nvrtc version", 13000)
	older.Set("nvrtc version", 12000) // without Swap128, which is no reason to take what does not load
	nvrtc.SearchOnly(t, []string{newer.Path, older.Path}, nil)
	for driver, want := range map[int]string{12: older.Path, 13: newer.Path, 14: newer.Path, 0: newer.Path} {
		if l, _, err := nvrtc.Find("", "sm_90", driver); err != nil || l.Path != want {
			t.Errorf("a driver of CUDA %d: %v, %v; want %s", driver, l, err, want)
		}
	}
	_, _, err := nvrtc.Find("", "sm_90", 11)
	for _, want := range []string{"NVRTC 13.0", newer.Path, "NVRTC 12.0", older.Path, "newer than the driver, which loads what NVRTC 11 compiles"} {
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("the error lacks %q: %v", want, err)
		}
	}
	if l, _, err := nvrtc.Find(newer.Path, "sm_90", 12); err != nil || l.Path != newer.Path {
		t.Errorf("named: %v, %v", l, err)
	}
	t.Setenv(nvrtc.Env, newer.Path)
	if l, _, err := nvrtc.Find("", "sm_90", 12); err != nil || l.Path != newer.Path {
		t.Errorf("%s: %v, %v", nvrtc.Env, l, err)
	}
}
