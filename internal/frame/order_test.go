package frame_test

import (
	"errors"
	"slices"
	"testing"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/faults"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/internal/testenv"
)

// openMarking is a CPU device on which operations are marked, as on a GPU.
func openMarking(t *testing.T) *device.Device {
	d := openCPU(t)
	faults.Set(d, (&faults.Counter{}).Order)
	t.Cleanup(func() { faults.Set(d, nil) })
	return d
}

// Without calls that are to fail, nothing is marked on the CPU device, whose work ends within the call that queues it.
func TestOrderMarksNothingOnTheCPU(t *testing.T) {
	var o frame.Order
	o.Init(openCPU(t))
	nothing := func() error { return nil }
	must(t, errors.Join(o.Write(nil, nothing), o.Read(nil, nothing)))
	if writes, reads := o.Marks(); writes+reads > 0 {
		t.Errorf("%d writes and %d reads are marked", writes, reads)
	}
}

// An operation that fails half-way has put something on the stream, which later ones must wait for.
func TestOrderMarksWhatFails(t *testing.T) {
	d := openMarking(t)
	failed := errors.New("half-way")
	for name, queue := range map[string]func() error{
		"error": func() error { return failed },
		"panic": func() error { panic(failed) },
	} {
		t.Run(name, func(t *testing.T) {
			for _, write := range []bool{false, true} {
				var o frame.Order
				o.Init(d)
				run := o.Read
				if write {
					run = o.Write
				}
				st, err := d.NewStream()
				must(t, err)
				func() {
					defer func() {
						if x := recover(); (x != nil) != (name == "panic") {
							t.Errorf("recovered %v", x)
						}
					}()
					if err := run(st, queue); err != failed {
						t.Errorf("%v, want %v itself", err, failed)
					}
				}()
				if writes, reads := o.Marks(); write && writes != 1 || !write && reads != 1 {
					t.Errorf("write %t: %d writes and %d reads are marked", write, writes, reads)
				}
				o.Close()
				must(t, st.Close())
			}
		})
	}
}

// Where no mark can be made, the error is that of the operation, and one line.
func TestOrderOnAClosedDevice(t *testing.T) {
	d := openCPU(t)
	var o frame.Order
	o.Init(d)
	must(t, o.Write(nil, func() error { return nil }))
	must(t, d.Close())
	for _, run := range []func(*device.Stream, func() error) error{o.Read, o.Write} {
		failed := errors.New("failed")
		if err := run(nil, func() error { return failed }); err != failed {
			t.Errorf("%q, want %q", err, failed)
		}
		if err := run(nil, func() error { return nil }); !errors.Is(err, device.ErrClosed) {
			t.Error(err)
		}
	}
}

// The first operation is behind what makes the table, whatever stream it is on.
func TestOrderBeginsWithTheTable(t *testing.T) {
	for _, name := range []string{"cpu", "cuda:0"} {
		t.Run(name, func(t *testing.T) {
			d, err := device.Open(name)
			testenv.Require(t, "cuda", err)
			defer d.Close()
			n, fills := 1<<10, 1
			if d.Info().CUDA() && !testenv.Small() {
				n, fills = 1<<26, 64 // some 10 ms
			}
			busy, err := device.Make[byte](d, n)
			must(t, err)
			word, err := device.From(d, []uint64{1})
			must(t, err)
			var f frame.Frame
			must(t, f.Open("order", d, func() error {
				for range fills {
					must(t, busy.Fill(nil, 0))
				}
				return word.Fill(nil, 0)
			}, func() error { return nil }))
			defer f.Close()
			st, err := d.NewStream()
			must(t, err)
			var got []uint64
			must(t, f.Reading(st, func(st *device.Stream) (err error) {
				got, err = word.Host(st)
				return err
			}))
			if got[0] != 0 {
				t.Error("a look-up saw the table as it was before it was made")
			}
		})
	}
}

// Idle waits for every operation, also where a wait is refused, and tells which streams it could not wait for. A table
// that is closed then is freed behind these, and not at once.
func TestIdleWaitsForAll(t *testing.T) {
	d := openMarking(t)
	var streams []*device.Stream
	for range 2 {
		st, err := d.NewStream()
		must(t, err)
		streams = append(streams, st)
	}
	nothing := func(*device.Stream) error { return nil }
	for _, c := range []struct {
		name   string
		refuse *faults.Counter
		waits  int64
		busy   []*device.Stream
	}{
		{"none refused", &faults.Counter{}, 3, nil},
		{"one", &faults.Counter{Site: faults.Sync, N: 1, Outcome: faults.Fails}, 4, nil},
		{"the last", &faults.Counter{Site: faults.Sync, N: 3, Outcome: faults.Fails}, 3, nil}, // of a stream that is closed
		{"all", &faults.Counter{Site: faults.Sync, N: 1, Rest: true, Outcome: faults.Fails}, 5, streams[:2]},
	} {
		t.Run(c.name, func(t *testing.T) {
			var f frame.Frame
			var users []*device.Stream
			must(t, f.Open("warpcore", d, func() error { return nil }, func() error {
				users = f.Users()
				return nil
			}))
			last, err := d.NewStream()
			must(t, err)
			must(t, f.Writing(streams[0], nothing))
			must(t, f.Reading(streams[1], nothing))
			must(t, f.Reading(last, nothing))
			must(t, last.Close())
			faults.Set(d, c.refuse.Order)
			err = f.Close()
			faults.Set(d, (&faults.Counter{}).Order)
			if got := c.refuse.Count(faults.Sync); got != c.waits {
				t.Errorf("%d waits, want %d", got, c.waits)
			}
			if (err != nil) != (c.busy != nil) || err != nil && !errors.As(err, new(*faults.Error)) {
				t.Errorf("Close: %v", err)
			}
			if !slices.Equal(users, c.busy) {
				t.Errorf("freed behind %d streams, want %d", len(users), len(c.busy))
			}
			if live := d.Live(); len(live) > 0 {
				t.Errorf("%v stays behind", live)
			}
		})
	}
}
