package shard_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/internal/faults"
	"github.com/warpmap/warpmap/shard"
	"github.com/warpmap/warpmap/shard/internal/nccl"
	"github.com/warpmap/warpmap/shard/internal/nccl/standin"
	"github.com/warpmap/warpmap/table/snapshot"
)

// Members save their parts, and load them into another table over them: also where a member's part is empty, so that
// they do not put in as many batches as one another. If something is wrong with one member's file, or with its table,
// all hear so, and the table is empty and of use.
func TestMembersLoad(t *testing.T) {
	t.Setenv(nccl.Env, standin.Build(t))
	devices := several(t, "cpu", 3)
	guests := inviting(t, devices)
	files, loaded := make([]bytes.Buffer, len(guests)), make([]*shard.Map[uint32, uint32], len(guests))
	together := func(name string, do func(g *guest) error) []error {
		t.Helper()
		errs, _ := party(t, guests, guestStep{name, do})
		return errs
	}
	all := func(name string, do func(g *guest) error) {
		t.Helper()
		must(t, errors.Join(together(name, do)...))
	}
	for _, step := range guestSteps[:1] {
		all(step.name, step.do)
	}
	for _, mode := range []shard.Mode{shard.Distributed, shard.Independent} {
		all("make and save", func(g *guest) (err error) {
			o := shard.Options{Piece: 600, Mode: mode}
			if g.x, err = made(shard.NewMap(g.m, o, families[uint32, uint32]()["warpcore"])); err != nil {
				return err
			}
			loaded[g.rank], err = made(shard.NewMap(g.m, o, families[uint32, uint32]()["warpcore"]))
			if err != nil {
				return err
			}
			brought := g.keys
			if g.rank == 2 {
				brought = nil
			}
			if err := g.x.Insert(brought, g.values[:len(brought)]); err != nil {
				return err
			}
			files[g.rank].Reset()
			return snapshot.Map(g.x).Save(context.Background(), &files[g.rank])
		})
		if n, err := guests[2].x.OwnLen(); err != nil || (n == 0) != (mode == shard.Independent) {
			t.Fatalf("%v: rank 2 has %d keys, %v", mode, n, err)
		}
		for _, wrong := range []string{"", "cut off", "file's end", "not there", "another kind", "not empty", "out of memory"} {
			what := fmt.Sprintf("%v, %q", mode, wrong)
			if wrong == "not empty" {
				all(what, func(g *guest) error { // one member has a key, whichever it is
					n := 0
					if g.rank == 1 {
						n = 1
					}
					return loaded[g.rank].Insert(g.keys[:n], g.values[:n])
				})
			}
			errs := together(what, func(g *guest) error {
				table, file := snapshot.Map(loaded[g.rank]), files[g.rank].Bytes()
				if g.rank != 1 {
					return table.Load(context.Background(), bytes.NewReader(file))
				}
				switch wrong {
				case "cut off":
					file = file[:len(file)-20]
				case "file's end": // found out when the rows before it are about to go in
					return table.Load(context.Background(), io.MultiReader(bytes.NewReader(file), strings.NewReader("more")))
				case "not there":
					return table.LoadFile(context.Background(), t.TempDir()+"/none")
				case "another kind":
					file = []byte("warpmap\nand so on")
				case "out of memory":
					faults.Set(g.d, faults.OfMemory(func(int64) bool { return true }))
					defer faults.Set(g.d, nil)
				}
				return table.Load(context.Background(), bytes.NewReader(file))
			})
			for rank, err := range errs {
				if (err != nil) != (wrong != "") || err != nil && wrong != "not empty" && rank != 1 && !strings.Contains(err.Error(), "rank 1: ") {
					t.Errorf("%s: rank %d: %v", what, rank, err)
				}
			}
			all(what+", look", func(g *guest) error {
				n, err := loaded[g.rank].Len()
				own, e := loaded[g.rank].OwnLen()
				switch err = errors.Join(err, e); {
				case err != nil:
					return err
				case wrong == "" && n != 2*guestRows:
					return fmt.Errorf("%d keys are loaded", n)
				case wrong == "" && mode == shard.Independent:
					if before, err := g.x.OwnLen(); own != before {
						return fmt.Errorf("%d keys of this member's %d are loaded: %v", own, before, err)
					}
				case wrong == "not empty" && n == 0 || wrong != "" && wrong != "not empty" && n > 0:
					return fmt.Errorf("%d keys are there", n)
				}
				found, got := make([]bool, guestRows), make([]uint32, guestRows)
				if err := loaded[g.rank].Find(g.keys, got, found); err != nil {
					return err
				}
				for i := range found {
					if wrong == "" && (found[i] != (g.rank != 2) || found[i] && got[i] != g.values[i]) {
						return fmt.Errorf("key %#x: %t with %d", g.keys[i], found[i], got[i])
					}
				}
				if err := loaded[g.rank].Check(); err != nil {
					return err
				}
				return loaded[g.rank].Clear()
			})
		}
		all("close", func(g *guest) error { return errors.Join(g.x.Close(), loaded[g.rank].Close()) })
	}
	all("leave", func(g *guest) error { g.x = nil; return g.leave() })
}
