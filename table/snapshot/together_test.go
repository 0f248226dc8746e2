package snapshot_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/warpmap/warpmap/table"
	"github.com/warpmap/warpmap/table/snapshot"
)

// countMap is a map as far as loading needs one. It counts its pairs, of 36 bytes.
type countMap struct {
	table.Map[uint32, [4]uint64]
	n int
}

func (m *countMap) Family() table.Family { return "go" }
func (m *countMap) Len() (int, error)    { return m.n, nil }
func (m *countMap) Clear() error         { m.n = 0; return nil }
func (m *countMap) Grow(int) error       { return nil }

func (m *countMap) Insert(keys []uint32, _ [][4]uint64) error {
	m.n += len(keys)
	return nil
}

func (m *countMap) Chunks(_ context.Context, do func(keys []uint32, values [][4]uint64) error) error {
	if m.n == 0 {
		return nil
	}
	return do(make([]uint32, m.n), make([][4]uint64, m.n))
}

// countMember is a countMap over the members of a job.
type countMember struct {
	*countMap
	rank int
	job  *countJob
}

func (m *countMember) OwnLen() (int, error) { return m.n, nil }

func (m *countMember) Tell(n int, wrong error) ([]int, error) { return m.job.tell(m.rank, n, wrong) }

// countJob is a job of two members, in which a call of Tell waits for the other member's.
type countJob struct {
	mu   sync.Mutex
	call *countCall // that one member has made; nil if none has
}

type countCall struct {
	said [2]int
	errs [2]error
	done chan struct{}
}

func (j *countJob) tell(rank, n int, wrong error) ([]int, error) {
	j.mu.Lock()
	c := j.call
	if c == nil {
		c = &countCall{done: make(chan struct{})}
		j.call = c
	} else {
		defer close(c.done)
		j.call = nil
	}
	c.said[rank], c.errs[rank] = n, wrong
	whole := j.call == nil
	j.mu.Unlock()
	if !whole {
		select {
		case <-c.done:
		case <-time.After(5 * time.Second):
			return nil, fmt.Errorf("rank %d says %d, and waits in vain for the other", rank, n)
		}
	}
	return slices.Clone(c.said[:]), errors.Join(c.errs[:]...)
}

// oneBlock is a file with one block, of as many rows, and a header that says how many there are.
func oneBlock(t *testing.T, rows, says int) []byte {
	var small bytes.Buffer
	if err := snapshot.Map(&countMap{n: 2}).Save(context.Background(), &small); err != nil {
		t.Fatal(err)
	}
	from := small.Bytes()
	n := binary.LittleEndian.Uint32(from[12:])
	text := bytes.Replace(from[16:16+n], []byte(`"len":2`), fmt.Appendf(nil, `"len":%d`, says), 1)
	block := from[16+n+4:][:4] // the tag
	end := from[len(from)-16:][:4]
	sum, out := crc32.New(crc32.MakeTable(crc32.Castagnoli)), bytes.Buffer{}
	put := func(b []byte) { sum.Write(b); out.Write(b) }
	seal := func() { binary.Write(&out, binary.LittleEndian, sum.Sum32()) }
	part := func(tag []byte, n int) {
		put(binary.LittleEndian.AppendUint64(slices.Clone(tag), uint64(n)))
		seal()
	}
	put(from[:12])
	put(binary.LittleEndian.AppendUint32(nil, uint32(len(text))))
	put(text)
	seal()
	part(block, rows)
	put(make([]byte, rows*36))
	seal()
	part(end, rows)
	return out.Bytes()
}

// A block may be larger than blocks of today, in files of older versions. Members load such a file, also if another
// member's is empty. A file with more entries than its header says is refused, by all.
func TestLoadTogether(t *testing.T) {
	const old = 1 << 20 // rows of a block, whatever their width
	for _, c := range []struct {
		rows, says int
		want       string
	}{{2, 2, ""}, {2, 1, "says that it has 1 entries, and has 2 or more"}, {old, old, ""}} {
		t.Run(fmt.Sprintf("%d of %d", c.rows, c.says), func(t *testing.T) {
			file := oneBlock(t, c.rows, c.says)
			alone := &countMap{}
			err := snapshot.Map(alone).Load(context.Background(), bytes.NewReader(file))
			if c.want == "" && (err != nil || alone.n != c.rows) ||
				c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want) || alone.n != 0) {
				t.Errorf("alone: %d entries, %v (want %q)", alone.n, err, c.want)
			}
			var empty bytes.Buffer
			if err := snapshot.Map(&countMap{}).Save(context.Background(), &empty); err != nil {
				t.Fatal(err)
			}
			job := &countJob{}
			var wg sync.WaitGroup
			for rank, file := range [][]byte{file, empty.Bytes()} {
				wg.Go(func() {
					m := &countMember{&countMap{}, rank, job}
					err := snapshot.Map(m).Load(context.Background(), bytes.NewReader(file))
					want := c.rows
					if c.want != "" || rank == 1 {
						want = 0
					}
					if m.n != want || (err == nil) != (c.want == "") || err != nil && !strings.Contains(err.Error(), c.want) {
						t.Errorf("rank %d: %d entries of %d, %v (want %q)", rank, m.n, want, err, c.want)
					}
				})
			}
			wg.Wait()
		})
	}
}
