package serve

import (
	"context"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"os"
	"slices"
	"strings"
	"sync"
)

// clientOf tells clients from one another by their addresses, IPv6 by the first half, which is one customer's. Those of
// a Unix socket are one user, and have no bounds of their own: "".
func clientOf(r *http.Request) string { return clientAt(r.RemoteAddr) }

func clientAt(remote string) string {
	from, err := netip.ParseAddrPort(remote)
	if err != nil {
		return ""
	}
	addr := from.Addr().Unmap()
	if addr.Is6() {
		p, _ := addr.WithZone("").Prefix(64)
		return p.String()
	}
	return addr.String()
}

// gate gives places to requests. Who waits longest is next, of those whose clients have fewest places.
type gate struct {
	mu              sync.Mutex
	places, share   int // all, and those that one client may have
	queue, waits    int // requests that wait, and those of one client
	taken           int
	active, waiting map[string]int // by client
	line            []*waiter
	holders         map[*body]bool // of those with places
	metrics         *metrics
	inside          int // requests, with places or without
	empty           *sync.Cond
}

type waiter struct {
	client string
	body   *body
	ready  chan struct{} // closed when it has a place
	has    bool
}

func newGate(o Options, m *metrics) *gate {
	g := &gate{places: o.Requests, share: o.PerClient, queue: o.Queue, waits: max(1, o.Queue*o.PerClient/o.Requests),
		active: map[string]int{}, waiting: map[string]int{}, metrics: m, holders: map[*body]bool{}}
	g.empty = sync.NewCond(&g.mu)
	return g
}

func (g *gate) mayHave(client string) bool { return client == "" || g.active[client] < g.share }

// enter waits for a place. Clients that are silent have less time from then on. Errors: those of a queue that is full;
// ctx's.
func (g *gate) enter(ctx context.Context, client string, b *body) error {
	g.mu.Lock()
	if g.taken < g.places && g.mayHave(client) {
		g.give(client, b)
		g.mu.Unlock()
		return nil
	}
	switch {
	case len(g.line) >= g.queue:
		g.mu.Unlock()
		return refused(http.StatusServiceUnavailable, "%d requests wait: try again later", g.queue)
	case client != "" && g.waiting[client] >= g.waits:
		g.mu.Unlock()
		return refused(http.StatusTooManyRequests,
			"%d requests from your address are read, and %d wait: send the next when one has ended", g.active[client],
			g.waits)
	}
	w := &waiter{client: client, body: b, ready: make(chan struct{})}
	g.line = append(g.line, w)
	g.waiting[client]++
	g.metrics.waiting.Add(1)
	holders := slices.Collect(maps.Keys(g.holders))
	g.mu.Unlock()
	for _, b := range holders {
		b.wind(b.timeout / hurry)
	}
	select {
	case <-w.ready:
		return nil
	case <-ctx.Done():
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if w.has {
		g.free(client, b)
	} else {
		g.unqueue(w)
	}
	return context.Cause(ctx)
}

func (g *gate) give(client string, b *body) {
	g.taken++
	g.holders[b] = true
	g.active[client]++
	g.metrics.active.Add(1)
}

// free takes a place back, and gives it to who is next.
func (g *gate) free(client string, b *body) {
	g.taken--
	delete(g.holders, b)
	less(g.active, client, 1)
	g.metrics.active.Add(-1)
	var next *waiter
	for _, w := range g.line {
		if g.mayHave(w.client) && (next == nil || g.active[w.client] < g.active[next.client]) {
			next = w
		}
	}
	if next != nil {
		g.unqueue(next)
		g.give(next.client, next.body)
		next.has = true
		close(next.ready)
	}
}

func (g *gate) unqueue(w *waiter) {
	g.line = slices.DeleteFunc(g.line, func(x *waiter) bool { return x == w })
	less(g.waiting, w.client, 1)
	g.metrics.waiting.Add(-1)
}

func (g *gate) leave(client string, b *body) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.free(client, b)
}

// crowded tells whether requests wait for places.
func (g *gate) crowded() bool {
	g.mu.Lock()
	defer g.mu.Unlock()
	return len(g.line) > 0
}

// in counts a request, out takes it off, and wait waits until there are none.
func (g *gate) in() {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.inside++
}

func (g *gate) out() {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.inside--; g.inside == 0 {
		g.empty.Broadcast()
	}
}

func (g *gate) wait() {
	g.mu.Lock()
	defer g.mu.Unlock()
	for g.inside > 0 {
		g.empty.Wait()
	}
}

// less takes n off a client's number, and the client out where nothing is left.
func less[T int | int64](of map[string]T, client string, n T) {
	if of[client] -= n; of[client] == 0 {
		delete(of, client)
	}
}

// budget is the room for what waits for clients, in memory and in temporary files, of all requests together.
type budget struct {
	mu          sync.Mutex
	room, share int64 // all, and what one client may have
	used        int64
	by          map[string]int64
	freed       chan struct{} // closed when room is given back
}

func newBudget(o Options) *budget {
	return &budget{room: o.MaxSpool, share: max(o.MaxSpool*int64(o.PerClient)/int64(o.Requests),
		min(o.MaxSpool, firstBytes)), by: map[string]int64{}, freed: make(chan struct{})}
}

// of is what a client may have.
func (b *budget) of(client string) int64 {
	if client == "" {
		return b.room
	}
	return b.share
}

// take takes room where there is some; else freed is closed when it is worth to try again.
func (b *budget) take(client string, n int64) (ok bool, freed <-chan struct{}) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if b.used+n > b.room || b.by[client]+n > b.of(client) {
		return false, b.freed
	}
	b.used += n
	b.by[client] += n
	return true, nil
}

func (b *budget) give(client string, n int64) {
	if n == 0 {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.used -= n
	less(b.by, client, n)
	close(b.freed)
	b.freed = make(chan struct{})
}

func (b *budget) bytes() int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.used
}

// answersTo tells whether a request names a host that is this machine, or one of those given, where it came to an
// address that only this machine can reach. A page in a browser here may have a name of its own lead to such an
// address; that name is then what the browser sends.
func answersTo(r *http.Request, hosts []string) bool {
	at, is := r.Context().Value(http.LocalAddrContextKey).(*net.TCPAddr)
	if !is || !at.IP.IsLoopback() {
		return true
	}
	host, _, err := net.SplitHostPort(r.Host)
	if err != nil {
		host = r.Host
	}
	host = strings.ToLower(strings.TrimSuffix(strings.Trim(host, "[]"), "."))
	if ip, err := netip.ParseAddr(host); err == nil {
		return ip.Unmap().IsLoopback()
	}
	own, _ := os.Hostname()
	return host == "" || host == "localhost" || strings.HasSuffix(host, ".localhost") || strings.EqualFold(host, own) ||
		slices.ContainsFunc(hosts, func(h string) bool { return strings.EqualFold(h, host) })
}
