package serve

import (
	"net"
	"net/http"
	"sync"
)

// crowd bounds connections, of all clients and of each: one costs a file and some memory before it has said anything.
// What is above the bound is closed at once.
type crowd struct {
	mu          sync.Mutex
	most, share int                 // of all, and what one client may have
	in          map[net.Conn]string // whose they are
	by          map[string]int
}

const (
	connectionsEach  = 4    // for each request that may be read or wait: clients keep some for requests to come
	leastConnections = 1024 // that are let in, however few requests are
)

func newCrowd(o Options) *crowd {
	most := max(leastConnections, connectionsEach*(o.Requests+o.Queue))
	if files := mostFiles(); files > 0 {
		most = connectionsOf(most, o.Requests, files)
	}
	return &crowd{most: most, share: max(1, most*o.PerClient/o.Requests), in: map[net.Conn]string{},
		by: map[string]int{}}
}

// connectionsOf is how many connections of those wanted leave of the files that may be open two for each request, which
// are temporary, and some for others; of few files they have half.
func connectionsOf(wanted, requests, files int) int {
	return max(1, min(wanted, max(files/2, files-2*requests-64)))
}

// state takes connections in, and closes those above the bound: net/http calls it for each before it reads of it.
func (c *crowd) state(conn net.Conn, state http.ConnState) {
	c.mu.Lock()
	defer c.mu.Unlock()
	switch state {
	case http.StateNew:
		client := clientAt(conn.RemoteAddr().String())
		if len(c.in) >= c.most || client != "" && c.by[client] >= c.share {
			conn.Close()
			return
		}
		c.in[conn] = client
		c.by[client]++
	case http.StateClosed:
		if client, is := c.in[conn]; is {
			delete(c.in, conn)
			less(c.by, client, 1)
		}
	}
}
