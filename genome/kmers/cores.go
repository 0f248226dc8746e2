package kmers

import (
	"errors"
	"math/bits"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/crash"
)

// cores counts on the CPU device. Each core deals out the stretches of its own passages of text to bins. Where many
// wait, or the input ends, each core counts some of the bins, and lists what it counted: see core.go.
//
// Of the memory, stretches that wait take a quarter at most, and so do the lists of what was counted; new lists, while
// the old ones are still there, as much again; tables, and the memory for sorting, what is left. If that is too little,
// the error is errNarrow, before any part is given away.
type cores struct {
	wanted
	kernels struct {
		deal, letters         device.Kernel[dealParams]
		addList, addStretches device.Kernel[tableParams]
		growTable             device.Kernel[tableParams]
		listTable, partTable  device.Kernel[tableParams]
		partStretches         device.Kernel[tableParams]
		sortPart              device.Kernel[partParams]
	}
	most    int64  // bytes
	seed    uint64 // of tables' hashes: nobody can choose k-mers that collide
	letters int    // of a passage
	nbins   int    // a power of two
	all     []*core
	heads   device.Host[uint64] // addresses of the cores' bins, then of their parts
	waits   slabs               // of stretches
	lists   lists               // of what was counted: of bins, and at last of parts
	settled bool
	sorters []*core      // those that sort parts
	memory  atomic.Int64 // bytes of slabs and tables

	work  chan passage
	ended crash.WaitGroup // the goroutines that take passages
	busy  sync.WaitGroup  // passages that are not done
	err   atomic.Pointer[error]
}

// passage is the k-mers that end in the letters from … to-1 of a text.
type passage struct {
	text     []byte
	from, to int
	done     func()
}

// lists are of the k-mers of each bin that were counted.
type lists struct {
	slabs
	bins device.Host[bin]
}

func (l *lists) free(c *cores) error {
	bins := l.bins
	l.bins = device.Host[bin]{}
	return errors.Join(l.slabs.free(c), bins.Free())
}

// slabs are memory for chunks, all of one size. They are kept to be used again.
type slabs struct {
	mu   sync.Mutex
	all  []device.Slice[byte]
	used int
}

// take gives memory.
func (s *slabs) take(c *cores) (at, end uint64, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used == len(s.all) {
		more, err := device.Make[byte](c.d, c.slabBytes())
		if err != nil {
			return 0, 0, err
		}
		c.memory.Add(more.Bytes())
		s.all = append(s.all, more)
	}
	x := s.all[s.used]
	s.used++
	return x.Addr(), x.Addr() + uint64(x.Len()), nil
}

func (s *slabs) bytes() (n int64) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.used > 0 {
		n = int64(s.used) * s.all[0].Bytes()
	}
	return n
}

func (s *slabs) free(c *cores) (err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, x := range s.all {
		c.memory.Add(-x.Bytes())
		err = errors.Join(err, x.Free())
	}
	s.all, s.used = nil, 0
	return err
}

// slabBytes: many for each core, so that what is left of the last ones is little.
func (c *cores) slabBytes() int {
	n := min(c.most/256/int64(len(c.all)), 4<<20)
	return max(int(n)/chunkBytes, 16) * chunkBytes
}

func newCores(w wanted, memory int64) (_ counter, err error) {
	c := &cores{wanted: w, most: memory, seed: rand.Uint64() | 1, nbins: mostBins, work: make(chan passage)}
	defer func() {
		if err != nil {
			err = errors.Join(err, c.close())
		}
	}()
	m, err := c.d.CompileApart(coresProgram(c.words))
	if err != nil {
		return nil, err
	}
	k := &c.kernels
	err = errors.Join(device.Bind(m, "deal_stretches", &k.deal), device.Bind(m, "count_letters", &k.letters),
		device.Bind(m, "add_list", &k.addList), device.Bind(m, "add_stretches", &k.addStretches),
		device.Bind(m, "grow_table", &k.growTable), device.Bind(m, "list_table", &k.listTable),
		device.Bind(m, "part_table", &k.partTable),
		device.Bind(m, "part_stretches", &k.partStretches), device.Bind(m, "sort_part", &k.sortPart))
	if err != nil {
		return nil, err
	}
	if c.k <= shortLetters {
		err = k.letters.Ahead()
	} else { // others are seldom launched
		err = device.Ahead(k.deal, k.addStretches, k.partTable, k.sortPart)
	}
	if err != nil {
		return nil, err
	}
	// each core has some megabytes of its own
	n := int(min(int64(runtime.GOMAXPROCS(0)), max(c.most/coreBytes, 1)))
	for c.nbins > leastBins && int64(c.nbins*n*chunkBytes) > c.most/16 {
		c.nbins /= 2
	}
	c.letters = int(max(min(c.most/64/int64(n), passageLetters), 1<<12))
	if c.heads, err = device.MakeMapped[uint64](c.d, 2*n); err != nil {
		return nil, err
	}
	if c.lists.bins, err = device.MakeMapped[bin](c.d, c.nbins); err != nil {
		return nil, err
	}
	for i := range n {
		x, err := newCore(c)
		c.all = append(c.all, x)
		if err != nil {
			return nil, err
		}
		c.heads.Slice()[i], c.heads.Slice()[n+i] = x.bins.Mapped().Addr(), x.parts.Mapped().Addr()
	}
	for _, x := range c.all {
		c.ended.Go(x.take)
	}
	return c, nil
}

// take takes passages until there are no more. After an error it only gives them back.
func (x *core) take() {
	for p := range x.work {
		if x.failed() == nil {
			if err := crash.Catch(func() error { return x.deal(p) }); err != nil {
				x.fail(err)
			}
		}
		p.done()
		x.busy.Done()
	}
}

func (c *cores) fail(err error) { c.err.CompareAndSwap(nil, &err) }

func (c *cores) failed() error {
	if err := c.err.Load(); err != nil {
		return *err
	}
	return nil
}

// add hands a text to the cores, passage by passage. It is done when all of them are.
func (c *cores) add(text []byte, done func()) error {
	var left atomic.Int64
	ended := func() {
		if left.Add(-1) == 0 {
			done()
		}
	}
	left.Store(1)
	defer ended()
	for from := 0; from < len(text); from += c.letters {
		if err := c.failed(); err != nil {
			return err
		}
		if c.waits.bytes() > min(c.most/4, max(waitBytes, 4*c.lists.bytes())) {
			if err := c.count(false); err != nil {
				return err
			}
		}
		left.Add(1)
		c.busy.Add(1)
		c.work <- passage{text, from, min(from+c.letters, len(text)), ended}
	}
	return nil
}

// count counts the stretches that wait together with what was counted before. The last time, it lists all by parts.
func (c *cores) count(last bool) (err error) {
	c.busy.Wait()
	if err := c.failed(); err != nil {
		return err
	}
	fresh := &lists{}
	defer func() { err = errors.Join(err, fresh.free(c)) }() // or what has not become c.lists, after a panic, too
	if fresh.bins, err = device.MakeMapped[bin](c.d, c.nbins); err != nil {
		return err
	}
	most := len(c.all)
	if last { // a core has a chunk of each part
		most = int(min(int64(most), c.most/8/(parts*chunkBytes)+1))
	}
	var next atomic.Int64
	err = c.beside(func(x *core, i int) error {
		if i >= most {
			return nil
		}
		x.tables.Slice()[0] = tableState{}
		for b := next.Add(1) - 1; b < int64(c.nbins); b = next.Add(1) - 1 {
			if err := x.count(int(b), fresh, last); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if err := c.lists.free(c); err != nil {
		return err
	}
	c.lists.all, c.lists.used, c.lists.bins = fresh.all, fresh.used, fresh.bins
	fresh.all, fresh.used, fresh.bins = nil, 0, device.Host[bin]{}
	c.waits.used = 0
	for _, x := range c.all {
		clear(x.bins.Slice())
		x.deals.Slice()[0] = dealState{}
	}
	// At the end, parts take as much as lists do. And with little room for what is to come, most time would go into
	// counting what was counted before.
	if c.lists.bytes() > c.most/4 {
		return errNarrow
	}
	return nil
}

// beside has each core do something. Errors: errNarrow, where memory is not there.
func (c *cores) beside(do func(x *core, i int) error) error {
	var work crash.Group
	for i, x := range c.all {
		work.Go(func() error { return do(x, i) })
	}
	err := work.Wait()
	if device.IsOutOfMemory(err) {
		return errNarrow
	}
	return err
}

func (c *cores) settle() error {
	c.busy.Wait()
	if c.settled || c.k <= shortLetters {
		return c.failed()
	}
	c.settled = true
	if err := c.count(true); err != nil {
		return err
	}
	return c.roomToSort()
}

// roomToSort takes the memory for sorting any part on as many cores as there is memory for: when parts are given away
// it is too late to find that there is none.
func (c *cores) roomToSort() error {
	most := 0
	for part := range parts {
		most = max(most, c.kmersOf(part))
	}
	for _, x := range c.all {
		c.memory.Add(-x.table.Bytes())
		old := x.table
		x.table = device.Slice[byte]{}
		if err := old.Free(); err != nil {
			return err
		}
	}
	given := int64(most) * countedBytes(c.words) // by each, when it has sorted a part
	for _, x := range c.all {
		err := x.reserve(&x.pairs, most*placeBytes(c.words))
		if err != nil && !errors.Is(err, errNarrow) && !device.IsOutOfMemory(err) {
			return err
		}
		if err != nil || c.memory.Add(given) > c.most {
			break
		}
		c.sorters = append(c.sorters, x)
	}
	if len(c.sorters) == 0 {
		return errNarrow
	}
	return nil
}

// kmersOf is how many entries a part has in all cores' lists.
func (c *cores) kmersOf(part int) (n int) {
	for _, x := range c.all {
		n += int(x.parts.Slice()[part].Kmers)
	}
	return n
}

func (c *cores) finish(emit func(part int, x counted) error) error {
	if err := c.settle(); err != nil {
		return err
	}
	if c.k <= shortLetters {
		return c.short().inParts(int(c.first), int(c.end), c.least, emit)
	}
	idle, free := make(chan *core, len(c.sorters)), make(chan counted, aheadOf*len(c.all))
	for _, x := range c.sorters {
		idle <- x
	}
	var sorted [parts]counted
	return ahead(int(c.first), int(c.end), func(part int) {
		x := <-idle
		defer func() { idle <- x }()
		var err error
		if sorted[part], err = x.sort(part, free); err != nil {
			c.fail(err)
		}
	}, func(part int) error {
		if err := c.failed(); err != nil {
			return err
		}
		if err := emit(part, sorted[part]); err != nil {
			return err
		}
		select {
		case free <- sorted[part]:
		default:
		}
		sorted[part] = counted{}
		return nil
	})
}

// short is what was counted of short k-mers, by their letters.
func (c *cores) short() counted {
	x := counted{words: 1}
	for letters := range 1 << (2 * c.k) {
		n := uint64(0)
		for _, core := range c.all {
			n += core.direct.Slice()[letters]
		}
		mixed := mix(Kmer{Lo: uint64(letters)}, 1)[0]
		if part := mixed >> (64 - partBits); n > 0 && part >= c.first && part < c.end {
			x.mixes = append(x.mixes, mixed)
			x.counts = append(x.counts, uint32(min(n, 1<<32-1)))
		}
	}
	return x
}

func (c *cores) close() (err error) {
	close(c.work)
	c.ended.Wait()
	for _, x := range c.all {
		err = errors.Join(err, x.close())
	}
	return errors.Join(err, c.heads.Free(), c.waits.free(c), c.lists.free(c))
}

// placesFor is, as a power of two, how many places a table of so many k-mers has.
func placesFor(kmers uint64) int { return max(bits.Len64((kmers+mostOfStretch)*8/5), 9) }
