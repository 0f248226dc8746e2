package device_test

import (
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
)

// several opens devices by OpenAll, for the length of the test.
func several(t *testing.T, list string, opts ...device.Option) []*device.Device {
	t.Helper()
	devices, err := device.OpenAll(list, opts...)
	must(t, err)
	t.Cleanup(func() {
		for _, d := range devices {
			must(t, d.Close())
		}
	})
	return devices
}

// eachPair runs a test on two devices: CPU devices, GPUs of the fake driver, and real ones where there are two.
func eachPair(t *testing.T, test func(t *testing.T, a, b *device.Device)) {
	t.Run("cpu", func(t *testing.T) {
		d := several(t, "cpu:0,cpu:1")
		test(t, d[0], d[1])
	})
	t.Run("fake", func(t *testing.T) {
		_, opt := fake(t)
		d := several(t, "all", opt)
		test(t, d[0], d[1])
	})
	t.Run("cuda", func(t *testing.T) {
		d, err := device.OpenAll("0,1")
		if errors.Is(err, device.ErrNoGPU) {
			t.Skip(err) // one GPU is no failure
		}
		testenv.Require(t, "cuda", err)
		defer func() { must(t, errors.Join(d[0].Close(), d[1].Close())) }()
		test(t, d[0], d[1])
	})
}

func TestOpenAll(t *testing.T) {
	f, opt := fake(t)
	names := func(list string) (out []string) {
		for _, d := range several(t, list, opt) {
			out = append(out, d.Info().Name)
		}
		return out
	}
	for list, want := range map[string][]string{
		"":                   {"cuda:0", "cuda:1"},
		"all":                {"cuda:0", "cuda:1"},
		"1":                  {"cuda:1"},
		"1,0":                {"cuda:1", "cuda:0"},
		"cuda:1, cuda:0":     {"cuda:1", "cuda:0"},
		"cpu:2,cpu:0,cpu:12": {"cpu:2", "cpu:0", "cpu:12"},
	} {
		if list[:min(3, len(list))] == "cpu" {
			devices := several(t, list) // with a compiler of its own
			var got []string
			for _, d := range devices {
				got = append(got, d.Info().Name)
			}
			if !slices.Equal(got, want) {
				t.Errorf("%q: %v", list, got)
			}
			continue
		}
		if got := names(list); !slices.Equal(got, want) {
			t.Errorf("%q: %v", list, got)
		}
	}
	before := f.Get("contexts")
	for list, want := range map[string]string{
		"0,2":         "there are 2, from cuda:0 to cuda:1",
		"0,1,0":       "cuda:0 is listed twice",
		"0,,1":        "a name is missing between commas",
		"0,gpu1":      "want auto, cpu, cpu:N, or cuda:N",
		"cpu:0,cpu:x": "want cpu, or cpu:N",
	} {
		opts := []device.Option{opt}
		if strings.HasPrefix(list, "cpu") {
			opts = nil
		}
		devices, err := device.OpenAll(list, opts...)
		if devices != nil {
			t.Errorf("%q: devices are left open", list)
		}
		contains(t, err, want)
	}
	if f.Get("contexts") != before {
		t.Error("a device that was opened before the error is open")
	}
	f.Set("devices", 0)
	if _, err := device.OpenAll("all", opt); !errors.Is(err, device.ErrNoGPU) {
		t.Errorf("all of no GPU: %v", err)
	}
}

func TestPeerAccess(t *testing.T) {
	f, opt := fake(t)
	d, cpu := several(t, "all", opt), openCPU(t)
	for range 2 {
		for _, p := range [][2]*device.Device{{d[0], d[1]}, {d[1], d[0]}, {d[0], d[0]}} {
			if can, err := p[0].PeerAccess(p[1]); !can || err != nil {
				t.Errorf("%t, %v", can, err)
			}
		}
	}
	for _, p := range [][2]*device.Device{{d[0], d[1]}, {d[0], d[0]}, {cpu, cpu}} {
		if can, err := p[0].PeerAtomics(p[1]); !can || err != nil {
			t.Errorf("atomics: %t, %v", can, err)
		}
	}
	if can, err := d[0].PeerAtomics(cpu); can || err != nil {
		t.Errorf("atomics to the CPU: %t, %v", can, err)
	}
	if got := f.Get("enabled"); got != 1<<1|1<<4 {
		t.Errorf("pairs %b", got)
	}
	if can, err := d[0].PeerAccess(cpu); can || err != nil {
		t.Errorf("to the CPU: %t, %v", can, err)
	}
	f.Set("peers", 0)
	if can, err := d[0].PeerAccess(d[1]); can || err != nil {
		t.Errorf("without peers: %t, %v", can, err)
	}
	if can, err := d[0].PeerAtomics(d[1]); can || err != nil {
		t.Errorf("atomics without peers: %t, %v", can, err)
	}
	for _, refusal := range []int64{711, 217, 999} { // too many peers; unsupported; a driver that is in trouble
		f.Set("peers", refusal)
		if can, err := d[0].PeerAccess(d[1]); can || (err != nil) != (refusal == 999) {
			t.Errorf("the driver returns %d: %t, %v", refusal, can, err)
		}
	}
	must(t, d[1].Close())
	for _, p := range [][2]*device.Device{{d[0], d[1]}, {d[1], d[0]}} {
		if _, err := p[0].PeerAccess(p[1]); !errors.Is(err, device.ErrClosed) {
			t.Errorf("with a closed device: %v", err)
		}
	}
}

func TestCopiesBetweenDevices(t *testing.T) {
	eachPair(t, func(t *testing.T, a, b *device.Device) {
		_, err := a.PeerAccess(b)
		must(t, err)
		want := make([]uint32, 1000)
		for i := range want {
			want[i] = uint32(i) * 7
		}
		src, err := device.From(a, want)
		must(t, err)
		onA, err := a.NewStream()
		must(t, err)
		onB, err := b.NewStream()
		must(t, err)
		for _, st := range []*device.Stream{nil, onA, onB} {
			dst, err := device.From(b, make([]uint32, 1000))
			must(t, err)
			must(t, dst.Slice(10, 1000).CopyFrom(st, src.Slice(0, 990)))
			if st != nil {
				must(t, st.Sync())
			}
			got, err := dst.Host(nil)
			must(t, err)
			if !slices.Equal(got[10:], want[:990]) || slices.Max(got[:10]) != 0 {
				t.Errorf("on %v: %v", st, got[:20])
			}
			must(t, dst.CopyFrom(st, src.Slice(0, 0)))
			contains(t, dst.Slice(0, 9).CopyFrom(st, src), "1000 elements into 9")
			must(t, dst.Free())
			if err := dst.CopyFrom(st, src); !errors.Is(err, device.ErrFreed) {
				t.Errorf("into what is freed: %v", err)
			}
		}
		must(t, onB.Close())
		if err := src.CopyFrom(onB, src); err == nil {
			t.Error("a closed stream of another device")
		}
	})
}

func TestCopiesBetweenKinds(t *testing.T) {
	_, opt := fake(t)
	d, cpu := several(t, "0", opt)[0], openCPU(t)
	a, err := device.Make[uint32](d, 4)
	must(t, err)
	b, err := device.Make[uint32](cpu, 4)
	must(t, err)
	contains(t, a.CopyFrom(nil, b), "from device cpu to device cuda:0")
	ev, err := d.NewEvent()
	must(t, err)
	contains(t, cpu.Stream().Wait(ev), "event of device cuda:0 given to device cpu")
}

// A stream waits for an event of another device: the value that a stream there writes is what arrives.
func TestEventsAcrossDevices(t *testing.T) {
	eachPair(t, func(t *testing.T, a, b *device.Device) {
		src, err := device.Make[uint32](a, 1<<16)
		must(t, err)
		dst, err := device.Make[uint32](b, 1<<16)
		must(t, err)
		onA, err := a.NewStream()
		must(t, err)
		onB, err := b.NewStream()
		must(t, err)
		written, err := a.NewEvent()
		must(t, err)
		read, err := b.NewEvent()
		must(t, err)
		for round := range byte(20) {
			must(t, onA.Wait(read))
			must(t, src.Fill(onA, round+1))
			must(t, written.Record(onA))
			must(t, onB.Wait(written))
			must(t, dst.CopyFrom(onB, src))
			must(t, read.Record(onB))
			got, err := dst.Host(onB)
			must(t, err)
			if want := uint32(round+1) * 0x01010101; slices.Min(got) != want || slices.Max(got) != want {
				t.Fatalf("round %d: %#x to %#x", round, slices.Min(got), slices.Max(got))
			}
		}
		must(t, written.Close())
		if err := onB.Wait(written); !errors.Is(err, device.ErrClosed) {
			t.Errorf("a closed event: %v", err)
		}
		must(t, a.Close())
		if err := dst.CopyFrom(onB, src); err == nil {
			t.Error("a copy from a closed device")
		}
	})
}

// Close of two devices beside copies between them, both ways: nobody waits for another who waits for him.
func TestCloseBesideCopies(t *testing.T) {
	for range 20 {
		d, err := device.OpenAll("cpu:0,cpu:1")
		must(t, err)
		var s [2]device.Slice[byte]
		for i := range s {
			s[i], err = device.Make[byte](d[i], 64)
			must(t, err)
		}
		done := make(chan error, 4)
		for i := range 2 {
			go func() {
				for {
					if err := s[i].CopyFrom(nil, s[1-i]); err != nil {
						done <- err
						return
					}
				}
			}()
			go func() { done <- d[i].Close() }()
		}
		for range 4 {
			if err := <-done; err != nil && !errors.Is(err, device.ErrClosed) && !errors.Is(err, device.ErrFreed) {
				t.Fatal(err)
			}
		}
	}
}

// A device that is lost makes calls with it fail, and is the only one that is.
func TestLostPeer(t *testing.T) {
	_, opt := fake(t)
	d := several(t, "all", opt)
	a, err := device.Make[byte](d[0], 64)
	must(t, err)
	b, err := device.Make[byte](d[1], 64)
	must(t, err)
	k := kernelOf(t, d[1], fakeProgram, "crash")
	must(t, k.Launch(nil, device.GridFor(1, 32), &addParams{}))
	fault := new(device.FaultError)
	if err := d[1].Stream().Sync(); !errors.As(err, &fault) || fault.Device != "cuda:1" {
		t.Fatal(err)
	}
	if err := a.CopyFrom(nil, b); !errors.As(err, &fault) || fault.Device != "cuda:1" {
		t.Errorf("a copy from a lost device: %v", err)
	}
	if err := b.CopyFrom(nil, a); !errors.As(err, &fault) {
		t.Errorf("a copy to a lost device: %v", err)
	}
}
