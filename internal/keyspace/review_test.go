package keyspace

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/warpmap/warpmap/internal/journal"
)

// Those who ask how snapshots go keep none from being made.
func TestSavedHindersNobody(t *testing.T) {
	s := open(t, Options{Folder: t.TempDir()})
	stop, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			select {
			case <-stop:
				return
			default:
				s.Saved()
			}
		}
	}()
	for range 100 {
		if err := s.Save(true); err != nil {
			t.Error(err)
			break
		}
	}
	close(stop)
	<-ended
}

// A scan that was begun in a large index goes on in a smaller one, and gives no key again.
func TestScanWhileIndexesShrink(t *testing.T) {
	const n = 100_000
	s := open(t, Options{})
	for i := range n {
		s.testPut(fmt.Sprint(i), "", 0)
	}
	seen := map[string]int{}
	give := func(key, _ []byte) { seen[string(key)]++ }
	for next, first := uint64(0), true; first || next != 0; first = false {
		next = s.Scan(next, 5, 0, false, give)
		shard := &s.shards[next<<1>>(64-shardBits)]
		for i := 0; shard.keys.Load() > 10 && len(seen) < n && i < len(shard.slots); i++ { // but for those given last
			if at := shard.slots[i]; at.place != 0 && at.hash > next<<1+1<<50 {
				key := bytes.Clone(shard.record(at.place).key())
				s.with(string(key), func(sh *Shard, h uint64, k []byte) { sh.Delete(h, k, 0) })
				i = -1
			}
		}
	}
	for key, n := range seen {
		if n != 1 {
			t.Fatalf("%s came %d times", key, n)
		}
	}
}

// While an older log cannot be written, what is removed meanwhile does not wait for the newer one.
func TestOlderLogFails(t *testing.T) {
	s := open(t, Options{Folder: t.TempDir(), Sync: SyncEverySecond})
	s.testPut("a", "b", 0)
	older := s.disk.Logs()[0]
	sound := older.Disk
	readOnly, err := os.Open(sound.Name())
	if err != nil {
		t.Fatal(err)
	}
	defer readOnly.Close()
	older.Lock()
	older.Disk = readOnly
	older.Unlock()
	obstruct(t, s, 1)
	if err := s.Save(true); err == nil || s.Err() == nil {
		t.Fatalf("a log that cannot be written: %v, %v", err, s.Err())
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		for i := range 70 { // MiB, more than wait for a disk
			s.testPut(fmt.Sprint(i), string(make([]byte, 1<<20)), 0)
		}
	}()
	select {
	case <-done:
	case <-time.After(20 * time.Second):
		t.Error("somebody waits for a log that nobody writes")
	}
	older.Lock()
	older.Disk = sound
	older.Unlock()
	<-done
}

// A value that takes the place of very many others is admitted.
func TestLargeValueAmongSmall(t *testing.T) {
	const now = 1 << 40
	s := open(t, Options{Most: 24 << 20, Policy: LRU})
	for i := range 250_000 {
		s.Admit(100, now)
		s.testPut(fmt.Sprint(i), "0123456789", 0)
	}
	if before := s.Len(); !s.Admit(8<<20, now) {
		t.Errorf("there is no room, and %d of %d keys went", before-s.Len(), before)
	}
}

// What logs hold counts until a snapshot replaces them: also over restarts, and where a snapshot fails.
func TestLoggedOverRestarts(t *testing.T) {
	o := Options{Folder: t.TempDir(), Sync: SyncNever}
	const each, n = 100_000, 3
	for i := range n {
		s := open(t, o)
		s.testPut("a", string(make([]byte, each)), 0)
		if got := s.Logged(); got < int64(i+1)*each {
			t.Errorf("after %d restarts the logs hold %d bytes", i, got)
		}
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
	}
	s := open(t, o)
	free := obstruct(t, s, 1)
	if err := s.Save(true); err == nil {
		t.Fatal("a snapshot takes the place of a folder")
	}
	if got := s.Logged(); got < n*each {
		t.Errorf("after a snapshot that failed the logs hold %d bytes", got)
	}
	free()
	if err := s.Save(true); err != nil {
		t.Fatal(err)
	}
	if got := s.Logged(); got != int64(len(magic)) {
		t.Errorf("after a snapshot the logs hold %d bytes", got)
	}
}

// Repair leaves a log alone that may be a newer version's. One of nothing but zeros has nothing to lose.
func TestRepairUnknownLog(t *testing.T) {
	o := Options{Folder: t.TempDir(), Sync: SyncNever}
	s := open(t, o)
	s.testPut("a", "b", 0)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	name := s.disk.Name(journal.LogName, 1)
	text, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	newer := bytes.Replace(text, []byte("01\n"), []byte("02\n"), 1)
	for _, o.Repair = range []bool{false, true} {
		if err := os.WriteFile(name, newer, 0o600); err != nil {
			t.Fatal(err)
		}
		var damaged *DamagedError
		if _, err := Open(o); !errors.As(err, &damaged) || strings.Contains(err.Error(), "not repaired") != o.Repair {
			t.Errorf("a log of a newer version, Repair %v: %v", o.Repair, err)
		}
		if got, err := os.ReadFile(name); err != nil || !bytes.Equal(got, newer) {
			t.Errorf("it has %d bytes of %d: %v", len(got), len(newer), err)
		}
	}
	if err := os.WriteFile(name, make([]byte, 100), 0o600); err != nil {
		t.Fatal(err)
	}
	if n := open(t, o).Len(); n != 0 {
		t.Errorf("%d keys in zeros", n)
	}
}

// obstruct has the next snapshots fail, until free is called.
func obstruct(t *testing.T, s *Space, n int) (free func()) {
	t.Helper()
	var all []string
	for i := range n {
		name := s.disk.Name(snapshotName, s.disk.Number+1+uint64(i))
		if err := os.MkdirAll(name+"/in the way", 0o777); err != nil {
			t.Fatal(err)
		}
		all = append(all, name)
	}
	return func() {
		for _, name := range all {
			if err := os.RemoveAll(name); err != nil {
				t.Error(err)
			}
		}
	}
}

// A log that could not be synced keeps no others open while snapshots fail, and the next snapshot makes all good.
func TestSaveMendsBrokenLog(t *testing.T) {
	o := Options{Folder: t.TempDir(), Sync: SyncAlways}
	s := open(t, o)
	s.testPut("a", "1", 0)
	if err := s.Commit(); err != nil {
		t.Fatal(err)
	}
	first := s.disk.Logs()[0]
	sound := first.Disk
	defer sound.Close()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0) // it takes all, and cannot be synced
	if err != nil {
		t.Fatal(err)
	}
	first.Lock()
	first.Disk = null
	first.Unlock()
	s.testPut("b", "2", 0)
	if s.Commit() == nil {
		t.Fatal("what cannot be synced is acknowledged")
	}
	free := obstruct(t, s, 5)
	for i := range 5 {
		if err := s.Save(true); err == nil {
			t.Fatal("a snapshot takes the place of a folder")
		}
		s.testPut("c", fmt.Sprint(i), 0)
		if n := len(s.disk.Logs()); n > 2 {
			t.Errorf("%d logs are open", n)
		}
		if s.Commit() == nil || s.Err() == nil {
			t.Error("a change behind the broken log is acknowledged")
		}
	}
	free()
	if err := s.Save(true); err != nil {
		t.Fatal(err)
	}
	s.testPut("d", "4", 0)
	if err := s.Commit(); err != nil || s.Err() != nil || len(s.disk.Logs()) != 1 {
		t.Errorf("after a snapshot: %v, %v, %d logs", err, s.Err(), len(s.disk.Logs()))
	}
	want := s.all()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := open(t, o).all(); !maps.Equal(got, want) {
		t.Errorf("%v, want %v", got, want)
	}
}

// What is done to a shard while a snapshot copies it in pieces is there after a start, and nothing twice.
func TestSaveInPieces(t *testing.T) {
	defer func(n int) { copiedBytes = n }(copiedBytes)
	copiedBytes = 100
	folder := t.TempDir()
	s, err := Open(Options{Folder: folder, Sync: SyncNever})
	if err != nil {
		t.Fatal(err)
	}
	const keys, workers = 20_000, 3
	stop := make(chan struct{})
	var wg sync.WaitGroup
	for w := range workers {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(w), 1))
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				key := []byte(fmt.Sprint("key ", r.IntN(keys)))
				hash := s.Hash(key)
				sh := s.Lock(hash)
				v, _, there := sh.Get(hash, key, 1)
				switch n := r.IntN(20); {
				case n < 9 && len(v) < 200:
					sh.Append(hash, key, []byte(fmt.Sprint(i, ",")), 1<<20, 1)
				case n < 13 && there && len(v) > 3:
					sh.Patch(hash, key, r.IntN(len(v)-2), []byte{byte(i), byte(w)})
				case n < 15:
					sh.Put(hash, key, []byte(fmt.Sprint("new ", i)), 0, 1)
				case n < 16:
					sh.Expire(hash, key, 1<<50+int64(i), 1)
				case n < 17:
					sh.Delete(hash, key, 1)
				}
				sh.Unlock()
			}
		})
	}
	for range 2 {
		if err := s.Save(false); err != nil { // which pauses within shards
			t.Fatal(err)
		}
	}
	close(stop)
	wg.Wait()
	want := everything(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again, err := Open(Options{Folder: folder})
	if err != nil {
		t.Fatal(err)
	}
	defer again.Close()
	if got := everything(again); !maps.Equal(got, want) {
		for key, v := range want {
			if got[key] != v {
				t.Fatalf("%s is %q, was %q; of %d keys %d are there", key, got[key], v, len(want), len(got))
			}
		}
		t.Fatalf("%d keys, want %d", len(got), len(want))
	}
}

// everything is all keys, with their values and times.
func everything(s *Space) map[string]string {
	out := map[string]string{}
	for i := range s.shards {
		for _, at := range s.shards[i].slots {
			if at.place != 0 {
				r := s.shards[i].record(at.place)
				out[string(r.key())] = fmt.Sprint(r.expires(), " ", string(r.value()))
			}
		}
	}
	return out
}

// Keys that are taken out again and again keep no snapshot from being made with a log, and one without a log ends.
func TestSaveWhileAllIsCleared(t *testing.T) {
	for _, sync := range []Sync{SyncNever, NoLog} {
		folder := t.TempDir()
		s, err := Open(Options{Folder: folder, Sync: sync})
		if err != nil {
			t.Fatal(err)
		}
		stop, ended := make(chan struct{}), make(chan struct{})
		go func() {
			defer close(ended)
			for i := 0; ; i++ {
				select {
				case <-stop:
					return
				default:
				}
				s.testPut(fmt.Sprint("key ", i), "v", 0)
				s.Clear(false)
			}
		}()
		for range 3 {
			if err := s.Save(true); err != nil && (sync != NoLog || !errors.Is(err, errCleared)) {
				t.Error(err)
			}
		}
		close(stop)
		<-ended
		s.testPut("last", "v", 0)
		if sync == NoLog {
			if err := s.Save(true); err != nil {
				t.Error(err)
			}
		}
		want := everything(s)
		if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		again := open(t, Options{Folder: folder})
		if got := everything(again); !maps.Equal(got, want) {
			t.Errorf("%v, want %v", got, want)
		}
	}
}

// Snapshots that fail again and again, while an older log cannot be written, open no log each.
func TestFailingSnapshotsOpenFewLogs(t *testing.T) {
	folder := t.TempDir()
	s, err := Open(Options{Folder: folder, Sync: SyncNever})
	if err != nil {
		t.Fatal(err)
	}
	for n := range 20 { // where no snapshot can have its name
		if err := os.MkdirAll(fmt.Sprint(s.disk.Name(snapshotName, uint64(n)), "/x"), 0o777); err != nil {
			t.Fatal(err)
		}
	}
	s.testPut("a", "1", 0)
	s.disk.Logs()[0].Disk.Close()
	for i := range 10 {
		if err := s.Save(true); err == nil {
			t.Fatal("a snapshot was made")
		}
		s.testPut(fmt.Sprint("key ", i), "v", 0)
	}
	if n := len(s.disk.Logs()); n > 2 {
		t.Errorf("%d logs are open, want 2", n)
	}
	for n := range 20 {
		if err := os.RemoveAll(s.disk.Name(snapshotName, uint64(n))); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Save(true); err != nil || s.Err() != nil || len(s.disk.Logs()) != 1 {
		t.Errorf("%v, %v, %d logs", err, s.Err(), len(s.disk.Logs()))
	}
	s.testPut("last", "v", 0)
	want := everything(s)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	if got := everything(open(t, Options{Folder: folder})); !maps.Equal(got, want) || len(got) != 12 {
		t.Errorf("%v, want %v", got, want)
	}
}

// The bytes that live are within three quarters of a small bound, too.
func TestSmallBound(t *testing.T) {
	for _, most := range []int64{1 << 20, 4 << 20} {
		s := open(t, Options{Most: most})
		for i := 0; s.Admit(100, 1) && i < 1_000_000; i++ {
			s.testPut(fmt.Sprint("key ", i), strings.Repeat("v", 30), 0)
		}
		n := s.Counts(false)
		if limit := most - most/4; n.Live > limit+limit/8 || n.Live < limit/2 {
			t.Errorf("%d bytes live of %d", n.Live, most)
		}
	}
}

// A snapshot has nothing that its log has not: what a killed process had not written yet is in neither, or the log's older
// records would be done to values that are newer.
func TestSnapshotIsNotAheadOfLog(t *testing.T) {
	defer func(n int) { copiedBytes = n }(copiedBytes)
	copiedBytes = slotBytes // many pieces, between which writers come
	folder := t.TempDir()
	s := open(t, Options{Folder: folder, Sync: SyncNever})
	var keys [][]byte // of one shard
	for i := 0; len(keys) < 300; i++ {
		if key := fmt.Append(nil, i); s.Hash(key)>>(64-shardBits) == shards-1 {
			keys = append(keys, key)
		}
	}
	put := func(n int) {
		for _, key := range keys {
			hash := s.Hash(key)
			sh := s.Lock(hash)
			sh.Put(hash, key, fmt.Append(nil, n), 0, 1)
			sh.Unlock()
		}
	}
	put(0)
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		for n := 1; n < 20_000; n++ { // no more than the disk has room for, whatever Save does
			select {
			case <-stop:
				return
			default:
				put(n)
			}
		}
	}()
	err := s.Save(true)
	log, readErr := os.ReadFile(s.disk.Name(journal.LogName, s.disk.Number)) // what there is if it is killed now
	close(stop)
	<-stopped
	if err = errors.Join(err, readErr); err != nil {
		t.Fatal(err)
	}
	snapshot, err := os.ReadFile(s.disk.Name(snapshotName, s.disk.Number))
	if err != nil {
		t.Fatal(err)
	}
	newest := func(text []byte) map[string]int {
		out := map[string]int{}
		entries(bytes.NewReader(text), int64(len(text)), func(e entry) error {
			if e.kind == kindPut {
				out[string(e.key)], _ = strconv.Atoi(string(e.value))
			}
			return nil
		})
		return out
	}
	before, logged, ahead := newest(snapshot), newest(log), 0
	first := before[string(keys[0])]
	for _, n := range before {
		first = min(first, n)
	}
	for key, n := range before {
		if n > first+1 && logged[key] < n { // it was put behind the first piece
			ahead++
		}
	}
	if len(before) != len(keys) || ahead > 0 {
		t.Errorf("%d of %d keys have values in the snapshot that the log has not", ahead, len(before))
	}
}

// The memory of a group is good for the next, also where a snapshot begins between them.
func TestGroupAgain(t *testing.T) {
	folder := t.TempDir()
	s, err := Open(Options{Folder: folder, Sync: SyncNever})
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	var g *Group
	for round := range 40 {
		var all Several
		n := 1 + round%5
		key := func(i int) []byte { return []byte(fmt.Sprint("key ", round%7, i)) }
		for i := range n {
			all.Add(s.Hash(key(i)))
		}
		if round%10 == 5 {
			if _, err := s.disk.Begin(s.turn); err != nil {
				t.Fatal(err)
			}
		}
		s.LockAll(&all)
		g = s.GroupAgain(g, &all)
		for i := range n {
			value := bytes.Repeat([]byte{byte('a' + round%26)}, 1+round%3*4000)
			s.Of(s.Hash(key(i))).Put(s.Hash(key(i)), key(i), value, 0, 1)
			want[string(key(i))] = string(value)
		}
		g.End()
		s.UnlockAll(&all)
		if cap(g.buf) > mostKept {
			t.Fatalf("round %d: %d bytes are kept", round, cap(g.buf))
		}
		if round%10 == 5 {
			if err := s.disk.End(false); err != nil {
				t.Fatal(err)
			}
		} else if round%10 == 9 {
			if err := s.Save(true); err != nil {
				t.Fatal(err)
			}
		}
	}
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	again := open(t, Options{Folder: folder})
	for key, value := range want {
		hash := again.Hash([]byte(key))
		sh := again.Lock(hash)
		if got, _, _ := sh.Get(hash, []byte(key), 1); string(got) != value {
			t.Errorf("%q has %.20q of %d bytes, want %.20q of %d", key, got, len(got), value, len(value))
		}
		sh.Unlock()
	}
	if int(again.Len()) != len(want) {
		t.Errorf("%d keys, want %d", again.Len(), len(want))
	}
}

// All that a log has was done before all that the next one has, whichever shards a snapshot has come to when it begins: else
// a process that is killed could leave what came later without what came before.
func TestLogsAreInOrder(t *testing.T) {
	s := open(t, Options{Folder: t.TempDir(), Sync: SyncNever})
	first, last := "", ""
	for i := 0; first == "" || last == ""; i++ {
		switch key := fmt.Sprint(i); s.Hash([]byte(key)) >> (64 - shardBits) {
		case 0:
			first = key
		case shards - 1:
			last = key
		}
	}
	for i := range 20_000 {
		s.testPut(fmt.Sprint("other ", i), strings.Repeat("v", 100), 0)
	}
	obstruct(t, s, 1) // so that both logs stay
	saved := make(chan error, 1)
	go func() { saved <- s.Save(true) }()
	for n, over := 1, false; !over; n++ {
		s.testPut(last, fmt.Sprint(n), 0)
		s.testPut(first, fmt.Sprint(n), 0)
		select {
		case err := <-saved:
			if over = true; err == nil {
				t.Fatal("a snapshot takes the place of a folder")
			}
		default:
		}
	}
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	numbers := func(log uint64) (least, most int) {
		least = math.MaxInt
		text, err := os.ReadFile(s.disk.Name(journal.LogName, log))
		if err != nil {
			t.Fatal(err)
		}
		entries(bytes.NewReader(text), int64(len(text)), func(e entry) error {
			if key := string(e.key); key == first || key == last {
				n, _ := strconv.Atoi(string(e.value))
				least, most = min(least, n), max(most, n)
			}
			return nil
		})
		return least, most
	}
	_, most := numbers(s.disk.Number - 1)
	least, end := numbers(s.disk.Number)
	if most == 0 || end < 2 || least < most {
		t.Errorf("the first log has numbers up to %d, and the next %d to %d", most, least, end)
	}
}

// A snapshot brings the log of what came meanwhile to the disk, also where an older log cannot be written. A process that is
// killed before the snapshot has its name leaves nothing of that log, for what came before is missing.
func TestKilledBeforeSnapshotHasItsName(t *testing.T) {
	folder := t.TempDir()
	s, err := Open(Options{Folder: folder, Sync: SyncNever})
	if err != nil {
		t.Fatal(err)
	}
	killed := func(want ...string) {
		t.Helper()
		dir := t.TempDir()
		if err := os.CopyFS(dir, os.DirFS(folder)); err != nil {
			t.Fatal(err)
		}
		for range 2 {
			again, err := Open(Options{Folder: dir, Sync: SyncNever})
			if err != nil {
				t.Fatal(err)
			}
			got := slices.Sorted(maps.Keys(again.all()))
			if err := again.Close(); err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got, want) {
				t.Errorf("a process that is killed leaves %v, want %v", got, want)
			}
		}
	}
	s.testPut("a", "1", 0)
	if err := s.Flush(); err != nil {
		t.Fatal(err)
	}
	older := s.disk.Last()
	sound := older.Disk
	defer sound.Close()
	gone, err := os.Open(os.DevNull)
	if err != nil {
		t.Fatal(err)
	}
	older.Lock()
	older.Disk = gone
	older.Unlock()
	s.testPut("b", "2", 0)
	free := obstruct(t, s, 1)
	if err := s.Save(true); err == nil { // which begins a log
		t.Fatal("a snapshot takes the place of a folder")
	}
	free()
	s.testPut("c", "3", 0)
	last, saved := s.Lock(math.MaxUint64), make(chan error)
	go func() { saved <- s.Save(true) }()
	for begun := false; !begun; time.Sleep(time.Millisecond) {
		entries, err := os.ReadDir(folder)
		if err != nil {
			t.Fatal(err)
		}
		begun = slices.ContainsFunc(entries, func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), ".") })
	}
	name := s.disk.Name(snapshotName, s.disk.Number)
	if err := os.MkdirAll(name+"/in the way", 0o777); err != nil {
		t.Fatal(err)
	}
	last.Unlock()
	if err := <-saved; err == nil {
		t.Fatal("a snapshot takes the place of a folder")
	}
	if err := os.RemoveAll(name); err != nil {
		t.Fatal(err)
	}
	s.testPut("d", "3", 0)
	killed("a")
	if err := s.Save(true); err != nil {
		t.Fatal(err)
	}
	killed("a", "b", "c", "d")
	s.testPut("e", "4", 0)
	if err := errors.Join(s.Flush(), s.Close()); err != nil {
		t.Fatal(err)
	}
	killed("a", "b", "c", "d", "e")
}
