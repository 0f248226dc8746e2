package frame

import "testing"

// A panic while a chunk drains holds up no chunk behind it: the batch would never end, and nobody hear of the panic.
func TestDrainPanics(t *testing.T) {
	p := newStaging(nil)
	b := newStaged(p, 1, 1, nil)
	passed := make(chan struct{})
	func() {
		defer func() {
			if recover() == nil {
				t.Error("no panic: this test needs another")
			}
		}()
		b.drain(&stageSlot{}, nil, passed) // of no stream
	}()
	select {
	case <-passed:
	default:
		t.Error("the next chunk would wait")
	}
}
