package device_test

import (
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
)

// litmusTest is a few lanes of a block, each with its own program. x, y, f and g are words of a line each, b is the bytes of f, q and r are pairs of words,
// and out is for what lanes have seen.
type litmusTest struct {
	name  string
	lanes []string
	// shows tells whether what the lanes have left in out is what the test asks about.
	shows   func(out []uint64) bool
	allowed bool   // it must be seen; else it must never be
	race    string // what a FaultError must say; "": there must be none
	blocks  int64  // of which each has all lanes; 0: 1
	shared  bool   // it is of a program with WARPMAP_SHARED
}

const litmusText = `#include "warpmap.cuh"
struct Triple { u32 a, b, c; };
struct Six { u32 w[6]; };
struct Eight { u64 w[4]; };
__attribute__((noinline)) static Eight eight_of(u64 v) { return Eight{{v, v, v, v}}; }
`

// litmusKernel is the kernel of a test, which has the number of its place.
func litmusKernel(i int, c litmusTest) string {
	var b strings.Builder
	fmt.Fprintf(&b, `WARPMAP_KERNEL(litmus%d, device::HostLaunch) {
    u32* x = at<u32>(p.params);
    u32* y = at<u32>(p.params + 64);
    u32* f = at<u32>(p.params + 128);
    u32* g = at<u32>(p.params + 192);
    u8* b = at<u8>(p.params + 128);
    u64* q = at<u64>(p.params + 256);
    Triple* t = at<Triple>(p.params + 328);
    Eight* e = at<Eight>(p.params + 384);
    u64* out = at<u64>(p.params + 512);
    switch (thread_index()) {
`, i)
	for lane, text := range c.lanes {
		fmt.Fprintf(&b, "    case %d: { %s } break;\n", lane, text)
	}
	b.WriteString("    }\n}\n")
	return b.String()
}

// tells that out holds these values, from its first word on.
func tells(want ...uint64) func([]uint64) bool {
	return func(out []uint64) bool {
		for i, v := range want {
			if out[i] != v {
				return false
			}
		}
		return true
	}
}

var litmusTests = []litmusTest{
	{name: "store buffering with fences", shows: tells(1, 1), lanes: []string{
		"store_relaxed(x, 1u); fence(); out[0] = 1 + load_relaxed(y);",
		"store_relaxed(y, 1u); fence(); out[1] = 1 + load_relaxed(x);"}},
	{name: "store buffering with fences of messages", shows: tells(1, 1), allowed: true, lanes: []string{
		"store_relaxed(x, 1u); fence_acq_rel(); out[0] = 1 + load_relaxed(y);",
		"store_relaxed(y, 1u); fence_acq_rel(); out[1] = 1 + load_relaxed(x);"}},
	{name: "one of two enters", shows: tells(1, 1), lanes: []string{
		"store_relaxed(x, 1u); fence(); if (!load_relaxed(y)) { q[0]++; out[0] = 1; }",
		"store_relaxed(y, 1u); fence(); if (!load_relaxed(x)) { q[0]++; out[1] = 1; }"}},
	{name: "independent reads", shows: tells(1, 0, 1, 0), allowed: true, lanes: []string{
		"store_relaxed(x, 1u);", "store_relaxed(y, 1u);",
		"out[0] = load_acquire(x); out[1] = load_acquire(y);", "out[2] = load_acquire(y); out[3] = load_acquire(x);"}},
	{name: "independent reads with fences", shows: tells(1, 0, 1, 0), lanes: []string{
		"store_relaxed(x, 1u);", "store_relaxed(y, 1u);",
		"out[0] = load_relaxed(x); fence(); out[1] = load_relaxed(y);", "out[2] = load_relaxed(y); fence(); out[3] = load_relaxed(x);"}},
	{name: "two reads of one word", shows: func(out []uint64) bool { return out[0] > out[1] }, lanes: []string{
		"store_relaxed(x, 1u); store_relaxed(x, 2u);", "out[0] = load_relaxed(x); out[1] = load_relaxed(x);"}},
	{name: "a word that its lane has written", shows: tells(1), lanes: []string{
		"store_relaxed(x, 1u);", "store_relaxed(x, 2u); out[0] = load_relaxed(x) == 0;"}},
	{name: "a message over two", shows: tells(1, 1), lanes: []string{
		"q[0] = 7; store_release(f, 1u);", "if (load_acquire(f)) store_release(g, 1u);",
		"if (load_acquire(g)) { out[0] = 1; out[1] = q[0] != 7; }"}},
	{name: "a message over two, by fences", shows: tells(1, 1), lanes: []string{
		"q[0] = 7; fence(); store_relaxed(f, 1u);", "if (load_relaxed(f)) { fence(); store_relaxed(g, 1u); }",
		"if (load_relaxed(g)) { fence(); out[0] = 1; out[1] = q[0] != 7; }"}},
	{name: "a word seen by who tells", shows: tells(1, 1), lanes: []string{
		"store_relaxed(x, 1u);", "if (load_relaxed(x)) store_release(f, 1u);",
		"if (load_acquire(f)) { out[0] = 1; out[1] = !load_relaxed(x); }"}},
	{name: "a word seen by who tells, read plainly", shows: tells(1, 1), lanes: []string{
		"store_relaxed(x, 1u);", "if (load_relaxed(x)) store_release(f, 1u);",
		"if (load_acquire(f)) { out[0] = 1; out[1] = !*x; }"}},
	{name: "the last sets the counter back", shows: tells(1), lanes: []string{
		"if (add(x, 1u) == 2) { out[0] = *x != 3; *x = 0; }", "if (add(x, 1u) == 2) { out[0] = *x != 3; *x = 0; }",
		"if (add(x, 1u) == 2) { out[0] = *x != 3; *x = 0; }"}},
	{name: "one of the first sets the counter back", race: "data race", lanes: []string{
		"if (add(x, 1u) == 1) *x = 0;", "if (add(x, 1u) == 1) *x = 0;", "if (add(x, 1u) == 1) *x = 0;"}},
	{name: "a plain load of what another stores", race: "data race", lanes: []string{
		"store_relaxed(x, 1u);", "out[0] = *x;"}},
	{name: "two flags in a word", shows: tells(1, 1), lanes: []string{
		"q[0] = 7; fence(); store_relaxed(b, (u8)1);", "store_relaxed(b + 1, (u8)1);",
		"if (load_relaxed(b)) { fence(); out[0] = 1; out[1] = q[0] != 7; }"}},
	{name: "a flag that its lane writes again", shows: tells(1, 1), lanes: []string{
		"q[0] = 7; store_release(f, 1u); store_relaxed(f, 2u);", "if (load_acquire(f)) { out[0] = 1; out[1] = q[0] != 7; }"}},
	{name: "a flag that another writes again", race: "data race", lanes: []string{
		"q[0] = 7; store_release(f, 1u);", "if (load_relaxed(f)) store_relaxed(f, 2u);", "if (load_acquire(f) == 2) out[0] = q[0];"}},
	{name: "a flag that is read twice", shows: tells(1, 1), lanes: []string{
		"q[0] = 7; store_release(f, 1u);", "if (load_relaxed(f) == 1) store_relaxed(f, 2u);",
		"if (load_relaxed(f) == 1) { load_acquire(f); out[0] = 1; out[1] = q[0] != 7; }"}},
	{name: "a flag that others change", shows: tells(1, 1), lanes: []string{
		"q[0] = 7; store_release(f, 1u);", "or_of(f, 2u);", "add(f, 4u);",
		"if (load_acquire(f) & 1) { out[0] = 1; out[1] = q[0] != 7; }"}},
	{name: "a lock", shows: func(out []uint64) bool { return out[0]+out[1]+out[2] == 3 && out[3] != 3 }, lanes: []string{
		"while (cas(f, 0u, 1u)) pause(); fence(); out[3]++; fence(); store_relaxed(f, 0u); out[0] = 1;",
		"while (cas(f, 0u, 1u)) pause(); fence(); out[3]++; store_release(f, 0u); out[1] = 1;",
		"while (cas(f, 0u, 1u)) pause(); fence(); out[3]++; fence(); exchange(f, 0u); out[2] = 1;"}},
	{name: "a lane of a ballot", race: "data race", lanes: []string{
		"q[0] = 7; warp_ballot(3, true);", "warp_ballot(3, true); out[0] = q[0];"}},
	{name: "a lane of a shuffle", race: "data race", lanes: []string{
		"q[0] = 7; warp_shuffle(3, 1u, 0);", "warp_shuffle(3, 1u, 0); out[0] = q[0];"}},
	{name: "lanes that meet", shows: tells(1), lanes: []string{
		"q[0] = 7; warp_sync(3);", "warp_sync(3); out[0] = q[0] != 7;"}},
	{name: "lanes that meet, and one that does not", race: "data race", lanes: []string{
		"q[0] = 7; warp_sync(3);", "warp_sync(3);", "out[0] = q[0];"}},
	{name: "halves of a pair", shows: func(out []uint64) bool { return out[0] != 0 }, lanes: []string{
		"store_relaxed((u128*)q, u128{1, 1}); store_relaxed((u128*)q, u128{2, 2});",
		"u64 v = load_relaxed(q + 1), w = load_relaxed((u128*)q).lo; out[0] = v > w;"}},
	{name: "structs of 12 bytes", shows: tells(1, 1), lanes: []string{
		"t[0] = Triple{7, 7, 7}; store_release(f, 1u);", "if (load_acquire(f)) { Triple v = t[0]; out[0] = 1; out[1] = v.c != 7; }"}},
	{name: "structs of 32 bytes", shows: tells(1, 1), lanes: []string{
		"e[0] = eight_of(7); store_release(f, 1u);", "if (load_acquire(f)) { Eight v = e[0]; out[0] = 1; out[1] = v.w[3] != 7; }"}},
	{name: "structs of 32 bytes without order", race: "data race", lanes: []string{
		"e[0] = Eight{{7, 7, 7, 7}}; store_relaxed(f, 1u);", "if (load_relaxed(f)) { Eight v = e[0]; out[0] = 1; out[1] = v.w[3] != 7; }"}},
	{name: "racing loads of 12 bytes", shows: tells(1, 1), lanes: []string{
		"store_racing(t, Triple{7, 7, 7}); store_release(f, 1u);",
		"if (load_acquire(f)) { Triple v = load_racing(t); out[0] = 1; out[1] = v.a != 7 || v.c != 7; }"}},
	{name: "racing loads of 32 bytes", shows: tells(1, 1), lanes: []string{
		"store_racing(e, Eight{{7, 7, 7, 7}}); store_release(f, 1u);",
		"if (load_acquire(f)) { Eight v = load_racing(e); out[0] = 1; out[1] = v.w[0] != 7 || v.w[1] != 7 || v.w[2] != 7 || v.w[3] != 7; }"}},
	{name: "a struct that a function gives", shows: tells(1, 1), lanes: []string{
		"store_relaxed((u64*)e, (u64)1); e[0] = eight_of(7); store_release(f, 1u);",
		"if (load_acquire(f)) store_relaxed((u64*)e, (u64)9);",
		"if (load_acquire(f)) { u64 v = load_relaxed((u64*)e); out[0] = 1; out[1] = v != 7 && v != 9; }"}},
	{name: "a struct that a function gives, and a word beside", shows: tells(1, 1), lanes: []string{
		"store_relaxed((u64*)e + 1, (u64)1); e[0] = eight_of(7); store_relaxed((u64*)e, (u64)8); store_release(f, 1u);",
		"if (load_acquire(f)) { u64 v = load_relaxed((u64*)e + 1); out[0] = 1; out[1] = v != 7; }"}},
	{name: "shared memory of one block after the other", blocks: 3, shows: tells(1), lanes: []string{
		"__shared__ u32 s[4]; s[0] = 1; dynamic_shared()[0] = u128{1, 1}; store_relaxed(s + 1, 1u); block_sync(); out[8 + 8 * block_index()] = s[1];",
		"block_sync();"}},
	{name: "global memory of one block after the other", blocks: 3, race: "data race", lanes: []string{"q[0] = 1;"}},
	{name: "a message within a block", shared: true, shows: tells(1, 1), lanes: []string{
		"__shared__ u32 s[8]; s[4] = 7; store_release(s, 1u); block_sync();",
		"__shared__ u32 s[8]; if (load_acquire(s)) { out[0] = 1; out[1] = s[4] != 7; } block_sync();"}},
	{name: "a message from block to block", shared: true, blocks: 2, race: "data race", lanes: []string{
		"if (block_index() == 0) { q[0] = 7; fence(); add_to_memory((u64*)f, 1); } else if (load_memory(f)) { fence(); out[0] = q[0]; }"}},
	{name: "a word of memory of two blocks", shared: true, blocks: 2, race: "block's store", lanes: []string{"store_memory(x, 1u);"}},
	{name: "changes of memory by two blocks", shared: true, blocks: 2, shows: tells(1), lanes: []string{
		"add_to_memory(q, 1); or_of_memory(x, 1u); and_of_memory(y, 1u); add_in_memory(f, 1u);"}},
	{name: "the most of two blocks", shared: true, blocks: 2, shows: tells(1), lanes: []string{
		"max_of_memory(q, 1 + block_index());"}},
}

// What the memory model of PTX allows is seen, and what it forbids is not.
func TestLitmus(t *testing.T) { litmus(t) }

// clang calls other functions for accesses than g++ does, and in more places.
func TestLitmusWithClang(t *testing.T) {
	clang, err := exec.LookPath("clang++")
	testenv.Require(t, "clang", err)
	t.Setenv("CXX", clang)
	litmus(t)
}

func litmus(t *testing.T) {
	texts := map[bool]string{false: litmusText, true: "#define WARPMAP_SHARED 1\n" + litmusText}
	for i, c := range litmusTests {
		texts[c.shared] += litmusKernel(i, c)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	var d *device.Device
	modules := map[bool]*device.Module{}
	var memory device.Slice[uint64]
	reopen := func(seed uint64) {
		var err error
		if d != nil {
			must(d.Close())
		}
		d, err = device.Open("cpu", device.WithMemoryModel(seed))
		must(err)
		for shared, text := range texts {
			modules[shared], err = d.Compile(&device.Program{Name: "litmus", Files: []device.File{{Name: "litmus.cu", Text: text}}})
			if err != nil && strings.Contains(err.Error(), "or clang 16 or newer") {
				testenv.Require(t, "clang", err)
			}
			must(err)
		}
		memory, err = device.Make[uint64](d, 128)
		must(err)
	}
	reopen(1)
	defer func() { d.Close() }()
	for i, c := range litmusTests {
		t.Run(c.name, func(t *testing.T) {
			k, err := device.KernelOf[device.HostLaunch](modules[c.shared], fmt.Sprintf("litmus%d", i))
			must(err)
			seen := 0
			var fault error
			for range 200 {
				out := make([]uint64, 128)
				must(memory.Write(nil, out))
				if fault = k.Launch(nil, device.Grid{Blocks: max(1, c.blocks), Threads: 32}, &device.HostLaunch{Params: memory.Addr()}); fault != nil {
					reopen(uint64(i))
					break
				}
				must(memory.Read(nil, out))
				if c.shows != nil && c.shows(out[64:]) {
					seen++
				}
			}
			switch lost := new(device.FaultError); {
			case c.race != "":
				if !errors.As(fault, &lost) || !strings.Contains(lost.What, c.race) {
					t.Errorf("%v, want a FaultError with %q", fault, c.race)
				}
			case fault != nil:
				t.Error(fault)
			case c.allowed != (seen > 0):
				t.Errorf("seen %d times, allowed %v", seen, c.allowed)
			}
		})
	}
}

// Launches that fail under the memory model say why, and leave nothing to those behind them.
func TestMemoryModelFaults(t *testing.T) {
	text := `#include "warpmap.cuh"
WARPMAP_KERNEL(read_one, device::HostLaunch) { if (*at<u64>(p.params) != 0) add(at<u32>(p.params + 8), 1u); }
WARPMAP_KERNEL(fence_all, device::HostLaunch) { fence(); }
WARPMAP_KERNEL(fault, device::HostLaunch) {
    if (thread_index() < 2) *at<u64>(p.params) = thread_index();
    if (add(at<u32>(p.params + 64), 1u) == 31) *at<u64>(8) = 1;
}
WARPMAP_KERNEL(diverge, device::HostLaunch) {
    if (thread_index() < 16) warp_sync(~0u);
    else warp_ballot(~0u, true);
}
WARPMAP_KERNEL(count, device::HostLaunch) { add(at<u32>(p.params), 1u); }
`
	launch := func(name string, blocks int64, options ...device.Option) (n uint64, err error) {
		d, err := device.Open("cpu", append(options, device.WithMemoryModel(1))...)
		if err != nil {
			return 0, err
		}
		defer d.Close()
		m, err := d.Compile(&device.Program{Name: "faults", Files: []device.File{{Name: "faults.cu", Text: text}}})
		if err != nil {
			return 0, err
		}
		k, err := device.KernelOf[device.HostLaunch](m, name)
		if err != nil {
			return 0, err
		}
		memory, err := device.Make[uint64](d, 32)
		if err != nil {
			return 0, err
		}
		out := make([]uint64, 32)
		if err := memory.Write(nil, out); err != nil {
			return 0, err
		}
		if err := k.Launch(nil, device.Grid{Blocks: blocks, Threads: 32}, &device.HostLaunch{Params: memory.Addr()}); err != nil {
			return 0, err
		}
		err = memory.Read(nil, out)
		return out[0], err
	}
	good := func() {
		t.Helper()
		if n, err := launch("count", 3); n != 96 || err != nil {
			t.Errorf("a good launch counts %d lanes, %v", n, err)
		}
	}
	good()
	fails := func(name string, blocks int64, want ...string) {
		t.Helper()
		_, err := launch(name, blocks)
		for _, w := range want {
			if lost := new(device.FaultError); !errors.As(err, &lost) || !strings.Contains(lost.What, w) {
				t.Errorf("%s: %.300v, want a FaultError with %q", name, err, w)
			}
		}
		good()
	}
	fails("fault", 1, "bad memory access at address 0x8", "data race", "faults.cu:5")
	fails("diverge", 1, "divergent")
	fails("count", 1<<31-1, "too large")
	for _, limit := range []uint64{16 << 10, 4 << 20, 8 << 20} { // full before a lane begins, and in one
		was := device.LimitModel(limit)
		_, err := launch("fence_all", 1<<10)
		device.LimitModel(was)
		if lost := new(device.FaultError); !errors.As(err, &lost) || !strings.Contains(lost.What, "too large") {
			t.Errorf("an arena of %d bytes: %v, want a FaultError with %q", limit, err, "too large")
		}
		good()
	}

	// Each of many lanes loads one word, which none stores: the cost is of a lane, and not of each two.
	if _, err := launch("read_one", 1<<10); err != nil {
		t.Error(err)
	}
	var wg sync.WaitGroup
	for range 2 {
		wg.Go(func() {
			if n, err := launch("count", 8, device.WithCache("")); n != 256 || err != nil {
				t.Errorf("launches side by side: %d lanes, %v", n, err)
			}
		})
	}
	wg.Wait()
}
