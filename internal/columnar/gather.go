package columnar

import (
	"sync"

	"github.com/warpmap/warpmap/internal/crash"
)

// gatherer puts the small look-ups of many clients together, so that they share a launch. While one is under way, those
// that come wait and go together next: a look-up that comes alone waits for nobody.
type gatherer struct {
	of    index
	width int // bytes of a value

	mu   sync.Mutex
	busy bool
	wait []*lookup
}

// lookup is a look-up that waits.
type lookup struct {
	keys   keys
	values []byte
	found  []bool
	err    error
	turn   chan bool // false: it is done; true: it is to do what waits
}

// Look-ups of so many keys or more go by themselves, and so many keys go together at most.
const gatherLess, gatherMost = 1 << 14, 1 << 17

func (g *gatherer) find(k keys, values []byte, found []bool) error {
	if k.n == 0 {
		return nil
	}
	if k.n >= gatherLess {
		return g.of.find(k, values, found)
	}
	own := &lookup{keys: k, values: values, found: found}
	g.mu.Lock()
	if g.wait = append(g.wait, own); g.busy {
		own.turn = make(chan bool, 1)
		g.mu.Unlock()
		if !<-own.turn {
			return own.err
		}
		g.mu.Lock()
	}
	g.busy = true
	n, together := 0, 0
	for _, l := range g.wait {
		if together += l.keys.n; n > 0 && together > gatherMost {
			break
		}
		n++
	}
	all := g.wait[:n:n]
	g.wait = g.wait[n:]
	g.mu.Unlock()
	err := crash.Catch(func() error { return g.together(all) })
	g.mu.Lock()
	if g.busy = len(g.wait) > 0; g.busy {
		g.wait[0].turn <- true // it is the first of what it takes
	}
	g.mu.Unlock()
	for _, l := range all {
		if l.err = err; l != own {
			l.turn <- false
		}
	}
	return err
}

// together looks up what several want, of which own is one.
func (g *gatherer) together(all []*lookup) error {
	if len(all) == 1 {
		return g.of.find(all[0].keys, all[0].values, all[0].found)
	}
	k := keys{width: all[0].keys.width}
	for _, l := range all {
		k.add(&l.keys)
	}
	values, found := make([]byte, k.n*g.width), make([]bool, k.n)
	if err := g.of.find(k, values, found); err != nil {
		return err
	}
	at := 0
	for _, l := range all {
		copy(l.found, found[at:at+l.keys.n])
		copy(l.values, values[at*g.width:(at+l.keys.n)*g.width])
		at += l.keys.n
	}
	return nil
}
