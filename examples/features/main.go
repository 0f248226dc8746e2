// Features keeps the features of users that are asked for most in a cache, before Redis, which has those of all users.
// It puts features of so many users, asks for those of some in batches, as a recommender does, changes some meanwhile,
// and says how many Redis was asked for, beside the time that Redis alone takes:
//
//	redis-server --port 6379 &
//	go run ./examples/features -users 100000 -places 10000
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"log"
	"math"
	"math/rand/v2"
	"time"

	"github.com/warpmap/warpmap/cache"
	"github.com/warpmap/warpmap/device"
)

// features of a user.
type features [16]float32

// featuresOf are a user's, as they are after so many changes.
func featuresOf(user uint64, changes int) (f features) {
	for i := range f {
		f[i] = float32(user%1000) + float32(i)/16 + 1000*float32(changes)
	}
	return f
}

func (f features) bytes() (b []byte) {
	for _, x := range f {
		b = binary.LittleEndian.AppendUint32(b, math.Float32bits(x))
	}
	return b
}

func featuresFrom(b []byte) (f features, err error) {
	if len(b) != 4*len(f) {
		return f, fmt.Errorf("features of %d bytes, want %d", len(b), 4*len(f))
	}
	for i := range f {
		f[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return f, nil
}

// source is Redis as the lower tier: a call for many users is one command.
func source(r *redis) cache.Source[uint64, features] {
	name := func(user uint64) []byte { return fmt.Appendf(nil, "user:%d", user) }
	return cache.Source[uint64, features]{
		Fetch: func(_ context.Context, users []uint64, values []features, found []bool) error {
			ask := [][]byte{[]byte("MGET")}
			for _, u := range users {
				ask = append(ask, name(u))
			}
			got, err := r.ask(ask...)
			for i := 0; i < len(got) && err == nil; i++ {
				if found[i] = got[i] != nil; found[i] {
					values[i], err = featuresFrom(got[i])
				}
			}
			if err == nil && len(got) != len(users) {
				err = fmt.Errorf("%d answers for %d users", len(got), len(users))
			}
			return err
		},
		Store: func(_ context.Context, users []uint64, values []features) error {
			tell := [][]byte{[]byte("MSET")}
			for i, u := range users {
				tell = append(tell, name(u), values[i].bytes())
			}
			_, err := r.ask(tell...)
			return err
		},
	}
}

func main() {
	on := flag.String("device", "auto", "where the cache is")
	at := flag.String("redis", "localhost:6379", "where Redis is: an address, or a socket's path")
	users, places := flag.Int("users", 100_000, "users"), flag.Int("places", 10_000, "users that the cache has room for")
	requests, batch := flag.Int("requests", 1000, "requests"), flag.Int("batch", 1000, "users of a request")
	flag.Parse()
	if err := run(*on, *at, *users, *places, *requests, *batch); err != nil {
		log.Fatal(err)
	}
}

func run(on, at string, users, places, requests, batch int) error {
	r, err := dial(at)
	if err != nil {
		return err
	}
	defer r.Close()
	d, err := device.Open(on)
	if err != nil {
		return err
	}
	defer d.Close()
	c, err := cache.New[uint64, features](d, cache.Options{Capacity: places, Policy: cache.Aged})
	if err != nil {
		return err
	}
	defer c.Close()
	t, err := cache.NewTieredBehind(c, source(r), cache.Behind{})
	if err != nil {
		return err
	}
	s := service{t: t, changes: make([]int, users), rng: rand.New(rand.NewPCG(1, 2))}
	s.zipf = rand.NewZipf(s.rng, 1.2, 10, uint64(users-1))
	ctx := context.Background()
	for first := 0; first < users && err == nil; first += batch {
		err = s.change(ctx, first, batch)
	}
	if err = errors.Join(err, t.Flush(ctx)); err != nil {
		return err
	}
	before, err := c.Stats()
	if err != nil {
		return err
	}
	cached, err := s.ask(ctx, requests, batch, t.Get)
	after, e := c.Stats()
	if err = errors.Join(err, e, t.Close(ctx)); err != nil { // by now all changes are in Redis
		return err
	}
	s.t = nil
	alone, err := s.ask(ctx, requests, batch, source(r).Fetch)
	if err != nil {
		return err
	}
	hits, misses := after.Hits-before.Hits, after.Misses-before.Misses
	fmt.Printf("%d users asked for, %.1f%% of them answered by the cache, in %v; by Redis alone in %v\n", requests*batch,
		100*float64(hits)/float64(max(1, hits+misses)), cached.Round(time.Millisecond), alone.Round(time.Millisecond))
	return nil
}

// service asks for features, and changes them.
type service struct {
	t       *cache.Tiered[uint64, features] // nil: nothing changes any more
	changes []int                           // of each user
	rng     *rand.Rand
	zipf    *rand.Zipf
}

// change puts other features of some users, from first on.
func (s *service) change(ctx context.Context, first, n int) error {
	var users []uint64
	var values []features
	for u := first; u < min(first+n, len(s.changes)); u++ {
		s.changes[u]++
		users, values = append(users, uint64(u)), append(values, featuresOf(uint64(u), s.changes[u]))
	}
	return s.t.Put(ctx, users, values)
}

// ask asks for the features of users, most often for those of some, and checks them.
func (s *service) ask(ctx context.Context, requests, batch int,
	get func(context.Context, []uint64, []features, []bool) error) (took time.Duration, err error) {
	users, got, found := make([]uint64, batch), make([]features, batch), make([]bool, batch)
	for range requests {
		for i := range users {
			users[i] = s.zipf.Uint64() * 0x9e3779b1 % uint64(len(s.changes))
		}
		start := time.Now()
		if err := get(ctx, users, got, found); err != nil {
			return took, err
		}
		took += time.Since(start)
		for i, u := range users {
			if !found[i] || got[i] != featuresOf(u, s.changes[u]) {
				return took, fmt.Errorf("user %d has other features: %v, found %t", u, got[i], found[i])
			}
		}
		if s.t != nil {
			if err := s.change(ctx, s.rng.IntN(len(s.changes)), 10); err != nil {
				return took, err
			}
		}
	}
	return took, nil
}
