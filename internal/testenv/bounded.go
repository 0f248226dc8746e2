package testenv

import (
	"fmt"
	"os"
	"runtime/debug"
	"runtime/metrics"
	"sync/atomic"
	"testing"
	"time"
)

// What reading an input of a fuzzer may take: so much memory in all, freed or not, with so much more for each of its
// bytes, and so much of the process's CPU time. Little comes near; most is taken by zstd, of which a few bytes ask for a
// window of 128 MiB, at each of the times that an input is read.
const (
	boundedBytes   = 768 << 20
	boundedPerByte = 16 << 10
	boundedTime    = 10 * time.Second
)

// hung is how long an input may take while the process computes nothing.
const hung = time.Minute

// coverageVariable names a file to which Bounded adds, behind each input, how much of the code was covered by then:
// go run ./internal/fuzz keeps the inputs behind which it is more.
const coverageVariable = "WARPMAP_FUZZ_COVERAGE"

// Bounded runs what a fuzzer does with an input of so many bytes, and fails where that takes memory or time that the
// input's size does not explain. Every fuzzer has its work done here. What does not end is a panic, which Go's fuzzing
// takes for a finding; it would wait for ever otherwise.
func Bounded(t *testing.T, size int, do func()) {
	t.Helper()
	bounded(t, boundedBytes+boundedPerByte*uint64(size), boundedTime, do)
	if file := os.Getenv(coverageVariable); file != "" {
		f, err := os.OpenFile(file, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(f, "%s\t%.9f\n", t.Name(), testing.Coverage())
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

func bounded(t testing.TB, most uint64, longest time.Duration, do func()) {
	t.Helper()
	began, cpu, bytes := time.Now(), cpuTime(), allocated()
	var over atomic.Bool
	var look func()
	look = func() {
		if over.Load() {
			return
		}
		if took, waited := cpuTime()-cpu, time.Since(began); took > 3*longest || waited > hung && took < waited/10 {
			debug.SetTraceback("all")
			panic(fmt.Sprintf("an input has not been read after %v, of which %v were CPU time", waited, took))
		}
		time.AfterFunc(time.Second, look)
	}
	first := time.AfterFunc(time.Second, look)
	defer func() { over.Store(true); first.Stop() }()
	do()
	if took := cpuTime() - cpu; took > longest {
		t.Errorf("the input took %v of CPU time: want %v at most", took, longest)
	}
	if took := allocated() - bytes; took > most {
		t.Errorf("the input took %d bytes of memory in all: want %d at most", took, most)
	}
}

// CPUTime is how long this process has computed so far, on all cores.
func CPUTime() time.Duration { return cpuTime() }

// allocated is how many bytes of Go's memory this process has ever taken.
func allocated() uint64 {
	s := []metrics.Sample{{Name: "/gc/heap/allocs:bytes"}}
	metrics.Read(s)
	return s[0].Value.Uint64()
}
