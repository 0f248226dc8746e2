package columnar

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/ipc"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/testenv"
	"github.com/warpmap/warpmap/table"
)

func cpu(t testing.TB) []*device.Device {
	t.Helper()
	d, err := device.Open("cpu")
	testenv.Require(t, "cpu", err)
	t.Cleanup(func() { d.Close() })
	return []*device.Device{d}
}

func newTable(t testing.TB, devices []*device.Device, columns string, keys int, o Options) *Table {
	t.Helper()
	all, err := Parse(columns)
	if err != nil {
		t.Fatal(err)
	}
	x, err := New(devices, Schema{"t", all[:keys], all[keys:]}, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { x.Close() })
	return x
}

// recordOf makes an Arrow record of cells, which are texts as Arrow's ValueStr gives them; null is a null.
func recordOf(t testing.TB, columns []Column, rows [][]string) arrow.RecordBatch {
	t.Helper()
	b := array.NewRecordBuilder(memory.DefaultAllocator, ArrowSchema(columns, nil))
	defer b.Release()
	for _, r := range rows {
		for i, cell := range r {
			if cell == null {
				b.Field(i).AppendNull()
			} else if err := b.Field(i).AppendValueFromString(cell); err != nil {
				t.Fatal(err)
			}
		}
	}
	return b.NewRecordBatch()
}

const null = array.NullValueStr

// payload is a record as Arrow's own library sends it.
func payload(t testing.TB, rec arrow.RecordBatch) (header, body []byte) {
	t.Helper()
	p, err := ipc.GetRecordBatchPayload(rec)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Release()
	var b bytes.Buffer
	if err := p.SerializeBody(&b); err != nil {
		t.Fatal(err)
	}
	m := p.Meta()
	defer m.Release()
	return bytes.Clone(m.Bytes()), b.Bytes()
}

// batchOf is a batch as it comes from the library.
func batchOf(t testing.TB, columns []Column, rows [][]string) Batch {
	t.Helper()
	header, body := payload(t, recordOf(t, columns, rows))
	b, err := Decode(header, body, columns, 1<<20)
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// cellsOf has Arrow's own library read a frame.
func cellsOf(t testing.TB, columns []Column, f Frame) (rows [][]string) {
	t.Helper()
	schema, err := EncodeSchema(ArrowSchema(columns, nil))
	if err != nil {
		t.Fatal(err)
	}
	var stream bytes.Buffer
	write := func(meta, body []byte) {
		stream.Write([]byte{255, 255, 255, 255})
		n := (len(meta) + 7) / 8 * 8
		stream.Write([]byte{byte(n), byte(n >> 8), byte(n >> 16), byte(n >> 24)})
		stream.Write(meta)
		stream.Write(make([]byte, n-len(meta)))
		stream.Write(body)
	}
	write(schema, nil)
	write(f.Header, f.Body)
	r, err := ipc.NewReader(&stream)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Release()
	for r.Next() {
		rec := r.RecordBatch()
		for i, c := range rec.Columns() {
			if err := array.ValidateFull(c); err != nil {
				t.Fatalf("column %d: %v", i, err)
			}
		}
		for at := range int(rec.NumRows()) {
			row := make([]string, rec.NumCols())
			for i, c := range rec.Columns() {
				row[i] = c.ValueStr(at)
			}
			rows = append(rows, row)
		}
	}
	if r.Err() != nil || len(rows) != f.Rows {
		t.Fatalf("%d rows of %d: %v", len(rows), f.Rows, r.Err())
	}
	return rows
}

// cell makes a random value of a type, one of few.
func cell(r *rand.Rand, c Column, of int) string {
	if c.Nullable && r.IntN(4) == 0 {
		return null
	}
	n := r.IntN(of)
	switch c.Type.ID() {
	case arrow.BOOL:
		return strconv.FormatBool(n%2 == 0)
	case arrow.STRING, arrow.LARGE_STRING:
		return strings.Repeat("é", n%5) + strconv.Itoa(n)
	case arrow.BINARY:
		return "AAA" + string(rune('A'+n%26))
	case arrow.FIXED_SIZE_BINARY:
		return "AAAAAAAAAAAAAAAAAA" + string(rune('A'+n%26)) + string(rune('A'+n/26%26)) + "AA=="
	case arrow.DATE32:
		return arrow.Date32(n).FormattedString()
	case arrow.INT8, arrow.UINT8:
		return strconv.Itoa(n % 100)
	case arrow.INT64, arrow.INT32, arrow.INT16:
		return strconv.Itoa(n - of/2)
	}
	return strconv.Itoa(n)
}

// shapes are tables of every kind of index and of values.
var shapes = []struct {
	columns string
	keys    int
}{
	{"id:int64,price:float64", 1},
	{"id:int32,n:uint32", 1},
	{"id:uint64", 1},
	{"name:utf8,n:int64?,s:utf8?,ok:bool,l:large_utf8", 1},
	{"a:int16,b:int8,v:uint8?,at:date32", 2},
	{"a:int64,b:utf8,n:int32", 2},
	{"id:binary[16],s:utf8", 1},
	{"ok:bool", 1},
	{"name:binary", 1},
}

// model is what a table should be.
type model struct {
	rows map[string][]string
	keys int
}

func (m model) key(row []string) string { return fmt.Sprintf("%q", row[:m.keys]) }

// put does what a mode does; sum is for Add.
func (m model) put(mode Mode, rows [][]string) (added, deleted int) {
	for _, row := range rows {
		k := m.key(row)
		old, is := m.rows[k]
		switch {
		case mode == Delete:
			if is {
				deleted++
			}
			delete(m.rows, k)
			continue
		case !is:
			added++
			fallthrough
		case mode == Insert:
			m.rows[k] = row
			continue
		case mode == InsertNew:
			continue
		}
		row = append([]string(nil), row...)
		for i := m.keys; i < len(row); i++ {
			row[i] = combined(mode, old[i], row[i])
		}
		m.rows[k] = row
	}
	return added, deleted
}

func combined(mode Mode, old, comes string) string {
	if old == null || comes == null {
		return strings.Replace(old+comes, null, "", 1)
	}
	a, err := strconv.ParseFloat(old, 64)
	b, _ := strconv.ParseFloat(comes, 64)
	if err != nil { // a date
		if (old < comes) == (mode == Min) {
			return old
		}
		return comes
	}
	switch mode {
	case Add:
		a += b
	case Min:
		a = min(a, b)
	case Max:
		a = max(a, b)
	}
	return strconv.FormatFloat(a, 'f', -1, 64)
}

// Random batches of all modes do the same to a table and to a Go map, through Arrow's own library on both sides: on a
// CPU device, on a GPU, and spread over two devices.
func TestTableIsAMap(t *testing.T) {
	for _, list := range []string{"cpu", "cuda:0", "cpu:0,cpu:1"} {
		t.Run(list, func(t *testing.T) {
			devices, err := device.OpenAll(list)
			what, _, _ := strings.Cut(list, ":")
			testenv.Require(t, what, err)
			for _, d := range devices {
				t.Cleanup(func() { d.Close() })
			}
			for i, s := range shapes {
				t.Run(s.columns, func(t *testing.T) {
					x := newTable(t, devices, s.columns, s.keys, Options{})
					tryTable(t, x, rand.New(rand.NewPCG(testenv.FirstSeed(), uint64(i))))
				})
			}
		})
	}
}

// Every family is an index.
func TestFamiliesAreIndexes(t *testing.T) {
	if !testenv.Long() {
		t.Skip("compiles the kernels of all families")
	}
	devices := cpu(t)
	for _, family := range warpmap.Families(table.KindMap) {
		for i, s := range shapes {
			if strings.Count(s.columns, ":") == 1 && !slices.Contains(warpmap.Families(table.KindSet), family) {
				continue // a set
			}
			t.Run(string(family)+"/"+s.columns, func(t *testing.T) {
				x := newTable(t, devices, s.columns, s.keys, Options{Family: family})
				tryTable(t, x, rand.New(rand.NewPCG(testenv.FirstSeed(), uint64(i))))
			})
		}
	}
}

// A family that does not update says so before anything is sent.
func TestFamilyThatDoesNotUpdate(t *testing.T) {
	x := newTable(t, cpu(t), "id:int64,n:int64", 1, Options{Family: warpmap.GPH})
	if err := x.CanPut(Add); err == nil || !strings.Contains(err.Error(), "gph") {
		t.Errorf("it says %v", err)
	}
	if err := x.CanPut(Insert); err != nil {
		t.Error(err)
	}
}

func tryTable(t *testing.T, x *Table, r *rand.Rand) {
	m := model{map[string][]string{}, len(x.schema.Keys)}
	modes := []Mode{Insert, InsertNew, Delete, Insert}
	if _, err := x.combine(Add); err == nil {
		modes = append(modes, Add)
	}
	if _, err := x.combine(Max); err == nil {
		modes = append(modes, Min, Max)
	}
	rounds := 12
	if testenv.Long() {
		rounds = 100
	}
	for round := range rounds {
		mode := modes[r.IntN(len(modes))]
		columns := x.Columns(mode)
		n := r.IntN(300)
		rows, seen := [][]string{}, map[string]bool{}
		for range n {
			row := make([]string, len(columns))
			for i, c := range columns {
				row[i] = cell(r, c, 200)
			}
			if k := m.key(row); (mode == Insert || mode == InsertNew) && seen[k] {
				continue // any of equal keys may stay
			} else {
				seen[k] = true
			}
			if mode == Add && columns[len(columns)-1].Type.ID() == arrow.UINT32 {
				row[len(row)-1] = "3"
			}
			rows = append(rows, row)
		}
		got, err := x.Put(mode, batchOf(t, columns, rows))
		added, deleted := m.put(mode, rows)
		if err != nil || got.Rows != len(rows) || got.Added != nil && *got.Added != added ||
			got.Deleted != nil && *got.Deleted != deleted {
			t.Fatalf("round %d: %s of %d rows gives %+v, %v, want %d added and %d deleted", round, mode, len(rows), got,
				err, added, deleted)
		}
		checkFind(t, x, m, r)
	}
	checkAll(t, x, m)
	var file bytes.Buffer
	if err := x.Save(context.Background(), &file); err != nil {
		t.Fatal(err)
	}
	y, err := Load(context.Background(), bytes.NewReader(file.Bytes()), cpu(t), Options{Family: "slab"})
	if err != nil {
		t.Fatal(err)
	}
	defer y.Close()
	checkAll(t, y, m)
	if err := x.Clear(); err != nil {
		t.Fatal(err)
	}
	checkAll(t, x, model{nil, m.keys})
}

// checkFind looks up random keys, in frames of random sizes.
func checkFind(t *testing.T, x *Table, m model, r *rand.Rand) {
	t.Helper()
	var asked [][]string
	for range 1 + r.IntN(200) {
		row := make([]string, m.keys)
		for i, c := range x.schema.Keys {
			c.Nullable = r.IntN(30) == 0
			row[i] = cell(r, c, 200)
		}
		asked = append(asked, row)
	}
	keys := batchOf(t, x.schema.Keys, asked)
	most := int64(1 + r.IntN(1000)*r.IntN(100))
	var rows [][]string
	for from := 0; from < keys.Rows; {
		f, next, err := x.Find(keys, from, most, Make)
		if err != nil || next <= from || f.Rows != next-from {
			t.Fatalf("rows %d to %d of %d: %v", from, next, keys.Rows, err)
		}
		rows = append(rows, cellsOf(t, x.schema.Reply(), f)...)
		from = next
	}
	for i, row := range rows {
		want, is := m.rows[m.key(asked[i])]
		if !is {
			want = append(append([]string{}, asked[i]...), strings.Fields(strings.Repeat(null+" ", len(row)-1))...)
		}
		want = append(append([]string{}, want[m.keys:]...), strconv.FormatBool(is))
		if fmt.Sprint(row) != fmt.Sprint(want) {
			t.Fatalf("row %d: key %v gives %q, want %q", i, asked[i], row, want)
		}
	}
}

// checkAll exports all rows, in parts.
func checkAll(t *testing.T, x *Table, m model) {
	t.Helper()
	if n, err := x.Rows(); err != nil || n != int64(len(m.rows)) {
		t.Fatalf("%d rows (%v), want %d", n, err, len(m.rows))
	}
	for _, parts := range []int{1, 3} {
		seen := map[string]bool{}
		for part := range parts {
			err := x.Export(context.Background(), part, parts, func(f Frame) error {
				for _, row := range cellsOf(t, x.schema.All(), f) {
					k := m.key(row)
					if fmt.Sprint(m.rows[k]) != fmt.Sprint(row) || seen[k] {
						return fmt.Errorf("row %q, want %q, seen: %v", row, m.rows[k], seen[k])
					}
					seen[k] = true
				}
				return nil
			})
			if err != nil {
				t.Fatal(err)
			}
		}
		if len(seen) != len(m.rows) {
			t.Fatalf("%d rows in %d parts, want %d", len(seen), parts, len(m.rows))
		}
	}
}

// A batch that adds, or puts, a key several times does so for each, or once.
func TestEqualKeysOfABatch(t *testing.T) {
	devices := cpu(t)
	for _, columns := range []string{"id:int64,n:int64", "id:int64,n:int64?"} {
		x := newTable(t, devices, columns, 1, Options{})
		rows := [][]string{{"1", "5"}, {"1", "6"}, {"2", "1"}, {"1", "7"}}
		for _, c := range []struct {
			mode Mode
			want string
		}{{Add, "18"}, {Add, "36"}, {Min, "5"}, {Max, "7"}} {
			if _, err := x.Put(c.mode, batchOf(t, x.schema.All(), rows)); err != nil {
				t.Fatal(err)
			}
			f, _, err := x.Find(batchOf(t, x.schema.Keys, [][]string{{"1"}}), 0, 100, Make)
			if got := cellsOf(t, x.schema.Reply(), f)[0][0]; err != nil || got != c.want {
				t.Fatalf("%s: %s gives %s, %v, want %s", columns, c.mode, got, err, c.want)
			}
		}
		for _, mode := range []Mode{Insert, InsertNew} {
			x.Clear()
			if _, err := x.Put(mode, batchOf(t, x.schema.All(), rows)); err != nil {
				t.Fatal(err)
			}
			f, _, err := x.Find(batchOf(t, x.schema.Keys, [][]string{{"1"}}), 0, 100, Make)
			if got := cellsOf(t, x.schema.Reply(), f)[0][0]; err != nil || !strings.Contains("567", got) {
				t.Fatalf("%s: %s gives %s, %v", columns, mode, got, err)
			}
			if n, _ := x.Rows(); n != 2 {
				t.Fatalf("%d rows", n)
			}
		}
	}
}

// Rows that are free are used again, texts that are dead go, and the budget holds.
func TestMemoryIsBounded(t *testing.T) {
	budget := &Budget{Most: 40 << 20}
	x := newTable(t, cpu(t), "id:int64,s:utf8", 1, Options{Budget: budget})
	long := strings.Repeat("x", 3<<20)
	for i := range 40 { // 120 MiB in all, of which 3 are there at a time
		if _, err := x.Put(Insert, batchOf(t, x.schema.All(), [][]string{{"1", long[i:]}, {strconv.Itoa(i), "y"}})); err != nil {
			t.Fatalf("round %d: %v", i, err)
		}
	}
	if used := budget.Used(); used > budget.Most || used < 3<<20 {
		t.Fatalf("%d bytes are used", used)
	}
	for i := 1; ; i++ {
		_, err := x.Put(Insert, batchOf(t, x.schema.All(), [][]string{{strconv.Itoa(1000 + i), long}}))
		if errors.Is(err, ErrMemory) {
			break
		} else if err != nil || i > 14 {
			t.Fatalf("text %d: %v", i, err)
		}
	}
	if n, _ := x.Rows(); n < 41 {
		t.Fatalf("%d rows", n)
	}
	if err := x.Clear(); err != nil || budget.Used() != 0 {
		t.Fatalf("%d bytes are used after Clear: %v", budget.Used(), err)
	}
}

// What does not fit is an error that names both, and a null where none may be is one with its place.
func TestWrongColumns(t *testing.T) {
	x := newTable(t, cpu(t), "id:int64,price:float64", 1, Options{})
	got, _ := Parse("price:int64,id:int64")
	_, err := x.schema.Match(x.schema.All(), got)
	if s := fmt.Sprint(err); !strings.Contains(s, "price:int64,id:int64") || !strings.Contains(s, "id:int64,price:float64") {
		t.Errorf("the error is %q", s)
	}
	got, _ = Parse("price:float64?,id:int64")
	if order, err := x.schema.Match(x.schema.All(), got); err != nil || fmt.Sprint(order) != "[1 0]" {
		t.Errorf("other order: %v, %v", order, err)
	}
	columns, _ := Parse("id:int64?,price:float64?")
	_, err = x.Put(Insert, batchOf(t, columns, [][]string{{"1", "1"}, {"2", null}}))
	if n := (*NullError)(nil); !errors.As(err, &n) || n.Row != 1 || n.Column != "price" {
		t.Errorf("a null gives %v", err)
	}
	if _, err := x.Put(Mode("replace"), batchOf(t, x.schema.All(), [][]string{{"1", "1"}})); err == nil {
		t.Error("a mode that is none")
	}
	if n, _ := x.Rows(); n != 0 {
		t.Errorf("%d rows", n)
	}
}

// Look-ups of many goroutines that go together get what is theirs, while others write.
func TestManyAtOnce(t *testing.T) {
	for _, columns := range []string{"id:int64,n:int64", "id:utf8,n:int64"} {
		x := newTable(t, cpu(t), columns, 1, Options{})
		var rows [][]string
		for i := range 500 {
			rows = append(rows, []string{strconv.Itoa(i), strconv.Itoa(i * 7)})
		}
		if _, err := x.Put(Insert, batchOf(t, x.schema.All(), rows)); err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		for g := range 8 {
			wg.Go(func() {
				r := rand.New(rand.NewPCG(uint64(g), 1))
				for range 40 {
					var asked [][]string
					for range r.IntN(20) {
						asked = append(asked, []string{strconv.Itoa(r.IntN(1000))})
					}
					f, _, err := x.Find(batchOf(t, x.schema.Keys, asked), 0, 1<<20, Make)
					if err != nil {
						t.Error(err)
						return
					}
					for i, row := range cellsOf(t, x.schema.Reply(), f) {
						n, _ := strconv.Atoi(asked[i][0])
						if want := strconv.Itoa(n * 7); n < 500 && row[0] != want || n >= 500 && row[1] == "true" && row[0] != want {
							t.Errorf("key %d gives %v", n, row)
						}
					}
				}
			})
		}
		wg.Go(func() {
			for i := 500; i < 1000; i += 10 {
				var rows [][]string
				for j := range 10 {
					rows = append(rows, []string{strconv.Itoa(i + j), strconv.Itoa((i + j) * 7)})
				}
				if _, err := x.Put(Insert, batchOf(t, x.schema.All(), rows)); err != nil {
					t.Error(err)
				}
			}
		})
		wg.Wait()
	}
}

// A map that is full names its rows; all else is in.
func TestFullNamesRows(t *testing.T) {
	x := newTable(t, cpu(t), "id:int64,s:utf8", 1, Options{})
	x.index = &fullIndex{index: x.index}
	r, err := x.Put(Insert, batchOf(t, x.schema.All(), [][]string{{"1", "a"}, {"13", "b"}, {"2", "c"}, {"13", "d"}}))
	full := (*table.FullError)(nil)
	if !errors.As(err, &full) || fmt.Sprint(full.Positions, r.Refused) != "[1 3] [1 3]" || *r.Added != 2 {
		t.Fatalf("%+v, %v", r, err)
	}
	f, _, err := x.Find(batchOf(t, x.schema.Keys, [][]string{{"1"}, {"13"}, {"2"}}), 0, 100, Make)
	if got := fmt.Sprint(cellsOf(t, x.schema.Reply(), f)); err != nil || got != "[[a true] [(null) false] [c true]]" {
		t.Fatalf("%s, %v", got, err)
	}
	if len(x.rows.free) != 2 {
		t.Fatalf("%d rows are free, want 2", len(x.rows.free))
	}
}

// fullIndex has no room for key 13.
type fullIndex struct{ index }

func (f *fullIndex) insertNew(k keys, values []byte, added []bool) error {
	var fits, not []int
	for i, key := range as[int64](k.fixed) {
		if key == 13 {
			not = append(not, i)
		} else {
			fits = append(fits, i)
		}
	}
	in := make([]bool, len(fits))
	if err := f.index.insertNew(k.pick(fits), pickBytes(values, 8, fits, k.n), in); err != nil {
		return err
	}
	for j, i := range fits {
		added[i] = in[j]
	}
	if len(not) > 0 {
		return &table.FullError{Positions: not}
	}
	return nil
}

// What Update does to values that are no signed integers is code that NVRTC takes.
func TestCombinesCompileForGPUs(t *testing.T) {
	p := arrow.PrimitiveTypes
	text := ""
	for i, typ := range []arrow.DataType{p.Int64, p.Uint64, p.Float64, p.Int32, p.Uint32, p.Float32} {
		number := "long long"
		if i > 2 {
			number = "int"
		}
		for _, mode := range []Mode{Add, Min, Max} {
			text += fmt.Sprintf("__device__ %s f%d_%s(%[1]s old, %[1]s value) {\n    return (%[1]s)(%[4]s);\n}\n", number, i, mode,
				combineInline(typ, mode))
		}
	}
	text += "extern \"C\" __global__ void k(long long* to) { *to = f2_add(*to, f1_min(*to, f5_max((int)*to, 1))); }\n"
	_, err := device.CompileFor("sm_90", &device.Program{Name: "combines", Files: []device.File{{Name: "kernels.cu", Text: text}}})
	if errors.Is(err, device.ErrNoNVRTC) {
		testenv.RequireNVRTC(t, err)
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A file with a byte that differs is an error, wherever the byte is, and so is one that is cut.
func TestDamagedFiles(t *testing.T) {
	x := newTable(t, cpu(t), "id:int64,s:utf8?", 1, Options{})
	if _, err := x.Put(Insert, batchOf(t, x.schema.All(), [][]string{{"1", "a"}, {"2", null}})); err != nil {
		t.Fatal(err)
	}
	var file bytes.Buffer
	if err := x.Save(context.Background(), &file); err != nil {
		t.Fatal(err)
	}
	devices := cpu(t)
	try := func(what string, b []byte) {
		y, err := Load(context.Background(), bytes.NewReader(b), devices, Options{})
		if d := (*DamagedError)(nil); !errors.As(err, &d) {
			t.Errorf("%s: %v", what, err)
			y.Close()
		}
	}
	step := 7
	if testenv.Long() {
		step = 1
	}
	for i := 0; i < file.Len(); i += step {
		b := bytes.Clone(file.Bytes())
		b[i] ^= 1 << (i % 8)
		try(fmt.Sprintf("byte %d of %d", i, len(b)), b)
		try(fmt.Sprintf("%d bytes of %d", i, len(b)), file.Bytes()[:i])
	}
	try("bytes behind it", append(bytes.Clone(file.Bytes()), 0))
}

func TestParse(t *testing.T) {
	const all = "a:bool,b:int8,c:uint64?,d:float16,e:utf8,f:large_utf8?,g:binary,h:date32,i:date64,j:timestamp[us]," +
		"k:timestamp[ns,Europe/Berlin],l:time[s],m:time[ns],n:duration[ms],o:decimal(18,3),p:binary[16]?"
	columns, err := Parse(all)
	if err != nil || Describe(columns) != all {
		t.Fatalf("%s\nis %s\n%v", all, Describe(columns), err)
	}
	header, err := EncodeSchema(ArrowSchema(columns, nil))
	if err != nil {
		t.Fatal(err)
	}
	back, err := DecodeSchema(header)
	if err != nil || Describe(back) != all {
		t.Fatalf("%s\nis decoded as %s\n%v", all, Describe(back), err)
	}
	for i, c := range columns {
		if !arrow.TypeEqual(c.Type, back[i].Type) {
			t.Errorf("%s is %s", c.Type, back[i].Type)
		}
	}
	for _, wrong := range []string{"", "a", "a:", ":int8", "a:int7", "a:time[m]", "a:decimal(39,1)", "a:decimal(2,3)",
		"a:binary[0]", "a:binary[99999999999]", "a:int8,", "a:int8 b:int8", "a:duration[s,UTC]"} {
		if c, err := Parse(wrong); err == nil {
			t.Errorf("%q is %s", wrong, Describe(c))
		}
	}
}

// Buffers that share bytes are refused: a message would take many times its size.
func TestSharedBuffers(t *testing.T) {
	columns, err := Parse("a:int64,b:int64")
	if err != nil {
		t.Fatal(err)
	}
	const rows = 100
	for _, second := range []int64{8 * rows, 4 * rows, 0} {
		var l layout
		l.column(rows, 0)
		l.column(rows, 0)
		l.buffers = [][2]int64{{0, 0}, {0, 8 * rows}, {0, 0}, {second, 8 * rows}}
		l.size = int(second) + 8*rows
		_, err := Decode(l.header(rows), make([]byte, l.size), columns, rows)
		if (err == nil) != (second == 8*rows) {
			t.Errorf("a second buffer at %d: %v", second, err)
		}
	}
}

// A schema that a table has is one that its file can have: a file that is written can be read.
func TestLongTimeZone(t *testing.T) {
	for n, want := range map[int]bool{mostName: true, mostName + 1: false} {
		zone := strings.Repeat("z", n)
		if _, err := Parse("a:timestamp[us," + zone + "]"); (err == nil) != want {
			t.Errorf("a zone of %d bytes: %v", n, err)
		}
		columns := []Column{{"a", arrow.PrimitiveTypes.Int64, false}, {"b", &arrow.TimestampType{TimeZone: zone}, false}}
		if _, err := Split("t", columns, []string{"a"}, nil); (err == nil) != want {
			t.Errorf("a column with a zone of %d bytes: %v", n, err)
		}
		header, err := EncodeSchema(ArrowSchema(columns, nil))
		if err != nil {
			t.Fatal(err)
		}
		if _, err := DecodeSchema(header); (err == nil) != want {
			t.Errorf("a file with a zone of %d bytes: %v", n, err)
		}
	}
}

// Texts of equal keys of a batch take the room that was reserved for them, and no more.
func TestEqualKeysStayInTheirRoom(t *testing.T) {
	budget := &Budget{}
	x := newTable(t, cpu(t), "id:int64,s:utf8,n:int32?", 1, Options{Budget: budget})
	for round := range 3 {
		var rows [][]string
		for i := range 12 {
			n := strconv.Itoa(i)
			if i%4 == 0 {
				n = null
			}
			rows = append(rows, []string{strconv.Itoa(10*round + i/3), strings.Repeat("x", 500_000+i), n})
		}
		if r, err := x.Put(Insert, batchOf(t, x.schema.All(), rows)); err != nil || *r.Added != 4 {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	texts := &x.rows.cells[0]
	size, live := int64(0), int64(0)
	for _, c := range texts.chunks {
		size += int64(cap(c))
	}
	for i := range 30 {
		f, _, err := x.Find(batchOf(t, x.schema.Keys, [][]string{{strconv.Itoa(i)}}), 0, 1<<30, Make)
		if err != nil {
			t.Fatal(err)
		}
		row := cellsOf(t, x.schema.Reply(), f)[0]
		if found := row[2] == "true"; found != (i%10 < 4) {
			t.Fatalf("key %d: found %v", i, found)
		} else if !found {
			continue
		}
		live += int64(len(row[0]))
		at, n := len(row[0])-500_000, row[1]
		if at/3 != i%10 || n == null != (at%4 == 0) || n != null && n != strconv.Itoa(at) {
			t.Errorf("key %d has the text of row %d and the number %s", i, at, n)
		}
	}
	if size != texts.room || live != texts.live {
		t.Errorf("the texts take %d bytes, %d of them alive, and %d and %d are counted", size, live, texts.room,
			texts.live)
	}
}

// A table that was within a bound is so when it is read again, whatever the sizes of its texts.
func TestReadAgainWithinTheBound(t *testing.T) {
	devices := cpu(t)
	for _, size := range []int{700, 300_000, 600_000, 1_400_000, 2_200_000} {
		x := newTable(t, devices, "id:int64,s:utf8", 1, Options{Budget: &Budget{}})
		var rows [][]string
		for i := range 20_000_000 / size {
			rows = append(rows, []string{strconv.Itoa(i), strings.Repeat("x", size)})
		}
		if _, err := x.Put(Insert, batchOf(t, x.schema.All(), rows)); err != nil {
			t.Fatal(err)
		}
		var file bytes.Buffer
		if err := x.Save(context.Background(), &file); err != nil {
			t.Fatal(err)
		}
		most := x.options.Budget.Used()
		most += most/8 + chunkBytes
		y, err := Load(context.Background(), &file, devices, Options{Budget: &Budget{Most: most}})
		if err != nil {
			t.Fatalf("texts of %d bytes: %v", size, err)
		}
		y.Close()
	}
}

// Of two columns of one name none is dropped: the error names it.
func TestColumnsOfOneName(t *testing.T) {
	if _, err := Parse("id:int64,n:int64, id :int32"); err == nil || !strings.Contains(err.Error(), `two are named "id"`) {
		t.Errorf("two columns of one name: %v", err)
	}
}

// Keys that come again are found, and no others, in the order of their positions.
func TestRepeated(t *testing.T) {
	r := rand.New(rand.NewPCG(testenv.FirstSeed(), 3))
	for i := range 600 {
		n, width, count := r.IntN(300), 4+i%2*4, map[uint64]int{}
		if i%100 == 0 {
			n = r.IntN(50_000)
		}
		k, all, among := keys{n: n, width: width}, []uint64(nil), uint64(1)<<r.IntN(20)
		for range n {
			key := r.Uint64N(among)
			all = append(all, key)
			count[key]++
			k.fixed = append(k.fixed, binary.LittleEndian.AppendUint64(nil, key)[:width]...)
		}
		var want []int
		for i, key := range all {
			if count[key] > 1 {
				want = append(want, i)
			}
		}
		if got := k.repeated(); !slices.Equal(got, want) {
			t.Fatalf("%d keys of %d: %v, want %v", n, among, got, want)
		}
	}
}
