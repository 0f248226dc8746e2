package main

import (
	"encoding/json"
	"os/exec"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/internal/bench"
)

// The study of servers runs this program as a server, and Redis where it is: each work has what both cost, or one.
func TestFigOfServers(t *testing.T) {
	t.Setenv("WARPMAP_TEST_COMMAND", "1")
	var fig bench.Fig
	if err := json.Unmarshal([]byte(must(t, "bench", "fig", "serve/redis", "--n", "1000", "--json")), &fig); err != nil {
		t.Fatal(err)
	}
	if len(fig.Rows) != 10 {
		t.Errorf("%d rows, want 10", len(fig.Rows))
	}
	_, alone := exec.LookPath("redis-server")
	for _, r := range fig.Rows {
		for i, column := range fig.Columns[1:] {
			x, is := bench.Number(r[1+i])
			if others := strings.HasPrefix(column, "Redis") || column == "times"; others && alone != nil {
				continue
			}
			if !is || x <= 0 {
				t.Errorf("%v: %s is %v", r[0], column, r[1+i])
			}
		}
	}
}
