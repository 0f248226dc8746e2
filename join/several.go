package join

import (
	"cmp"
	"fmt"
	"io"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/scalar"
	"github.com/bmatcuk/doublestar/v4"

	"github.com/warpmap/warpmap/internal/files"
)

// OpenAll opens one or several inputs as one: their rows follow one another in the order of the names. A name is one of
// these: a file; a pattern (*, ?, [a-z], {a,b}, and ** for folders within folders); a folder; or several of these
// separated by commas, unless a file has the name with the commas in it. From a folder, OpenAll reads the files of a
// known suffix in the order of their names, including those in the folders below it. In folders, it skips files whose
// names begin with . or _. If a format is given, all files have it; otherwise each file's own name tells its format
// (OpenAs).
//
// If the path below a folder, or what a pattern matched, has parts key=value, these become columns, behind the file's
// own. Such a column is int64 or date32 if all of its values are, and otherwise string; the values
// __HIVE_DEFAULT_PARTITION__, and NULL in letters of any case, are nulls. All files must have the same columns, in any
// order. A column of text files has the type that holds the values of all files. A column whose files hold texts, or
// binary values, in different types is large_utf8 or large_binary.
func OpenAll(format Format, names ...string) (*Reader, error) {
	files, err := expandAll(format, names)
	if err != nil {
		return nil, err
	}
	if err := once(files); err != nil {
		return nil, err
	}
	return openFiles(format, files, TextOptions{})
}

// expandAll finds the files that names stand for.
func expandAll(format Format, names []string) (files []inputFile, err error) {
	for _, name := range names {
		if name == "" {
			return nil, &OptionError{"an input without a name"}
		}
		some, err := expand(format, name)
		if err != nil {
			return nil, ofInput(err)
		}
		files = append(files, some...)
	}
	return files, nil
}

// once tells which input, that can be read once alone, is given twice: standard input, or a pipe.
func once(inputs []inputFile) error {
	if again, err := files.Once(paths(inputs)); err != nil {
		return &OptionError{fmt.Sprintf("%s %v", again, err)}
	}
	return nil
}

func paths(inputs []inputFile) []string {
	out := make([]string, len(inputs))
	for i, f := range inputs {
		out[i] = f.path
	}
	return out
}

// openFiles opens files as one.
func openFiles(format Format, files []inputFile, text TextOptions) (*Reader, error) {
	if len(files) == 1 && len(files[0].keys) == 0 {
		return openAs(files[0].path, format, text)
	}
	s := &several{}
	text.key = nil // the types of each tell those of all
	for _, f := range files {
		r, err := openAs(f.path, format, text)
		if err != nil {
			s.close()
			return nil, err
		}
		s.readers = append(s.readers, r)
	}
	r, err := s.reader(files, text.Types)
	if err != nil {
		s.close()
		return nil, ofInput(err)
	}
	return r, nil
}

// inputFile is a file, what the names of its folders say, and the folder or the pattern that stands for it, if one
// does.
type inputFile struct {
	path    string
	keys    []pathKey
	folder  string
	pattern string
}

// CheckOutput returns an error, before anything is read, if a join's output would replace one of its inputs. It knows
// an input by any name: a link, a file of a folder or of a pattern, or what standard output goes to. An output folder
// must not be a folder that is read, nor hold one. No output may lie in a folder that is read, or be found by a pattern
// of the inputs, because the next join would read it. CheckOutput is silent about inputs that are not there; Run
// returns an error for these.
func CheckOutput(o Options) error {
	build, err := expandAll(o.BuildFormat, append([]string{o.Build}, o.MoreBuild...))
	if err != nil || o.Count {
		return nil
	}
	probe, err := expandAll(o.ProbeFormat, append([]string{o.Probe}, o.MoreProbe...))
	if err != nil {
		return nil
	}
	if o.Out == "" {
		o.Out = "-"
	}
	inputs := slices.Concat(build, probe)
	refuse := func(what string, args ...any) error {
		return fmt.Errorf("%s: "+what+": want another name to write to", append([]any{o.Out}, args...)...)
	}
	folder := o.writeOptions().folder(o.Out)
	if !folder {
		if err := files.NotRead(o.Out, paths(inputs)); err != nil {
			return err
		}
		if about, err := os.Stat(o.Out); o.Out == "-" || err == nil && !about.Mode().IsRegular() {
			return nil
		}
		name, _ := named(o.Out)
		if name == "" && o.BuildFormat == "" && o.ProbeFormat == "" ||
			strings.ContainsAny(filepath.Base(o.Out)[:1], "._") {
			return nil // a folder's other files are not read
		}
	}
	to, err := files.Target(filepath.Clean(o.Out))
	if err != nil {
		return nil // to create it says that
	}
	part := to
	if folder {
		part = filepath.Join(to, "part-00000"+partSuffix(o.writeOptions().format(o.Out)))
	}
	for _, f := range inputs {
		if f.folder != "" {
			dir, err := realPath(f.folder)
			switch {
			case err != nil:
				return err
			case dir == to:
				return refuse("is a folder that is read")
			case files.Within(to, dir):
				return refuse("lies in %s, which is read", f.folder)
			case files.Within(dir, to):
				return refuse("holds %s, which is read", f.folder)
			}
		}
		if f.pattern != "" {
			base, pattern := doublestar.SplitPattern(filepath.ToSlash(f.pattern))
			if base, err = realPath(base); err != nil {
				return err
			}
			if below, err := filepath.Rel(base, part); err == nil && files.Within(part, base) {
				if found, _ := doublestar.Match(pattern, filepath.ToSlash(below)); found {
					return refuse("would be found by %s, which is read", f.pattern)
				}
			}
		}
		if file, err := realPath(f.path); f.path != "-" && err == nil && files.Within(file, to) {
			return refuse("holds %s, which is read", f.path)
		}
	}
	return nil
}

// realPath is a path from the root, through no links.
func realPath(path string) (string, error) {
	path, err := filepath.EvalSymlinks(path)
	if err != nil {
		return "", err
	}
	return filepath.Abs(path)
}

// pathKey is a part key=value of a path.
type pathKey struct{ name, value string }

// nullPartition tells that a folder's value is a null: as Hive and Spark write it, or as DuckDB does and reads it.
func nullPartition(value string) bool {
	return value == "__HIVE_DEFAULT_PARTITION__" || strings.EqualFold(value, "NULL")
}

// expand finds the files that a name stands for.
func expand(format Format, name string) (out []inputFile, err error) {
	found, as, err := files.Expand(name, "._", func(path string) bool {
		known, _ := named(path)
		return known != "" || format != ""
	})
	switch {
	case as == files.Nothing && strings.Contains(name, ","):
		for part := range strings.SplitSeq(name, ",") {
			some, err := expand(format, part)
			if err != nil {
				return nil, err
			}
			out = append(out, some...)
		}
		return out, nil
	case as == files.Nothing:
		return []inputFile{{path: name}}, nil // opening it says what is wrong
	case err == nil && as == files.InFolder && found == nil:
		err = fmt.Errorf("no file in this folder has a name that ends in one of %s", strings.Join(Suffixes(), ", "))
	}
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	for _, path := range found {
		f := inputFile{path: path}
		switch as {
		case files.InFolder:
			below, err := filepath.Rel(name, path)
			if err != nil {
				return nil, err
			}
			f.folder, f.keys = name, keysOf(below)
		case files.ByPattern:
			f.pattern, f.keys = name, keysOf(path)
		}
		out = append(out, f)
	}
	return out, nil
}

// keysOf are the keys of a path's folders.
func keysOf(path string) (keys []pathKey) {
	for part := range strings.SplitSeq(filepath.ToSlash(filepath.Dir(path)), "/") {
		if name, value, ok := strings.Cut(part, "="); ok && name != "" {
			if plain, err := url.PathUnescape(value); err == nil {
				value = plain
			}
			keys = append(keys, pathKey{name, value})
		}
	}
	return keys
}

// several are readers whose rows follow one another.
type several struct {
	readers []*Reader
	at      int
	mixed   bool // a column has texts, or binary values, of several types
}

func (s *several) close() (err error) {
	for _, r := range s.readers {
		err = cmp.Or(err, r.Close())
	}
	return err
}

// within is a Reader's.
func (s *several) within(bytes int64) error {
	for _, r := range s.readers {
		if r.within == nil {
			continue
		}
		if err := r.within(bytes); err != nil {
			return err
		}
	}
	return nil
}

// reader makes one of all.
func (s *several) reader(files []inputFile, types Types) (*Reader, error) {
	if err := s.unify(); err != nil {
		return nil, err
	}
	first := s.readers[0]
	places := make([][]int, len(s.readers)) // of the first file's columns, in each
	rows, size := int64(0), int64(0)
	for i, r := range s.readers {
		p, err := placesIn(first, r)
		if err != nil {
			return nil, err
		}
		places[i] = p
		size += r.size
		if r.rows < 0 || rows < 0 {
			rows = -1
		} else {
			rows += r.rows
		}
	}
	keys, err := partitions(files, types)
	if err != nil {
		return nil, err
	}
	fields := slices.Clone(first.schema.Fields())
	var values [][]scalar.Scalar // of each key, by file
	made := make([]witness, len(fields))
	copy(made, first.made)
	at := make([]int, len(keys)) // where it stands
	for i, k := range keys {
		at[i] = slices.IndexFunc(fields, func(f arrow.Field) bool { return f.Name == k.field.Name })
		if at[i] < 0 {
			at[i] = len(fields)
			fields, made = append(fields, k.field), append(made, witness{})
		} else {
			fields[at[i]] = k.field // a folder's name is what tools go by where files have the column, too
		}
		values, made[at[i]] = append(values, k.values), k.made
	}
	for i := range fields {
		for _, r := range s.readers {
			if i < first.schema.NumFields() {
				f := r.schema.Field(places[slices.Index(s.readers, r)][i])
				fields[i].Nullable = fields[i].Nullable || f.Nullable
				if !slices.Contains(at, i) && !arrow.TypeEqual(fields[i].Type, f.Type) {
					fields[i].Type, s.mixed = longForm(f.Type), true
				}
			}
		}
		fields[i].Metadata = arrow.Metadata{}
	}
	out := &Reader{schema: arrow.NewSchema(fields, nil), rows: rows, size: size, made: made, close: s.close}
	for _, r := range s.readers {
		out.formats = append(out.formats, r.formats...)
	}
	if files := s.parquets(); files != nil {
		for i, f := range files {
			if len(keys) == 0 {
				break
			}
			own := make([]scalar.Scalar, len(keys))
			for k := range keys {
				own[k] = values[k][i]
			}
			if files[i], err = f.inFolders(out.schema, places[i], at, own); err != nil {
				return nil, err
			}
		}
		if !slices.Contains(files, nil) {
			out.pq = severalParquet(files)
		}
	}
	all := out.schema
	wanted := make([]int, all.NumFields())
	for i := range wanted {
		wanted[i] = i
	}
	out.within = s.within
	out.pick = func(columns []int) {
		wanted = columns
		for i, r := range s.readers {
			var own []int
			for _, c := range columns {
				if !slices.Contains(at, c) {
					own = append(own, places[i][c])
				}
			}
			if len(own) == 0 { // where folders' columns are all that is wanted, the rows still count
				own = append(own, 0)
			}
			slices.Sort(own)
			r.only(own)
		}
	}
	out.next = func() (arrow.RecordBatch, error) { return s.next(all, out.schema, wanted, at, values) }
	return out, nil
}

// next reads a batch with the wanted columns of all: those of the folders' names stand at these places, and have these
// values by file.
func (s *several) next(all, schema *arrow.Schema, wanted, at []int, values [][]scalar.Scalar) (arrow.RecordBatch,
	error) {
	for ; s.at < len(s.readers); s.at++ {
		r := s.readers[s.at]
		if !r.Next() {
			if err := r.Err(); err != nil {
				return nil, err
			}
			continue
		}
		rec := r.RecordBatch()
		columns := make([]arrow.Array, len(wanted))
		for i, c := range wanted {
			if k := slices.Index(at, c); k >= 0 {
				a, err := scalar.MakeArrayFromScalar(values[k][s.at], int(rec.NumRows()), allocator)
				if err != nil {
					return nil, err
				}
				columns[i] = a
				continue
			}
			columns[i] = rec.Column(rec.Schema().FieldIndices(all.Field(c).Name)[0])
			if t := all.Field(c).Type; arrow.TypeEqual(columns[i].DataType(), t) {
				columns[i].Retain()
			} else {
				columns[i] = inLongForm(columns[i], t)
			}
		}
		return array.NewRecordBatch(schema, columns, rec.NumRows()), nil
	}
	return nil, io.EOF
}

// longForm returns the type that has room for all texts, or all binary values, of a column whose files have them in
// different types. It returns nil for other types.
func longForm(t arrow.DataType) arrow.DataType {
	switch t := t.(type) {
	case *arrow.StringType, *arrow.LargeStringType, *arrow.StringViewType:
		return arrow.BinaryTypes.LargeString
	case *arrow.BinaryType, *arrow.LargeBinaryType, *arrow.BinaryViewType:
		return arrow.BinaryTypes.LargeBinary
	case *arrow.DictionaryType:
		return longForm(t.ValueType)
	}
	return nil
}

// inLongForm returns a column as one of a type that longForm returned.
func inLongForm(a arrow.Array, t arrow.DataType) arrow.Array {
	b := array.NewBuilder(allocator, t)
	defer b.Release()
	values, at := a, func(i int) int { return i }
	if d, is := a.(*array.Dictionary); is {
		values, at = d.Dictionary(), d.GetValueIndex
	}
	for i := range a.Len() {
		if a.IsNull(i) || values.IsNull(at(i)) {
			b.AppendNull()
			continue
		}
		switch v := values.(type) {
		case interface{ Value(int) string }:
			b.(*array.LargeStringBuilder).Append(v.Value(at(i)))
		case interface{ Value(int) []byte }:
			b.(*array.BinaryBuilder).Append(v.Value(at(i)))
		}
	}
	return b.NewArray()
}

// parquets returns the readers' Parquet files, and nil if some are none or if a column needs another type.
func (s *several) parquets() (files []*parquetFile) {
	for _, r := range s.readers {
		if r.pq == nil || s.mixed {
			return nil
		}
		files = append(files, r.pq)
	}
	return files
}

// unify gives the columns of text files types that hold the values of all files.
func (s *several) unify() error {
	var columns []textColumn
	for i, r := range s.readers {
		if r.text == nil {
			return nil
		}
		for _, c := range r.text.columns {
			k := slices.IndexFunc(columns, func(k textColumn) bool { return k.name == c.name })
			if k < 0 && i == 0 {
				columns = append(columns, c)
				continue
			}
			if k < 0 {
				return nil // placesIn says it
			}
			old := columns[k].typ()
			if columns[k].seen |= c.seen; !arrow.TypeEqual(old, columns[k].typ()) {
				columns[k].made = c.made
			}
		}
	}
	for _, r := range s.readers {
		own := slices.Clone(r.text.columns)
		for i := range own {
			if k := slices.IndexFunc(columns, func(k textColumn) bool { return k.name == own[i].name }); k >= 0 {
				own[i] = columns[k]
			}
		}
		r.typed(own)
	}
	return nil
}

// placesIn finds one file's columns in another.
func placesIn(first, r *Reader) ([]int, error) {
	places := make([]int, first.schema.NumFields())
	for i, f := range first.schema.Fields() {
		own := r.schema.FieldIndices(f.Name)
		if len(own) == 0 {
			return nil, fmt.Errorf("%s: no column %q, which %s has: files of one side must have the same columns",
				r.path, f.Name, first.path)
		}
		if len(own) > 1 {
			return nil, fmt.Errorf("%s: %d columns %q: of several files each must have a name of its own", r.path,
				len(own), f.Name)
		}
		t := r.schema.Field(own[0]).Type
		long := longForm(t)
		if !arrow.TypeEqual(t, f.Type) && (long == nil || !arrow.TypeEqual(long, longForm(f.Type))) {
			return nil, fmt.Errorf("%s: column %q is %s, and %s in %s: files of one side must have the same types",
				r.path, f.Name, t, f.Type, first.path)
		}
		places[i] = own[0]
	}
	for _, f := range r.schema.Fields() {
		if !first.schema.HasField(f.Name) {
			return nil, fmt.Errorf("%s: a column %q, which %s does not have: files of one side must have the same "+
				"columns", r.path, f.Name, first.path)
		}
	}
	return places, nil
}

// partition is a column of the folders' names.
type partition struct {
	field  arrow.Field
	values []scalar.Scalar // by file
	made   witness         // of its type
}

// folderType is the type of a column of folders' names in which these classes were seen.
func folderType(seen int) arrow.DataType {
	if t := csvType(seen); t.ID() == arrow.INT64 || t.ID() == arrow.DATE32 {
		return t
	}
	return arrow.BinaryTypes.String
}

// folderValue is a value that a folder's name says.
func folderValue(text string, typ arrow.DataType) (scalar.Scalar, error) {
	if nullPartition(text) {
		return scalar.MakeNullScalar(typ), nil
	}
	a, err := oneValue(text, typ)
	if err != nil {
		return nil, err
	}
	defer a.Release()
	return scalar.GetScalar(a, 0)
}

// partitions are the columns that the files' folders tell, with the types that are given.
func partitions(files []inputFile, types Types) (out []partition, err error) {
	for _, k := range files[0].keys {
		p, seen := partition{made: witness{path: files[0].path, value: k.name + "=" + k.value}}, 0
		texts := make([]string, len(files))
		for i, f := range files {
			at := slices.IndexFunc(f.keys, func(o pathKey) bool { return o.name == k.name })
			if at < 0 || len(f.keys) != len(files[0].keys) {
				return nil, fmt.Errorf("%s: its folders are not named as those of %s: want %s=… in both", f.path,
					files[0].path, k.name)
			}
			if texts[i] = f.keys[at].value; !nullPartition(texts[i]) {
				old, first := folderType(seen), seen == 0
				if seen |= classify([]byte(texts[i])); first || !arrow.TypeEqual(old, folderType(seen)) {
					p.made = witness{path: f.path, value: k.name + "=" + texts[i]}
				}
			}
		}
		p.field = arrow.Field{Name: k.name, Type: folderType(seen), Nullable: true}
		if t := types[k.name]; t != nil {
			p.field.Type = t
		}
		for i, text := range texts {
			v, err := folderValue(text, p.field.Type)
			if err != nil {
				return nil, fmt.Errorf("%s: the folder %s=%s: %w", files[i].path, k.name, text, err)
			}
			p.values = append(p.values, v)
		}
		if slices.ContainsFunc(out, func(o partition) bool { return o.field.Name == k.name }) {
			return nil, fmt.Errorf("%s: two folders that say %s=…", files[0].path, k.name)
		}
		out = append(out, p)
	}
	for _, f := range files {
		if len(f.keys) > 0 && len(files[0].keys) == 0 {
			return nil, fmt.Errorf("%s: its folders are not named as those of %s", f.path, files[0].path)
		}
	}
	return out, nil
}
