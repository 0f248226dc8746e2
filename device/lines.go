package device

import (
	"sync"
	"unsafe"
)

// Pieces of pinned memory of up to lineBytes come from linesBytes that the device has pinned at once: to pin memory takes the driver a millisecond, and
// every table wants some for its counters.
const lineBytes, linesBytes = 512, 64 << 10

// lines are pieces of pinned memory of lineBytes each. The device gives them back when it closes.
type lines struct {
	mu   sync.Mutex
	all  []unsafe.Pointer // of linesBytes each
	free []unsafe.Pointer
}

// take gives a line, all 0.
func (l *lines) take(b backend) (unsafe.Pointer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.free) == 0 {
		p, _, err := b.allocHost(linesBytes, false)
		if err != nil {
			return nil, err
		}
		l.all = append(l.all, p)
		for at := linesBytes - lineBytes; at >= 0; at -= lineBytes {
			l.free = append(l.free, unsafe.Add(p, at))
		}
	}
	last := len(l.free) - 1
	p := l.free[last]
	l.free = l.free[:last]
	clear(unsafe.Slice((*byte)(p), lineBytes))
	return p, nil
}

// give takes a line back once no work can write to it any more. After an error it is lost until the device closes.
func (l *lines) give(b backend, p unsafe.Pointer) error {
	if err := b.syncAll(); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.free = append(l.free, p)
	return nil
}

// close frees all.
func (l *lines) close(b backend) {
	for _, p := range l.all {
		b.freeHost(p)
	}
	l.all, l.free = nil, nil
}
