package workload

import (
	"fmt"
	"math"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/decimal128"
	"github.com/apache/arrow-go/v18/arrow/memory"
)

// TPCH makes TPC-H's two large tables, orders and lineitem, by the rules of the specification's section 4.2.3: all key
// columns, and the payload columns that follow from rules or short lists (no comments and no names). Every order has a
// random generator of its own, so rows depend on SF, Seed and their place alone, and the two tables agree with each
// other.
type TPCH struct {
	SF   float64 // scale factor: 1 makes 1,500,000 orders with 6,000,000 lines or so; 0.0001 to 100,000
	Seed uint64
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

// Check tells what is wrong with the scale factor.
func (t TPCH) Check() error {
	if !(t.SF >= 0.0001 && t.SF <= 100_000) {
		return fmt.Errorf("TPC-H scale factor %v: want 0.0001 to 100000", t.SF)
	}
	return nil
}

// NumOrders is the number of rows of orders.
func (t TPCH) NumOrders() int64 { return int64(math.Round(t.SF * 1_500_000)) }

func (t TPCH) scaled(n float64) int64 { return max(1, int64(math.Round(t.SF*n))) }

// tpchOrder is one order with its lines. Money is in cents, days are since 1970.
type tpchOrder struct {
	key, customer int64
	date          int32
	status        string
	total         int64
	priority      string
	clerk         int64
	lines         []tpchLine
}

type tpchLine struct {
	part, supplier                   int64
	quantity, price, discount, tax   int64 // quantity in hundredths as all decimals are
	ship, commit, receipt            int32
	returned, status, instruct, mode string
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

func (r *tpchRand) of(list []string) string { return list[r.in(0, int64(len(list)-1))] }

// order makes the i-th order, from 0; o's memory is used again.
func (t TPCH) order(i int64, o *tpchOrder) {
	seed := tpchRand(t.Seed)
	r := tpchRand(seed.next() ^ uint64(i)*0xd1342543de82ef95)
	r.next()
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
		l.returned = "N"
		if back := r.in(0, 1); l.receipt <= tpchCurrent {
			l.returned = [2]string{"R", "A"}[back]
		}
		l.status = "F"
		if l.ship > tpchCurrent {
			l.status = "O"
			open++
		}
		l.instruct, l.mode = r.of(tpchInstruct), r.of(tpchModes)
		total += l.price * (100 + l.tax) * (100 - l.discount)
		o.lines = append(o.lines, l)
	}
	o.total = (total + 5000) / 10_000
	switch open {
	case 0:
		o.status = "F"
	case len(o.lines):
		o.status = "O"
	default:
		o.status = "P"
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

// OrdersSchema is that of orders: o_orderkey int64, o_custkey int64, o_orderstatus string, o_totalprice decimal(15, 2),
// o_orderdate date32, o_orderpriority string, o_clerk string, o_shippriority int32.
func (TPCH) OrdersSchema() *arrow.Schema {
	i64, s := arrow.PrimitiveTypes.Int64, arrow.BinaryTypes.String
	return tpchFields("o_orderkey", i64, "o_custkey", i64, "o_orderstatus", s, "o_totalprice", tpchMoney, "o_orderdate", arrow.FixedWidthTypes.Date32,
		"o_orderpriority", s, "o_clerk", s, "o_shippriority", arrow.PrimitiveTypes.Int32)
}

// LineitemSchema is that of lineitem: l_orderkey, l_partkey, l_suppkey int64, l_linenumber int32, l_quantity,
// l_extendedprice, l_discount, l_tax decimal(15, 2), l_returnflag, l_linestatus string, l_shipdate, l_commitdate,
// l_receiptdate date32, l_shipinstruct, l_shipmode string.
func (TPCH) LineitemSchema() *arrow.Schema {
	i64, s, d := arrow.PrimitiveTypes.Int64, arrow.BinaryTypes.String, arrow.FixedWidthTypes.Date32
	return tpchFields("l_orderkey", i64, "l_partkey", i64, "l_suppkey", i64, "l_linenumber", arrow.PrimitiveTypes.Int32,
		"l_quantity", tpchMoney, "l_extendedprice", tpchMoney, "l_discount", tpchMoney, "l_tax", tpchMoney, "l_returnflag", s, "l_linestatus", s,
		"l_shipdate", d, "l_commitdate", d, "l_receiptdate", d, "l_shipinstruct", s, "l_shipmode", s)
}

// Orders streams the rows of orders, in key order.
func (t TPCH) Orders() array.RecordReader { return t.stream(t.OrdersSchema(), t.appendOrder) }

// Lineitem streams the rows of lineitem, in the order of their orders.
func (t TPCH) Lineitem() array.RecordReader { return t.stream(t.LineitemSchema(), t.appendLines) }

func (t TPCH) stream(schema *arrow.Schema, row func(b *array.RecordBuilder, o *tpchOrder)) array.RecordReader {
	return array.ReaderFromIter(schema, func(yield func(arrow.RecordBatch, error) bool) {
		if err := t.Check(); err != nil {
			yield(nil, err)
			return
		}
		b := array.NewRecordBuilder(memory.DefaultAllocator, schema)
		defer b.Release()
		var o tpchOrder
		n := t.NumOrders()
		for i := int64(0); i < n; i++ {
			t.order(i, &o)
			row(b, &o)
			if (i+1)%tpchBatch == 0 || i == n-1 {
				if !yield(b.NewRecordBatch(), nil) {
					return
				}
			}
		}
	})
}

// columns gives a record builder's columns one after the other.
type columns struct {
	b *array.RecordBuilder
	i int
}

func (c *columns) next() array.Builder { c.i++; return c.b.Field(c.i - 1) }
func (c *columns) i64(v int64)         { c.next().(*array.Int64Builder).Append(v) }
func (c *columns) i32(v int32)         { c.next().(*array.Int32Builder).Append(v) }
func (c *columns) text(v string)       { c.next().(*array.StringBuilder).Append(v) }
func (c *columns) day(v int32)         { c.next().(*array.Date32Builder).Append(arrow.Date32(v)) }
func (c *columns) money(cents int64) {
	c.next().(*array.Decimal128Builder).Append(decimal128.FromI64(cents))
}

func (t TPCH) appendOrder(b *array.RecordBuilder, o *tpchOrder) {
	c := columns{b: b}
	c.i64(o.key)
	c.i64(o.customer)
	c.text(o.status)
	c.money(o.total)
	c.day(o.date)
	c.text(o.priority)
	c.text(fmt.Sprintf("Clerk#%09d", o.clerk))
	c.i32(0)
}

func (t TPCH) appendLines(b *array.RecordBuilder, o *tpchOrder) {
	for i := range o.lines {
		l := &o.lines[i]
		c := columns{b: b}
		c.i64(o.key)
		c.i64(l.part)
		c.i64(l.supplier)
		c.i32(int32(i + 1))
		c.money(l.quantity)
		c.money(l.price)
		c.money(l.discount)
		c.money(l.tax)
		c.text(l.returned)
		c.text(l.status)
		c.day(l.ship)
		c.day(l.commit)
		c.day(l.receipt)
		c.text(l.instruct)
		c.text(l.mode)
	}
}
