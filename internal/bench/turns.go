package bench

import (
	"slices"
	"time"

	"github.com/warpmap/warpmap/device"
)

// Side is one of those that Turns measures. Do alone is timed; the others may be nil.
type Side struct {
	Warm   func() error // comes once, first: what has its kernels compiled
	Before func() error
	Do     func() error
	After  func() error
	// Repeats is how often a run has Before and Do, where one Do is too short to time; 0: once.
	Repeats int
}

// longRound is how much time all sides take in a round of which three will do.
const longRound = 2 * time.Second

// Turns runs the sides in turn, so that what else the machine does comes to each of them, and gives the median of each by the wall clock: of Runs rounds
// after one to warm up, or where a round takes long, of three with the first.
func Turns(d *device.Device, sides ...Side) ([]time.Duration, error) {
	for _, s := range sides {
		if s.Warm != nil {
			if err := s.Warm(); err != nil {
				return nil, err
			}
		}
	}
	times := make([][]time.Duration, len(sides))
	rounds, warm := Runs+1, 1
	for round := 0; round < rounds; round++ {
		var all time.Duration
		for i, s := range sides {
			took, err := s.run()
			if err != nil {
				return nil, err
			}
			all += took
			times[i] = append(times[i], took)
		}
		if round == 0 && all > longRound {
			rounds, warm = 3, 0
		}
	}
	medians := make([]time.Duration, len(sides))
	for i, t := range times {
		t = t[warm:]
		slices.Sort(t)
		medians[i] = spreads(d).add(t)
	}
	return medians, nil
}

// run gives the time of all Dos of a run, for each of them.
func (s Side) run() (took time.Duration, err error) {
	repeats := max(1, s.Repeats)
	for range repeats {
		if s.Before != nil {
			if err := s.Before(); err != nil {
				return 0, err
			}
		}
		begin := time.Now()
		if err := s.Do(); err != nil {
			return 0, err
		}
		took += time.Since(begin)
	}
	if s.After != nil {
		err = s.After()
	}
	return took / time.Duration(repeats), err
}
