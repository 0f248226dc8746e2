package main

import (
	"context"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/warpmap/warpmap/internal/testenv"
)

// serve starts a Redis of the test's own, where there is one on this machine, and tells its socket.
func serve(t *testing.T) string {
	t.Helper()
	name, err := exec.LookPath("redis-server")
	testenv.Require(t, "redis-server", err)
	dir := t.TempDir()
	at := filepath.Join(dir, "redis")
	cmd := exec.Command(name, "--port", "0", "--unixsocket", at, "--dir", dir, "--save", "", "--appendonly", "no")
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		r, err := dial(at)
		if err == nil {
			r.Close()
			return at
		}
		if time.Now().After(end) {
			t.Fatal(err)
		}
	}
}

// The program finds the features that it put and changed, through the cache and in Redis, which it checks itself; and in
// the end Redis has them, and nothing else.
func TestFeatures(t *testing.T) {
	at := serve(t)
	const users = 300
	if err := run("cpu", at, users, 60, 40, 50); err != nil {
		t.Fatal(err)
	}
	r, err := dial(at)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	asked, got, found := make([]uint64, users+1), make([]features, users+1), make([]bool, users+1)
	for i := range asked {
		asked[i] = uint64(i)
	}
	if err := source(r).Fetch(context.Background(), asked, got, found); err != nil {
		t.Fatal(err)
	}
	changed := 0
	for u := range users {
		n := int(got[u][0]) / 1000
		if !found[u] || n < 1 || got[u] != featuresOf(uint64(u), n) {
			t.Errorf("Redis has %v of user %d", got[u], u)
		}
		if n > 1 {
			changed++
		}
	}
	if found[users] || changed == 0 {
		t.Errorf("%d users' features have changed; of one that nobody put there are some: %t", changed, found[users])
	}
}

// What Redis says that is no answer is an error.
func TestErrors(t *testing.T) {
	at := serve(t)
	r, err := dial(at)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	word := func(s string) []byte { return []byte(s) }
	if _, err := r.ask(word("NOSUCH")); err == nil {
		t.Error("no error of a command that there is not")
	}
	if got, err := r.ask(word("MSET"), word("user:7"), word("few")); err != nil || got != nil {
		t.Errorf("%q, %v", got, err)
	}
	if got, err := r.ask(word("MGET"), word("user:8"), word("user:7")); err != nil ||
		!slices.EqualFunc(got, [][]byte{nil, word("few")}, slices.Equal) {
		t.Errorf("%q, %v", got, err)
	}
	if source(r).Fetch(context.Background(), []uint64{7}, make([]features, 1), make([]bool, 1)) == nil {
		t.Error("three bytes are features")
	}
	if _, err := dial(at + "/none"); err == nil {
		t.Error("a socket that there is not")
	}
}
