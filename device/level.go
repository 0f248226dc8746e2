package device

import (
	"runtime"
	"slices"

	"golang.org/x/sys/cpu"
)

// level is a set of instructions that kernels of the CPU device may use, by the names of the x86-64 ABI. It is part of a program's key, as all options
// are: a cache that several machines share holds a program for each level.
type level string

const (
	baseline level = ""          // what every processor of the architecture has
	v2       level = "x86-64-v2" // compare-and-swaps of 16 bytes, SSE4.2
	v3       level = "x86-64-v3" // AVX2
	v4       level = "x86-64-v4" // AVX-512
)

// levels are those of this architecture, the highest first.
func levels() []level {
	if runtime.GOARCH == "amd64" {
		return []level{v4, v3, v2, baseline}
	}
	return []level{baseline}
}

func levelNames() (names []string) {
	for _, l := range levels() {
		if l != baseline {
			names = append(names, string(l))
		}
	}
	return names
}

// levelOf is the level that a name of OpenAhead means on this architecture.
func levelOf(name string) (level, bool) {
	if name == runtime.GOARCH {
		return baseline, true
	}
	l := level(name)
	return l, l != baseline && slices.Contains(levels(), l)
}

// thisLevel is the highest level that this machine's processor has.
func thisLevel() level {
	x := &cpu.X86
	switch {
	case runtime.GOARCH != "amd64" || !x.HasSSE42 || !x.HasPOPCNT || !x.HasCX16:
		return baseline
	case !x.HasAVX2 || !x.HasBMI1 || !x.HasBMI2 || !x.HasFMA:
		return v2
	case !x.HasAVX512F || !x.HasAVX512BW || !x.HasAVX512CD || !x.HasAVX512DQ || !x.HasAVX512VL:
		return v3
	}
	return v4
}

// flags name the instructions one by one, because compilers older than these levels do not know their names.
func (l level) flags() (flags []string) {
	if l >= v2 {
		flags = append(flags, "-msse4.2", "-mpopcnt", "-mcx16")
	}
	if l >= v3 {
		flags = append(flags, "-mavx2", "-mbmi", "-mbmi2", "-mfma")
	}
	if l >= v4 {
		flags = append(flags, "-mavx512f", "-mavx512bw", "-mavx512cd", "-mavx512dq", "-mavx512vl")
	}
	return flags
}
