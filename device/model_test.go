package device_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/device"
)

// messages are kernels in which the first lane of a grid sends a message to the last.
const messages = `#include "warpmap.cuh"
WARPMAP_KERNEL(send, device::HostLaunch) {
    u64* data = at<u64>(p.params);
    u32* flag = at<u32>(p.params + 64);
    u64* out = at<u64>(p.params + 128);
    if (grid_thread() == 0) {
        PUT;
        FLAG;
    } else if (grid_thread() == grid_threads() - 1) {
        if (SEEN) out[0] = GET;
    }
}
`

type message struct{ put, flag, seen, get string }

// sendMessages sends a message by each of some seeds. It tells how often the flag was seen, how often without what was
// sent, and the first fault.
func sendMessages(t *testing.T, m message, blocks int64) (seen, stale int, fault error) {
	t.Helper()
	text := messages
	for from, to := range map[string]string{"PUT": m.put, "FLAG": m.flag, "SEEN": m.seen, "GET": m.get} {
		text = strings.Replace(text, from, to, 1)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	for seed := range uint64(40) {
		d, err := device.Open("cpu", device.WithMemoryModel(seed))
		must(err)
		module, err := d.Compile(&device.Program{Name: "messages", Files: []device.File{{Name: "messages.cu", Text: text}}})
		must(err)
		k, err := device.KernelOf[device.HostLaunch](module, "send")
		must(err)
		memory, err := device.Make[uint64](d, 32)
		must(err)
		out := make([]uint64, 32)
		must(memory.Write(nil, out))
		err = k.Launch(nil, device.Grid{Blocks: blocks, Threads: 64}, &device.HostLaunch{Params: memory.Addr()})
		if err != nil {
			d.Close()
			return seen, stale, err
		}
		must(memory.Read(nil, out))
		switch out[16] {
		case 8:
			seen++
		case 1:
			seen++
			stale++
		}
		must(memory.Free())
		must(d.Close())
	}
	return seen, stale, nil
}

// A message of which the model says that it arrives whole does; one that lacks an order comes stale, or is a race.
func TestMemoryModel(t *testing.T) {
	relaxed := message{"store_relaxed(data, (u64)7)", "store_relaxed(flag, 1u)", "load_relaxed(flag)", "1 + load_relaxed(data)"}
	for _, c := range []struct {
		name  string
		m     message
		stale bool
		race  string
	}{
		{"release and acquire", message{relaxed.put, "store_release(flag, 1u)", "load_acquire(flag)", relaxed.get}, false, ""},
		{"fences", message{relaxed.put, "fence(); store_relaxed(flag, 1u)", "load_relaxed(flag) && (fence(), true)", relaxed.get},
			false, ""},
		{"a release that is changed", message{relaxed.put, "store_release(flag, 1u); add(flag, 2u)", "load_acquire(flag)",
			relaxed.get}, false, ""},
		{"a plain message", message{"data[0] = 7", "store_release(flag, 1u)", "load_acquire(flag)", "1 + data[0]"}, false, ""},
		{"no order", relaxed, true, ""},
		{"no release", message{relaxed.put, relaxed.flag, "load_acquire(flag)", relaxed.get}, true, ""},
		{"no acquire", message{relaxed.put, "store_release(flag, 1u)", relaxed.seen, relaxed.get}, true, ""},
		{"a fence on one side", message{relaxed.put, "fence(); store_relaxed(flag, 1u)", relaxed.seen, relaxed.get}, true, ""},
		{"a plain message without order", message{"data[0] = 7", relaxed.flag, relaxed.seen, "1 + data[0]"}, false,
			"plain store of thread 0 (messages.cu:7"},
		{"a plain flag", message{relaxed.put, "flag[0] = 1", "load_acquire(flag)", relaxed.get}, false, "data race"},
		{"a read-only load", message{relaxed.put, "store_release(flag, 1u)", "load_acquire(flag)", "1 + load_readonly(data)"}, false,
			"a read-only load of what the launch has written"},
	} {
		for _, blocks := range []int64{1, 3} {
			t.Run(fmt.Sprintf("%s, %d blocks", c.name, blocks), func(t *testing.T) {
				seen, stale, fault := sendMessages(t, c.m, blocks)
				t.Logf("seen %d times, %d stale, %v", seen, stale, fault)
				switch lost := new(device.FaultError); {
				case c.race != "":
					if !errors.As(fault, &lost) || !strings.Contains(lost.What, c.race) {
						t.Errorf("%v, want a FaultError with %q", fault, c.race)
					}
				case fault != nil:
					t.Error(fault)
				case seen == 0:
					t.Error("no message is seen")
				case stale > 0 != c.stale:
					t.Errorf("%d of %d messages are stale", stale, seen)
				}
			})
		}
	}
}
