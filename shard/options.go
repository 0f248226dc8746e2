package shard

import "github.com/warpmap/warpmap/table"

// Mode is where keys go.
type Mode int

const (
	// Distributed gives each key one owner.
	Distributed Mode = iota
	// Independent puts device slices into the table of the device that they are on, and members' batches into the
	// member's own, and asks all tables for keys. See doc.go.
	Independent
)

func (m Mode) String() string {
	if m == Independent {
		return "independent"
	}
	return "distributed"
}

// Options are those of a table over several devices. Capacity and MaxBytes are of all devices together, and divided
// among them. Over members of a job Copies, AskAll and Apart change nothing: NCCL sends rows, and look-ups go to the
// owners.
type Options struct {
	table.Options
	Mode Mode
	// Copies sends rows by copies between devices where kernels could write to the other's memory themselves. Where
	// there is no peer access, it is always so.
	Copies bool
	// Piece is how many rows of each device's batch are under way at once, at most: while one piece goes in, the next
	// is split and sent, but not where inserts are split by regions. Zero means as many as serve a GPU well, 2²⁸, or
	// less where memory is short.
	Piece int
	// Regions is by how many regions of each device's table inserts of pairs and look-ups are split beside by devices,
	// so that the tables get them in order, and need not bring them so themselves: up to frame.MaxParts in all. Zero
	// means as many as the tables would order rows by, which is none on CPU devices; less than 0 none. It is for
	// families whose maps are a table.Orderer, and where there is peer access.
	Regions int
	// AskAll is how many keys a look-up may have to be asked of all devices: nothing is counted or waited for then, and
	// each device looks up all. More go to their owners. Zero means 4096 on GPUs, and none on CPU devices; less than 0
	// means none.
	AskAll int
	// Apart does one step of an exchange after the other and waits for each, so that Steps tells how long they take, by
	// events: for measuring.
	Apart bool
}
