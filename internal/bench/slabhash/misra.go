package slabhash

import (
	_ "embed"
	"errors"
	"fmt"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// misraParams are the parameters of misra.cu.
type misraParams struct {
	Heads, Nodes uint64
	Buckets      uint64
	Ops          uint64 // bytes; of misra_mixed alone, as Status
	Keys         uint64
	Status       uint64 // bytes
	First        uint64 // node of the first operation; the others' follow
	N            uint64
}

//go:embed misra.cu
var misraCU string

func misraProgram() *device.Program {
	return &device.Program{
		Name:  "misra",
		Files: []device.File{{Name: "misra.cu", Text: misraCU}},
		Defines: []device.Define{
			{Name: "MISRA_INSERT", Value: int(table.OpInsert)}, {Name: "MISRA_DELETE", Value: int(table.OpDelete)},
			{Name: "MISRA_ABSENT", Value: int(table.Absent)}, {Name: "MISRA_PRESENT", Value: int(table.Present)}, {Name: "MISRA_ADDED", Value: int(table.Added)},
		},
		Layouts: []any{misraParams{}},
	}
}

// misraSet is the lists of Misra and Chaudhuri.
type misraSet struct {
	c            *concurrent
	heads        device.Slice[uint32]
	nodes        device.Slice[[2]uint32] // key and link; 0 is none
	build, batch device.Kernel[misraParams]
}

func (c *concurrent) misra(buckets int) (concurrentSet, error) {
	if c.n >= 1<<30 {
		return nil, fmt.Errorf("%d operations: links of 31 bits do not reach so many nodes", c.n)
	}
	s := &misraSet{c: c}
	m, err := c.d.Compile(misraProgram())
	if err != nil {
		return nil, err
	}
	if s.build, err = device.KernelOf[misraParams](m, "misra_build"); err != nil {
		return nil, err
	}
	if s.batch, err = device.KernelOf[misraParams](m, "misra_mixed"); err != nil {
		return nil, err
	}
	if s.heads, err = device.Make[uint32](c.d, buckets); err != nil {
		return nil, err
	}
	if s.nodes, err = device.Make[[2]uint32](c.d, 1+2*c.n); err != nil {
		return nil, errors.Join(err, s.heads.Free())
	}
	return s, nil
}

// launch queues n operations, whose nodes begin at first.
func (s *misraSet) launch(k device.Kernel[misraParams], keys device.Slice[uint32], first int) error {
	c := s.c
	return k.Launch(c.d.Stream(), device.GridFor(int64(c.n), 256), &misraParams{
		Heads: s.heads.Addr(), Nodes: s.nodes.Addr(), Buckets: uint64(s.heads.Len()),
		Ops: c.ops.Addr(), Keys: keys.Addr(), Status: c.status.Addr(), First: uint64(first), N: uint64(c.n),
	})
}

func (s *misraSet) fill() error {
	return errors.Join(s.heads.Fill(s.c.d.Stream(), 0), s.launch(s.build, s.c.initial, 1))
}

func (s *misraSet) mixed() error { return s.launch(s.batch, s.c.keys, 1+s.c.n) }

// keys walks the lists. It fails where one does not go up, or does not end.
func (s *misraSet) keys() (out []uint32, err error) {
	const mark = 1 << 31
	st := s.c.d.Stream()
	heads, err := s.heads.Host(st)
	if err != nil {
		return nil, err
	}
	nodes, err := s.nodes.Host(st)
	if err != nil {
		return nil, err
	}
	steps := 0
	for i, link := range heads {
		before := int64(-1)
		for link != 0 {
			if steps++; steps > len(nodes) {
				return nil, fmt.Errorf("list %d has no end", i)
			}
			key, next := nodes[link][0], nodes[link][1]
			if next&mark == 0 {
				if int64(key) <= before {
					return nil, fmt.Errorf("list %d has key %d behind %d", i, key, before)
				}
				before = int64(key)
				out = append(out, key)
			}
			link = next &^ mark
		}
	}
	return out, nil
}

// utilization counts the links of the buckets, and a key and a link for each key.
func (s *misraSet) utilization() (float64, error) {
	return 4 * float64(s.c.n) / float64(4*s.heads.Len()+8*s.c.n), nil
}

func (s *misraSet) Close() error { return errors.Join(s.heads.Free(), s.nodes.Free()) }
