package cache

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
	"unsafe"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
)

// Record is a pair's value with what a cache knows of it, to be kept in a file: its score, and how long it still
// lives, in sixteenths of a second, or 0 for ever. Kernels write it as it stands here.
type Record[V any] struct {
	Value V
	Score uint32
	Left  uint32
}

// Saved is what a file says of the cache whose records it has, so that they mean the same to who reads it.
type Saved struct {
	// Policy is the cache's, and empty in files that are older than this.
	Policy string `json:"policy"`
	// Lives says that pairs may end, and Time when they had left what the records say.
	Lives bool      `json:"lives,omitempty"`
	Time  time.Time `json:"time,omitzero"`
	// Seed is Options.Seed of the cache. A cache of the same size with the same seed has room for all pairs, because its
	// buckets are the same. It is 0 in files that are older than this.
	Seed uint64 `json:"seed,omitempty"`

	tick uint64 // Time, by the cache's own clock
}

// Saved is what a file of the cache is to say, from now on: Records then tells what pairs have left from this moment on.
func (h *handle) Saved() Saved {
	c := h.made()
	tick := c.time()
	return Saved{Policy: c.policyName(), Lives: c.cfg.expires, Time: c.now(), Seed: c.opts.Seed, tick: tick}
}

// policyName is what a file says of the policy.
func (c *core) policyName() string { return c.opts.policyName() }

func (o *Options) policyName() string {
	if o.Score != "" {
		return o.Policy.String() + " by " + o.Score
	}
	return o.Policy.String()
}

// For returns the options for a cache that is to have the records of another: with its policy, with Lives if its pairs
// end, and with its seed if the options have none. A Score is never taken from a file, since it is code: it must be that of the options already. Errors:
// another Score; a policy that there is not.
func (o Options) For(saved Saved) (Options, error) {
	o.Lives, o.Seed = o.Lives || saved.Lives, cmp.Or(o.Seed, saved.Seed)
	if saved.Policy == "" || o.Score != "" && o.policyName() == saved.Policy {
		return o, nil
	}
	if o.Score != "" || strings.HasPrefix(saved.Policy, Scored.String()+" by ") {
		return o, fmt.Errorf("cache: options with the Score %q, for a file of a cache that is %s (want the same)", o.Score,
			saved.Policy)
	}
	for p := LRU; p <= Scored; p++ {
		if p.String() == saved.Policy {
			o.Policy = p
			return o, nil
		}
	}
	return o, fmt.Errorf("cache: no policy %q: the file is damaged, or of a newer warpmap", saved.Policy)
}

// Records gives every pair to do, with its record, in chunks, as Chunks does. What pairs have left counts from when
// Saved gave saved: it sweeps those that had ended then, so that it gives as many as a Sweep after Saved leaves.
func (m *Cache[K, V]) Records(ctx context.Context, saved Saved, do func(keys []K, records []Record[V]) error) error {
	c := m.made()
	if err := c.frame.Usable(); err != nil {
		return err
	}
	if n := int(unsafe.Sizeof(Record[V]{})); n != c.cfg.valueBytes+8 {
		return fmt.Errorf("cache: a record of %d bytes, with a value of %d", n, c.cfg.valueBytes)
	}
	if c.cfg.expires {
		if _, err := c.sweepNow(func() uint64 { return saved.tick }); err != nil {
			return err
		}
	}
	return frame.Chunks(ctx, &c.frame, func(st *device.Stream) (frame.Exporter, error) {
		return c.recording(st, saved.tick)
	}, do)
}

// recording is how records are given out: where values would be. What is left counts from that tick on.
func (c *core) recording(st *device.Stream, tick uint64) (frame.Exporter, error) {
	live, err := c.look(st)
	return frame.Exporter{Slots: int64(c.t.Count), Live: live, Export: func(st *device.Stream, r frame.Range) (int64,
		error) {
		n, err := c.each(st, c.kernel.export, slotsParams{First: uint64(r.First), N: uint64(r.Slots), Keys: r.Keys,
			Records: r.Values, Limit: uint64(r.Limit), Time: tick})
		return int64(n), err
	}}, err
}

// takes says why the cache cannot take records of another.
func (c *core) takes(from Saved) error {
	own := c.policyName()
	counts := func(policy string) bool { return policy == LFU.String() || policy == Aged.String() }
	switch {
	case from.Policy != "" && from.Policy != own && !(counts(from.Policy) && counts(own)):
		return fmt.Errorf("cache: scores of a cache with the policy %q mean nothing to one with %q: load them into a cache "+
			"with %[1]q, and insert its pairs into this one", from.Policy, own)
	case from.Lives && !c.cfg.expires:
		return errors.New("cache: pairs that end, for a cache in which none does (want a TimeToLive, or Lives)")
	}
	return nil
}

// Restore puts pairs with the scores and the times that they had, as Records gave them, and from is what Saved gave
// then. The policy must be the same, but LFU and Aged take each other's counts. A pair ends when it would have, to an
// eighth of a second, if the clocks of both machines agree; what has ended since then does not go in. A pair that was to
// stay for ever lives as long as one that is inserted. Where the bucket of a pair is full of pairs with higher scores,
// it does not go in. The clock of an LRU cache goes on from the largest score; scores that leave it no room count as
// the largest that does, and counts as 2³¹ at most. Errors: another policy; pairs that end, for a cache in which none does;
// and as Insert.
func (m *Cache[K, V]) Restore(keys []K, records []Record[V], from Saved) error {
	c := m.made()
	if err := c.frame.Family.CheckNamed("records", len(keys), len(records)); err != nil {
		return err
	}
	if err := c.takes(from); err != nil {
		return err
	}
	since := uint64(0) // ticks
	if from.Lives && !from.Time.IsZero() {
		since = uint64(max(0, c.now().Sub(from.Time)) / (time.Second / ticksPerSecond))
	}
	var in []K
	var values []V
	var scores, lives []uint32
	for i, r := range records {
		if r.Left > 0 && uint64(r.Left) <= since {
			continue
		}
		in, values, scores = append(in, keys[i]), append(values, r.Value), append(scores, c.restored(r.Score))
		if c.cfg.expires && r.Left > 0 {
			r.Left -= uint32(since)
		}
		lives = append(lives, r.Left)
	}
	if !c.cfg.expires {
		lives = nil
	}
	if err := c.frame.Locked(func() error { // which a closed cache refuses
		if c.cfg.policy == LRU && len(scores) > 0 {
			c.clock = max(c.clock, slices.Max(scores))
		}
		return nil
	}); err != nil || len(in) == 0 {
		return err
	}
	return c.insert(len(in), frame.In(in), frame.In(values), frame.In(scores), frame.In(lives))
}

// restored is a score of a file as the policy can have it.
func (c *core) restored(score uint32) uint32 {
	switch c.cfg.policy {
	case LRU: // the clock is not set back between the parts of a file
		return min(score, mostClock-1<<20)
	case LFU: // whose pairs were used once at least
		return min(max(score, 1), mostCount)
	case Aged:
		return min(score, mostCount)
	}
	return score
}
