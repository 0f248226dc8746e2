package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"testing"
	"time"
)

// A signal, which ends the command's context, is heard while a device compiles.
func TestSignalEndsCompiling(t *testing.T) {
	dir := t.TempDir()
	running, cxx := filepath.Join(dir, "running"), filepath.Join(dir, "cxx")
	if err := os.WriteFile(cxx, fmt.Appendf(nil, "#!/bin/sh\ntouch %q; sleep 1000 & wait\n", running),
		0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("CXX", cxx)
	t.Setenv("WARPMAP_CACHE", filepath.Join(dir, "cache"))
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	cmd := root()
	cmd.SetArgs([]string{"bench", "--device", "cpu", "--n", "1000", "--load", "0.5"})
	ended := make(chan error, 1)
	go func() { ended <- cmd.ExecuteContext(ctx) }()
	for {
		if _, err := os.Stat(running); err == nil {
			break
		}
		select {
		case err := <-ended:
			t.Fatalf("the compiler was not called: %v", err)
		case <-time.After(time.Millisecond):
		}
	}
	cancel()
	select {
	case err := <-ended:
		if !errors.Is(err, context.Canceled) {
			t.Errorf("%v", err)
		}
	case <-time.After(8 * time.Second): // --version has 10
		t.Error("the command waits for the compiler")
	}
}
