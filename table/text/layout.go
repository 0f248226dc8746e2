package text

import (
	_ "embed"
	"errors"

	"github.com/warpmap/warpmap/device"
)

//go:embed kernels.cu
var kernelsCU string

const (
	unit       = 16   // records begin at multiples of it, and the bitmap has a bit for each
	firstPlace = 64   // a line, so that records of 32 bytes each lie in one; 0 is no place
	recordHead = 16   // next and len
	leastValue = 8    // bytes of a record that a value takes where keys are copied by words
	blockBytes = 1024 // longer keys are hashed, compared and copied by a warp
	wordUnits  = 32   // units that a word of the bitmap stands for
	grain      = unit * wordUnits
	leastArena = 8 * grain
	perSlot    = 16 // bytes of the index for a key, over its load factor
)

// counts are what kernels count. From Fresh on they are of one piece of a batch.
type counts struct {
	Live    uint64 // keys
	Used    uint64 // bytes of the arena
	Garbage uint64 // of these

	Fresh, Bytes     uint64 // distinct keys of the batch that are not in, and their records
	Placed, Refused  uint64 // records written, or listed; keys that found no room
	Linked, Named    uint64 // records that keys lead to; positions that are refused
	Chained          uint64 // keys struck out whose chain has other records
	Gone, Moved, Bad uint64 // hashes to take out of the index, or to lead elsewhere; offsets that are none
}

// params are those of all kernels. Addresses are of device memory.
type params struct {
	// The batch: N keys, at Bytes and what Offsets say, of 8 bytes where Wide is 1, else of 4. Limit is how many bytes there are.
	Bytes, Offsets, Wide, Limit, N uint64
	Values, Flags                  uint64
	Replace                        uint64

	Arena, Starts, Capacity uint64
	Counters                uint64
	Seed                    [2]uint64
	Mask                    uint64 // of hashes: all ones, but in tests
	Sure                    uint64 // 1: the arena has room

	// Scratch memory: Hashes and Heads (u64), Reps (u32) and Fates (u8) are by position.
	Hashes, Heads, Reps, Fates uint64
	Slots, SlotMask            uint64 // u32
	List, Listed               uint64 // u32: positions
	// Of records that are new, moved or struck out, Placed of them:
	NewHashes, NewPlaces, Origins, Added, Placed uint64
	GoneHashes, MovedHashes, MovedPlaces         uint64
	Other, OtherStarts, First, Words             uint64 // of move, relink and gather
}

// program is the kernels for values of so many bytes. Together says whether a warp's lanes work together on long keys.
func program(valueBytes int, together bool) *device.Program {
	t := 0
	if together {
		t = 1
	}
	return &device.Program{
		Name:  "text",
		Files: []device.File{{Name: "kernels.cu", Text: kernelsCU}},
		Defines: []device.Define{{Name: "TEXT_VALUE_BYTES", Value: valueBytes}, {Name: "TEXT_UNIT", Value: unit}, {Name: "TEXT_HEAD", Value: headBytes(valueBytes, together)},
			{Name: "TEXT_BLOCK", Value: blockBytes}, {Name: "TEXT_TOGETHER", Value: t}},
		Layouts: []any{params{}, counts{}},
	}
}

// kernels are compiled for a width of values.
type kernels struct {
	check, hash, find, match, place, tally, chain, refuse, unflag, strike, own, unchain, move, relink, gather device.Kernel[params]
}

func loadKernels(d *device.Device, valueBytes int, together bool) (k kernels, err error) {
	m, err := d.CompileApart(program(valueBytes, together))
	if err != nil {
		return k, err
	}
	err = errors.Join(
		device.Bind(m, "check", &k.check), device.Bind(m, "hash", &k.hash), device.Bind(m, "find", &k.find), device.Bind(m, "match", &k.match),
		device.Bind(m, "place", &k.place), device.Bind(m, "tally", &k.tally), device.Bind(m, "chain", &k.chain), device.Bind(m, "refuse", &k.refuse), device.Bind(m, "unflag", &k.unflag),
		device.Bind(m, "strike", &k.strike), device.Bind(m, "own", &k.own), device.Bind(m, "unchain", &k.unchain), device.Bind(m, "move", &k.move),
		device.Bind(m, "relink", &k.relink), device.Bind(m, "gather", &k.gather))
	if err == nil {
		err = device.Ahead(k.check, k.hash, k.find)
	}
	return k, err // not at once: Go may take k before the calls
}

// headBytes is where the key begins in a record.
func headBytes(valueBytes int, together bool) int {
	if together {
		valueBytes = max(leastValue, valueBytes)
	}
	return recordHead + valueBytes
}

// recordBytes is how large the record of a key is.
func recordBytes(head int, keyBytes int64) int64 {
	return roundUp(int64(head)+keyBytes, unit)
}

func roundUp(n, to int64) int64 { return (n + to - 1) / to * to }
