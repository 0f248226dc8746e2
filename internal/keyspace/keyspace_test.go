package keyspace

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/internal/testenv"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, o Options) *Space {
	t.Helper()
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

func (s *Space) with(key string, do func(sh *Shard, h uint64, key []byte)) {
	h := s.Hash([]byte(key))
	sh := s.Lock(h)
	defer sh.Unlock()
	do(sh, h, []byte(key))
}

func (s *Space) testPut(key, value string, expires int64) {
	s.with(key, func(sh *Shard, h uint64, k []byte) { sh.Put(h, k, []byte(value), expires, 0) })
}

func (s *Space) all() map[string]string {
	out := map[string]string{}
	for c, first := uint64(0), true; first || c != 0; first = false {
		c = s.Scan(c, 10, 0, false, func(key, _ []byte) { out[string(key)] = "" })
	}
	for key := range out {
		s.with(key, func(sh *Shard, h uint64, k []byte) {
			v, at, ok := sh.Peek(h, k, 0)
			out[key] = fmt.Sprint(string(v), at, ok)
		})
	}
	return out
}

// model is what a space should hold.
type model map[string]struct {
	value   string
	expires int64
}

func (m model) all() map[string]string {
	out := map[string]string{}
	for k, v := range m {
		out[k] = fmt.Sprint(v.value, v.expires, true)
	}
	return out
}

// play does random things to a space and to a model.
func play(t *testing.T, r *rand.Rand, s *Space, m model, n int) {
	t.Helper()
	for range n {
		key := fmt.Sprint("key", r.IntN(600), strings.Repeat("x", r.IntN(20)))
		if r.IntN(3) > 0 {
			key = fmt.Sprint(r.IntN(300))
		}
		size := r.IntN(40)
		switch r.IntN(20) {
		case 0:
			size = r.IntN(5000)
		case 1:
			size = 8 << r.IntN(12)
		}
		value := strings.Repeat(string(rune('a'+r.IntN(26))), size)
		at := int64(0)
		if r.IntN(3) == 0 {
			at = 1 << 60
		}
		was, there := m[key]
		s.with(key, func(sh *Shard, h uint64, k []byte) {
			switch op := r.IntN(100); {
			case op < 40:
				sh.Put(h, k, []byte(value), at, 0)
				was.value, was.expires = value, at
				m[key] = was
			case op < 55:
				if n, ok := sh.Append(h, k, []byte(value), 1<<20, 0); n != len(was.value)+len(value) || !ok {
					t.Fatalf("append to %d bytes gives %d, %v", len(was.value), n, ok)
				}
				was.value += value
				m[key] = was
			case op < 80:
				if sh.Delete(h, k, 0) != there {
					t.Fatalf("delete of a key that is there: %v", there)
				}
				delete(m, key)
			case op < 83 && there && len(was.value) > 0:
				from := r.IntN(len(was.value))
				value = value[:min(len(value), len(was.value)-from)]
				sh.Patch(h, k, from, []byte(value))
				was.value = was.value[:from] + value + was.value[from+len(value):]
				m[key] = was
			case op < 90:
				if sh.Expire(h, k, at, 0) != there {
					t.Fatalf("expire of a key that is there: %v", there)
				}
				if there {
					was.expires = at
					m[key] = was
				}
			default:
				v, e, ok := sh.Get(h, k, 0)
				if ok != there || string(v) != was.value || e != was.expires {
					t.Fatalf("%q: %d bytes, %d, %v; want %d, %d, %v", key, len(v), e, ok, len(was.value), was.expires, there)
				}
			}
		})
		if r.IntN(20000) == 0 {
			s.Clear(false)
			clear(m)
		}
	}
}

func same(t *testing.T, s *Space, m model) {
	t.Helper()
	if err := s.Check(); err != nil {
		t.Fatal(err)
	}
	if got, want := s.all(), m.all(); !maps.Equal(got, want) {
		t.Fatalf("%d keys, want %d", len(got), len(want))
	}
	if n := s.Len(); n != int64(len(m)) {
		t.Fatalf("Len %d, want %d", n, len(m))
	}
}

func TestAgainstModel(t *testing.T) {
	for seed := range uint64(testenv.Seeds(20)) {
		r := rand.New(rand.NewPCG(seed, testenv.FirstSeed()))
		s, m := open(t, Options{}), model{}
		for range 10 {
			play(t, r, s, m, 3000)
			same(t, s, m)
		}
	}
}

// Many keys of one shard have segments cleared, and indexes grow and shrink.
func TestOneShard(t *testing.T) {
	s := open(t, Options{})
	var keys []string
	for i := 0; len(keys) < 3000; i++ {
		if key := fmt.Sprint("key ", i); s.Hash([]byte(key))>>(64-shardBits) == 5 {
			keys = append(keys, key)
		}
		if i > 1<<24 {
			t.Fatal("hashes do not reach a shard")
		}
	}
	r := rand.New(rand.NewPCG(1, 2))
	m := model{}
	for range 6 {
		for range 6000 {
			key := keys[r.IntN(len(keys))]
			if was := m[key]; r.IntN(2) == 0 {
				was.value = strings.Repeat("v", r.IntN(300))
				s.testPut(key, was.value, 0)
				m[key] = was
			} else {
				s.with(key, func(sh *Shard, h uint64, k []byte) { sh.Delete(h, k, 0) })
				delete(m, key)
			}
		}
		same(t, s, m)
	}
	for _, key := range keys {
		s.with(key, func(sh *Shard, h uint64, k []byte) { sh.Delete(h, k, 0) })
	}
	if c := s.Counts(false); c.Keys != 0 || c.Allocated > leastSegment+leastSlots*slotBytes {
		t.Errorf("an empty space has %+v", c)
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}

// A scan gives what is there all the time, once, while indexes grow and shrink.
func TestScanWhileOthersChange(t *testing.T) {
	s := open(t, Options{})
	for i := range 20000 {
		s.testPut(fmt.Sprint("stays ", i), "", 0)
	}
	seen, calls := map[string]int{}, 0
	for c, first := uint64(0), true; first || c != 0; first = false {
		for i := range 30 {
			if calls < 1000 {
				s.testPut(fmt.Sprint("comes ", calls, " ", i), "", 0)
			} else {
				s.with(fmt.Sprint("comes ", calls-1000, " ", i), func(sh *Shard, h uint64, k []byte) { sh.Delete(h, k, 0) })
			}
		}
		c = s.Scan(c, 10, 0, false, func(key, _ []byte) {
			if bytes.HasPrefix(key, []byte("stays")) {
				seen[string(key)]++
			}
		})
		calls++
	}
	if len(seen) != 20000 || calls < 1500 {
		t.Fatalf("%d of 20000 keys in %d calls", len(seen), calls)
	}
	for key, n := range seen {
		if n != 1 {
			t.Fatalf("%s came %d times", key, n)
		}
	}
	if next := s.Scan(1<<63-1, 10, 0, false, func(_, _ []byte) {}); next != 0 {
		t.Errorf("behind the end a scan goes on at %d", next)
	}
}

func TestExpiry(t *testing.T) {
	s := open(t, Options{})
	now := time.Now().UnixMilli()
	s.testPut("gone", "v", now-1)
	s.testPut("later", "v", now+1e6)
	s.with("gone", func(sh *Shard, h uint64, k []byte) {
		if _, _, ok := sh.Get(h, k, now); ok {
			t.Error("an expired key is found")
		}
		if sh.Expire(h, k, 0, now) || sh.Delete(h, k, now) {
			t.Error("an expired key is there")
		}
		if n, _ := sh.Append(h, k, []byte("x"), 10, now); n != 1 {
			t.Errorf("append gives %d", n)
		}
	})
	for i := range 5000 {
		s.testPut(fmt.Sprint(i), "v", now-1)
	}
	for end := time.Now().Add(30 * time.Second); s.Len() > 2; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d keys are left", s.Len())
		}
	}
	if c := s.Counts(false); c.Expired != 5001 || c.Expiring != 1 {
		t.Errorf("%+v", c)
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}

// What took the place of an expired key is there again, and not the expired one.
func TestExpiredThenOpenAgain(t *testing.T) {
	dir, now := t.TempDir(), time.Now().UnixMilli()
	s := open(t, Options{Folder: dir, Sync: SyncNever})
	s.testPut("a", "old", now-1)
	s.with("a", func(sh *Shard, h uint64, k []byte) { sh.Append(h, k, []byte("new"), 100, now) })
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	s = open(t, Options{Folder: dir})
	s.with("a", func(sh *Shard, h uint64, k []byte) {
		if v, expires, ok := sh.Peek(h, k, now); string(v) != "new" || expires != 0 || !ok {
			t.Errorf("%q, %d, %v", v, expires, ok)
		}
	})
}

// A space within a bound refuses what is above it, or lets go what was not used.
func TestBound(t *testing.T) {
	const most, value = 8 << 20, 200
	for _, policy := range []Policy{NoEviction, LRU} {
		s := open(t, Options{Most: most, Policy: policy})
		now, refused, lost := int64(1<<40), 0, 0
		r := rand.New(rand.NewPCG(1, uint64(policy)))
		for i := range 60_000 {
			now += 64
			key := []byte(fmt.Sprint("key ", i))
			if !s.Admit(int64(len(key)+value), now) {
				refused++
			} else {
				h := s.Hash(key)
				sh := s.Lock(h)
				sh.Put(h, key, make([]byte, r.IntN(2*value)), 0, now)
				sh.Unlock()
			}
			hot := []byte(fmt.Sprint("key ", i%64))
			h := s.Hash(hot)
			sh := s.Lock(h)
			_, _, ok := sh.Get(h, hot, now)
			sh.Unlock()
			if !ok && i >= 64 && policy == NoEviction {
				t.Fatalf("policy %d: a key that is used is gone at %d", policy, i)
			}
			if !ok {
				lost++
			}
			if i%4 == 0 && policy == NoEviction {
				s.with(fmt.Sprint("key ", 64+r.IntN(i+1)), func(sh *Shard, h uint64, k []byte) { sh.Delete(h, k, now) })
			}
		}
		if lost > 64+100 { // a key that is used is the oldest of 16 with a chance of next to none
			t.Errorf("policy %d: keys that are used were gone %d times", policy, lost)
		}
		c := s.Counts(false)
		if c.Allocated > most || c.Live > most || c.Live < most/2 {
			t.Errorf("policy %d: %+v of %d bytes", policy, c, most)
		}
		if (policy == NoEviction) != (refused > 0) || (policy == LRU) != (c.Evicted > 0) {
			t.Errorf("policy %d: %d refused, %d evicted", policy, refused, c.Evicted)
		}
		if s.Admit(most, now) {
			t.Error("more than all is admitted")
		}
		if err := s.Check(); err != nil {
			t.Error(err)
		}
	}
}

// Several goroutines work on the same keys, and on several at once.
func TestConcurrent(t *testing.T) {
	s := open(t, Options{Folder: t.TempDir(), Sync: SyncNever})
	const keys, each = 50, 2000
	var wg sync.WaitGroup
	for g := range 4 {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(g), 1))
			for i := range each {
				var both Several
				a, b := []byte(fmt.Sprint(r.IntN(keys))), []byte(fmt.Sprint(r.IntN(keys)))
				ha, hb := s.Hash(a), s.Hash(b)
				both.Add(ha)
				both.Add(hb)
				s.LockAll(&both)
				s.Of(ha).Append(ha, a, []byte("+"), 1<<20, 0)
				s.Of(hb).Append(hb, b, []byte("-"), 1<<20, 0)
				s.UnlockAll(&both)
				if i == each/2 && g < 2 {
					if err := s.Save(true); err != nil && err != ErrSaving {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	plus, minus := 0, 0
	for _, v := range s.all() {
		plus += strings.Count(v, "+")
		minus += strings.Count(v, "-")
	}
	if plus != 4*each || minus != 4*each {
		t.Errorf("%d and %d bytes, want %d", plus, minus, 4*each)
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}

// What a space holds is there when it is opened again, by its snapshots, its logs, or both, however often.
func TestOpenAgain(t *testing.T) {
	for seed := range uint64(testenv.Seeds(12)) {
		dir, m := t.TempDir(), model{}
		r := rand.New(rand.NewPCG(seed, testenv.FirstSeed()))
		for range 8 {
			sync := []Sync{NoLog, SyncNever, SyncEverySecond, SyncAlways}[r.IntN(4)]
			s := open(t, Options{Folder: dir, Sync: sync})
			same(t, s, m)
			for range r.IntN(3) {
				play(t, r, s, m, r.IntN(1500))
				if r.IntN(2) == 0 {
					if err := s.Save(true); err != nil {
						t.Fatal(err)
					}
				}
				if r.IntN(4) == 0 {
					s.Clear(false)
					clear(m)
				}
			}
			if sync == NoLog {
				if err := s.Save(true); err != nil {
					t.Fatal(err)
				}
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
}

// A snapshot that is made while keys come, change and are all taken out has what was there at some time, and its log the
// rest.
func TestSaveWhileOthersWrite(t *testing.T) {
	for seed := range uint64(testenv.Seeds(12)) {
		dir, m := t.TempDir(), model{}
		r := rand.New(rand.NewPCG(seed, testenv.FirstSeed()))
		s := open(t, Options{Folder: dir, Sync: SyncNever})
		stop, saves := make(chan struct{}), atomic.Int32{}
		var wg sync.WaitGroup
		wg.Go(func() {
			for {
				select {
				case <-stop:
					return
				default:
				}
				if err := s.Save(true); err != nil {
					t.Error(err)
					return
				}
				saves.Add(1)
			}
		})
		for n := 0; (n < 30 || saves.Load() == 0) && !t.Failed(); n++ {
			play(t, r, s, m, 400)
			if r.IntN(2) == 0 {
				s.Clear(false)
				clear(m)
				play(t, r, s, m, 50)
			}
		}
		close(stop)
		wg.Wait()
		play(t, r, s, m, 400) // behind the last one
		same(t, s, m)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		same(t, open(t, Options{Folder: dir}), m)
	}
}

// A log that is cut anywhere gives what was in before: some first part of what was done.
func TestTornTail(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Options{Folder: dir, Sync: SyncNever})
	for i := range 40 {
		s.testPut(fmt.Sprint("key ", i), strings.Repeat("v", i), 0)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	whole, err := os.ReadFile(filepath.Join(dir, "log.1"))
	if err != nil {
		t.Fatal(err)
	}
	for cut := 0; cut <= len(whole); cut += 5 + cut%17 {
		for _, tail := range []string{"", strings.Repeat("\x00", 99)} {
			again := t.TempDir()
			if err := os.WriteFile(filepath.Join(again, "log.1"), append(slices.Clone(whole[:cut]), tail...), 0o600); err != nil {
				t.Fatal(err)
			}
			var said bytes.Buffer
			s, err := Open(Options{Folder: again, Sync: SyncNever, Log: &said})
			if err != nil {
				var damaged *DamagedError
				if tail == "" || !errors.As(err, &damaged) {
					t.Fatalf("cut at %d: %v", cut, err)
				}
				continue // zeros made a record of what was cut
			}
			n := int(s.Len())
			for i := range n {
				s.with(fmt.Sprint("key ", i), func(sh *Shard, h uint64, k []byte) {
					if v, _, ok := sh.Peek(h, k, 0); !ok || len(v) != i {
						t.Errorf("cut at %d: %d keys, without key %d", cut, n, i)
					}
				})
			}
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			rest, err := os.ReadFile(filepath.Join(again, "log.1"))
			if err != nil || cut >= len(magic) && !bytes.HasPrefix(whole, rest) || (said.Len() > 0) != (len(rest) != cut+len(tail)) && cut > 0 {
				t.Fatalf("cut at %d: %d bytes are left, %v: %s", cut, len(rest), err, said.String())
			}
		}
	}
}

// What is damaged within a file is an error, and Repair cuts it.
func TestDamage(t *testing.T) {
	dir := t.TempDir()
	s := open(t, Options{Folder: dir, Sync: SyncNever})
	for i := range 40 {
		s.testPut(fmt.Sprint("key ", i), strings.Repeat("v", 40), 0)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	name := filepath.Join(dir, "log.1")
	whole, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	for at := len(magic); at < len(whole)/2; at += 7 {
		broken := slices.Clone(whole)
		broken[at] ^= 0x10
		if err := os.WriteFile(name, broken, 0o600); err != nil {
			t.Fatal(err)
		}
		var damaged *DamagedError
		if _, err := Open(Options{Folder: dir}); !errors.As(err, &damaged) || damaged.At > int64(at) {
			t.Fatalf("damage at %d: %v", at, err)
		}
	}
	s = open(t, Options{Folder: dir, Repair: true})
	if n := s.Len(); n == 0 || n >= 40 {
		t.Errorf("%d keys are left", n)
	}
	if _, err := Open(Options{Folder: dir}); err == nil || !strings.Contains(err.Error(), "another process") {
		t.Errorf("a folder that is in use: %v", err)
	}
	if err := s.Save(true); err != nil {
		t.Fatal(err)
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	snapshots, _ := filepath.Glob(filepath.Join(dir, "snapshot.*"))
	if len(snapshots) != 1 {
		t.Fatal(snapshots)
	}
	text, err := os.ReadFile(snapshots[0])
	if err != nil {
		t.Fatal(err)
	}
	for _, cut := range []int{0, 10, len(magic), len(text) / 2, len(text) - entryBytes, len(text) - 1} {
		if err := os.WriteFile(snapshots[0], text[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		var damaged *DamagedError
		if _, err := Open(Options{Folder: dir, Repair: true}); !errors.As(err, &damaged) {
			t.Fatalf("a snapshot of %d bytes of %d: %v", cut, len(text), err)
		}
	}
}

// Logs that are missing in between are an error.
func TestMissingLog(t *testing.T) {
	dir := t.TempDir()
	for range 3 {
		s := open(t, Options{Folder: dir, Sync: SyncNever})
		s.testPut("a", "b", 0)
		s.Close()
	}
	for _, n := range []string{"log.2", "log.1"} {
		if err := os.Remove(filepath.Join(dir, n)); err != nil {
			t.Fatal(err)
		}
		var damaged *DamagedError
		if _, err := Open(Options{Folder: dir}); !errors.As(err, &damaged) {
			t.Fatalf("without %s: %v", n, err)
		}
	}
}

// A panic of what removes expired keys is told when it happens, for it has a lock.
func TestPanicOfSweep(t *testing.T) {
	said := make(chan error, 1)
	crash.Handle(func(e *crash.Error) { said <- e })
	defer crash.Handle(nil)
	s := open(t, Options{})
	s.with("k", func(sh *Shard, h uint64, key []byte) {
		sh.Put(h, key, nil, 1, 0)
		sh.slots[sh.find(h, key)].place = placeOf(99, 0)
	})
	select {
	case <-said:
	case <-time.After(20 * time.Second):
		t.Error("nobody hears of a panic")
	}
}

func BenchmarkGet(b *testing.B) {
	s := open(b, Options{})
	const n = 1_000_000
	keys := make([][]byte, n)
	for i := range keys {
		keys[i] = fmt.Appendf(nil, "key:%012d", i)
		h := s.Hash(keys[i])
		sh := s.Lock(h)
		sh.Put(h, keys[i], []byte("xxx"), 0, 0)
		sh.Unlock()
	}
	c := s.Counts(false)
	b.ReportMetric(float64(c.Allocated)/n, "bytes/key")
	r := rand.New(rand.NewPCG(1, 1))
	for b.Loop() {
		key := keys[r.IntN(n)]
		h := s.Hash(key)
		sh := s.Lock(h)
		if _, _, ok := sh.Get(h, key, 0); !ok {
			b.Fatal()
		}
		sh.Unlock()
	}
}

// A snapshot has keys that have just expired: a session whose clock is behind may keep them yet.
func TestSnapshotHasJustExpired(t *testing.T) {
	s := open(t, Options{Folder: t.TempDir(), Sync: SyncNever})
	number := s.Hash([]byte("a")) >> (64 - shardBits)
	now := time.Now().UnixMilli()
	for at, want := range map[int64]int64{now - 1000: 1, now - 3_600_000: 0} {
		keys := int64(-1)
		for try := 0; keys != want && try < 20; try++ { // the key may be swept first
			var b []byte
			keys = 0
			s.testPut("a", "v", at)
			s.copyShard(int(number), number<<(64-shardBits), &b, &keys)
		}
		if keys != want {
			t.Errorf("expired %d ms ago: %d keys, want %d", now-at, keys, want)
		}
	}
}

// Those who only look do not wait for one another, and see what Get would; what has expired stays for who has the lock.
func TestShare(t *testing.T) {
	s := open(t, Options{})
	now := time.Now().Add(time.Hour).UnixMilli() // half of the keys have expired by then, and are not swept meanwhile
	for i := range 1000 {
		s.testPut(fmt.Sprint(i), fmt.Sprint("value ", i), int64(i%2)*(now-1))
	}
	var hashes []uint64
	var all Several
	for i := range 1010 {
		hashes = append(hashes, s.Hash([]byte(fmt.Sprint(i))))
		all.Add(hashes[i])
	}
	r := s.ShareAll(&all, 0)
	from := make([]int, len(hashes))
	s.Warm(hashes, from)
	for i, h := range hashes {
		sh, key := s.Share(h), []byte(fmt.Sprint(i)) // a second time
		v, there, expired := sh.Look(h, key, now)
		v2, there2, expired2 := sh.LookFrom(from[i], h, key, now)
		sh.Unshare()
		want := fmt.Sprint("value ", i)
		if i%2 == 1 || i >= 1000 {
			want = ""
		}
		if string(v) != want || there != (want != "") || expired != (i%2 == 1 && i < 1000) ||
			string(v2) != want || there2 != there || expired2 != expired {
			t.Errorf("key %d: %q, %v, %v, and from Warm's slot %q, %v, %v", i, v, there, expired, v2, there2, expired2)
		}
	}
	s.UnshareAll(&all, r)
	s.Looked(500, 510)
	if n := s.Counts(false); n.Keys != 1000 || n.Expiring != 500 || n.Hits != 500 || n.Misses != 510 {
		t.Errorf("%+v", n)
	}
	for i := 1; i < 1000; i += 2 {
		sh := s.Lock(hashes[i])
		sh.Expire(hashes[i], []byte(fmt.Sprint(i)), 1, 0)
		sh.Unlock()
	}
	for end := time.Now().Add(time.Minute); s.Counts(false).Expiring > 0 && time.Now().Before(end); {
		s.sweep(0)
	}
	if n := s.Counts(false); n.Keys != 500 || n.Expiring != 0 {
		t.Errorf("behind the sweep: %+v", n)
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}

// Those who share the shards warm what others use at the same time: -race finds nothing.
func TestWarmBesideLook(t *testing.T) {
	s := open(t, Options{})
	var hashes []uint64
	var keys [][]byte
	for i := range 2000 {
		s.testPut(fmt.Sprint(i), strings.Repeat("v", 20), 0) // the second line of one ends with the last use of the next
		keys = append(keys, fmt.Append(nil, i))
		hashes = append(hashes, s.Hash(keys[i]))
	}
	var both sync.WaitGroup
	for g := range 2 {
		both.Go(func() {
			r := s.ShareAll(&Every, g)
			defer s.UnshareAll(&Every, r)
			from := make([]int, len(hashes))
			for turn := range 20 {
				s.Warm(hashes, from)
				for i, h := range hashes {
					if _, there, _ := s.Of(h).LookFrom(from[i], h, keys[i], int64(2*turn+g)<<clockBits); !there {
						t.Errorf("key %d is not there", i)
					}
				}
			}
		})
	}
	both.Wait()
}

// A small bound holds, too, though there are many shards, and their empty indexes do not take all of it for ever.
func TestTinyBound(t *testing.T) {
	const most, now = 100_000, int64(1 << 40)
	s := open(t, Options{Most: most, Policy: LRU})
	for i := range 20_000 {
		key := fmt.Appendf(nil, "key %d", i)
		if !s.Admit(int64(len(key)), now) {
			t.Fatalf("key %d is refused", i)
		}
		h := s.Hash(key)
		sh := s.Lock(h)
		sh.Put(h, key, nil, 0, now)
		sh.Unlock()
	}
	if c := s.Counts(false); c.Keys == 0 || c.Allocated > most {
		t.Errorf("%+v of %d bytes", c, most)
	}
	if err := s.Check(); err != nil {
		t.Error(err)
	}
}
