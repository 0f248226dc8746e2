package operations

import (
	"errors"
	"slices"
)

// reduction is a file that is made smaller while it fails.
type reduction struct {
	f     *File
	fails func(*File) error
	tries int // that are left
	Runs  int
}

const (
	literal  = 16   // rows that a line lists at most where a rule makes them, too
	mostList = 5000 // rows of a rule that are listed, to see whether few of them do
	patience = 60   // runs for that
)

// Reduce makes a file that fails smaller: operations, then rows, then options, then grounds, until nothing more can be
// left out or so many runs are over. fails runs a file, and gives its failure. It tells how many runs there were. A file
// that does not fail comes back as it is.
func Reduce(f *File, runs int, fails func(*File) error) (*File, int) {
	r := &reduction{f: f, fails: fails, tries: runs}
	if !r.try(f) {
		return f, r.Runs
	}
	r.grounds()
	for before := ""; before != r.f.String() && r.tries > 0; {
		before = r.f.String()
		r.ops()
		r.rows()
		r.settings()
		r.grounds()
		r.numbers()
	}
	return r.f, r.Runs
}

// try takes the file if it fails, without what is behind its failure.
func (r *reduction) try(f *File) bool {
	if r.tries == 0 {
		return false
	}
	r.tries--
	r.Runs++
	err := r.fails(f)
	if err == nil {
		return false
	}
	var at *Failure
	if errors.As(err, &at) && at.Op >= 0 && at.Op+1 < len(f.Ops) {
		cut := *f
		cut.Ops = f.Ops[:at.Op+1]
		if r.Runs++; r.fails(&cut) != nil {
			f = &cut
		}
	}
	r.f = f
	return true
}

// fewer leaves out elements of a list while keep, which tries what is left, says so: halves first, then less.
func fewer[T any](list []T, keep func([]T) bool) {
	for size := (len(list) + 1) / 2; size > 0 && len(list) > 0; {
		shorter := false
		for from := 0; from < len(list); {
			rest := slices.Delete(slices.Clone(list), from, min(from+size, len(list)))
			if keep(rest) {
				list, shorter = rest, true
			} else {
				from += size
			}
		}
		if size == 1 && !shorter || size == 1 && len(list) < 2 {
			return
		}
		if size > 1 {
			size = (size + 1) / 2
		}
	}
}

func (r *reduction) grounds() {
	for i := range r.f.Grounds {
		f := *r.f
		f.Grounds = r.f.Grounds[i : i+1]
		if len(r.f.Grounds) > 1 && r.try(&f) {
			return
		}
	}
	fewer(r.f.Grounds, func(rest []Settings) bool {
		f := *r.f
		f.Grounds = rest
		return len(rest) > 0 && r.try(&f)
	})
}

func (r *reduction) ops() {
	for { // what fails earlier may cut the file meanwhile
		n := len(r.f.Ops)
		fewer(r.f.Ops, func(rest []Op) bool {
			f := *r.f
			f.Ops = rest
			return len(r.f.Ops) > len(rest) && r.try(&f)
		})
		if len(r.f.Ops) == n {
			return
		}
	}
}

// op tries the file with another operation in the place of the i-th.
func (r *reduction) op(i int, op Op) bool {
	if i >= len(r.f.Ops) {
		return false
	}
	f := *r.f
	f.Ops = slices.Clone(f.Ops)
	f.Ops[i] = op
	return r.try(&f)
}

// rows makes batches shorter, and lists the rows of those that are short.
func (r *reduction) rows() {
	for i := 0; i < len(r.f.Ops); i++ {
		r.fewerRows(i)
		op := r.f.Ops[min(i, len(r.f.Ops)-1)]
		if op.Get("n") == "" || op.number("n") > mostList {
			continue
		}
		rows, err := op.Batch()
		if err != nil || len(rows) == 0 {
			continue
		}
		before, listed := r.f, op
		listed.Rows, listed.Settings = rows, op.Settings.without("n", "keys", "values", "when", "ops")
		if r.op(i, listed) {
			r.listed(i, patience)
			if i < len(r.f.Ops) && len(r.f.Ops[i].Rows) > literal {
				r.f = before
			}
		}
	}
	for i := range r.f.Ops {
		if i < len(r.f.Ops) && len(r.f.Ops[i].Rows) > 0 {
			r.listed(i, r.tries)
		}
	}
}

// listed leaves out rows of the i-th operation, in so many runs.
func (r *reduction) listed(i, runs int) {
	least := r.tries - runs
	fewer(r.f.Ops[i].Rows, func(rest []Row) bool {
		if i >= len(r.f.Ops) || r.tries <= least {
			return false
		}
		op := r.f.Ops[i]
		op.Rows = rest
		return len(rest) > 0 && r.op(i, op)
	})
}

// fewerRows finds the least n of a rule, as if less always failed less.
func (r *reduction) fewerRows(i int) {
	op := r.f.Ops[i]
	high := op.number("n")
	if len(op.Rows) > 0 || high == 0 {
		return
	}
	for low := 0; low < high && r.tries > 0 && i < len(r.f.Ops); {
		n := (low + high) / 2
		if r.op(i, Op{op.Name, op.Settings.With("n", n), nil}) {
			high = n
		} else {
			low = n + 1
		}
	}
}

func (s Settings) without(names ...string) Settings {
	return slices.DeleteFunc(slices.Clone(s), func(x Setting) bool { return slices.Contains(names, x.Name) })
}

// settings leaves out options, or makes them the simplest that there are.
func (r *reduction) settings() {
	r.drop(r.f.Table, func(f *File, s Settings) { f.Table = s })
	for i := range r.f.Grounds {
		r.drop(r.f.Grounds[i], func(f *File, s Settings) {
			f.Grounds = slices.Clone(f.Grounds)
			f.Grounds[i] = s
		})
	}
	for i := 0; i < len(r.f.Ops); i++ {
		r.drop(r.f.Ops[i].Settings, func(f *File, s Settings) {
			if i < len(f.Ops) {
				f.Ops = slices.Clone(f.Ops)
				f.Ops[i].Settings = s
			}
		})
	}
}

// needed are settings without which a line means nothing.
var needed = []string{"key", "value", "family", "what", "n", "ops", "when"}

func (r *reduction) drop(s Settings, set func(f *File, s Settings)) {
	for _, x := range s {
		if slices.Contains(needed, x.Name) {
			continue
		}
		f := *r.f
		if set(&f, s.without(x.Name)); r.try(&f) {
			s = s.without(x.Name)
			continue
		}
		simple := ""
		switch x.Name {
		case "shards":
			simple = "2"
		case "stress", "seed":
			simple = "1"
		}
		if simple != "" && x.Text != simple {
			f := *r.f
			if set(&f, s.With(x.Name, simple)); r.try(&f) {
				s = s.With(x.Name, simple)
			}
		}
	}
}

// numbers makes the keys and the values of listed rows small, if the file fails with these, too.
func (r *reduction) numbers() {
	for _, values := range []bool{false, true} {
		f := *r.f
		f.Ops = slices.Clone(f.Ops)
		names, changed := map[uint64]uint64{}, false
		for i := range f.Ops {
			f.Ops[i].Rows = slices.Clone(f.Ops[i].Rows)
			for j := range f.Ops[i].Rows {
				x := &f.Ops[i].Rows[j].Key
				if values {
					x = &f.Ops[i].Rows[j].Value
				}
				if values && *x == 0 {
					continue
				}
				if _, named := names[*x]; !named {
					names[*x] = uint64(len(names) + 1)
				}
				changed = changed || *x != names[*x]
				*x = names[*x]
			}
		}
		if changed {
			r.try(&f)
		}
	}
}
