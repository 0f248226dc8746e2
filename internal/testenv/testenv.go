// Package testenv tells tests what the machine has, and how much time there is.
package testenv

import (
	"fmt"
	"hash/fnv"
	"os"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/internal/quick"
)

// Long runs have the kernels that users run.
func init() {
	quick.Kernels = !Long()
	quick.Model = os.Getenv("WARPMAP_MODEL") != ""
	quick.Checks = os.Getenv("WARPMAP_CHECKS") != ""
	quick.Asked = func() {
		for _, name := range []string{"WARPMAP_LONG", "WARPMAP_MODEL", "WARPMAP_CHECKS", "WARPMAP_SEEDS", "WARPMAP_SHARED"} {
			os.Getenv(name)
		}
	}
	if text := os.Getenv("WARPMAP_SEEDS"); text != "" {
		var err error
		if quick.Seeds, err = strconv.ParseUint(text, 10, 64); err != nil {
			panic(fmt.Sprintf("WARPMAP_SEEDS is %q: want a number", text))
		}
	}
	if text := os.Getenv("WARPMAP_SHARED"); text != "" {
		kib, err := strconv.ParseUint(text, 10, 6)
		if err != nil {
			panic(fmt.Sprintf("WARPMAP_SHARED is %q: want KiB of shared memory, at most 63", text))
		}
		quick.Shared = int64(kib) << 10
	}
	// A tenth of the time of many packages' tests was the garbage collector's. The environment's GOGC and GOMEMLIMIT go before.
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(400)
		if os.Getenv("GOMEMLIMIT") == "" {
			debug.SetMemoryLimit(2 << 30)
		}
	}
}

// UsersKernels has devices compile the kernels that users run until the test ends, in short runs too. It is for tests that run alone: one beside it would
// get them, too.
func UsersKernels(t testing.TB) {
	was := quick.Kernels
	quick.Kernels = false
	t.Cleanup(func() { quick.Kernels = was })
}

// LittleShared has CPU devices with that many bytes of shared memory for a block until the test ends. It is for tests that
// run alone.
func LittleShared(t testing.TB, bytes int64) {
	was := quick.Shared
	quick.Shared = bytes
	t.Cleanup(func() { quick.Shared = was })
}

// UnderModel has devices of WithStress check kernels by the memory model until the test ends. It is for tests that run alone.
func UnderModel(t testing.TB) {
	was := quick.Model
	quick.Model = true
	t.Cleanup(func() { quick.Model = was })
}

// Model tells that devices of WithStress check kernels by the memory model: WARPMAP_MODEL is set, or UnderModel was called.
// There a load may see what is no longer so, and what two operations did is in no order that clocks tell.
func Model() bool { return quick.Model }

// Require skips the test where err says that what it needs ("cuda", "nvrtc") is missing here. On a machine that is
// there to test it, the environment's WARPMAP_REQUIRE lists it ("cuda,nvrtc"), and then the test fails instead.
func Require(t testing.TB, what string, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if slices.Contains(strings.FieldsFunc(os.Getenv("WARPMAP_REQUIRE"), func(r rune) bool { return r == ',' || r == ' ' }), what) {
		t.Fatalf("WARPMAP_REQUIRE lists %s: %v", what, err)
	}
	t.Skipf("needs %s: %v", what, err)
}

// Long tells that there is time: WARPMAP_LONG is set. Other runs leave out what finds little beside the rest.
func Long() bool { return os.Getenv("WARPMAP_LONG") != "" }

// Turn skips a part of a long test that is not of the tenth of all parts that the environment's WARPMAP_TENTH names, 0 to 9:
// .ci/run names another tenth from commit to commit. Where it is not set, all parts run; short runs have few parts, and all of them.
func Turn(t testing.TB) {
	t.Helper()
	text := os.Getenv("WARPMAP_TENTH")
	if text == "" || !Long() {
		return
	}
	tenth, err := strconv.Atoi(text)
	if err != nil || tenth < 0 || tenth > 9 {
		t.Fatalf("WARPMAP_TENTH is %q (want 0 to 9)", text)
	}
	if own := tenthOf(t.Name()); own != tenth {
		t.Skipf("its turn is at WARPMAP_TENTH=%d", own)
	}
}

// ByTurns skips a test that short runs leave out, since it takes long and finds little beside the others. Long runs have it, and where WARPMAP_TURNS is
// set, short runs: .ci/run runs a tenth of these tests so, another from commit to commit. It is the first line of such a test, where .ci/run looks for it.
func ByTurns(t testing.TB) {
	t.Helper()
	if !Long() && os.Getenv("WARPMAP_TURNS") == "" {
		t.Skip("short runs leave it out: WARPMAP_TURNS=1 has it run")
	}
}

// tenthOf is a name's tenth, 0 to 9.
func tenthOf(name string) int {
	h := fnv.New32a()
	fmt.Fprint(h, name)
	return int(h.Sum32() % 10)
}

// Small tells that kernels run some hundred times slower, as they do beside compute-sanitizer: WARPMAP_SMALL is set. Tests
// on a GPU then take as few rows as on the CPU.
func Small() bool { return os.Getenv("WARPMAP_SMALL") != "" }

// Seeds is how many of so many seeds a test under stress tries: all in long runs, else a sixteenth.
func Seeds(all int) int {
	if Long() {
		return all
	}
	return (all + 15) / 16
}

// Some are all in long runs, else the first n; three times as many where WARPMAP_NVRTC names a compiler, which is to be tried then.
func Some[T any](all []T, n int) []T {
	if Long() {
		return all
	}
	if os.Getenv("WARPMAP_NVRTC") != "" {
		n *= 3
	}
	return all[:min(n, len(all))]
}

// FirstSeed is what a test adds to the seeds that it counts from 0, so that long runs try others each time: the
// number of WARPMAP_SEEDS, or 0. Devices of WithStress add it by themselves. A test whose planted defect is found by
// the usual seeds may not find it by others.
func FirstSeed() uint64 { return quick.Seeds }

// Tried logs how many of something a test has tried, in the form that go run ./internal/trial adds up: programs,
// operations, faults, kills, inputs, histories, slices or reductions.
func Tried(t testing.TB, n int, what string) {
	t.Helper()
	t.Logf("tried %d %s", n, what)
}

// SeedsOf is Seeds, but no fewer than the variants that seeds take in turn.
func SeedsOf(all, variants int) int { return max(variants, Seeds(all)) }

// RequireNVRTC is Require for an error of device.CompileFor: a missing NVRTC may fail the test, one too new for an old
// architecture skips it.
func RequireNVRTC(t testing.TB, err error) {
	t.Helper()
	if err != nil && strings.Contains(err.Error(), "cannot compile for") {
		t.Skip(err)
	}
	Require(t, "nvrtc", err)
}
