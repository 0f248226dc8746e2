package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"path/filepath"
	"strconv"
	"testing"
	"time"
)

// What the server says wrong is counted, and what it refuses ends the run.
func TestLoad(t *testing.T) {
	wrong := false
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, err := strconv.ParseUint(r.FormValue("key"), 10, 64)
		switch {
		case err != nil:
			t.Error(err)
		case wrong:
			fmt.Fprintln(w, 3)
		case key >= 100:
			http.NotFound(w, r)
		default:
			fmt.Fprintln(w, key*key)
		}
	}))
	for _, wrong = range []bool{false, true} {
		fig, err := load(io.Discard, server.URL, "1,3", 100, 10*time.Millisecond)
		if err != nil || len(fig.Rows) != 2 {
			t.Fatalf("%v, %v", fig, err)
		}
		for _, r := range fig.Rows {
			if rate := r[1].(float64); rate < 100 || r[4].(float64) <= 0 || (r[6].(int) > 0) != wrong {
				t.Errorf("%v", r)
			}
		}
		if err := write(fig, "cpu", filepath.Join(t.TempDir(), "http.json")); err != nil {
			t.Error(err)
		}
	}
	server.Close()
	if _, err := load(io.Discard, server.URL, "1", 100, time.Millisecond); err == nil {
		t.Error("a server that is gone")
	}
	if _, err := load(io.Discard, server.URL, "none", 100, time.Millisecond); err == nil {
		t.Error("no number of clients")
	}
}
