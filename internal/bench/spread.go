package bench

import (
	"slices"
	"sync"
	"time"

	"github.com/warpmap/warpmap/device"
)

// Spread is how far apart the runs lie of which medians are shown: the slowest less the fastest, over the median.
type Spread struct {
	Median float64 `json:"median"` // half of what was measured has no more
	Most   float64 `json:"most"`
	N      int     `json:"n"` // measurements
}

// spread collects what is timed on a device.
type spread struct {
	mu  sync.Mutex
	all []float64
}

// Close has nothing to free.
func (s *spread) Close() {}

func spreads(d *device.Device) *spread {
	return device.Carried(d, func(*device.Device) *spread { return &spread{} })
}

// add takes the times of a measurement's runs, the shortest first, and gives their median.
func (s *spread) add(sorted []time.Duration) time.Duration {
	median := sorted[len(sorted)/2]
	s.mu.Lock()
	defer s.mu.Unlock()
	s.all = append(s.all, float64(sorted[len(sorted)-1]-sorted[0])/max(1, float64(median)))
	return median
}

// take gives what was collected since the last take; nil of nothing.
func (s *spread) take() *Spread {
	s.mu.Lock()
	defer s.mu.Unlock()
	all := s.all
	s.all = nil
	if len(all) == 0 {
		return nil
	}
	slices.Sort(all)
	return &Spread{Round(all[len(all)/2]), Round(all[len(all)-1]), len(all)}
}
