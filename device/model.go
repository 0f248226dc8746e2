package device

import (
	"bytes"
	"debug/dwarf"
	"debug/elf"
	"fmt"
	"io"
	"sort"
	"strings"
	"sync"
)

// hostModel is the head of the arena in which kernel/model.cuh keeps what it knows of a launch.
type hostModel struct {
	Bytes uint64 // of the arena
	Used  uint64
	Full  uint32
	Count uint32
	Races [16]hostRace
}

// hostRace is a race: the place in the module of each access, and of the calls that led there.
type hostRace struct {
	Address uint64
	Frames  [6]uint32 // three of each access, the innermost first; 0: none
	Lanes   [2]uint32 // in the grid
	Kinds   [2]uint8
	_       [6]uint8
}

// What an access is, as in model.cuh.
const (
	raceWrites = 1 << iota
	racePlain
	raceOfBlock
	raceReadonly
)

// modelBytes are addresses, of which the head has the first modelHead. Memory is taken as a launch needs it.
const (
	modelBytes = 8 << 30
	modelHead  = 8 << 10
)

// memoryModel is the arena of the launch that runs: one at a time, of all devices that check theirs.
type memoryModel struct{ base uintptr }

var theModel struct {
	sync.Mutex
	base  uintptr
	limit uint64 // of what a launch may take of it
}

func beginModel() (*memoryModel, error) {
	theModel.Lock()
	if theModel.base == 0 {
		base, err := mmap(modelBytes, true)
		if err != nil {
			theModel.Unlock()
			return nil, fmt.Errorf("cpu: no addresses for what WithMemoryModel keeps: %w", err)
		}
		theModel.base, theModel.limit = base, modelBytes
		if _, total := hostMemory("/"); total > 0 {
			theModel.limit = min(modelBytes, uint64(total)/2)
		}
	}
	m := &memoryModel{theModel.base}
	h := m.head()
	h.Bytes, h.Used = theModel.limit, modelHead
	return m, nil
}

func (m *memoryModel) head() *hostModel { return (*hostModel)(pointer(uint64(m.base))) }

// end gives the memory back: the next launch finds zeros.
func (m *memoryModel) end() {
	if err := forget(m.base, int64(m.head().Used)); err != nil {
		munmap(m.base, modelBytes)
		theModel.base = 0
	}
	theModel.Unlock()
}

func (m *memoryModel) address() uint64 {
	if m == nil {
		return 0
	}
	return uint64(m.base)
}

// findings says what is wrong with the launch, or is empty.
func (m *memoryModel) findings(k *cpuKernel) string {
	if m == nil {
		return ""
	}
	h := m.head()
	if h.Full != 0 {
		return "the launch is too large to be checked by WithMemoryModel: give it fewer rows"
	}
	var found []string
	for _, r := range h.Races[:h.Count] {
		a := accessOf{r.Lanes[0], r.Kinds[0], k.lines.chain(r.Frames[:3])}
		b := accessOf{r.Lanes[1], r.Kinds[1], k.lines.chain(r.Frames[3:])}
		what := "data race"
		if r.Kinds[1]&raceReadonly != 0 {
			what = "a read-only load of what the launch has written"
		}
		found = append(found, fmt.Sprintf("%s at %#x: %v, then %v", what, r.Address, a, b))
	}
	return strings.Join(found, "; ")
}

// accessOf is one access of a race.
type accessOf struct {
	lane  uint32
	kind  uint8
	lines string
}

func (p accessOf) String() string {
	what := "load"
	if p.kind&raceWrites != 0 {
		what = "store"
	}
	switch {
	case p.kind&raceReadonly != 0:
		what = "read-only " + what
	case p.kind&racePlain != 0:
		what = "plain " + what
	case p.kind&raceOfBlock != 0:
		what = "block's " + what
	}
	return fmt.Sprintf("%s of thread %d (%s)", what, p.lane, p.lines)
}

// moduleLines finds the lines of a compiled program. It reads them when it is first asked.
type moduleLines struct {
	image []byte // given up once it is read
	once  sync.Once
	all   []dwarf.LineEntry // by address
}

func (m *moduleLines) read() {
	f, err := elf.NewFile(bytes.NewReader(m.image))
	m.image = nil
	if err != nil {
		return
	}
	d, err := f.DWARF()
	if err != nil {
		return
	}
	for r := d.Reader(); ; {
		unit, err := r.Next()
		if unit == nil || err != nil {
			break
		}
		r.SkipChildren()
		lines, err := d.LineReader(unit)
		if lines == nil || err != nil {
			continue
		}
		for {
			var e dwarf.LineEntry
			if err := lines.Next(&e); err == io.EOF || err != nil {
				break
			}
			m.all = append(m.all, e)
		}
	}
	sort.SliceStable(m.all, func(i, j int) bool { return m.all[i].Address < m.all[j].Address })
}

// chain names the lines of frames, the innermost first.
func (m *moduleLines) chain(frames []uint32) string {
	if m == nil {
		return "line unknown"
	}
	m.once.Do(m.read)
	var names []string
	for _, pc := range frames {
		if pc == 0 {
			continue
		}
		i := sort.Search(len(m.all), func(i int) bool { return m.all[i].Address > uint64(pc) }) - 1
		for i >= 0 && m.all[i].Line == 0 {
			i--
		}
		if i < 0 || m.all[i].EndSequence || m.all[i].File == nil {
			continue
		}
		name := m.all[i].File.Name
		names = append(names, fmt.Sprintf("%s:%d", name[strings.LastIndexByte(name, '/')+1:], m.all[i].Line))
	}
	if len(names) == 0 {
		return "line unknown"
	}
	return strings.Join(names, " from ")
}
