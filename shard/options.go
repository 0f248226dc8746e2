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
	// Copies sends rows by copies between devices, even if kernels could write to the other device's memory themselves.
	// The devices are then not asked for peer access. Two devices without peer access always use copies.
	Copies bool
	// Piece is how many rows of each device's batch are under way at once, at most. While one piece goes into the
	// tables, the next is split and sent, except where inserts are split by regions. Zero means as many rows as serve a
	// GPU well, 2²⁸, or fewer where memory is short.
	Piece int
	// Regions is the number of regions of each device's table by which inserts of pairs and look-ups are split, beside
	// the split by devices. The tables then get rows in order, and need not order them themselves. There can be up to
	// 1024 regions in all. Zero means as many as the tables would order rows by, which is none on CPU
	// devices; less than 0 means none. Regions are for families whose maps are a table.Orderer, and need peer access.
	Regions int
	// AskAll is how many keys a look-up may have that asks all devices. Such a look-up counts nothing and waits for no
	// counts, and each device looks up all keys. The keys of larger look-ups go to their owners. Zero means 4096 on
	// GPUs and none on CPU devices; less than 0 means none.
	AskAll int
	// Apart does one step of an exchange after the other and waits for each, so that Steps tells how long they take,
	// measured by events. It is for measuring.
	Apart bool
}
