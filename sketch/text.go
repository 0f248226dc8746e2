package sketch

import (
	"fmt"
	"reflect"
	"runtime"
	"unsafe"

	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/siphash"
	"github.com/warpmap/warpmap/kernel"
	"github.com/warpmap/warpmap/table/text"
)

// A sketch of texts has their hashes for keys, which the host's cores make: a form has 0 for the width of its keys.
// Two texts share a hash of 64 bits with a probability of 2^-64, whoever chooses them without the seed.

const (
	textBytes = 8 // of a hash of text
	// leastText is how many texts a goroutine hashes at least, and mostText how many are hashed before they go on.
	leastText, mostText = 1 << 12, 1 << 20
)

// textOrWidth is how many bytes a key has; 0 for text.
func textOrWidth[K any]() (int, error) {
	if reflect.TypeFor[K]() == reflect.TypeFor[string]() {
		return 0, nil
	}
	return frame.WidthOf[K]("key of a sketch", 1, 2, 4, 8, 16, 32)
}

// inDevice is how many bytes a key of such a form has where it is counted.
func inDevice(keyBytes int) int {
	if keyBytes == 0 {
		return textBytes
	}
	return keyBytes
}

// ofStrings gives the bytes of each.
func ofStrings(keys []string) func(i int) []byte {
	return func(i int) []byte { return unsafe.Slice(unsafe.StringData(keys[i]), len(keys[i])) }
}

// checkText tells what is wrong with texts for a method of a sketch whose keys have so many bytes.
func checkText[K any](method string, keyBytes int, keys text.Keys) error {
	if keyBytes != 0 {
		return fmt.Errorf("sketch: %s of a sketch of %v (want one of string)", method, reflect.TypeFor[K]())
	}
	return keys.Check()
}

// noText is the error of a method that takes device slices, in which no strings lie.
func noText(method, instead string) error {
	return fmt.Errorf("sketch: %s of strings (want %s)", method, instead)
}

// hashes calls do with the hashes of n texts, which at gives: those from number first on, some at a time.
func hashes(seed uint64, n int, at func(i int) []byte, do func(first int, hashes []uint64) error) error {
	room := make([]uint64, min(n, mostText))
	for first := 0; first < n; first += len(room) {
		part := room[:min(len(room), n-first)]
		hashPart(seed, part, func(i int) []byte { return at(first + i) })
		if err := do(first, part); err != nil {
			return err
		}
	}
	return nil
}

func hashPart(seed uint64, hashes []uint64, at func(i int) []byte) {
	key := siphash.New(seed, kernel.Fmix64(seed))
	part := max(leastText, (len(hashes)-1)/runtime.GOMAXPROCS(0)+1)
	var wg crash.WaitGroup
	for from := 0; from < len(hashes); from += part {
		wg.Go(func() {
			for i := from; i < min(from+part, len(hashes)); i++ {
				state := key
				hashes[i] = state.Of(at(i))
			}
		})
	}
	wg.Wait()
}
