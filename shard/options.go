package shard

import (
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// Mode says where keys go.
type Mode int

const (
	// Distributed gives each key one owner.
	Distributed Mode = iota
	// Independent puts device slices into the table of the device that they are on, and a member's batches into the
	// member's own table. Look-ups ask all tables. See doc.go.
	Independent
)

func (m Mode) String() string { return frame.NameOf("Mode", int(m), "distributed", "independent") }

// Options describe a table over several devices. Capacity and MaxBytes are for all devices together, and are divided
// among them. Over members of a job, Copies, AskAll and Apart change nothing: NCCL sends rows, and look-ups go to the
// owners.
type Options struct {
	table.Options
	Mode Mode
	// Copies sends all rows by copies between devices. Without it, kernels write rows that are not sorted by regions
	// into the memory of devices that they have access to. With it, no device asks for access to another.
	Copies bool
	// Piece is the largest number of rows of each device's batch in one round. While the tables work on a round, the
	// next one is split and sent, unless rows are sorted by regions. Zero means 2³⁰, or fewer if memory is short.
	Piece int
	// Regions is the number of regions of each device's table by which large batches are sorted at their source,
	// besides the split by devices. The owners' tables need not sort these rows by regions again. There can be up to
	// 1024 regions in all. Zero means as many as the tables ask for, which is none on CPU devices; less than 0 means
	// none. Regions are for families whose tables keep keys in the order of their hashes (warpcore).
	Regions int
	// AskAll is how many keys a look-up may have that asks all devices. Such a look-up waits for nothing, and each
	// device looks up all keys. It takes longer than one that goes to the owners. Zero means none.
	AskAll int
	// Apart does one step of an exchange after the other and waits for each, so that Steps tells how long they take,
	// measured by events. It is for measuring.
	Apart bool
}
