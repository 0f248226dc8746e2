package frame

import "github.com/warpmap/warpmap/device"

// copiedAtOnce is how many bytes are copied without staging: to hand them to other threads gains nothing.
const copiedAtOnce = 4 << 20

// Upload copies src to the start of dst, as batches are staged: many threads bring it to pinned memory, from where it
// goes on while they bring more. So src is copied at the bus's rate, where Slice.Write copies at that of one thread.
// The copy begins when the stream has passed what is queued on it, and Upload returns when dst has all. Upload is Write
// in these cases: little is to be copied; the host memory is pinned; the device has no table; staging has little memory
// left. The caller may hold locks of tables.
//
// Errors: what Slice.Write returns.
func Upload[T any](st *device.Stream, dst device.Slice[T], src []T) error {
	if c := In(src); worthStaging(dst.Raw(), c) {
		if done, err := copyStaged(st, dst.Raw(), c); done {
			return err
		}
	}
	return dst.Write(st, src)
}

// Download copies the start of src into dst: see Upload. Many threads also bring in those pages of dst that are new to
// the process.
func Download[T any](st *device.Stream, dst []T, src device.Slice[T]) error {
	if c := Out(dst); worthStaging(src.Raw(), c) {
		if done, err := copyStaged(st, src.Raw(), c); done {
			return err
		}
	}
	return src.Read(st, dst)
}

// Alloc does what device.Make does. Where memory is short, it frees what staging keeps for later batches.
func Alloc[T any](d *device.Device, n int) (device.Slice[T], error) {
	s, err := device.Make[T](d, n)
	if device.IsOutOfMemory(err) && ReleaseStaging(d) > 0 {
		s, err = device.Make[T](d, n)
	}
	return s, err
}

// From does what device.From does, by Alloc and Upload.
func From[T any](d *device.Device, src []T) (device.Slice[T], error) {
	s, err := Alloc[T](d, len(src))
	if err != nil {
		return s, err
	}
	if err := Upload(nil, s, src); err != nil {
		s.Free()
		return device.Slice[T]{}, err
	}
	return s, nil
}

// Host copies the whole of s into a new Go slice, by Download.
func Host[T any](st *device.Stream, s device.Slice[T]) ([]T, error) {
	out := make([]T, s.Len())
	return out, Download(st, out, s)
}

// worthStaging tells of a copy between mem and c whether it is of a GPU with tables, whose batches use the slots that it takes, and much. What is wrong with
// it Write and Read say.
func worthStaging(mem device.Slice[byte], c Column) bool {
	bytes, d := c.n*c.size, mem.Device()
	if bytes < copiedAtOnce || bytes > mem.Len() || d == nil || !d.Info().CUDA() || !opened.any(d) {
		return false
	}
	_, pinned := d.Pinned(c.p, bytes)
	return !pinned
}

// copyStaged copies between c and the start of mem; done is false where it did nothing, for want of memory or of a slot that no other batch has.
func copyStaged(st *device.Stream, mem device.Slice[byte], c Column) (done bool, err error) {
	d := mem.Device()
	if st.On(d) != nil {
		return false, nil
	}
	if err := st.SyncOf(d); err != nil { // the streams of slots know nothing of this one
		return true, err
	}
	// It waits for no slot: a batch that has it may wait for a lock that the caller holds.
	s := Stage{copies: true}
	s.Init(d)
	defer s.Close()
	c.own = mem
	err = s.Run(c.n, []Column{c}, func(*device.Stream, int, int, []uint64) error { done = true; return nil })
	return done || err != nil && !device.IsOutOfMemory(err), err
}
