// Package faults is how tests make calls of a device fail, or of NCCL: the n-th of a site, or each with a probability.
// A device asks it above its back ends, in one place for each site. Files are not among its sites: package
// internal/syscalls makes the system's own calls fail.
package faults

import (
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

// Site is a kind of call.
type Site int

const (
	Alloc      Site = iota // device memory: of Make and its like, and of a Range
	HostAlloc              // pinned host memory
	Load                   // of a kernel that is not there yet, which any may be that is launched
	Launch                 // of a kernel
	CopyIn                 // from the host
	CopyOut                // to the host
	CopyWithin             // within the device, and Fill
	PeerCopy               // between two devices
	Stream                 // the making of a stream
	Event                  // the making and recording of an event, and a stream's wait for one
	Sync                   // the host's wait for a stream or an event
	NCCL                   // every function of the library
	Sites                  // how many there are
)

func (s Site) String() string {
	return []string{"alloc", "host alloc", "load", "launch", "copy in", "copy out", "copy within", "peer copy", "stream", "event", "sync", "nccl"}[s]
}

// OfNCCL is what Set takes in place of a device, for the calls of the library. One that fails returns NCCL's error of
// CUDA, and one that breaks, at once or late, the error that another process or the network failed. Those that end a
// group or free a communicator do so nevertheless.
var OfNCCL = new(int)

// Outcome is what becomes of a call.
type Outcome int

const (
	Passes  Outcome = iota // it is made
	Fails                  // it does nothing, and returns an error with which the device goes on
	Breaks                 // it returns a fault, and the device is lost
	Lately                 // it succeeds, and then the device is lost: the next call returns the fault
	Delayed                // it waits some milliseconds before it goes on; the device never sees it
)

func (o Outcome) String() string {
	return []string{"passes", "fails", "breaks", "breaks late", "is slow"}[o]
}

// Error is of a call that fails to order. It reads as the real one's, which it wraps.
type Error struct {
	Site Site
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// Order says what becomes of a call that is about to be made. bytes is how much is asked for or copied. Several
// goroutines may call it.
type Order func(site Site, bytes int64) Outcome

var (
	orders sync.Map // an Order for each device that a test has named
	set    atomic.Int32
)

// Set has the order asked before each call on the device. nil: no call fails any more.
func Set(device any, order Order) {
	if order == nil {
		if _, was := orders.LoadAndDelete(device); was {
			set.Add(-1)
		}
	} else if _, was := orders.Swap(device, order); !was {
		set.Add(1)
	}
}

// Any tells whether there is an order at all, for any device: what is asked before Ask, at next to no cost.
func Any() bool { return set.Load() > 0 }

// Ask tells what becomes of a call.
func Ask(device any, site Site, bytes int64) Outcome {
	order, ok := orders.Load(device)
	if !ok {
		return Passes
	}
	outcome := order.(Order)(site, bytes)
	if outcome == Delayed {
		time.Sleep(3 * time.Millisecond)
		return Passes
	}
	return outcome
}

// OfMemory is an order by which those allocations fail of which short, which gets their bytes, is true.
func OfMemory(short func(bytes int64) bool) Order {
	return func(site Site, bytes int64) Outcome {
		if (site == Alloc || site == HostAlloc) && short(bytes) {
			return Fails
		}
		return Passes
	}
}

// Counter counts the calls of each site; its zero value makes none of them fail.
type Counter struct {
	Site    Site    // of which calls have another outcome,
	N       int64   // the N-th, counted from 1,
	Rest    bool    // and all behind it
	Outcome Outcome // this one

	counts [Sites]atomic.Int64
	later  atomic.Int64
}

// Order is what to Set.
func (c *Counter) Order(site Site, _ int64) Outcome {
	i := c.counts[site].Add(1)
	if site == Launch && c.Met() {
		c.later.Add(1)
	}
	if c.N > 0 && site == c.Site && (i == c.N || c.Rest && i > c.N) {
		return c.Outcome
	}
	return Passes
}

// Count is how many calls of the site there were.
func (c *Counter) Count(site Site) int64 { return c.counts[site].Load() }

// Met reports whether the call with another outcome was made.
func (c *Counter) Met() bool { return c.N > 0 && c.Count(c.Site) >= c.N }

// Later returns the number of kernels that were launched after the call with another outcome.
func (c *Counter) Later() int64 {
	if c.Site == Launch { // Order counts that call itself, too
		return max(0, c.later.Load()-1)
	}
	return c.later.Load()
}

// AtRate is an order by which each call of the sites, or of all sites if none is named, has the outcome with a
// probability. Calls that one goroutine makes have theirs by the seed alone.
func AtRate(seed uint64, p float64, outcome Outcome, sites ...Site) Order {
	var mu sync.Mutex
	r := rand.New(rand.NewPCG(seed, 0))
	return func(site Site, _ int64) Outcome {
		if len(sites) > 0 && !slices.Contains(sites, site) {
			return Passes
		}
		mu.Lock()
		defer mu.Unlock()
		if r.Float64() < p {
			return outcome
		}
		return Passes
	}
}
