package keyspace

import (
	"fmt"
	"math/bits"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"
	"unsafe"
)

// biased gives a space that is biased towards readers of those shards.
func biased(t *testing.T, shards *Several) *Space {
	t.Helper()
	s := open(t, Options{})
	for n := range leastAsked {
		r := s.ShareAll(shards, n)
		if r != nil {
			t.Fatalf("a reader has shards without their locks after %d others", n)
		}
		s.UnshareAll(shards, r)
	}
	return s
}

// Who locks a shard waits for the readers that have it without its lock, and ends that for this shard alone.
func TestReadersWithoutLocks(t *testing.T) {
	for name, lock := range map[string]func(s *Space) (unlock func()){
		"Lock":    func(s *Space) func() { return s.Lock(0).Unlock },
		"LockAll": func(s *Space) func() { one := Several{1}; s.LockAll(&one); return func() { s.UnlockAll(&one) } },
		"Clear":   func(s *Space) func() { s.Clear(false); return func() {} },
		"Scan":    func(s *Space) func() { s.Scan(0, 1, 0, false, func(_, _ []byte) {}); return func() {} },
		"Check":   func(s *Space) func() { s.Check(); return func() {} },
	} {
		t.Run(name, func(t *testing.T) {
			s := biased(t, &Every)
			sh := s.Lock(0) // so that a scan has something to look for
			sh.Put(0, []byte("k"), []byte("v"), 0, 1)
			sh.Unlock()
			for range leastAsked {
				s.UnshareAll(&Every, s.ShareAll(&Every, 0))
			}
			r, again := s.ShareAll(&Every, 3), s.ShareAll(&Every, 4)
			if r == nil || again == nil || s.ShareAll(&Several{1}, 3) != nil {
				t.Fatal("readers have no places of their own")
			}
			s.UnshareAll(&Several{1}, nil)
			var has atomic.Bool
			done := make(chan struct{})
			go func() {
				defer close(done)
				unlock := lock(s)
				has.Store(true)
				unlock()
			}()
			for _, r := range []*Reader{r, again} {
				time.Sleep(20 * time.Millisecond)
				if has.Load() {
					t.Error("somebody has a shard locked that others read")
				}
				s.UnshareAll(&Every, r)
			}
			<-done
			if s.ShareAll(&Several{1}, 3) != nil {
				t.Error("a shard that was locked is had without its lock")
			}
			s.UnshareAll(&Several{1}, nil)
			if other := (Several{2}); name == "Lock" || name == "LockAll" {
				if r := s.ShareAll(&other, 3); r == nil {
					t.Error("a shard that was not locked is not had without its lock")
				} else {
					s.UnshareAll(&other, r)
				}
			}
		})
	}
}

// Readers of many shards see all that is done to several keys at once, or nothing of it, whatever their bias is.
func TestReadersBesideWriters(t *testing.T) {
	s := open(t, Options{})
	const keys, readers, writers, rounds = 40, 4, 2, 2000
	var hashes []uint64
	var names [][]byte
	var all Several
	for i := range keys {
		names = append(names, fmt.Append(nil, "key ", i))
		hashes = append(hashes, s.Hash(names[i]))
		all.Add(hashes[i])
	}
	write := func(n int) {
		s.LockAll(&all)
		value := fmt.Append(nil, "value ", n, strings.Repeat(" ", n%20)) // of many sizes, so that records move
		for i, h := range hashes {
			s.Of(h).Put(h, names[i], value, 0, 1)
		}
		s.UnlockAll(&all)
	}
	write(0)
	var done atomic.Bool
	var unlocked atomic.Int64
	var work, others sync.WaitGroup
	for g := range writers {
		others.Go(func() {
			for n := g; !done.Load(); n++ {
				write(n)
				time.Sleep(time.Duration(rand.IntN(200)) * time.Microsecond)
			}
		})
	}
	for g := range readers {
		work.Go(func() {
			from := make([]int, keys)
			for range rounds {
				r := s.ShareAll(&all, g/2) // two have one place
				if r != nil {
					unlocked.Add(1)
				}
				s.Warm(hashes, from)
				var first string
				for i, h := range hashes {
					v, there, _ := s.Of(h).LookFrom(from[i], h, names[i], 1)
					if i == 0 {
						first = string(v)
					}
					if !there || string(v) != first {
						t.Errorf("key %d has %q, and key 0 %q", i, v, first)
						break
					}
				}
				s.UnshareAll(&all, r)
			}
		})
	}
	work.Wait()
	done.Store(true)
	others.Wait()
	if unlocked.Load() == 0 {
		t.Error("no reader was without locks: the test shows nothing")
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}

// A reader that has looked at the bias before a writer ended it, and says what it has behind that, takes the lock.
func TestReadersBesideOneWriter(t *testing.T) {
	s := open(t, Options{})
	one := Several{1}
	var a, b int
	var done atomic.Bool
	var unlocked atomic.Int64
	var readers sync.WaitGroup
	for g := range 2 {
		readers.Go(func() {
			for !done.Load() {
				r := s.ShareAll(&one, g)
				if a != b {
					t.Errorf("%d and %d, which are written together", a, b)
					done.Store(true)
				}
				s.UnshareAll(&one, r)
				if r != nil {
					unlocked.Add(1)
				}
			}
		})
	}
	began := time.Now()
	for n := 0; (n < 20000 || unlocked.Load() < 1000) && time.Since(began) < 20*time.Second; n++ {
		sh := s.Lock(0)
		a++
		b++
		sh.Unlock()
		if done.Load() {
			break
		}
		for range rand.IntN(1000) {
			done.Load()
		}
	}
	done.Store(true)
	readers.Wait()
	if unlocked.Load() == 0 {
		t.Error("no reader was without locks: the test shows nothing")
	}
}

// Who locks a shard does not wait for those who come later, and share others beside it.
func TestReadersStarveNobody(t *testing.T) {
	s := biased(t, &Every)
	others := Several{^uint64(1)}
	r := s.ShareAll(&others, 3)
	locked := make(chan bool)
	go func() {
		s.Lock(0).Unlock()
		close(locked)
	}()
	time.Sleep(20 * time.Millisecond)
	select {
	case <-locked:
		t.Error("somebody has a shard locked that others may read")
	default:
	}
	s.UnshareAll(&others, r)
	if r = s.ShareAll(&others, 3); r == nil {
		t.Error("a shard that was not locked is not had without its lock")
	}
	select {
	case <-locked:
	case <-time.After(5 * time.Second):
		t.Error("who locks a shard waits for those who share others")
	}
	s.UnshareAll(&others, r)
	<-locked
}

// A shard begins where a line of memory does, so that what searches need of it is in one.
func TestShardsAreLines(t *testing.T) {
	if n := unsafe.Sizeof(Shard{}); bits.UintSize == 64 && n%lineBytes != 0 {
		t.Errorf("a shard has %d bytes", n)
	}
}
