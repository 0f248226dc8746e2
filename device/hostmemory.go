package device

import (
	"os"
	"path"
	"path/filepath"
	"strconv"
	"strings"
)

// hostMemory tells how much memory this process can still get, and how much it may have in all, in bytes: the machine's, or less where
// a control group, such as a container's, bounds it. 0 where the system does not say. root is where the files of Linux lie: "/".
func hostMemory(root string) (free, total int64) {
	info := numbers(filepath.Join(root, "proc/meminfo"))
	const most = 1 << 62 >> 10 // KiB
	total = max(0, min(info["MemTotal"], most)) << 10
	free = min(max(0, min(info["MemAvailable"], most))<<10, total)
	groups, _ := os.ReadFile(filepath.Join(root, "proc/self/cgroup"))
	for line := range strings.Lines(string(groups)) {
		// 0::/group is of version 2; 4:memory:/group is the memory controller of version 1.
		f := strings.SplitN(strings.TrimSpace(line), ":", 3)
		if len(f) != 3 {
			continue
		}
		var files groupFiles
		switch {
		case f[1] == "":
			files = groupFiles{"sys/fs/cgroup", "memory.max", "memory.current", "inactive_file"}
		case strings.Contains(","+f[1]+",", ",memory,"):
			files = groupFiles{"sys/fs/cgroup/memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "total_inactive_file"}
		default:
			continue
		}
		// The bounds of the groups above hold, too. Within a container the path may be the host's, of which only the root is here.
		for dir := path.Clean("/" + f[2]); ; dir = path.Dir(dir) {
			at := filepath.Join(root, files.mount, dir)
			if limit, ok := number(at, files.limit); ok && limit >= 0 && limit < total {
				usage, _ := number(at, files.usage)
				cache := numbers(filepath.Join(at, "memory.stat"))[files.cache]
				free, total = max(0, min(free, limit, limit-usage+cache)), limit
			}
			if dir == "/" {
				break
			}
		}
	}
	return free, total
}

// groupFiles are the files of a version of control groups: where they are mounted, the bound, what is in use, and the part of that in
// memory.stat that the kernel drops when memory is short.
type groupFiles struct{ mount, limit, usage, cache string }

// hugePages tells whether the system gives huge pages to memory that asks for them. root is as for hostMemory.
func hugePages(root string) bool {
	mode, _ := os.ReadFile(filepath.Join(root, "sys/kernel/mm/transparent_hugepage/enabled"))
	return strings.Contains(string(mode), "[madvise]") || strings.Contains(string(mode), "[always]")
}

// number reads a file that is one number; version 2 writes "max" where there is no bound.
func number(dir, name string) (n int64, ok bool) {
	data, err := os.ReadFile(filepath.Join(dir, name))
	if err == nil {
		n, err = strconv.ParseInt(strings.TrimSpace(string(data)), 10, 64)
	}
	return n, err == nil
}

// numbers reads a file of lines that are a name, a colon perhaps, and a number.
func numbers(file string) map[string]int64 {
	data, _ := os.ReadFile(file)
	out := map[string]int64{}
	for line := range strings.Lines(string(data)) {
		if f := strings.Fields(line); len(f) >= 2 {
			out[strings.TrimSuffix(f[0], ":")], _ = strconv.ParseInt(f[1], 10, 64)
		}
	}
	return out
}

// HostMemory tells how much memory this process can still get, and how much it may have in all, in bytes. That is what
// the machine has, or what a control group, such as a container's, leaves of it. It is 0 where the system does not say.
func HostMemory() (free, total int64) { return hostMemory("/") }
