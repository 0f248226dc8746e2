package bench

import (
	"cmp"
	"errors"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/warpmap/warpmap/internal/crash"
)

// Asked is what goroutines saw that asked one thing after the other, each for itself.
type Asked struct {
	Wall  time.Duration
	Took  []time.Duration // of each request, the shortest first
	Wrong int             // answers
}

// PerSecond is the requests a second of all.
func (a Asked) PerSecond() float64 { return float64(len(a.Took)) / a.Wall.Seconds() }

// Micros is the time in µs that so many percent of the requests took at most.
func (a Asked) Micros(percent int) float64 {
	return float64(a.Took[min(len(a.Took)-1, len(a.Took)*percent/100)]) / 1e3
}

// AskAll has so many goroutines ask until a time is over; ask tells whether the answer was right. One error ends them all.
func AskAll(askers int, each time.Duration, ask func(rng *rand.Rand) (right bool, err error)) (a Asked, err error) {
	took, wrong, errs := make([][]time.Duration, askers), make([]int, askers), make([]error, askers)
	var all crash.WaitGroup
	start := time.Now()
	for g := range askers {
		all.Go(func() {
			rng := rand.New(rand.NewPCG(uint64(g), 1))
			for last := start; last.Sub(start) < each; {
				right, err := ask(rng)
				if err != nil {
					errs[g] = err
					return
				}
				if !right {
					wrong[g]++
				}
				now := time.Now()
				took[g] = append(took[g], now.Sub(last))
				last = now
			}
		})
	}
	all.Wait()
	a.Wall = time.Since(start)
	if err := errors.Join(errs...); err != nil {
		return a, err
	}
	a.Took = slices.Concat(took...)
	slices.Sort(a.Took)
	for _, n := range wrong {
		a.Wrong += n
	}
	return a, nil
}

// AskRuns is AskAll for Runs times, after one to warm up: the median run by requests a second, the least and most of these, and the wrong answers of all.
func AskRuns(askers int, each time.Duration, ask func(rng *rand.Rand) (right bool, err error)) (median Asked, least, most float64, wrong int, err error) {
	var runs []Asked
	for run := range Runs + 1 {
		a, err := AskAll(askers, each, ask)
		if err != nil {
			return median, 0, 0, 0, err
		}
		if wrong += a.Wrong; run > 0 {
			runs = append(runs, a)
		}
	}
	slices.SortFunc(runs, func(a, b Asked) int { return cmp.Compare(a.PerSecond(), b.PerSecond()) })
	return runs[len(runs)/2], runs[0].PerSecond(), runs[len(runs)-1].PerSecond(), wrong, nil
}
