package operations

import (
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
)

// mostRows bounds what a file can ask of the memory here.
const mostRows = 1 << 24

// Batch are the rows of an operation, those of its line or those of its rules.
func (o *Op) Batch() ([]Row, error) {
	if len(o.Rows) > 0 {
		return o.Rows, nil
	}
	n := o.number("n")
	if n < 0 || n > mostRows {
		return nil, fmt.Errorf("%d rows (want 0 to %d)", n, mostRows)
	}
	keys, err := parseRule(o.Get("keys"), "seq:1", map[string]int{"seq": 1, "some": 2, "wide": 2, "skew": 2})
	if err != nil {
		return nil, err
	}
	values, err := parseRule(o.Get("values"), "from:0", map[string]int{"from": 1, "small": 1})
	if err != nil {
		return nil, err
	}
	if o.Name == "grow" || o.Name == "top" || o.Name == "wait" { // n is something else
		return nil, nil
	}
	rows := make([]Row, n)
	k, v := keys.rand(1), values.rand(2)
	when, ops := newRand(o.seed("when"), 3), newRand(o.seed("ops"), 4)
	for i := range rows {
		r := &rows[i]
		r.Key = keys.key(k, uint64(i))
		switch {
		case values.name == "small" && v.IntN(200) == 0:
			r.Value = ^uint64(0) - v.Uint64N(3)
		case values.name == "small":
			r.Value = v.Uint64N(5)
		case values.of[0] > 0:
			r.Value = values.of[0] + uint64(i)
		}
		switch {
		case o.Get("when") != "" && when.IntN(2) == 0:
			r.Mark = '+'
		case o.Get("ops") != "":
			r.Mark = [...]byte{0, 'i', 'n', 'd'}[ops.IntN(4)]
		}
	}
	return rows, nil
}

// rule is a name and its numbers.
type rule struct {
	name string
	of   []uint64
}

// parseRule reads a rule that is one of those, with so many numbers.
func parseRule(text, otherwise string, names map[string]int) (r rule, err error) {
	if text == "" {
		text = otherwise
	}
	words := strings.Split(text, ":")
	if n, is := names[words[0]]; !is || len(words) != n+1 {
		return r, fmt.Errorf("%q is no rule, or has not as many numbers as that wants", text)
	}
	r.name = words[0]
	for _, w := range words[1:] {
		x, err := strconv.ParseUint(w, 0, 64)
		if err != nil {
			return r, fmt.Errorf("rule %q: %w", text, err)
		}
		r.of = append(r.of, x)
	}
	if len(r.of) == 2 && r.of[1] == 0 {
		return r, fmt.Errorf("rule %q: of no keys", text)
	}
	return r, nil
}

func newRand(seed, stream uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, stream)) }

func (r rule) rand(stream uint64) *rand.Rand { return newRand(r.of[0], stream) }

// key is the i-th of the rule.
func (r rule) key(from *rand.Rand, i uint64) uint64 {
	if r.name == "seq" {
		return r.of[0] + i
	}
	if r.name == "skew" && from.IntN(2) == 0 {
		return [...]uint64{7, ^uint64(0)}[from.IntN(2)]
	}
	switch from.IntN(24) {
	case 0:
		return ^uint64(0) - from.Uint64N(5)
	case 1:
		return from.Uint64N(3)
	}
	x := from.Uint64N(r.of[1])
	if r.name == "wide" {
		x = x * 0x9e3779b97f4a7c15 >> 3
	}
	return x
}
