package operations

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

// Failure is what a table answered that it may not.
type Failure struct {
	Ground int // of the file's grounds
	Op     int // of the file's operations; -1 when the table is made, and their number when all is over
	Err    error
}

func (e *Failure) Error() string {
	return fmt.Sprintf("ground %d, operation %d: %v", e.Ground+1, e.Op+1, e.Err)
}

func (e *Failure) Unwrap() error { return e.Err }

// Runner replays files.
type Runner struct {
	// Device is where a ground of one device stands, such as cuda:0. The CPU device has shards and the stress mode.
	Device string
	// Step, if not nil, is told each operation before it is done. The last of a ground is its file's number of them.
	Step func(ground, op int)
	// Members, if not nil, makes the table of a ground over members of a job. end is called when all is done.
	Members func(f *File, g Settings) (m *Members, end func() error, err error)

	Operations, Refused, Full int // done; grounds whose options were refused; operations that were refused in part
}

// Run replays the file over its grounds, or where it names none over those of its kind, and compares. The error is a
// *Failure. Panics of a table are failures, too.
func (r *Runner) Run(f *File) error {
	grounds := f.Grounds
	if len(grounds) == 0 {
		grounds = GroundsOf(f.Kind, f.Table.Get("key"))
	}
	var first []digest // of the ground that refused nothing, after each operation
	for i, g := range grounds {
		x := &run{Runner: r, f: f, g: g, ground: i, op: -1}
		err := x.all()
		r.Full += x.fulls
		if err == nil && first == nil && len(x.digests) > 0 {
			first = x.digests
		}
		for op, d := range x.digests {
			if err == nil && d.whole && first[op].whole && d.sum != first[op].sum {
				x.op, err = op, errors.New("it holds other keys than the first ground, though neither refused any")
			}
		}
		if err != nil {
			return &Failure{i, x.op, err}
		}
	}
	return nil
}

// digest is of what a table holds after an operation; whole until something was refused.
type digest struct {
	sum   uint64
	whole bool
}

// run is one ground.
type run struct {
	*Runner
	f       *File
	g       Settings
	ground  int
	op      int
	s       subject
	m       *model
	cached  *cached // of a cache, beside m
	closed  bool
	fulls   int
	digests []digest
}

func (r *run) all() (err error) {
	if r.g.number("members") > 1 {
		if r.Members == nil {
			return errors.New("a ground over members, and nobody starts such")
		}
		m, end, err := r.Members(r.f, r.g)
		if errors.Is(err, ErrRefused) {
			r.Refused++
			return nil
		}
		if err != nil {
			return err
		}
		r.s = m
		return errors.Join(r.operations(), end())
	}
	name := "cpu"
	if r.Device != "" && r.g.Get("stress") == "" {
		name = r.Device
	}
	o, err := openDevices(r.g, name)
	if err != nil {
		return err
	}
	defer func() {
		if e := o.close(); err == nil && e != nil {
			err = e
		}
	}()
	if r.s, err = newSubject(r.f, r.g, o); err != nil {
		r.Refused++
		return nil
	}
	return r.operations()
}

func (r *run) operations() (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	r.m = newModel(r.f, r.g)
	if r.f.Kind == "cache" {
		r.cached = newCached(r)
		if err := r.cached.begin(); err != nil {
			return err
		}
	}
	for i := range r.f.Ops {
		r.op = i
		r.Operations++
		if r.Step != nil {
			r.Step(r.ground, i)
		}
		if err := r.one(&r.f.Ops[i]); r.spent(err) {
			r.fulls = r.m.refusals + 1
			r.digests = append(r.digests, make([]digest, len(r.f.Ops)-i)...)
			return r.ask("close", nil).Err
		} else if err != nil {
			return fmt.Errorf("%s: %w", r.f.Ops[i].Name, err)
		}
		if !r.closed {
			if err := r.check(); err != nil {
				return fmt.Errorf("after %s: %w", r.f.Ops[i].Name, err)
			}
		}
		r.digests = append(r.digests, digest{r.m.digest(), r.m.refusals == 0 && r.cached == nil})
	}
	r.op = len(r.f.Ops)
	r.fulls = r.m.refusals
	if r.Step != nil {
		r.Step(r.ground, r.op)
	}
	if !r.closed {
		if err := r.whole(); err != nil {
			return fmt.Errorf("at the end: %w", err)
		}
	}
	return r.ask("close", nil).Err
}

// spent reports whether an error says that a table over several devices has no memory for even the smallest piece of a
// batch, which look-ups and deletions need, too. What the table then has is not known, so the ground ends.
func (r *run) spent(err error) bool {
	return r.m.loose && r.g.number("shards") > 1 && device.IsOutOfMemory(err) && !full(err)
}

// call makes a call of an operation.
func (r *run) call(op *Op) (*call, error) {
	rows, err := op.Batch()
	if err != nil {
		return nil, err
	}
	c := &call{Name: op.Name, With: op.Get("with") + op.Get("what"), N: op.number("n"), Device: op.Get("on") == "device",
		Stream: op.Get("stream") == "new", Family: op.Get("family"), Seed: op.seed("seed")}
	keys := ^uint64(0)
	if r.f.Table.Get("key") == "u32" {
		keys = 1<<32 - 1
	}
	c.Other = op.Settings
	scores, lives := newRand(op.seed("scores"), 5), newRand(op.seed("lives"), 6)
	if op.Get("scores") != "" {
		c.Scores = []uint32{}
	}
	seen := map[uint64]bool{}
	for _, row := range rows {
		row.Key &= keys
		if op.Name == "mixed" && seen[row.Key] {
			continue
		}
		seen[row.Key] = true
		c.Keys, c.Values = append(c.Keys, row.Key), append(c.Values, row.Value&r.m.most)
		switch op.Name {
		case "insertif", "findif", "containsif":
			c.When = append(c.When, row.Mark == '+')
		case "mixed":
			c.Ops = append(c.Ops, marks[row.Mark])
		case "insertfor":
			c.Lives = append(c.Lives, lives.Uint64N(4)*100)
		}
		if c.Scores != nil {
			c.Scores = append(c.Scores, scores.Uint32N(30))
		}
	}
	if len(rows) == 0 && (op.Name == "insertif" || op.Name == "findif" || op.Name == "containsif") {
		c.When = []bool{}
	}
	return c, nil
}

var marks = map[byte]table.Op{0: table.OpFind, 'i': table.OpInsert, 'n': table.OpInsertNew, 'd': table.OpDelete}

// ask is a call that is not the file's.
func (r *run) ask(name string, keys []uint64) answer {
	return r.s.do(&call{Name: name, Keys: keys, Values: make([]uint64, len(keys))})
}

// one does an operation.
func (r *run) one(op *Op) error {
	c, err := r.call(op)
	if err != nil {
		return err
	}
	if r.closed {
		a := r.s.do(c)
		if !a.Lacks && !a.Short && !errors.Is(a.Err, table.ErrClosed) && c.Name != "close" && c.Name != "wrong" && c.Name != "all" {
			return fmt.Errorf("the table is closed, and the error is %v", a.Err)
		}
		return nil
	}
	if r.cached != nil && c.Name != "all" && c.Name != "close" {
		return r.cached.do(c)
	}
	switch c.Name {
	case "insert", "insertnew", "insertif", "update", "findorinsert", "add", "addcounts", "build":
		return r.put(c)
	case "delete":
		return r.delete(c)
	case "mixed":
		return r.mixed(c)
	case "find", "contains", "findif", "containsif":
		return r.find(c)
	case "findall":
		r.fewer(c)
		return r.findAll(c)
	case "foreach":
		r.fewer(c)
		if a := r.s.do(c); !a.Lacks && !a.Short && !r.m.short(a.Err) {
			return r.m.each(c, a)
		}
	case "top":
		if a := r.s.do(c); !a.Lacks && !r.m.short(a.Err) {
			return r.m.top(c.N, a)
		}
	case "grow":
		a := r.s.do(c)
		if r.m.bounded && (errors.Is(a.Err, table.ErrMaxBytes) || device.IsOutOfMemory(a.Err)) {
			return nil
		}
		return a.Err
	case "shrink":
		if a := r.s.do(c); !r.m.loose || !device.IsOutOfMemory(a.Err) {
			return a.Err
		}
	case "clear":
		return r.clear(c)
	case "save":
		return r.save(c)
	case "all":
		return r.whole()
	case "wrong":
		if a := r.s.do(c); !a.Lacks && !a.Short && (a.Err == nil || full(a.Err)) {
			return fmt.Errorf("what is wrong by %s is done: %v", c.With, a.Err)
		}
	case "close":
		r.closed = true
		return r.s.do(c).Err
	}
	return nil
}

// instead are operations with the same keys for tables that lack one.
var instead = map[string]string{"update": "insert", "findorinsert": "insertnew", "build": "insert", "insertif": "insert"}

// chosen has the rows of c that are chosen alone.
func chosen(c *call) *call {
	if c.When == nil {
		return c
	}
	out := *c
	out.Keys, out.Values, out.When = nil, nil, nil
	for i, when := range c.When {
		if when {
			out.Keys, out.Values = append(out.Keys, c.Keys[i]), append(out.Values, c.Values[i])
		}
	}
	return &out
}

// full tells whether an error names the positions that are not in.
func full(err error) bool {
	var f *table.FullError
	return errors.As(err, &f)
}

func (r *run) put(c *call) error {
	if c.Name == "build" {
		if a := r.ask("clear", nil); a.Err != nil {
			return a.Err
		}
		r.m.clear()
	}
	a := r.s.do(c)
	if name, ok := instead[c.Name]; a.Lacks && ok {
		c = chosen(c)
		c.With, c.Name = "", name
		a = r.s.do(c)
	}
	switch {
	case a.Lacks:
		return errors.New("the table lacks it")
	case a.Short && !r.m.loose:
		return errors.New("out of memory, though nothing bounds it")
	case a.Short, c.Name == "build" && !full(a.Err) && r.m.short(a.Err): // all pairs must lie on the device
		r.m.refusals++
		return nil
	}
	switch {
	case r.f.Kind == "filter":
		return r.putFilter(c, a)
	case r.m.multi():
		if err := r.m.putPairs(c, a); err != nil {
			return err
		}
		return r.lists(c.Keys)
	}
	name := "find"
	if r.f.Kind == "set" {
		name = "contains"
	}
	after := r.ask(name, c.Keys)
	switch {
	case after.Err != nil:
		return fmt.Errorf("the look-up behind it: %w", after.Err)
	case r.f.Kind == "set":
		return r.m.putKeys(c, a, after)
	case r.f.Kind == "counter":
		return r.m.count(c, a, after)
	}
	return r.m.put(c, a, after)
}

// putFilter notes what is in a filter: each key, and of one of cuckoo how often.
func (r *run) putFilter(c *call, a answer) error {
	if r.g.Get("family") != string(warpmap.Cuckoo) {
		for _, k := range c.Keys {
			r.m.pairs[k] = 0
		}
		return a.Err
	}
	refused := map[int]bool{}
	if f := (*table.FullError)(nil); errors.As(a.Err, &f) {
		for _, p := range f.Positions {
			refused[p] = true
		}
		r.m.refusals++
	} else if a.Err != nil {
		return a.Err
	}
	for i, k := range c.Keys {
		if !refused[i] {
			r.m.pairs[k]++
		}
	}
	return nil
}

// deleteFilter takes out of a filter of cuckoo what is in. Then its keys are others than those of other grounds.
func (r *run) deleteFilter(c *call) error {
	if r.g.Get("family") != string(warpmap.Cuckoo) {
		return nil
	}
	var keys []uint64
	for _, k := range c.Keys {
		if r.m.pairs[k] > 0 {
			keys = append(keys, k)
			if r.m.pairs[k]--; r.m.pairs[k] == 0 {
				delete(r.m.pairs, k)
			}
		}
	}
	r.m.refusals++
	c.Keys = keys
	a := r.s.do(c)
	if a.Short && r.m.loose {
		for _, k := range keys {
			r.m.pairs[k]++
		}
		return nil
	}
	if i := slices.Index(a.Flags, false); i >= 0 && a.Err == nil {
		return fmt.Errorf("position %d: key %d is in, and is not deleted", i, keys[i])
	}
	return a.Err
}

func (r *run) clear(c *call) error {
	keys := slices.Sorted(maps.Keys(r.m.pairs))
	r.m.clear()
	if err := r.s.do(c).Err; err != nil || r.f.Kind != "filter" {
		return err
	}
	if a := r.ask("contains", keys); a.Err != nil || slices.Contains(a.Flags, true) {
		return fmt.Errorf("keys are told to be in a filter that was cleared: %v", a.Err)
	}
	return nil
}

func (r *run) delete(c *call) error {
	if r.f.Kind == "filter" {
		return r.deleteFilter(c)
	}
	a := r.s.do(c)
	if a.Short && r.m.loose {
		r.m.refusals++
		return nil
	}
	after := r.ask("contains", c.Keys)
	if after.Err != nil {
		return fmt.Errorf("the look-up behind it: %w", after.Err)
	}
	return r.m.delete(c, a, after)
}

// mixed does the operations in batches of a kind where the table lacks mixed batches.
func (r *run) mixed(c *call) error {
	a := r.s.do(c)
	if !a.Lacks && !a.Short {
		return r.m.mix(c, a)
	}
	for op, name := range []string{table.OpInsert: "insert", table.OpInsertNew: "insertnew", table.OpDelete: "delete"} {
		part := &Op{Name: name}
		for i, k := range c.Keys {
			if name != "" && c.Ops[i] == table.Op(op) {
				part.Rows = append(part.Rows, Row{Key: k, Value: c.Values[i]})
			}
		}
		if len(part.Rows) == 0 {
			continue
		}
		if err := r.one(part); err != nil {
			return err
		}
	}
	return nil
}

func (r *run) find(c *call) error {
	if r.f.Kind == "set" || r.m.multi() || r.f.Kind == "filter" {
		c.Name = strings.Replace(c.Name, "find", "contains", 1)
	}
	a := r.s.do(c)
	if a.Lacks || a.Short {
		return nil
	}
	return r.m.found(c, a, c.Name == "find" || c.Name == "findif")
}

// mostListed is how many values a look-up gives of lists at most: a batch that asks again and again for the few keys of a
// table would want billions.
const mostListed = 1 << 22

// fewer leaves out the keys of a batch from where their lists have too many values.
func (r *run) fewer(c *call) {
	values := 0
	for i, k := range c.Keys {
		if values += len(r.m.lists[k]); values > mostListed {
			c.Keys = c.Keys[:i]
			break
		}
	}
}

// findAll is the file's own, which may be by device slices.
func (r *run) findAll(c *call) error {
	a := r.s.do(c)
	if a.Lacks || a.Short || r.m.short(a.Err) {
		return nil
	}
	if a.Err != nil {
		return a.Err
	}
	return r.m.foundAll(c, a, answer{Err: errors.ErrUnsupported})
}

// lists compares the values of keys, of each once, and of two keys that are mostly not in.
func (r *run) lists(keys []uint64) error {
	keys = append(slices.Clone(keys), 12345678)
	slices.Sort(keys)
	keys = slices.Compact(keys)
	all, counts := r.ask("findall", keys), r.ask("count", keys)
	for _, a := range []answer{all, counts} {
		if a.Err != nil && !(r.m.loose && device.IsOutOfMemory(a.Err)) {
			return fmt.Errorf("the look-up behind it: %w", a.Err)
		}
	}
	if all.Err != nil {
		return nil
	}
	return r.m.foundAll(&call{Keys: keys}, all, counts)
}

func (r *run) save(c *call) error {
	if r.f.Kind == "filter" {
		for k := range r.m.pairs {
			c.Keys = append(c.Keys, k)
		}
	}
	a := r.s.do(c)
	switch {
	case a.Lacks, r.m.loose && (device.IsOutOfMemory(a.Err) || full(a.Err)):
		return nil
	case r.f.Kind == "filter":
		return r.m.found(c, a, false)
	}
	return r.m.same("what was loaded", a)
}

// check walks the table, and compares its length.
func (r *run) check() error {
	if r.cached != nil {
		return r.cached.check()
	}
	if err := r.ask("check", nil).Err; err != nil && !(r.m.loose && device.IsOutOfMemory(err)) {
		return fmt.Errorf("check: %w", err)
	}
	if r.f.Kind == "filter" {
		return r.filterLen()
	}
	a := r.ask("len", nil)
	if a.Err == nil && a.N != r.m.len() {
		return fmt.Errorf("length %d, want %d", a.N, r.m.len())
	}
	return a.Err
}

// filterLen compares how many keys are in a filter that counts them.
func (r *run) filterLen() error {
	a, want := r.ask("len", nil), uint64(0)
	for _, n := range r.m.pairs {
		want += n
	}
	switch {
	case a.Lacks, r.m.loose && device.IsOutOfMemory(a.Err):
		return nil
	case a.Err == nil && a.N != int(want):
		return fmt.Errorf("%d keys are in, want %d", a.N, want)
	}
	return a.Err
}

// whole compares the whole table: by its statistics, by All and by Chunks.
func (r *run) whole() error {
	if r.cached != nil {
		return r.cached.whole()
	}
	if r.f.Kind == "filter" {
		c := &call{Name: "contains"}
		for k := range r.m.pairs {
			c.Keys = append(c.Keys, k)
		}
		return r.m.found(c, r.s.do(c), false)
	}
	skip := func(err error) bool { return r.m.loose && device.IsOutOfMemory(err) }
	if a := r.ask("stats", nil); !skip(a.Err) {
		if most := r.f.Table.number64("maxbytes"); a.Err != nil || a.N != r.m.len() || most > 0 && a.Bytes > most {
			return fmt.Errorf("statistics have %d, want %d, and %d bytes at MaxBytes %d: %v", a.N, r.m.len(), a.Bytes, most, a.Err)
		}
	}
	for _, name := range []string{"export", "chunks"} {
		if a := r.ask(name, nil); !skip(a.Err) {
			if err := r.m.same(name, a); err != nil {
				return err
			}
		}
	}
	if r.m.multi() {
		keys := make([]uint64, 0, len(r.m.lists))
		for k := range r.m.lists {
			keys = append(keys, k)
		}
		return r.lists(keys)
	}
	return nil
}
