package shard

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"slices"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/frame"
	"github.com/warpmap/warpmap/table"
)

// bring gives call what this member brings, on its device, and what is wrong with it, of which the others hear. Go
// slices are copied there, and what comes back is copied back.
func (j *joint) bring(b batch, call func(s source, wrong error) error) (err error) {
	if !b.host {
		s, err := j.place(b)
		return call(s, err)
	}
	var r received
	wrong := b.wrong
	defer func() {
		for _, s := range []device.Slice[byte]{r.keys, r.values, r.out, r.flags, r.when, r.marks} {
			if e := s.Free(); e != nil {
				err = errors.Join(err, e)
			}
		}
	}()
	in := func(s *device.Slice[byte], from []byte) {
		if wrong == nil && from != nil {
			*s, wrong = frame.From(j.d, from)
		}
	}
	room := func(s *device.Slice[byte], to []byte) {
		if wrong == nil && to != nil {
			*s, wrong = frame.Alloc[byte](j.d, len(to))
		}
	}
	in(&r.keys, b.keys)
	in(&r.values, b.values)
	room(&r.out, b.out)
	room(&r.flags, b.flags)
	in(&r.when, b.when)
	in(&r.marks, b.marks)
	r.n = b.n
	if wrong != nil {
		return call(source{}, wrong)
	}
	if err = call(sourceOf(nil, r), nil); err != nil && !isFull(err) {
		return err
	}
	back := func(to []byte, from device.Slice[byte]) error {
		if to == nil {
			return nil
		}
		return frame.Download(nil, to, from)
	}
	if e := cmp.Or(back(b.out, r.out), back(b.flags, r.flags)); e != nil {
		return e
	}
	return err
}

// place is the part of a batch that is on this member's device.
func (j *joint) place(b batch) (source, error) {
	switch {
	case b.wrong != nil:
		return source{}, b.wrong
	case len(b.parts) == 0:
		return source{}, nil
	case len(b.parts) > 1:
		return source{}, fmt.Errorf("%s: a member brings %d parts of a batch (want one, on its device)", family,
			len(b.parts))
	}
	p := b.parts[0]
	if err := family.CheckOn(j.d, p.st, p.checks...); err != nil {
		return source{}, err
	}
	return p.source, nil
}

func (j *joint) ask(b batch, jb job) error {
	return j.bring(b, func(s source, wrong error) error {
		return j.locked(b.what, func() error { return j.exchange(b.what, &jb, s, wrong) })
	})
}

// put takes rows in. Where a member's table may not grow, each hears which of its own rows are not in.
func (j *joint) put(b batch, p putting) error {
	return j.bring(b, func(s source, wrong error) error {
		return j.locked(b.what, func() error { return j.take(b.what, s, wrong, p) })
	})
}

func (j *joint) take(what string, s source, wrong error, p putting) (err error) {
	var why error
	jb := p.insert(&why)
	if j.independent() && !jb.owned {
		return j.local(what, &jb, s, wrong, p)
	}
	rows, ofSums := s, putting{}
	if p.sums != nil && j.size > 1 {
		var sums frame.Sums
		if wrong == nil {
			sums, wrong = p.sums(0, s)
		}
		defer func() {
			if e := sums.Free(j.m.following(s.st)); e != nil {
				err = frame.OneLine(errors.Join(err, e))
			}
		}()
		summed := j.summed(s.st, sums)
		if ofSums = p.ofSums(); jb.values&sent == 0 {
			x := ofSums.insert(&why)
			x.sources, jb.sums = []source{summed}, &x
		} else if p = ofSums; sums.N > 0 { // others may send rows, which are sums, too
			rows, jb = summed, p.insert(&why)
		}
	}
	if err := j.exchange(what, &jb, rows, wrong); err != nil {
		return err
	}
	if jb.sources != nil {
		p = ofSums
	}
	why, err = j.whyFull(what, why, nil)
	if err != nil {
		return err
	}
	if why != nil && p.again != nil {
		_, err = p.again()
	}
	if p.over != nil {
		if err := j.tellOver(what, p, err); err != nil {
			return err
		}
	}
	if why == nil {
		return nil
	}
	return j.fullOf(what, s, p.absence, why, err)
}

// tellOver has all hear that counts of one were too large. It is collective; wrong is what went wrong here.
func (j *joint) tellOver(what string, p putting, wrong error) error {
	all, err := agreed(j, what, p.over.Load(), wrong)
	p.over.Store(slices.Contains(all, true))
	return err
}

// fullOf returns the FullError of this member's chosen rows whose keys are not in the table. If absence returns values,
// they go to the batch's column of values. It is collective; wrong is this member's error of an earlier step.
func (j *joint) fullOf(what string, s source, absence job, why, wrong error) (err error) {
	var flags device.Slice[byte]
	if wrong == nil {
		flags, wrong = device.Make[byte](j.d, s.n)
	}
	defer func() {
		if e := flags.Free(); e != nil {
			err = errors.Join(err, e)
		}
	}()
	ask := s
	ask.flags, ask.when = flags.Addr(), 0
	if err := j.exchange(what, &absence, ask, wrong); err != nil {
		return err
	}
	return j.fullAt(what, why, func() ([]int, error) {
		positions, err := flagged(flags, func(in byte) bool { return in == 0 })
		if err != nil {
			return nil, err
		}
		return s.chosen(positions)
	})
}

// local does an insert of each member's rows in its own table. It is collective: nobody's rows go in before all know
// that nobody's are wrong.
func (j *joint) local(what string, jb *job, s source, err error, p putting) error {
	sizes, err := agreed(j, what, s.n, err)
	if err != nil {
		return err
	}
	j.scattered = j.scattered || j.size > 1 && slices.Max(sizes) > 0
	var lost []int
	var why error
	if s.n > 0 {
		if s.flags != 0 { // no kernel may see rows that are refused
			err = s.slices.flags.Fill(s.st, 0)
		}
		if err == nil {
			err = errors.Join(jb.run(0, s.st, *s.slices), j.m.following(s.st).Sync())
		}
		if full := (*table.FullError)(nil); errors.As(err, &full) {
			lost, why, err = full.Positions, full.Why, nil
		}
	}
	if why, err = j.whyFull(what, why, err); err == nil && p.over != nil {
		err = j.tellOver(what, p, nil)
	}
	if err != nil || why == nil {
		return err
	}
	return j.fullAt(what, why, func() ([]int, error) { return lost, nil })
}

func (j *joint) mix(b batch, mix func(why *error) job) error {
	return j.bring(b, func(s source, wrong error) (err error) {
		if wrong == nil && s.flags == 0 && s.n > 0 { // the outcomes tell what found no room
			if s.slices.flags, wrong = device.Make[byte](j.d, s.n); wrong == nil {
				s.flags = s.slices.flags.Addr()
				defer func() {
					if e := s.slices.flags.Free(); e != nil {
						err = errors.Join(err, e)
					}
				}()
			}
		}
		return j.locked("Mixed", func() error { return j.mixed(s, wrong, mix) })
	})
}

// mixed is mix of rows that have flags for their outcomes.
func (j *joint) mixed(s source, wrong error, mix func(why *error) job) error {
	var why error
	var jb job
	if wrong == nil {
		jb = mix(&why)
	}
	if err := j.exchange("Mixed", &jb, s, wrong); err != nil {
		return err
	}
	why, err := j.whyFull("Mixed", why, nil)
	if err != nil || why == nil {
		return err
	}
	return j.fullAt("Mixed", why, func() ([]int, error) {
		if s.n == 0 {
			return nil, nil
		}
		return flagged(s.slices.flags, func(outcome byte) bool { return table.Status(outcome) == table.NoRoom })
	})
}

func (j *joint) add(b batch, insert job) error {
	told := j.opts.MaxBytes > 0 && !j.independent()
	return j.bring(b, func(s source, wrong error) (err error) {
		var lost device.Slice[byte] // flags of rows that found no room
		if told && wrong == nil {
			lost, wrong = device.Make[byte](j.d, s.n)
			defer func() {
				if e := lost.Free(); e != nil {
					err = errors.Join(err, e)
				}
			}()
		}
		s.flags = lost.Addr()
		return j.locked(b.what, func() error {
			if j.independent() {
				return j.local(b.what, &job{values: sent, run: insert.run}, s, wrong, putting{})
			}
			var why error
			jb := adding(insert, told, &why)
			if err := j.exchange(b.what, &jb, s, wrong); err != nil {
				return err
			}
			why, err := j.whyFull(b.what, why, nil)
			switch {
			case err != nil || why == nil:
				return err
			case !told:
				return fmt.Errorf("%s: %s: some pairs found no room, and without MaxBytes it is not known which: %w",
					family, b.what, why)
			}
			return j.fullAt(b.what, why, func() ([]int, error) {
				return flagged(lost, func(lost byte) bool { return lost != 0 })
			})
		})
	})
}

// adding returns the job of an insert into a multimap. It notes why a table found no room for rows. With flagged, a
// flag comes back for each of these rows.
func adding(j job, flagged bool, why *error) job {
	insert := j.run
	return job{values: sent, flags: flagged,
		run: func(i int, st *device.Stream, r received) error {
			err := insert(i, st, r)
			full := (*table.FullError)(nil)
			switch {
			case errors.As(err, &full):
				*why = full.Why
			case device.IsOutOfMemory(err): // no row is in
				*why = err
			default:
				return err
			}
			if !flagged {
				return nil
			}
			lost := byte(1)
			if full != nil {
				lost = 0
			}
			flags := bytes.Repeat([]byte{lost}, r.n)
			if full != nil {
				for _, p := range full.Positions {
					flags[p] = 1
				}
			}
			return r.flags.Write(st, flags)
		}}
}

func (j *joint) remove(b batch, jb job) (n int, err error) {
	err = j.bring(b, func(s source, wrong error) error {
		return j.locked(b.what, func() error {
			before, err := j.held(b.what)
			if err != nil {
				return err
			}
			if err := j.exchange(b.what, &jb, s, wrong); err != nil {
				return err
			}
			after, err := j.held(b.what)
			n = before - after
			return err
		})
	})
	return n, err
}

// top asks all members, in the independent mode, for the counts of each one's keys, so that each says of the best of
// its own what all have together.
func (j *joint) top(t topping) (keys, counts []byte, err error) {
	type best struct{ Keys, Counts []byte }
	err = j.locked("Top", func() error {
		k, n, err := t.own(0)
		if j.independent() {
			told := false
			n = make([]byte, len(k)/j.keyBytes*j.valueBytes)
			ask := batch{what: "Top", wrong: err, host: true, n: len(k) / j.keyBytes, keys: k, out: n}
			err = j.bring(ask, func(s source, wrong error) error {
				err := j.exchange("Top", &t.find, s, wrong)
				told = err != nil
				return err
			})
			if told {
				return err
			}
			if err == nil {
				k, n = t.best(k, n)
			}
		}
		all, err := agreed(j, "Top", best{k, n}, err)
		for _, b := range all {
			keys, counts = append(keys, b.Keys...), append(counts, b.Counts...)
		}
		return err
	})
	return keys, counts, err
}

// whyFull gives why a table found no room: this member's, or else that of the first rank whose table found none; nil
// where all had room. It is collective; wrong is what went wrong here.
func (j *joint) whyFull(what string, why, wrong error) (error, error) {
	type reason struct {
		Text  string
		Bound bool // it is MaxBytes
	}
	own := reason{Bound: errors.Is(why, table.ErrMaxBytes)}
	if why != nil {
		own.Text = why.Error()
	}
	said, err := agreed(j, what, own, wrong)
	if err != nil || why != nil {
		return why, err
	}
	at := slices.IndexFunc(said, func(r reason) bool { return r.Text != "" })
	switch {
	case at < 0:
		return nil, nil
	case said[at].Bound:
		return fmt.Errorf("%w (rank %d: %s)", table.ErrMaxBytes, at, said[at].Text), nil
	}
	return fmt.Errorf("rank %d: %s", at, said[at].Text), nil
}

// fullAt returns the FullError of this member's positions that found no room, or nil if it has none. It is collective;
// refused, which returns the positions, is not.
func (j *joint) fullAt(what string, why error, refused func() ([]int, error)) error {
	each, err := j.stats(what)
	if err != nil {
		return err
	}
	s := added(each)
	positions, err := refused()
	if err != nil {
		return err
	}
	return frame.Full(positions, s.Capacity, s.Len, why)
}

// flagged returns the positions of flags for which says reports true, in order. It waits for the device's own stream.
func flagged[T any](flags device.Slice[T], says func(flag T) bool) ([]int, error) {
	all, err := flags.Host(nil)
	return positionsOf(all, says), err
}
