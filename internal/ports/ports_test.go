package ports

import (
	"net"
	"testing"
)

// Ports are ever others, none of them one on which somebody listens, and can be listened on.
func TestFree(t *testing.T) {
	taken, err := Free()
	if err != nil {
		t.Fatal(err)
	}
	l, err := net.Listen("tcp", "127.0.0.1:"+taken)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	turn.Add(count - 1) // that port is the next one's turn
	seen := map[string]bool{taken: true}
	for range 100 {
		port, err := Free()
		if err != nil {
			t.Fatal(err)
		}
		if seen[port] || len(port) != 5 || port < "20000" || port > "29999" {
			t.Errorf("port %s again, or out of place", port)
		}
		seen[port] = true
	}
}
