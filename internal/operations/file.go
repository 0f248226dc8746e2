package operations

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// File is a table's options, the grounds it stands on, and what is done to it.
type File struct {
	Comments []string // without the #
	Kind     string   // one of Kinds
	Table    Settings
	Grounds  []Settings
	Ops      []Op
}

// Kinds are the kinds of tables that files have: those of package table, maps of strings, and caches.
var Kinds = []string{"map", "set", "multimap", "bucketlist", "multibucket", "counter", "filter", "strings", "cache"}

// Setting is a name and what it is set to, in words.
type Setting struct{ Name, Text string }

// Settings are in the order of the line. What is not set is as if zero.
type Settings []Setting

// Op is a line: an operation, how it is done, and its rows.
//
// The rows are listed, or there are n of them by the rules of keys, values, when (which rows are chosen) and ops (what
// each row of a mixed batch does):
//
//	keys=seq:5            5, 6, 7, …
//	keys=some:SEED:300    of 0 … 299; one in 12 is near the ends of what a key can be
//	keys=wide:SEED:300    the same, spread over 64 bits
//	keys=skew:SEED:300    the same as some, but half of them are of two keys
//	values=from:5         5, 6, 7, …
//	values=small:SEED     0 … 4; one in 200 is near the end of what a count can be
//	when=SEED ops=SEED
//
// Inserts into a cache may have scores=SEED, from 0 to 29, and those of insertfor have lives=SEED, up to 300 ms, some of
// them 0. They belong to positions.
type Op struct {
	Name string
	Settings
	Rows []Row
}

// Row is a key and its value. Mark is + for a row that is chosen, and i, n or d for a row of a mixed batch that inserts,
// inserts as new or deletes; otherwise it is 0.
type Row struct {
	Key, Value uint64
	Mark       byte
}

// known are the words of each line, and what they may be set to: a whole number, a fraction, or a word.
var known = map[string]map[string]string{
	"table": {"key": "word", "value": "word", "capacity": "whole", "load": "fraction", "maxbytes": "whole", "hash": "whole",
		"seed": "whole", "distinct": "whole", "saturate": "whole", "positives": "fraction", "bytes": "whole", "long": "whole",
		"keybytes": "whole", "policy": "word", "ttl": "whole", "lives": "whole",
		"hostvalues": "whole", "hostbytes": "whole"},
	"ground": {"family": "word", "shards": "whole", "members": "whole", "stress": "whole", "memory": "whole", "kept": "word",
		"piece": "whole", "askall": "whole", "regions": "whole", "copies": "whole", "layout": "whole", "window": "whole", "insert": "whole",
		"find": "whole", "low": "fraction", "balance": "whole", "subtables": "whole", "bucket": "whole", "light": "whole",
		"nopolicy": "whole", "group": "whole", "percell": "fraction", "virtual": "whole", "cell": "whole", "device": "whole",
		"host": "whole", "ticket": "whole", "initial": "whole", "growth": "fraction", "block": "whole", "hashes": "whole",
		"tag": "whole"},
	"op": {"n": "whole", "keys": "word", "values": "word", "when": "whole", "ops": "whole", "on": "word", "stream": "word",
		"with": "word", "family": "word", "what": "word", "seed": "whole",
		"scores": "whole", "lives": "whole", "capacity": "whole", "policy": "word", "hostvalues": "whole"},
}

// opNames are the operations. A table that lacks one leaves it out.
var opNames = []string{"insert", "insertnew", "insertif", "update", "findorinsert", "add", "addcounts", "delete", "mixed",
	"find", "contains", "findif", "containsif", "findall", "foreach", "top", "build", "grow", "shrink", "clear", "save",
	"all", "wrong", "close", "insertout", "insertfor", "findquiet", "sweep", "wait"}

// Get is what the name is set to, or nothing.
func (s Settings) Get(name string) string {
	for _, x := range s {
		if x.Name == name {
			return x.Text
		}
	}
	return ""
}

// number is what the name is set to, or 0. Parse has seen that it is a number.
func (s Settings) number(name string) int { return int(s.number64(name)) }

func (s Settings) number64(name string) int64 {
	n, _ := strconv.ParseInt(s.Get(name), 0, 64)
	return n
}

func (s Settings) seed(name string) uint64 {
	n, _ := strconv.ParseUint(s.Get(name), 0, 64)
	return n
}

func (s Settings) fraction(name string) float64 {
	x, _ := strconv.ParseFloat(s.Get(name), 64)
	return x
}

// With is a copy in which the name is set to x, or not set where x is its type's zero.
func (s Settings) With(name string, x any) Settings {
	text := fmt.Sprint(x)
	s = slices.DeleteFunc(slices.Clone(s), func(x Setting) bool { return x.Name == name })
	if text == "0" || text == "" || text == "false" {
		return s
	}
	if text == "true" {
		text = "1"
	}
	return append(s, Setting{name, text})
}

func (s Settings) String() string {
	var out strings.Builder
	for _, x := range s {
		fmt.Fprintf(&out, " %s=%s", x.Name, x.Text)
	}
	return out.String()
}

func (o *Op) String() string {
	var out strings.Builder
	out.WriteString(o.Name + o.Settings.String())
	for _, r := range o.Rows {
		fmt.Fprintf(&out, " %s", short(r.Key))
		if r.Value != 0 {
			fmt.Fprintf(&out, "=%s", short(r.Value))
		}
		if r.Mark != 0 {
			fmt.Fprintf(&out, ":%c", r.Mark)
		}
	}
	return out.String()
}

// short is a number as it is shortest to read.
func short(x uint64) string {
	if x < 1<<32-1 {
		return strconv.FormatUint(x, 10)
	}
	return fmt.Sprintf("%#x", x)
}

func (f *File) String() string {
	var out strings.Builder
	for _, c := range f.Comments {
		fmt.Fprintf(&out, "# %s\n", c)
	}
	fmt.Fprintf(&out, "operations 1\ntable %s%v\n", f.Kind, f.Table)
	for _, g := range f.Grounds {
		fmt.Fprintf(&out, "ground%v\n", g)
	}
	for i := range f.Ops {
		fmt.Fprintln(&out, f.Ops[i].String())
	}
	return out.String()
}

// Parse reads what String wrote, or what somebody wrote by hand. Its errors name the line.
func Parse(text string) (*File, error) {
	f := &File{}
	version := false
	for i, line := range strings.Split(text, "\n") {
		if comment, is := strings.CutPrefix(line, "#"); is {
			f.Comments = append(f.Comments, strings.TrimSpace(comment))
			continue
		}
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		if err := f.line(words, &version); err != nil {
			return nil, fmt.Errorf("line %d: %w", i+1, err)
		}
	}
	if f.Kind == "" {
		return nil, fmt.Errorf("no line says which table it is (want one that begins: table map)")
	}
	return f, nil
}

func (f *File) line(words []string, version *bool) error {
	switch {
	case words[0] == "operations":
		if len(words) != 2 || words[1] != "1" {
			return fmt.Errorf("operations of another version (want: operations 1)")
		}
		*version = true
		return nil
	case !*version:
		return fmt.Errorf("%q comes before the version (want first: operations 1)", words[0])
	case words[0] == "table":
		if f.Kind != "" || len(words) < 2 || !slices.Contains(Kinds, words[1]) {
			return fmt.Errorf("a second table, or one of no kind (want one of %v)", Kinds)
		}
		s, rows, err := parseWords("table", words[2:])
		if err == nil && len(rows) > 0 {
			err = fmt.Errorf("a table with rows")
		}
		f.Kind, f.Table = words[1], s
		return err
	case words[0] == "ground":
		s, rows, err := parseWords("ground", words[1:])
		if err == nil && len(rows) > 0 {
			err = fmt.Errorf("a ground with rows")
		}
		f.Grounds = append(f.Grounds, s)
		return err
	case !slices.Contains(opNames, words[0]):
		return fmt.Errorf("no operation %q (want one of %v)", words[0], opNames)
	}
	s, rows, err := parseWords("op", words[1:])
	if err != nil {
		return err
	}
	op := Op{words[0], s, rows}
	if len(rows) > 0 && op.Get("n") != "" {
		return fmt.Errorf("rows by a rule and rows beside it (want one of them)")
	}
	if _, err := op.Batch(); err != nil {
		return err
	}
	f.Ops = append(f.Ops, op)
	return nil
}

// Add adds an operation, as a line says it.
func (f *File) Add(line string) error {
	version := true
	return f.line(strings.Fields(line), &version)
}

func parseWords(line string, words []string) (s Settings, rows []Row, err error) {
	for _, w := range words {
		if w[0] >= '0' && w[0] <= '9' {
			r, err := parseRow(w)
			if err != nil {
				return nil, nil, err
			}
			rows = append(rows, r)
			continue
		}
		name, text, _ := strings.Cut(w, "=")
		switch known[line][name] {
		case "":
			return nil, nil, fmt.Errorf("%q is no setting of this line", name)
		case "whole":
			if _, err = strconv.ParseInt(text, 0, 64); err != nil {
				_, err = strconv.ParseUint(text, 0, 64)
			}
		case "fraction":
			_, err = strconv.ParseFloat(text, 64)
		}
		if err != nil || s.Get(name) != "" {
			return nil, nil, fmt.Errorf("%q is no number, or is set twice", w)
		}
		s = append(s, Setting{name, text})
	}
	return s, rows, nil
}

func parseRow(w string) (r Row, err error) {
	rest, mark, marked := strings.Cut(w, ":")
	if marked && (len(mark) != 1 || !strings.Contains("+ind", mark)) {
		return r, fmt.Errorf("a row marked %q (want one of + i n d)", mark)
	}
	if marked {
		r.Mark = mark[0]
	}
	key, value, has := strings.Cut(rest, "=")
	if r.Key, err = strconv.ParseUint(key, 0, 64); err == nil && has {
		r.Value, err = strconv.ParseUint(value, 0, 64)
	}
	return r, err
}
