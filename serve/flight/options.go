package flight

import (
	"cmp"
	"fmt"
	"io"
	"log"
	"time"

	"github.com/warpmap/warpmap/device"
)

// Options are those of a server. The zero value, with devices, is one without a folder or password, and with good
// bounds.
type Options struct {
	Devices []*device.Device // that tables are on; several: tables are spread over them

	Folder string        // for snapshots of tables and a log, which are read when the server is made; empty: none
	Fsync  Fsync         // of the log in Folder
	Repair bool          // cut a log at what is damaged, even if more stands behind it
	Save   time.Duration // a snapshot so often of each table that has changed, and at the end; 0: on command alone
	// Retry is told why Serve cannot write the last snapshots, or the end of the log, and may wait. True has it tried
	// again. nil: it is tried once, and what no file has is lost then.
	Retry func(error) bool

	Token string // what clients must say, as a bearer token or as a password; empty: nothing

	Memory  int64 // most bytes of value columns in host memory, of all tables together; 0: no bound
	Exports int64 // most bytes of exports that wait for their clients, all together; 0: 1 GiB
	Message int   // most bytes of a message, and of a reply; 0: 64 MiB, and 1 GiB at most
	Rows    int   // most rows of a batch; 0: 2²⁴
	Clients int   // most connections at once; 0: 256
	Streams int   // most calls at once of a connection; 0: 16
	Tables  int   // most tables; 0: 1,000
	// A call is given up whose client takes nothing of a reply that waits, or has sent nothing at all, for so long, and
	// so is a connection that has not begun, or has made no call with the Token. 0: 60 s.
	Timeout time.Duration
	Idle    time.Duration // a call whose client sends nothing for so long is given up; 0: 10 minutes
	MaxTime time.Duration // a call that takes so long is given up; 0: never

	Log *log.Logger // gets a line for what is unusual; nil: none
}

// mostMessage bounds Options.Message.
const mostMessage = 1 << 30

func (o *Options) complete() error {
	for _, n := range []int64{int64(o.Save), o.Memory, o.Exports, int64(o.Message), int64(o.Rows), int64(o.Clients),
		int64(o.Streams), int64(o.Tables), int64(o.Timeout), int64(o.Idle), int64(o.MaxTime)} {
		if n < 0 {
			return fmt.Errorf("flight: an option of %d: want none to be negative", n)
		}
	}
	if len(o.Devices) == 0 {
		return fmt.Errorf("flight: no device")
	}
	if o.Message > mostMessage {
		return fmt.Errorf("flight: messages of %d bytes: want %d at most", o.Message, mostMessage)
	}
	if o.Folder == "" && (o.Fsync != NoLog || o.Save != 0) {
		return fmt.Errorf("flight: a log or snapshots without a folder for them")
	}
	o.Exports = cmp.Or(o.Exports, 1<<30)
	o.Message = cmp.Or(o.Message, 64<<20)
	o.Rows = cmp.Or(o.Rows, 1<<24)
	o.Clients = cmp.Or(o.Clients, 256)
	o.Streams = cmp.Or(o.Streams, 16)
	o.Tables = cmp.Or(o.Tables, 1000)
	o.Timeout = cmp.Or(o.Timeout, time.Minute)
	o.Idle = cmp.Or(o.Idle, 10*time.Minute)
	if o.Log == nil {
		o.Log = log.New(io.Discard, "", 0)
	}
	return nil
}
