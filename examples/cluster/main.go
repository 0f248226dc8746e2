// Cluster is one process of a job. All processes of the job share one map, which is spread over their GPUs. Each
// process inserts its own keys, and then looks up the keys that the next rank inserted. The files next to this one
// start the program by Slurm, MPI, torchrun and Kubernetes.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"time"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/shard"
)

func main() {
	name := flag.String("device", "", "device of this process; empty: the GPU that has the number of its local rank")
	n := flag.Int("n", 1_000_000, "number of keys that each process inserts")
	wait := flag.Duration("wait", 2*time.Minute, "how long to wait until all processes have started")
	flag.Parse()
	if err := run(*name, *n, shard.JoinOptions{Timeout: *wait}); err != nil {
		log.Fatal(err)
	}
}

func run(name string, n int, o shard.JoinOptions) (err error) {
	if name != "" {
		if o.Device, err = device.Open(name); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, o.Device.Close()) }() // last: Join closes only devices that it opened
	}
	member, err := shard.Join(context.Background(), o) // rank, size and address come from the environment
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, member.Close()) }() // after the map
	rank, size := member.Rank(), member.Size()

	all := shard.Options{Options: warpmap.Options{Capacity: n * size}} // of all processes together
	m, err := shard.NewMap(member, all, func(d *device.Device, o warpmap.Options) (warpmap.Map[uint64, uint64], error) {
		return warpmap.New[uint64, uint64](d, warpmap.WarpCore, o) // this process's part
	})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, m.Close()) }()

	keys, values := batch(rank, n)
	if err := m.Insert(keys, values); err != nil { // a collective call, as Find and Len are
		return err
	}
	next := (rank + 1) % size
	keys, values = batch(next, n)
	got, found := make([]uint64, n), make([]bool, n)
	if err := m.Find(keys, got, found); err != nil {
		return err
	}
	for i := range keys {
		if !found[i] || got[i] != values[i] {
			return fmt.Errorf("rank %d: key %d has value %d, found %v; want %d", rank, keys[i], got[i], found[i],
				values[i])
		}
	}
	total, err := m.Len()
	fmt.Printf("rank %d of %d: found all %d keys of rank %d; the map has %d keys\n", rank, size, n, next, total)
	return err
}

// batch returns the pairs that a rank inserts.
func batch(rank, n int) (keys, values []uint64) {
	keys, values = make([]uint64, n), make([]uint64, n)
	for i := range keys {
		keys[i] = uint64(rank*n + i)
		values[i] = keys[i] * keys[i]
	}
	return keys, values
}
