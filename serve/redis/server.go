package redis

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/warpmap/warpmap/internal/crash"
	"github.com/warpmap/warpmap/internal/journal"
	"github.com/warpmap/warpmap/internal/keyspace"
	"github.com/warpmap/warpmap/internal/resp"
)

// Policy is what a server does when its memory is full.
type Policy = keyspace.Policy

// Policies: NoEviction refuses commands that need memory, as Redis does; LRU lets keys go that were not used for long.
const (
	NoEviction = keyspace.NoEviction
	LRU        = keyspace.LRU
)

// Fsync is when what was done is on the disk.
type Fsync = keyspace.Sync

// When the log is synced: never by the server, within a second or two, or before a command is answered. NoLog is
// without a log.
const (
	NoLog            = keyspace.NoLog
	FsyncNever       = keyspace.SyncNever
	FsyncEverySecond = keyspace.SyncEverySecond
	FsyncAlways      = keyspace.SyncAlways
)

// DamagedError says which file of Options.Folder is damaged, and where.
type DamagedError = keyspace.DamagedError

// Options are those of a server. The zero value is one in memory, with good bounds.
type Options struct {
	// MaxMemory bounds the bytes of keys, values and indexes; 0: no bound. A quarter is for what is dead.
	MaxMemory int64
	Policy    Policy // what happens at MaxMemory

	Folder string        // for snapshots and logs, which are read when the server is made; empty: none
	Fsync  Fsync         // of the log in Folder
	Repair bool          // cut a log at what is damaged, even if more stands behind it
	Save   time.Duration // a snapshot so often, if something has changed, and at the end; 0: on command alone
	// Retry is told why Serve cannot write the last snapshot, or the end of the log, and may wait. True has it tried
	// again. nil: it is tried once, and what no file has is lost then.
	Retry func(error) bool

	Password string // what clients must say; empty: nothing

	Clients int // most connections at once; 0: 10,000, as far as files may be open
	Bulk    int // most bytes of an argument; 0: 512 MiB, which is the most
	Request int // most bytes of a request; 0: 1 GiB, which is the most
	Output  int // most bytes of a client's replies that wait; 0: 1 GiB
	// A client is given up that takes none of its replies for so long, or has not sent a request whole so long after
	// its first byte, and again so long for each MiB of it that came; or has not said the password so long after it
	// came. 0: 60 s.
	Timeout time.Duration
	Idle    time.Duration // a client that asks for nothing for so long is given up; 0: never
	Loops   int           // threads that answer; 0: one for every two cores

	Log *log.Logger // gets a line for what is unusual; nil: none
}

// Bounds that Options do not raise.
const (
	mostBulk, mostRequest = 512 << 20, 1 << 30
	mostArgs              = 1 << 20
)

func (o *Options) complete() error {
	for _, n := range []int64{o.MaxMemory, int64(o.Save), int64(o.Clients), int64(o.Bulk), int64(o.Request),
		int64(o.Output), int64(o.Timeout), int64(o.Idle), int64(o.Loops)} {
		if n < 0 {
			return fmt.Errorf("redis: an option of %d: want none to be negative", n)
		}
	}
	if o.Bulk > mostBulk || o.Request > mostRequest {
		return fmt.Errorf("redis: arguments of %d bytes in requests of %d: want no more than %d in %d", o.Bulk,
			o.Request, mostBulk, mostRequest)
	}
	if o.Folder == "" && (o.Fsync != NoLog || o.Save != 0) {
		return errors.New("redis: a log or snapshots without a folder for them")
	}
	o.Clients = cmp.Or(o.Clients, 10_000)
	o.Bulk = cmp.Or(o.Bulk, mostBulk)
	o.Request = cmp.Or(o.Request, mostRequest)
	o.Output = cmp.Or(o.Output, 1<<30)
	o.Timeout = cmp.Or(o.Timeout, time.Minute)
	o.Loops = cmp.Or(o.Loops, max(1, runtime.GOMAXPROCS(0)/2)) // the system needs as much for the network
	if o.Log == nil {
		o.Log = log.New(io.Discard, "", 0)
	}
	return nil
}

// Server answers clients. Make one with New.
type Server struct {
	o        Options
	space    *keyspace.Space
	limits   resp.Limits
	password [sha256.Size]byte
	begun    time.Time
	metrics  metrics
	port     atomic.Int64 // of the first listener, for INFO
	idle     atomic.Int64 // Options.Idle, in milliseconds
	waiting  atomic.Int64 // bytes of replies that clients do not take

	mu       sync.Mutex
	sessions map[int64]*session
	lastID   int64
	ending   atomic.Bool
	until    atomic.Int64   // when the last replies wait no more, in milliseconds since 1970; set before ending
	saves    sync.WaitGroup // snapshots in the background
}

// New makes a server, of what Options.Folder holds, or an empty one. The caller closes it. Cost: reading that. Errors:
// options out of range; the system's; *DamagedError; a folder that another process uses.
func New(o Options) (*Server, error) {
	if err := o.complete(); err != nil {
		return nil, err
	}
	s := &Server{o: o, begun: time.Now(), sessions: map[int64]*session{}, password: sha256.Sum256([]byte(o.Password)),
		limits: resp.Limits{Args: mostArgs, Bulk: o.Bulk, Request: o.Request}}
	s.idle.Store(o.Idle.Milliseconds())
	if files := mostFiles(); files > 0 {
		s.o.Clients = min(o.Clients, max(1, files-filesKept))
	}
	var err error
	s.space, err = keyspace.Open(keyspace.Options{Most: o.MaxMemory, Policy: o.Policy, Folder: o.Folder, Sync: o.Fsync,
		Repair: o.Repair, Log: o.Log.Writer()})
	return s, err
}

// filesKept are files for what is no client's.
const filesKept = 64

// Close waits for snapshots in the background, and ends the server; what was logged is on the disk then. Serve must
// have returned. It is idempotent. Errors: the system's.
func (s *Server) Close() error {
	s.space.Hurry()
	s.saves.Wait()
	return s.space.Close()
}

// Len is how many keys there are.
func (s *Server) Len() int64 { return s.space.Len() }

// Serve answers on all listeners until ctx is done. Then it takes no more requests, sends for a second what is
// answered, and with Options.Save makes a last snapshot. It closes the listeners. Errors: a listener's; the last
// snapshot's, or the log's: see Options.Retry.
func (s *Server) Serve(ctx context.Context, listeners ...net.Listener) error {
	g, serving := crash.WithContext(ctx)
	loops, err := s.newLoops()
	if err != nil {
		for _, l := range listeners {
			l.Close()
		}
		return err
	}
	for _, l := range loops {
		g.Go(l.run)
	}
	conns := newConns(s)
	for i, l := range listeners {
		if at, is := l.Addr().(*net.TCPAddr); is && i == 0 {
			s.port.Store(int64(at.Port))
		}
		g.Go(func() error { return s.accept(serving, l, loops, conns, i) })
	}
	if s.o.Save > 0 || s.o.Fsync != NoLog {
		g.Go(func() error { s.saving(serving); return nil })
	}
	over := make(chan struct{})
	defer close(over)
	g.Go(func() error {
		<-serving.Done()
		if e := (*crash.Error)(nil); errors.As(context.Cause(serving), &e) {
			crash.Go(func() { // it may have left a lock for which others wait
				select {
				case <-over:
				case <-time.After(stuck):
					panic(e)
				}
			})
		}
		s.space.Hurry()
		s.until.Store(time.Now().Add(lastWords).UnixMilli())
		s.ending.Store(true)
		for _, l := range listeners {
			l.Close()
		}
		for _, l := range loops {
			l.end()
		}
		conns.end()
		return nil
	})
	g.Go(func() error {
		select {
		case e := <-conns.broke:
			panic(e)
		case <-serving.Done():
			return nil
		}
	})
	err = g.Wait()
	s.saves.Wait()
	return errors.Join(err, journal.Last(s.o.Retry, s.last))
}

// stuck is how long a server may take to end after a panic.
var stuck = 2 * lastWords // tests have less

// last has all that was done in files: in a snapshot, or else in the log, unless that cannot be written any more.
func (s *Server) last() (err error) {
	if s.o.Save == 0 {
		err = s.space.Flush()
	}
	if s.o.Save > 0 || err != nil {
		err = s.space.Save(true)
	}
	return err
}

// accept takes connections in, and hands them to the loops in turn, or to goroutines.
func (s *Server) accept(ctx context.Context, l net.Listener, loops []*loop, conns *conns, turn int) error {
	for wait := time.Duration(0); ; {
		c, err := l.Accept()
		switch {
		case ctx.Err() != nil:
			if err == nil {
				c.Close()
			}
			return nil
		case err != nil && (errors.Is(err, net.ErrClosed) || !temporary(err)):
			return err
		case err != nil: // too many files, or too little memory: clients that wait may go meanwhile
			if wait = min(time.Second, 2*wait+time.Millisecond); wait == time.Second {
				s.o.Log.Printf("no connection is taken: %v", err)
			}
			select {
			case <-time.After(wait):
			case <-ctx.Done():
			}
			continue
		}
		wait = 0
		one := s.newSession(c)
		if one == nil {
			s.metrics.refused.Add(1)
			c.SetWriteDeadline(time.Now().Add(time.Second))
			io.WriteString(c, "-ERR max number of clients reached\r\n")
			c.Close()
			continue
		}
		turn++
		if len(loops) > 0 && loops[turn%len(loops)].take(c, one) {
			continue
		}
		conns.take(c, one)
	}
}

// temporary tells whether a listener's error may pass.
func temporary(err error) bool {
	var n interface{ Temporary() bool }
	return errors.As(err, &n) && n.Temporary()
}

// newSession makes a client's session, or gives nil where there are too many.
func (s *Server) newSession(c net.Conn) *session {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.sessions) >= s.o.Clients {
		return nil
	}
	s.lastID++
	one := &session{s: s, id: s.lastID, near: int(s.lastID), version: 2, in: resp.NewParser(s.limits),
		since: time.Now(), addr: address(c.RemoteAddr()), local: address(c.LocalAddr())}
	one.known = s.o.Password == ""
	one.in.Strict = !one.known
	one.touch(one.since)
	one.strange = one.now
	s.sessions[one.id] = one
	s.metrics.connections.Add(1)
	return one
}

func address(a net.Addr) string {
	if a.Network() == "unix" {
		return cmp.Or(a.String(), "unix") + ":0"
	}
	return a.String()
}

// over ends a session.
func (s *Server) over(one *session) {
	s.mu.Lock()
	delete(s.sessions, one.id)
	s.mu.Unlock()
	one.endMulti()
}

// clients are all sessions that nobody has killed, by their numbers.
func (s *Server) clients() []*session {
	s.mu.Lock()
	defer s.mu.Unlock()
	out := make([]*session, 0, len(s.sessions))
	for _, one := range s.sessions {
		if !one.killed.Load() {
			out = append(out, one)
		}
	}
	slices.SortFunc(out, func(a, b *session) int { return cmp.Compare(a.id, b.id) })
	return out
}

// says tells whether a password is the server's, in a time that does not depend on where it differs.
func (s *Server) says(user, password []byte) bool {
	got := sha256.Sum256(password)
	return subtle.ConstantTimeCompare(got[:], s.password[:]) == 1 && (user == nil || string(user) == "default") &&
		s.o.Password != ""
}

// A log is replaced by a snapshot where it has so many bytes, and twice as many as there are in keys and values.
// Where that fails, it is tried again so long later.
const mostLogged, saveAgain = 64 << 20, time.Minute

// saving makes snapshots from time to time, if something has changed, and where the log is long.
func (s *Server) saving(ctx context.Context) {
	every := min(cmp.Or(s.o.Save, time.Second), time.Second)
	t := time.NewTicker(every)
	defer t.Stop()
	changes, since, failed := s.space.Counts(false).Changes, time.Now(), false
	for {
		select {
		case <-t.C:
		case <-ctx.Done():
			return
		}
		n := s.space.Counts(false)
		long := s.space.Logged() > max(mostLogged, 2*n.Live) && (!failed || time.Since(since) >= saveAgain)
		if due := s.o.Save > 0 && time.Since(since) >= s.o.Save && n.Changes != changes; !due && !long {
			continue
		}
		since = time.Now()
		if failed = s.space.Save(false) != nil; !failed {
			changes = n.Changes
		}
	}
}

// background makes a snapshot while others go on, and has begun it when it returns. Errors: one is being made; there is
// no folder.
func (s *Server) background() error {
	save, err := s.space.BeginSave(false)
	if err == nil {
		crash.Beside(&s.saves, func() { save() }) // which tells of errors itself
	}
	return err
}
