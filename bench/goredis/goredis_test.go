package goredis

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
)

// dial starts the server that WARPMAP names, and gives a client of it.
func dial(t *testing.T, protocol int) *redis.Client {
	t.Helper()
	program := os.Getenv("WARPMAP")
	if program == "" {
		t.Skip("WARPMAP does not name the command")
	}
	socket := filepath.Join(t.TempDir(), "socket")
	cmd := exec.Command(program, "serve", "--redis", "", "--socket", socket, "--quiet")
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Signal(os.Interrupt); cmd.Wait() })
	c := redis.NewClient(&redis.Options{Network: "unix", Addr: socket, Protocol: protocol, ClientName: "me"})
	t.Cleanup(func() { c.Close() })
	for end := time.Now().Add(time.Minute); c.Ping(t.Context()).Err() != nil; time.Sleep(10 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal(c.Ping(t.Context()).Err())
		}
	}
	return c
}

func each(t *testing.T, test func(t *testing.T, c *redis.Client)) {
	for _, protocol := range []int{2, 3} {
		t.Run(fmt.Sprint("protocol ", protocol), func(t *testing.T) { test(t, dial(t, protocol)) })
	}
}

func must[T any](t *testing.T) func(v T, err error) T {
	return func(v T, err error) T {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
}

func TestCommands(t *testing.T) {
	each(t, func(t *testing.T, c *redis.Client) {
		ctx := t.Context()
		text, number, yes := must[string](t), must[int64](t), must[bool](t)
		text(c.Set(ctx, "a", "\x00\r\n", time.Hour).Result())
		if got := text(c.Get(ctx, "a").Result()); got != "\x00\r\n" {
			t.Errorf("%q", got)
		}
		if _, err := c.Get(ctx, "none").Result(); !errors.Is(err, redis.Nil) {
			t.Error(err)
		}
		if left := must[time.Duration](t)(c.TTL(ctx, "a").Result()); left < 59*time.Minute || left > time.Hour {
			t.Error(left)
		}
		if !yes(c.SetNX(ctx, "n", 41, 0).Result()) || number(c.Incr(ctx, "n").Result()) != 42 {
			t.Error("SETNX and INCR")
		}
		if got := must[[]any](t)(c.MGet(ctx, "n", "none").Result()); got[0] != "42" || got[1] != nil {
			t.Error(got)
		}
		if got := must[float64](t)(c.IncrByFloat(ctx, "n", 0.5).Result()); got != 42.5 {
			t.Error(got)
		}
		text(c.Rename(ctx, "n", "m").Result())
		if got := text(c.GetRange(ctx, "m", 0, 1).Result()); got != "42" {
			t.Error(got)
		}
		var keys []string
		for it := c.Scan(ctx, 0, "*", 1).Iterator(); it.Next(ctx); {
			keys = append(keys, it.Val())
		}
		if slices.Sort(keys); !slices.Equal(keys, []string{"a", "m"}) {
			t.Error(keys)
		}
		number(c.PFAdd(ctx, "h", 1, 2, 3).Result())
		if got := number(c.PFCount(ctx, "h").Result()); got != 3 {
			t.Error(got)
		}
		if len(must[map[string]*redis.CommandInfo](t)(c.Command(ctx).Result())) < 60 {
			t.Error("COMMAND names few")
		}
		if got := text(c.ClientGetName(ctx).Result()); got != "me" {
			t.Error(got)
		}
	})
}

func TestPipelines(t *testing.T) {
	each(t, func(t *testing.T, c *redis.Client) {
		ctx := t.Context()
		for name, pipelined := range map[string]func(func(redis.Pipeliner) error) ([]redis.Cmder, error){
			"plain":        func(do func(redis.Pipeliner) error) ([]redis.Cmder, error) { return c.Pipelined(ctx, do) },
			"transactions": func(do func(redis.Pipeliner) error) ([]redis.Cmder, error) { return c.TxPipelined(ctx, do) },
		} {
			c.FlushAll(ctx)
			const n = 10_000
			all, err := pipelined(func(p redis.Pipeliner) error {
				for i := range n {
					p.Incr(ctx, "n")
					p.Set(ctx, fmt.Sprint("k", i), i, 0)
				}
				return nil
			})
			if err != nil || len(all) != 2*n || all[2*n-2].(*redis.IntCmd).Val() != n {
				t.Errorf("%s: %d replies, %v", name, len(all), err)
			}
		}
		c.Set(ctx, "w", 1, 0)
		err := c.Watch(ctx, func(tx *redis.Tx) error {
			c.Incr(ctx, "w")
			_, err := tx.TxPipelined(ctx, func(p redis.Pipeliner) error { p.Incr(ctx, "w"); return nil })
			return err
		}, "w")
		if !errors.Is(err, redis.TxFailedErr) {
			t.Errorf("a key that has changed: %v", err)
		}
	})
}

func TestFilters(t *testing.T) {
	each(t, func(t *testing.T, c *redis.Client) {
		ctx := t.Context()
		text, yes := must[string](t), must[bool](t)
		text(c.BFReserve(ctx, "b", 0.01, 100).Result())
		if !yes(c.BFAdd(ctx, "b", "x").Result()) || yes(c.BFAdd(ctx, "b", "x").Result()) || !yes(c.BFExists(ctx, "b", "x").Result()) {
			t.Error("BF.ADD")
		}
		if got := must[[]bool](t)(c.BFMExists(ctx, "b", "x", "none").Result()); !slices.Equal(got, []bool{true, false}) {
			t.Error(got)
		}
		if got := must[redis.BFInfo](t)(c.BFInfo(ctx, "b").Result()); got.Capacity != 100 || got.ItemsInserted != 1 || got.Filters != 1 {
			t.Errorf("%+v", got)
		}
		text(c.CFReserve(ctx, "c", 1000).Result())
		if !yes(c.CFAdd(ctx, "c", "x").Result()) || yes(c.CFAddNX(ctx, "c", "x").Result()) || !yes(c.CFDel(ctx, "c", "x").Result()) ||
			yes(c.CFExists(ctx, "c", "x").Result()) {
			t.Error("CF.ADD")
		}
		if got := must[redis.CFInfo](t)(c.CFInfo(ctx, "c").Result()); got.NumItemsDeleted != 1 {
			t.Errorf("%+v", got)
		}
	})
}
