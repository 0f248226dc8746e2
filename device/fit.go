package device

import (
	"bytes"
	"debug/elf"
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
)

// needs is the demand of a kernel's largest block, as its cubin states it.
type needs struct {
	kernel    string
	threads   int64
	registers int64 // of a thread
	shared    int64 // bytes: the __shared__ variables, and the dynamic memory that every launch gets
}

// Limits of a block that all architectures from sm_70 to sm_121 have (CUDA C++ Programming Guide, "Technical
// Specifications per Compute Capability").
const (
	blockRegisters  = 64 << 10
	threadRegisters = 255
	warpRegisters   = 256 // a warp gets a multiple of these
)

// misfits returns a line for each kernel of a cubin whose blocks need more than the GPU has, with that many bytes of shared
// memory for a block. Such a kernel compiles, but no launch of it succeeds.
func misfits(arch string, shared int64, cubin []byte) (log string) {
	for _, k := range kernelNeeds(arch, cubin) {
		log += k.misfit(arch, shared)
	}
	return log
}

func (k needs) misfit(arch string, shared int64) (log string) {
	if k.shared > shared {
		log = fmt.Sprintf("kernel %s: a block needs %d bytes of shared memory, and %s has %d\n", k.kernel, k.shared, arch, shared)
	}
	warp := (32*k.registers + warpRegisters - 1) / warpRegisters * warpRegisters
	if k.registers > threadRegisters || k.threads/32*warp > blockRegisters {
		log += fmt.Sprintf("kernel %s: a block needs %d threads with %d registers each, and %s has %d for a thread and %d for a block\n",
			k.kernel, k.threads, k.registers, arch, threadRegisters, blockRegisters)
	}
	return log
}

// kernelNeeds returns the needs of all kernels of a cubin that WARPMAP_KERNEL declares. Of an image in another format
// it returns none.
func kernelNeeds(arch string, cubin []byte) (all []needs) {
	image := bytes.Clone(cubin)
	if len(image) < 64 {
		return nil
	}
	image[elf.EI_VERSION] = byte(elf.EV_CURRENT) // cubins have CUDA's versions here, which debug/elf does not read
	binary.LittleEndian.PutUint32(image[20:], uint32(elf.EV_CURRENT))
	f, err := elf.NewFile(bytes.NewReader(image))
	if err != nil {
		return nil
	}
	symbols, err := f.Symbols()
	if err != nil {
		return nil
	}
	sizes := map[string]int64{}
	for _, s := range symbols {
		sizes[s.Name] = int64(s.Size)
	}
	registers := registerCounts(f, symbols)
	reserved := int64(0)
	if capability, _ := strconv.Atoi(strings.TrimPrefix(arch, "sm_")); capability >= 90 {
		reserved = 1 << 10 // the system's, which the section begins with, and which is no part of the limit
	}
	for _, s := range f.Sections {
		name, ok := strings.CutPrefix(s.Name, ".text.")
		if !ok || sizes[name+"_shared"] == 0 {
			continue
		}
		k := needs{kernel: name, threads: 32 * sizes[name+"_warps"], registers: registers[name], shared: 16 * (sizes[name+"_shared"] - 1)}
		if static := f.Section(".nv.shared." + name); static != nil {
			k.shared += max(0, int64(static.Size)-reserved)
		}
		all = append(all, k)
	}
	return all
}

// registerCounts returns the registers of a thread of each kernel: the attributes EIATTR_REGCOUNT of the section
// .nv.info. An attribute is a byte for its form, a byte for its kind, and 16 bits: the value, or in form 4 the number of
// bytes that follow.
func registerCounts(f *elf.File, symbols []elf.Symbol) map[string]int64 {
	const sized, registers = 4, 0x2f
	counts := map[string]int64{}
	section := f.Section(".nv.info")
	if section == nil {
		return counts
	}
	info, err := section.Data()
	if err != nil {
		return counts
	}
	for len(info) >= 4 {
		form, kind, n := info[0], info[1], int(binary.LittleEndian.Uint16(info[2:]))
		info = info[4:]
		if form != sized {
			continue
		}
		if n > len(info) {
			break
		}
		if kind == registers && n == 8 {
			symbol, count := binary.LittleEndian.Uint32(info), binary.LittleEndian.Uint32(info[4:])
			if symbol > 0 && int(symbol) <= len(symbols) { // symbols lacks symbol 0
				counts[symbols[symbol-1].Name] = int64(count)
			}
		}
		info = info[n:]
	}
	return counts
}
