package device

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/internal/testenv"
)

// FuzzNames: devices have the names that they are listed by, written in one way, and each once.
func FuzzNames(f *testing.F) {
	for _, list := range []string{"cpu", "cpu:0,cpu:1", "cpu:01,cpu:1", "cpu:+1", "cpu:-0", "cpu:", "cpu,cpu", "cpu, cpu:2 ",
		"cpu:99999999999999999999", ",", "cpu:0x1", "cpu:1_0", "CPU"} {
		f.Add(list)
	}
	f.Fuzz(func(t *testing.T, list string) {
		testenv.Bounded(t, len(list), func() {
			for name := range strings.SplitSeq(list, ",") {
				name = strings.TrimSpace(name)
				kind, _, err := parseName(name)
				if err == nil && kind != "cpu" || list == "all" || name != "" && strings.Trim(name, "0123456789") == "" {
					return // GPUs, of which this machine may have some
				}
			}
			devices, err := OpenAll(list)
			if err != nil {
				if devices != nil || strings.Contains(err.Error(), "\n") {
					t.Errorf("%q: %v, %q", list, devices, err)
				}
				return
			}
			seen := map[string]bool{}
			for _, d := range devices {
				name := d.Info().Name
				kind, number, err := parseName(name)
				if plain := fmt.Sprintf("%s:%d", kind, number); err != nil || seen[name] || name != "cpu" && name != plain {
					t.Errorf("%q opens %q: %v", list, name, err)
				}
				seen[name] = true
				if err := d.Close(); err != nil {
					t.Error(err)
				}
			}
			if len(devices) != 1+strings.Count(list, ",") {
				t.Errorf("%q opens %d devices", list, len(devices))
			}
		})
	})
}

// FuzzImage: a file of the cache gives an image only if it is, byte for byte, what is written for that image.
func FuzzImage(f *testing.F) {
	for _, image := range []string{"", "x", "\x7fELF"} {
		f.Add("k-x.so", []byte(image+string(cacheSum("k-x.so", []byte(image)))+cacheMagic))
		f.Add("other", []byte(image+string(cacheSum("k-x.so", []byte(image)))+cacheMagic))
	}
	f.Add("", []byte(cacheMagic))
	f.Fuzz(func(t *testing.T, name string, data []byte) {
		testenv.Bounded(t, len(data), func() {
			image, ok := wholeImage(name, data)
			if ok && string(data) != string(image)+string(cacheSum(name, image))+cacheMagic || !ok && image != nil {
				t.Errorf("%q, %t of %q", image, ok, data)
			}
		})
	})
}

// FuzzImport: what another process says of its memory is memory of that size, or an error; and nothing stays mapped.
func FuzzImport(f *testing.F) {
	d, err := Open("cpu")
	testenv.Require(f, "cpu", err)
	f.Cleanup(func() { d.Close() })
	s, err := MakeShared[uint64](d, 1000)
	if err != nil {
		f.Fatal(err)
	}
	whole, err := Export(s)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(whole)
	f.Add(whole[:len(whole)-1])
	f.Add([]byte(strings.ReplaceAll(string(whole), "8000", "9223372036854775800")))
	f.Add([]byte(strings.ReplaceAll(string(whole), "8000", "0")))
	f.Add([]byte(strings.ReplaceAll(string(whole), `"offset":0`, `"offset":7992`)))
	f.Add([]byte(`{"device":"cpu","memory":"LTEgLTEgMA==","offset":-8,"bytes":-8}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, export []byte) {
		testenv.Bounded(t, len(export), func() {
			x, err := Import[uint64](d, export)
			if err != nil {
				if !strings.HasPrefix(err.Error(), "device.Import: ") {
					t.Errorf("an error that does not say whose it is: %v", err)
				}
				return
			}
			if x.Bytes() > s.Bytes() || x.Len() < 0 {
				t.Errorf("%s gives %d elements, and the memory has %d", export, x.Len(), s.Len())
			}
			if err := x.Free(); err != nil {
				t.Error(err)
			}
		})
	})
}

// FuzzHostMemory: what the system's files say never makes more memory free than there is in all, or less than none.
func FuzzHostMemory(f *testing.F) {
	const meminfo = "MemTotal: 1000 kB\nMemAvailable: 600 kB\n"
	f.Add(meminfo, "0::/a/b\n", "4096\n", "1000\n", "inactive_file 50\n")
	f.Add(meminfo, "5:cpu,memory:/a\n", "max\n", "x", "")
	f.Add("MemTotal: 9223372036854775807 kB\nMemAvailable: -1 kB", "0::/../..\n", "-1", "-9223372036854775808", "inactive_file -1")
	f.Add("MemTotal:", "0:", "", "", "inactive_file")
	f.Fuzz(func(t *testing.T, meminfo, group, limit, usage, stat string) {
		testenv.Bounded(t, len(meminfo)+len(group), func() {
			root := t.TempDir()
			put := func(name, text string) {
				at := filepath.Join(root, filepath.FromSlash(name))
				if err := os.MkdirAll(filepath.Dir(at), 0o700); err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(at, []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			put("proc/meminfo", meminfo)
			put("proc/self/cgroup", group)
			for _, dir := range []string{"sys/fs/cgroup/", "sys/fs/cgroup/a/"} {
				put(dir+"memory.max", limit)
				put(dir+"memory.current", usage)
				put(dir+"memory.stat", stat)
			}
			if free, total := hostMemory(root); free < 0 || total < free {
				t.Errorf("%d bytes of %d are free", free, total)
			}
		})
	})
}
