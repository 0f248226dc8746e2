package workload

import (
	"fmt"
	"math"
	"runtime"
	"strconv"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/warpmap/warpmap/internal/crash"
)

// TPCH makes TPC-H's two large tables, orders and lineitem, by the rules of the specification's section 4.2.3. It makes
// all key columns, the payload columns that follow from rules or short lists, and comments if they are asked for. Every
// order has a random generator of its own. So rows depend on SF, Seed and their place alone, and the two tables agree
// with each other. TPCH uses all cores to make batches of rows, and makes the same ones whatever their number.
type TPCH struct {
	SF       float64 // scale factor: 1 makes 1,500,000 orders with 6,000,000 lines or so; 0.0001 to 100,000
	Seed     uint64
	Comments bool // o_comment and l_comment too, as last columns; the others stay the same
}

// The days of the specification, since 1970-01-01.
const (
	tpchStart   = 8035  // 1992-01-01
	tpchCurrent = 9298  // 1995-06-17
	tpchEnd     = 10591 // 1998-12-31
)

// tpchBatch is the number of orders that make one record batch.
const tpchBatch = 1 << 14

var (
	tpchPriorities = []string{"1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW"}
	tpchInstruct   = []string{"DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN"}
	tpchModes      = []string{"REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB"}
	tpchMoney      = &arrow.Decimal128Type{Precision: 15, Scale: 2}
)

// Check returns an error if something is wrong with the scale factor.
func (t TPCH) Check() error {
	if !(t.SF >= 0.0001 && t.SF <= 100_000) {
		return fmt.Errorf("TPC-H scale factor %v: want 0.0001 to 100000", t.SF)
	}
	return nil
}

// NumOrders returns the number of rows of orders.
func (t TPCH) NumOrders() int64 { return int64(math.Round(t.SF * 1_500_000)) }

func (t TPCH) scaled(n float64) int64 { return max(1, int64(math.Round(t.SF*n))) }

// tpchOrder is one order with its lines. Money is in cents, days are since 1970.
type tpchOrder struct {
	key, customer int64
	date          int32
	status        byte
	total         int64
	priority      int // its place in the list
	clerk         int64
	lines         []tpchLine
}

type tpchLine struct {
	part, supplier                 int64
	quantity, price, discount, tax int64 // quantity in hundredths as all decimals are
	ship, commit, receipt          int32
	returned, status               byte
	instruct, mode                 int // places in their lists
}

// tpchRand is splitmix64.
type tpchRand uint64

func (r *tpchRand) next() uint64 {
	*r += 0x9e3779b97f4a7c15
	z := uint64(*r)
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// in draws from lo to hi, both included. The ranges are far below 2⁶⁴, so the bias of a remainder is nothing.
func (r *tpchRand) in(lo, hi int64) int64 { return lo + int64(r.next()%uint64(hi-lo+1)) }

func (r *tpchRand) of(list []string) int { return int(r.in(0, int64(len(list)-1))) }

// rand is the generator of the i-th order; what differs in salt is drawn apart.
func (t TPCH) rand(i int64, salt uint64) tpchRand {
	seed := tpchRand(t.Seed + salt)
	r := tpchRand(seed.next() ^ uint64(i)*0xd1342543de82ef95)
	r.next()
	return r
}

// order makes the i-th order, from 0; o's memory is used again.
func (t TPCH) order(i int64, o *tpchOrder) {
	r := t.rand(i, 0)
	customers, parts, suppliers := t.scaled(150_000), t.scaled(200_000), t.scaled(10_000)
	o.key = i/8*32 + i%8 + 1 // the first 8 of every 32 keys
	for {                    // a third of the customers order nothing
		if o.customer = r.in(1, max(2, customers)); o.customer%3 != 0 {
			break
		}
	}
	o.date = int32(r.in(tpchStart, tpchEnd-151))
	o.priority = r.of(tpchPriorities)
	o.clerk = r.in(1, t.scaled(1000))
	o.lines = o.lines[:0]
	open := 0
	total := int64(0) // in 1/10,000 cents
	for range r.in(1, 7) {
		l := tpchLine{part: r.in(1, parts)}
		l.supplier = (l.part+r.in(0, 3)*(suppliers/4+(l.part-1)/suppliers))%suppliers + 1
		n := r.in(1, 50)
		l.quantity = n * 100
		l.price = n * tpchRetail(l.part)
		l.discount, l.tax = r.in(0, 10), r.in(0, 8)
		l.ship = o.date + int32(r.in(1, 121))
		l.commit = o.date + int32(r.in(30, 90))
		l.receipt = l.ship + int32(r.in(1, 30))
		l.returned = 'N'
		if back := r.in(0, 1); l.receipt <= tpchCurrent {
			l.returned = "RA"[back]
		}
		l.status = 'F'
		if l.ship > tpchCurrent {
			l.status = 'O'
			open++
		}
		l.instruct, l.mode = r.of(tpchInstruct), r.of(tpchModes)
		total += l.price * (100 + l.tax) * (100 - l.discount)
		o.lines = append(o.lines, l)
	}
	o.total = (total + 5000) / 10_000
	switch open {
	case 0:
		o.status = 'F'
	case len(o.lines):
		o.status = 'O'
	default:
		o.status = 'P'
	}
}

// tpchRetail is a part's retail price in cents.
func tpchRetail(part int64) int64 { return 90_000 + part/10%20_001 + 100*(part%1000) }

func tpchFields(fields ...any) *arrow.Schema {
	var out []arrow.Field
	for i := 0; i < len(fields); i += 2 {
		out = append(out, arrow.Field{Name: fields[i].(string), Type: fields[i+1].(arrow.DataType)})
	}
	return arrow.NewSchema(out, nil)
}

// OrdersSchema returns the schema of orders: o_orderkey int64, o_custkey int64, o_orderstatus string, o_totalprice
// decimal(15, 2), o_orderdate date32, o_orderpriority string, o_clerk string, o_shippriority int32, and with Comments
// also o_comment string.
func (t TPCH) OrdersSchema() *arrow.Schema {
	i64, s := arrow.PrimitiveTypes.Int64, arrow.BinaryTypes.String
	fields := []any{"o_orderkey", i64, "o_custkey", i64, "o_orderstatus", s, "o_totalprice", tpchMoney, "o_orderdate", arrow.FixedWidthTypes.Date32,
		"o_orderpriority", s, "o_clerk", s, "o_shippriority", arrow.PrimitiveTypes.Int32}
	if t.Comments {
		fields = append(fields, "o_comment", s)
	}
	return tpchFields(fields...)
}

// LineitemSchema returns the schema of lineitem: l_orderkey, l_partkey, l_suppkey int64, l_linenumber int32,
// l_quantity, l_extendedprice, l_discount, l_tax decimal(15, 2), l_returnflag, l_linestatus string, l_shipdate,
// l_commitdate, l_receiptdate date32, l_shipinstruct, l_shipmode string, and with Comments also l_comment string.
func (t TPCH) LineitemSchema() *arrow.Schema {
	i64, s, d := arrow.PrimitiveTypes.Int64, arrow.BinaryTypes.String, arrow.FixedWidthTypes.Date32
	fields := []any{"l_orderkey", i64, "l_partkey", i64, "l_suppkey", i64, "l_linenumber", arrow.PrimitiveTypes.Int32,
		"l_quantity", tpchMoney, "l_extendedprice", tpchMoney, "l_discount", tpchMoney, "l_tax", tpchMoney, "l_returnflag", s, "l_linestatus", s,
		"l_shipdate", d, "l_commitdate", d, "l_receiptdate", d, "l_shipinstruct", s, "l_shipmode", s}
	if t.Comments {
		fields = append(fields, "l_comment", s)
	}
	return tpchFields(fields...)
}

// Orders streams the rows of orders, in the order of their keys. If you do not read the stream to its end, Release ends
// its work.
func (t TPCH) Orders() array.RecordReader { return t.stream(t.OrdersSchema(), t.orders) }

// Lineitem streams the rows of lineitem, in the order of their orders. If you do not read the stream to its end,
// Release ends its work.
func (t TPCH) Lineitem() array.RecordReader { return t.stream(t.LineitemSchema(), t.lineitem) }

// stream gives batches of rows in order. As many are made beside one another as there are cores, and as many may wait to be read.
func (t TPCH) stream(schema *arrow.Schema, rows func(from, to int64) []arrow.Array) array.RecordReader {
	return array.ReaderFromIter(schema, func(yield func(arrow.RecordBatch, error) bool) {
		if err := t.Check(); err != nil {
			yield(nil, err)
			return
		}
		n, cores := t.NumOrders(), runtime.GOMAXPROCS(0)
		type result struct {
			rec arrow.RecordBatch
			err error
		}
		made := make(chan chan result, cores) // in order
		turns := make(chan struct{}, cores)
		done := make(chan struct{})
		defer close(done)
		crash.Go(func() {
			defer close(made)
			for from := int64(0); from < n; from += tpchBatch {
				batch := make(chan result, 1)
				for _, wait := range []func() bool{
					func() bool { return sent(made, batch, done) },
					func() bool { return sent(turns, struct{}{}, done) },
				} {
					if !wait() {
						return
					}
				}
				go func() {
					var r result
					r.err = crash.Catch(func() error {
						columns := rows(from, min(n, from+tpchBatch))
						r.rec = array.NewRecordBatch(schema, columns, int64(columns[0].Len()))
						return nil
					})
					batch <- r
					<-turns
				}()
			}
		})
		for batch := range made {
			r := <-batch
			if !yield(r.rec, r.err) || r.err != nil {
				return
			}
		}
	})
}

// sent puts v into a channel, unless done is closed first.
func sent[T any](to chan<- T, v T, done <-chan struct{}) bool {
	select {
	case to <- v:
		return true
	case <-done:
		return false
	}
}

// orders makes the columns of orders from..to-1.
func (t TPCH) orders(from, to int64) []arrow.Array {
	n := int(to - from)
	keys, customers, totals := make([]int64, n), make([]int64, n), make([]decimal128.Num, n)
	dates, status, priority := make([]int32, n), newTexts(n, 1), newTexts(n, 9)
	clerks, comments := newTexts(n, 15), newTexts(n, 50)
	pool := t.pool()
	var o tpchOrder
	for i := range n {
		t.order(from+int64(i), &o)
		keys[i], customers[i], totals[i], dates[i] = o.key, o.customer, decimal128.New(0, uint64(o.total)), o.date
		status.letter(o.status)
		priority.add(tpchPriorities[o.priority])
		clerks.clerk(o.clerk)
		if t.Comments {
			r := t.rand(from+int64(i), tpchOrderComments)
			comments.add(pool.draw(&r, 19, 78))
		}
	}
	columns := []arrow.Array{fixed(arrow.PrimitiveTypes.Int64, keys), fixed(arrow.PrimitiveTypes.Int64, customers), status.array(), fixed(tpchMoney, totals),
		fixed(arrow.FixedWidthTypes.Date32, dates), priority.array(), clerks.array(), fixed(arrow.PrimitiveTypes.Int32, make([]int32, n))}
	if t.Comments {
		columns = append(columns, comments.array())
	}
	return columns
}

// lineitem makes the columns of the lines of orders from..to-1.
func (t TPCH) lineitem(from, to int64) []arrow.Array {
	most := min(int(to-from)*7, int(to-from)*17/4+64) // four lines an order, and what chance may add to that
	var integers [3][]int64
	for i := range integers {
		integers[i] = make([]int64, 0, most)
	}
	var money [4][]decimal128.Num
	for i := range money {
		money[i] = make([]decimal128.Num, 0, most)
	}
	var days [3][]int32
	for i := range days {
		days[i] = make([]int32, 0, most)
	}
	numbers := make([]int32, 0, most)
	returned, status, instruct, mode, comments := newTexts(most, 1), newTexts(most, 1), newTexts(most, 12), newTexts(most, 5), newTexts(0, 0)
	pool := t.pool()
	var o tpchOrder
	for i := from; i < to; i++ {
		t.order(i, &o)
		r := t.rand(i, tpchLineComments)
		for j := range o.lines {
			l := &o.lines[j]
			for c, v := range [3]int64{o.key, l.part, l.supplier} {
				integers[c] = append(integers[c], v)
			}
			for c, v := range [4]int64{l.quantity, l.price, l.discount, l.tax} {
				money[c] = append(money[c], decimal128.New(0, uint64(v)))
			}
			for c, v := range [3]int32{l.ship, l.commit, l.receipt} {
				days[c] = append(days[c], v)
			}
			numbers = append(numbers, int32(j+1))
			returned.letter(l.returned)
			status.letter(l.status)
			instruct.add(tpchInstruct[l.instruct])
			mode.add(tpchModes[l.mode])
			if t.Comments {
				comments.add(pool.draw(&r, 10, 43))
			}
		}
	}
	var columns []arrow.Array
	for _, v := range integers {
		columns = append(columns, fixed(arrow.PrimitiveTypes.Int64, v))
	}
	columns = append(columns, fixed(arrow.PrimitiveTypes.Int32, numbers))
	for _, v := range money {
		columns = append(columns, fixed(tpchMoney, v))
	}
	columns = append(columns, returned.array(), status.array())
	for _, v := range days {
		columns = append(columns, fixed(arrow.FixedWidthTypes.Date32, v))
	}
	columns = append(columns, instruct.array(), mode.array())
	if t.Comments {
		columns = append(columns, comments.array())
	}
	return columns
}

// fixed makes a column of values without nulls.
func fixed[T arrow.FixedWidthType](typ arrow.DataType, values []T) arrow.Array {
	data := array.NewData(typ, len(values), []*memory.Buffer{nil, memory.NewBufferBytes(arrow.GetBytes(values))}, nil, 0, 0)
	defer data.Release()
	return array.MakeFromData(data)
}

// texts is a column of strings in the making.
type texts struct {
	offsets []int32
	bytes   []byte
}

// newTexts makes room for n strings of so many bytes.
func newTexts(n, bytes int) *texts {
	return &texts{append(make([]int32, 0, n+1), 0), make([]byte, 0, n*bytes)}
}

func (t *texts) end()          { t.offsets = append(t.offsets, int32(len(t.bytes))) }
func (t *texts) add(s string)  { t.bytes = append(t.bytes, s...); t.end() }
func (t *texts) letter(c byte) { t.bytes = append(t.bytes, c); t.end() }

func (t *texts) clerk(n int64) {
	digits := strconv.AppendInt(nil, n, 10)
	t.bytes = append(t.bytes, "Clerk#000000000"[:15-len(digits)]...)
	t.bytes = append(t.bytes, digits...)
	t.end()
}

func (t *texts) array() arrow.Array {
	data := array.NewData(arrow.BinaryTypes.String, len(t.offsets)-1,
		[]*memory.Buffer{nil, memory.NewBufferBytes(arrow.GetBytes(t.offsets)), memory.NewBufferBytes(t.bytes)}, nil, 0, 0)
	defer data.Release()
	return array.MakeFromData(data)
}
