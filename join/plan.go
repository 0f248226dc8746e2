package join

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
)

// OutputSchema is the schema of a join's output. The probe's columns come first. In inner and left joins, the build's
// columns without its key columns follow; in right and full joins, all of the build's columns follow. If Options.Select
// names columns, the output has only these. If the name of a build column is taken, it gets the suffix "_build", more
// than once if it must.
func OutputSchema(build, probe *arrow.Schema, o Options) (*arrow.Schema, error) {
	p, err := planOutput(build, probe, o)
	if err != nil {
		return nil, err
	}
	return p.schema, nil
}

// output says where a join's columns come from.
type output struct {
	schema  *arrow.Schema
	columns []source

	written *arrow.Schema // what the output says of its columns, where strips hold them
	widths  []int         // of csvRows, then
}

// source is a column of one side.
type source struct {
	build bool
	at    int
}

func planOutput(build, probe *arrow.Schema, o Options) (*output, error) {
	if _, err := planKeys(build, probe, o.On, o.NullsEqual); err != nil {
		return nil, err
	}
	fields := slices.Clone(probe.Fields())
	var from []source
	for i := range fields {
		from = append(from, source{at: i})
	}
	for i := range fields {
		fields[i].Nullable = fields[i].Nullable || o.How.keepsBuild()
	}
	if o.How.pairs() {
		used := map[string]bool{}
		for _, f := range fields {
			used[f.Name] = true
		}
		payload := payloadColumns(build, o)
		// Names that clash with no probe column stay, so they are taken before any suffix is tried.
		clash := map[int]bool{}
		for _, i := range payload {
			if name := build.Field(i).Name; used[name] {
				clash[i] = true
			} else {
				used[name] = true
			}
		}
		for _, i := range payload {
			f := build.Field(i)
			for clash[i] && used[f.Name] {
				f.Name += "_build"
			}
			used[f.Name] = true
			f.Nullable = f.Nullable || o.How.keepsProbe()
			fields, from = append(fields, f), append(from, source{true, i})
		}
	}
	for i := range fields {
		// Two files' field numbers are not one file's.
		m := fields[i].Metadata
		if k := m.FindKey("PARQUET:field_id"); k >= 0 {
			fields[i].Metadata = arrow.NewMetadata(slices.Delete(slices.Clone(m.Keys()), k, k+1),
				slices.Delete(slices.Clone(m.Values()), k, k+1))
		}
	}
	p := &output{schema: arrow.NewSchema(fields, nil), columns: from}
	return p, p.choose(o.Select)
}

// choose leaves the columns of the given names, in their order.
func (p *output) choose(names []string) error {
	if len(names) == 0 {
		return nil
	}
	var fields []arrow.Field
	var from []source
	for i, name := range names {
		at := p.schema.FieldIndices(name)
		switch {
		case len(at) == 0:
			return &OptionError{fmt.Sprintf("the output has no column %q to select; its columns: %s", name,
				columnNames(p.schema))}
		case len(at) > 1:
			return fmt.Errorf("the output has %d columns named %q: rename all but one", len(at), name)
		case slices.Contains(names[:i], name):
			return &OptionError{fmt.Sprintf("column %q is selected twice", name)}
		}
		fields, from = append(fields, p.schema.Field(at[0])), append(from, p.columns[at[0]])
	}
	p.schema, p.columns = arrow.NewSchema(fields, nil), from
	return nil
}

// only lets readers leave out the columns that are no keys and do not come out, and gives the plan for what they then
// have. A reader that is nil is left alone.
func (p *output) only(build, probe *Reader, on []Pair) *output {
	out := &output{schema: p.schema, columns: slices.Clone(p.columns)}
	for _, side := range []bool{true, false} {
		r := probe
		if side {
			r = build
		}
		if r == nil {
			continue
		}
		var keep []int
		for i, f := range r.schema.Fields() {
			key := slices.ContainsFunc(on, func(o Pair) bool {
				return side && o.Build == f.Name || !side && o.Probe == f.Name
			})
			if key || slices.Contains(p.columns, source{side, i}) {
				keep = append(keep, i)
			}
		}
		r.only(keep)
		for i, c := range out.columns {
			if c.build == side {
				out.columns[i].at = slices.Index(keep, c.at)
			}
		}
	}
	return out
}

// nodes are the types of the flat columns of Parquet files, which stay.
func (p *output) nodes(build, probe *Reader, how How) []*parquetNode {
	nodes := make([]*parquetNode, len(p.columns))
	for i, c := range p.columns {
		r := probe
		if c.build {
			r = build
		}
		if r.pq != nil {
			if col := r.pq.flat(c.at); col != nil {
				nodes[i] = &parquetNode{col, col.MaxDefinitionLevel() == 1 || c.build && how.keepsProbe() || !c.build &&
					how.keepsBuild()}
			}
		}
	}
	return nodes
}

// payloadColumns are the build's columns that come out: the keys only where rows do that have no probe row to show
// theirs.
func payloadColumns(build *arrow.Schema, o Options) []int {
	var out []int
	for i, f := range build.Fields() {
		if o.How.keepsBuild() || !slices.ContainsFunc(o.On, func(p Pair) bool { return p.Build == f.Name }) {
			out = append(out, i)
		}
	}
	return out
}

// typesThatFit are types, in the form of ParseTypes, with which two key columns fit: of those in text, the type of the
// other where that reads what made them text, or else text for both. They are empty where no types help.
func typesThatFit(build, probe *Reader, at [2]int) string {
	sides := [2]*Reader{build, probe}
	var fields [2]arrow.Field
	for i, r := range sides {
		fields[i] = r.schema.Field(at[i])
	}
	say := func(f arrow.Field, name string) string { return escaped(f.Name) + "=" + name }
	for i, r := range sides {
		own, other := fields[i], fields[1-i]
		if name := sqlName(other.Type); own.Type.ID() == arrow.STRING && r.takes(at[i]) &&
			!sides[1-i].takes(at[1-i]) && name != "" &&
			(r.isLive() || readsAs(r.made[at[i]].value, other.Type)) {
			return say(own, name)
		}
	}
	var out []string
	for i, r := range sides {
		if fields[i].Type.ID() == arrow.STRING {
			continue
		}
		if !r.takes(at[i]) {
			return ""
		}
		if f := say(fields[i], "text"); !slices.Contains(out, f) {
			out = append(out, f)
		}
	}
	return strings.Join(out, ",")
}

// because adds to an error of a key column which types make it fit, and of one in text, which field made it so.
func because(err error, build, probe *Reader) error {
	var k *keyTypeError
	if !errors.As(err, &k) {
		return err
	}
	r := build
	if k.side == "probe" {
		r = probe
	}
	if k.both != nil {
		if types := typesThatFit(build, probe, *k.both); types != "" {
			k.advice = "with the types " + types + " (--types) they fit"
		}
	}
	if k.column >= len(r.made) || r.made[k.column].path == "" {
		return err
	}
	w := r.made[k.column]
	if w.line == 0 && w.value == "" { // the type was given
		return err
	}
	if w.line == 0 {
		return fmt.Errorf("%w; the name of a folder made it so, with %q, in %s", err, w.value, w.path)
	}
	if slices.Contains(nullWords, strings.ToLower(w.value)) {
		return fmt.Errorf("%w; line %d of %s made it so, with %q (--null %[4]s if it means no value)", err, w.line,
			w.path, w.value)
	}
	return fmt.Errorf("%w; line %d of %s made it so, with %q", err, w.line, w.path, w.value)
}

// nullWords are what files often have for a value that is not there, in small letters.
var nullWords = []string{"null", "na", "n/a", "nan", "none", "nil", `\n`, "-", "?", "."}
