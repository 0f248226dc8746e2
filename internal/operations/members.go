package operations

import (
	"encoding/gob"
	"errors"
	"fmt"
	"io"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/shard"
	"github.com/warpmap/warpmap/table"
)

// Members is a table over the members of a job. Each member is a process in which Serve does the calls, and brings its
// part of each batch.
type Members struct {
	each  []pipe
	multi bool // the kind is a multimap
}

// ErrRefused is of a ground whose options no member takes.
var ErrRefused = errors.New("all members refuse the options")

type pipe struct {
	to   *gob.Encoder
	from *gob.Decoder
}

// opening is what a member gets first.
type opening struct {
	File   string
	Ground Settings
}

// sent is an answer on its way. Its error is there by what the model asks of it.
type sent struct {
	Answer                                         answer
	Failed, Full, Short, Bound, Overflow, IsClosed bool
	Text                                           string
	Positions                                      []int
}

// NewMembers makes the table of a ground. Member i reads to[i] and writes from[i]. Errors: ErrRefused; those of members.
func NewMembers(f *File, g Settings, to []io.Writer, from []io.Reader) (*Members, error) {
	m := &Members{multi: multi(f.Kind)}
	for i := range to {
		m.each = append(m.each, pipe{gob.NewEncoder(to[i]), gob.NewDecoder(from[i])})
		if err := m.each[i].to.Encode(opening{f.String(), g}); err != nil {
			return nil, err
		}
	}
	errs := errorsOf(m.answers())
	refused := 0
	for _, err := range errs {
		if errors.As(err, new(*told)) {
			refused++
		}
	}
	if refused == len(errs) {
		return nil, fmt.Errorf("%w: %w", ErrRefused, errs[0])
	}
	return m, errors.Join(errs...)
}

// Serve makes a table of a member, and does the calls that come, until no more do.
func Serve(member *shard.Member, in io.Reader, out io.Writer) error {
	from, to := gob.NewDecoder(in), gob.NewEncoder(out)
	var first opening
	if err := from.Decode(&first); err != nil {
		return err
	}
	f, err := Parse(first.File)
	if err != nil {
		return err
	}
	s, err := newSubject(f, first.Ground, over{[]*device.Device{member.Device()}, member})
	if e := to.Encode(send(answer{Err: err})); err != nil || e != nil {
		return errors.Join(err, e)
	}
	for {
		var c call
		switch err := from.Decode(&c); {
		case errors.Is(err, io.EOF):
			return nil
		case err != nil:
			return err
		}
		if err := to.Encode(send(s.do(&c))); err != nil {
			return err
		}
	}
}

func send(a answer) sent {
	s := sent{Answer: a}
	s.Answer.Err = nil
	if err := a.Err; err != nil {
		var full *table.FullError
		if s.Full = errors.As(err, &full); s.Full {
			s.Positions = full.Positions
		}
		s.Failed, s.Text, s.Short = true, err.Error(), device.IsOutOfMemory(err)
		s.Bound, s.Overflow = errors.Is(err, table.ErrMaxBytes), errors.Is(err, table.ErrOverflow)
		s.IsClosed = errors.Is(err, table.ErrClosed)
	}
	return s
}

// received is the answer, whose error is one of the same kind.
func (s *sent) received() answer {
	a := s.Answer
	if !s.Failed {
		return a
	}
	var why error
	switch {
	case s.Short:
		why = &device.OutOfMemoryError{}
	case s.Bound:
		why = table.ErrMaxBytes
	case s.IsClosed:
		why = table.ErrClosed
	}
	if s.Full {
		why = &table.FullError{Positions: s.Positions, Why: why}
	}
	if s.Overflow {
		why = errors.Join(why, table.ErrOverflow)
	}
	a.Err = &told{s.Text, why}
	return a
}

// told is an error of another process.
type told struct {
	text string
	kind error
}

func (e *told) Error() string { return e.text }
func (e *told) Unwrap() error { return e.kind }

func (m *Members) answers() []answer {
	out := make([]answer, len(m.each))
	for i, p := range m.each {
		var s sent
		if err := p.from.Decode(&s); err != nil {
			out[i] = answer{Err: fmt.Errorf("member %d: %w", i, err)}
			continue
		}
		out[i] = s.received()
	}
	return out
}

func errorsOf(all []answer) (errs []error) {
	for _, a := range all {
		errs = append(errs, a.Err)
	}
	return errs
}

// do gives each member its part of the call, and puts the answers together. A table over members is not saved: the
// members give out their parts, and each counts all pairs.
func (m *Members) do(c *call) (a answer) {
	if c.Name == "save" {
		return answer{Lacks: true}
	}
	n, starts := len(c.Keys), []int{}
	for i, p := range m.each {
		from, to := i*n/len(m.each), (i+1)*n/len(m.each)
		part := *c
		part.Keys, part.Values = c.Keys[from:to], stretch(c.Values, from, to)
		part.When, part.Ops = stretch(c.When, from, to), stretch(c.Ops, from, to)
		starts = append(starts, from)
		if err := p.to.Encode(&part); err != nil {
			return answer{Err: fmt.Errorf("member %d: %w", i, err)}
		}
	}
	all := m.answers()
	switch c.Name {
	case "len", "check", "stats", "top", "grow", "shrink", "clear", "close", "wrong": // of all members together, told to each
		a = all[0]
		a.Err = errors.Join(errorsOf(all)...)
		return a
	}
	var full *table.FullError
	for i, part := range all {
		a.Lacks, a.Short = a.Lacks || part.Lacks, a.Short || part.Short
		a.Keys, a.Flags = append(a.Keys, part.Keys...), append(a.Flags, part.Flags...)
		a.Status, a.Counts = append(a.Status, part.Status...), append(a.Counts, part.Counts...)
		for j, offset := range part.Offsets {
			if j > 0 || i == 0 {
				a.Offsets = append(a.Offsets, uint64(len(a.Values))+offset)
			}
		}
		a.Values = append(a.Values, part.Values...)
		switch {
		case part.N < 0:
			a.N = -1
		case !m.multi || c.Name != "delete":
			a.N += part.N
		case i > 0 && a.N != part.N: // each counts what all have deleted
			a.Err = errors.Join(a.Err, fmt.Errorf("member %d counts %d deletions, and others %d", i, part.N, a.N))
		default:
			a.N = part.N
		}
		var own *table.FullError
		if !errors.As(part.Err, &own) {
			a.Err = errors.Join(a.Err, part.Err)
			continue
		}
		if full == nil {
			full = &table.FullError{Why: own.Why}
		}
		for _, p := range own.Positions {
			full.Positions = append(full.Positions, starts[i]+p)
		}
		if errors.Is(part.Err, table.ErrOverflow) {
			a.Err = errors.Join(a.Err, table.ErrOverflow)
		}
	}
	if full != nil {
		a.Err = errors.Join(a.Err, full)
	}
	return a
}

func stretch[T any](list []T, from, to int) []T {
	if list == nil {
		return nil
	}
	return list[from:to]
}
