package nvrtc

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Env is the environment variable that names the NVRTC library to use.
const Env = "WARPMAP_NVRTC"

// sonames are what the loader is asked for, in its own path. That of 11.8 is 11.2.
var sonames = []string{"libnvrtc.so.13", "libnvrtc.so.12", "libnvrtc.so", "libnvrtc.so.11.2"}

// patterns are the folders to look in after the loader's path. A variable in front that is not set drops its line.
var patterns = []string{
	"$CUDA_HOME/lib64",
	"$CUDA_PATH/lib64",
	"/usr/local/cuda*/lib64",
	"/usr/local/cuda*/targets/*-linux/lib",
	"$CONDA_PREFIX/lib",
	// Python's wheels: nvidia-cuda-nvrtc is nvidia/cu13, nvidia-cuda-nvrtc-cu12 is nvidia/cuda_nvrtc.
	"$VIRTUAL_ENV/lib/python3*/site-packages/nvidia/*/lib",
	"$CONDA_PREFIX/lib/python3*/site-packages/nvidia/*/lib",
	"$HOME/.local/lib/python3*/site-packages/nvidia/*/lib",
	"/usr/local/lib/python3*/*-packages/nvidia/*/lib",
	"/usr/lib/python3*/*-packages/nvidia/*/lib",
	"/opt/*/lib/python3*/site-packages/nvidia/*/lib",
}

// Find loads an NVRTC that compiles for the GPU architecture arch, and returns it with the architecture to compile
// for (see Target). It is the library named, else the one that Env names, else the first that will do in the
// loader's path, of a CUDA toolkit, or of Python's packages, newest first in each place; for sm_90 and later, one with
// Swap128 goes first, wherever it is. If a library is named, no other is tried. driver is the major version of the
// driver's CUDA, or 0 if there is no driver: a driver does not load what an NVRTC with a higher one compiles, so such a
// library is passed over unless it is named.
//
// An error says where it looked, and why it took none of what was there.
func Find(named, arch string, driver int) (l *Library, target string, err error) {
	if _, err := parseArch(arch); err != nil {
		return nil, "", err
	}
	if named == "" {
		named = os.Getenv(Env)
	}
	if named != "" {
		return open(named, arch)
	}
	var why []string
	try := func(path string) bool { // and leave in l what will do
		found, t, err := open(path, arch)
		if err == nil && driver > 0 && found.Major > driver {
			err = fmt.Errorf("%v (%s) is newer than the driver, which loads what NVRTC %d compiles", found, path, driver)
		}
		switch {
		case err == nil && (l == nil || found.Swap128()):
			l, target = found, t
		case err != nil && (filepath.Base(path) != path || !strings.Contains(err.Error(), "No such file")): // a loader that finds nothing is no news
			why = append(why, err.Error())
		}
		return l != nil && (l.Swap128() || !Swaps(arch))
	}
	for _, name := range sonames {
		if try(name) {
			return l, target, nil
		}
	}
	for _, p := range patterns {
		for _, file := range candidates(p) {
			if try(file) {
				return l, target, nil
			}
		}
	}
	if l != nil {
		return l, target, nil
	}
	if why != nil {
		return nil, "", fmt.Errorf("%s", strings.Join(why, "; "))
	}
	return nil, "", fmt.Errorf("no libnvrtc in the loader's path, nor in %s", strings.Join(patterns, ", "))
}

func open(path, arch string) (l *Library, target string, err error) {
	if l, err = Open(path); err == nil {
		target, err = l.Target(arch)
	}
	return l, target, err
}

// Swaps tells whether GPUs of the architecture have a 128-bit compare-and-swap.
func Swaps(arch string) bool {
	n, _ := parseArch(arch)
	return n >= 90
}

var library = regexp.MustCompile(`^libnvrtc\.so((?:\.\d+)*)$`)

// candidates are the libraries in the folders that a pattern matches, newest first.
func candidates(pattern string) []string {
	set := true
	dir := os.Expand(pattern, func(name string) string {
		v := os.Getenv(name)
		set = set && v != ""
		return v
	})
	if !set {
		return nil
	}
	files, _ := filepath.Glob(filepath.Join(dir, "libnvrtc.so*"))
	files = slices.DeleteFunc(files, func(f string) bool { return !library.MatchString(filepath.Base(f)) })
	slices.SortStableFunc(files, func(a, b string) int { return slices.Compare(version(b), version(a)) })
	// libnvrtc.so, .so.12 and .so.12.4.127 are mostly one file.
	seen := map[string]bool{}
	return slices.DeleteFunc(files, func(f string) bool {
		target, err := filepath.EvalSymlinks(f)
		if err != nil {
			return true
		}
		dup := seen[target]
		seen[target] = true
		return dup
	})
}

// version is what a library's name says of it: 12, 4, 127.
func version(file string) (v []int) {
	for s := range strings.SplitSeq(library.FindStringSubmatch(filepath.Base(file))[1], ".") {
		if n, err := strconv.Atoi(s); err == nil {
			v = append(v, n)
		}
	}
	return v
}
