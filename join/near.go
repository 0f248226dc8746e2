package join

import (
	"math"
	"runtime"
	"sync/atomic"
	"unsafe"

	"github.com/warpmap/warpmap/internal/crash"
)

// nearest is how many numbers there may be for each key where a row number for each of them takes the place of a table.
const nearest = 16

// near is a level for keys that lie close together, as numbers given out one after the other do: the row numbers stand
// by key, and there is nothing to hash. On a CPU that is ten times as fast as a table.
type near[R uint32 | uint64] struct {
	low  uint64
	mask uint64
	rows []R // plus 1; 0 for keys that are not there
}

// span is how far some words are apart, as signed numbers and as others.
type span struct {
	n           int
	least, most int64
	low, high   uint64
}

func spanOf(words []uint64, ok []bool, shift uint) span {
	s := span{least: math.MaxInt64, most: math.MinInt64, low: math.MaxUint64}
	for i, w := range words {
		if ok[i] {
			v := int64(w<<shift) >> shift
			s.n++
			s.least, s.most = min(s.least, v), max(s.most, v)
			s.low, s.high = min(s.low, w), max(s.high, w)
		}
	}
	return s
}

// openNear makes a level for the words that are ok, or nil where they lie too far apart.
func openNear[R uint32 | uint64](words []uint64, ok []bool, bytes int) level[R] {
	shift := uint(64 - 8*bytes)
	spans := make([]span, pieces(len(words)))
	inPieces(len(words), func(k, from, to int) { spans[k] = spanOf(words[from:to], ok[from:to], shift) })
	all := spanOf(nil, nil, shift)
	for _, s := range spans {
		all.join(s)
	}
	low, width, close := all.close()
	if !close {
		return nil
	}
	l := &near[R]{mask: math.MaxUint64 >> shift}
	if l.low = low & l.mask; all.n > 0 {
		l.rows = make([]R, width+1)
	}
	return l
}

// close tells whether words lie close together: how far apart they are, from which on.
func (s *span) close() (low, width uint64, close bool) {
	low, width = s.low, s.high-s.low
	if signed := uint64(s.most) - uint64(s.least); signed < width {
		low, width = uint64(s.least), signed
	}
	return low, width, s.n == 0 || width < uint64(nearest)*uint64(s.n)+1024
}

// join makes one span of two.
func (s *span) join(o span) {
	s.n += o.n
	s.least, s.most = min(s.least, o.least), max(s.most, o.most)
	s.low, s.high = min(s.low, o.low), max(s.high, o.high)
}

// fill is the function of that name for keys that lie close together, in pieces side by side: of equal keys any may be
// the representative.
func (l *near[R]) fill(words []uint64, ok []bool, always bool) (unique bool, reps []R) {
	added, all := make([]int, pieces(len(words))), make([]int, pieces(len(words)))
	inPieces(len(words), func(k, from, to int) {
		for i := from; i < to; i++ {
			if ok[i] {
				all[k]++
				if claim(&l.rows[(words[i]-l.low)&l.mask], R(i)+1) {
					added[k]++
				}
			}
		}
	})
	unique = true
	for k := range all {
		unique = unique && added[k] == all[k]
	}
	if unique && !always {
		return true, nil
	}
	reps = make([]R, len(words))
	inPieces(len(words), func(_, from, to int) {
		for i := from; i < to; i++ {
			if ok[i] {
				reps[i] = l.rows[(words[i]-l.low)&l.mask] - 1
			}
		}
	})
	return unique, reps
}

// claim sets a row number that nobody else has set.
func claim[R uint32 | uint64](at *R, to R) bool {
	if unsafe.Sizeof(to) == 4 {
		p := (*uint32)(unsafe.Pointer(at))
		return atomic.LoadUint32(p) == 0 && atomic.CompareAndSwapUint32(p, 0, uint32(to))
	}
	p := (*uint64)(unsafe.Pointer(at))
	return atomic.LoadUint64(p) == 0 && atomic.CompareAndSwapUint64(p, 0, uint64(to))
}

// pieceRows is how many rows one goroutine takes at a time where several share a loop.
const pieceRows = 1 << 17

func pieces(n int) int { return (n + pieceRows - 1) / pieceRows }

// inPieces calls f for all pieces of n rows, side by side. A panic of f goes on to the caller.
func inPieces(n int, f func(k, from, to int)) {
	if pieces(n) == 1 {
		f(0, 0, n)
		return
	}
	inParallel(pieces(n), func(k int) { f(k, k*pieceRows, min(n, (k+1)*pieceRows)) })
}

// inParallel calls f(0) to f(n-1), side by side. A panic of f goes on to the caller.
func inParallel(n int, f func(int)) {
	var all crash.Group
	all.SetLimit(runtime.GOMAXPROCS(0))
	for i := range n {
		all.Go(func() error {
			f(i)
			return nil
		})
	}
	all.Wait()
}

func (l *near[R]) insertNew(words []uint64, rows []R) (added int, err error) {
	for i, w := range words {
		if at := &l.rows[(w-l.low)&l.mask]; *at == 0 {
			*at = rows[i] + 1
			added++
		}
	}
	return added, nil
}

func (l *near[R]) find(words []uint64, rows []R, found []bool) error {
	for i, w := range words {
		var row R
		if at := (w - l.low) & l.mask; at < uint64(len(l.rows)) {
			row = l.rows[at]
		}
		rows[i], found[i] = row-1, row != 0
	}
	return nil
}

func (l *near[R]) filtered() int64 { return 0 }

func (l *near[R]) close() error { return nil }
