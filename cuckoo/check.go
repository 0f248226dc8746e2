package cuckoo

import (
	"fmt"
	"math/bits"
	"slices"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/kernel"
)

// Check downloads the filter and tests its invariants, which the package's comment lists. It is slow: use it in tests,
// or if you suspect a fault.
func (h *handle) Check() error {
	f := h.made()
	return f.frame.Alone(nil, func(st *device.Stream) error { // so that what is measured is what is downloaded
		s, err := f.sum(st)
		if err != nil {
			return err
		}
		mem, err := frame.Host(st, f.mem)
		if err != nil {
			return err
		}
		return (&image{f.cfg, f.geometry, mem}).check(s)
	})
}

// image is a filter's memory, downloaded.
type image struct {
	config
	geometry
	mem []byte
}

// word gives a word of a bucket, which window and bucket number.
func (m *image) word(window int64, bucket uint32, i int) uint64 {
	at := (window*m.buckets+int64(bucket))*int64(m.words()) + int64(i)
	return kernel.Pattern(m.mem[wordBytes*at:], wordBytes)
}

// bucket gives the tags of a bucket, in the order of its slots; 0 is an empty one.
func (m *image) bucket(window int64, bucket uint32) []uint32 {
	tags := make([]uint32, 0, m.slots())
	for i := range m.words() {
		for s, word := 0, m.word(window, bucket, i); s < m.slotsIn(i); s, word = s+1, word>>m.tag {
			tags = append(tags, uint32(word)&m.tags())
		}
	}
	return tags
}

// marked tells whether a bucket has the tag's mark.
func (m *image) marked(window int64, bucket, tag uint32) bool {
	i, bit := m.mark(tag)
	return m.word(window, bucket, i)&bit != 0
}

// check recounts what the kernel stats has counted, and looks at each tag's window.
func (m *image) check(want Sums) error {
	var got Sums
	for w := range m.all() {
		buckets := make([][]uint32, m.buckets)
		for b := range buckets {
			buckets[b] = m.bucket(w, uint32(b))
			for i := range m.words() {
				marks := m.word(w, uint32(b), i) >> (8*wordBytes - m.marksIn(i))
				got.Marks += uint64(bits.OnesCount64(marks))
			}
		}
		for b, tags := range buckets {
			for i, tag := range tags {
				if tag == 0 {
					continue
				}
				got.Tags++
				if spent := tag >> (m.tag - m.spent); int64(spent) != w&(1<<m.spent-1) {
					return fmt.Errorf("cuckoo: check: tag %#x stands in window %d, and its high bits are %d", tag, w,
						spent)
				}
				if slices.Contains(tags[:i], tag) {
					continue
				}
				got.Pairs++
				if o := m.other(uint32(b), tag); !slices.Contains(buckets[o], tag) && m.marked(w, o, tag) {
					got.Pairs++
				}
			}
		}
	}
	if got != want {
		return fmt.Errorf("cuckoo: check: the filter has %+v; its own kernel says %+v", got, want)
	}
	return nil
}
