package workload

import (
	"fmt"
	"hash/fnv"
	"runtime"
	"strings"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"go.uber.org/goleak"
)

func tpchHash(t *testing.T, r array.RecordReader) (rows int64, hash uint64) {
	h := fnv.New64a()
	for r.Next() {
		rec := r.RecordBatch()
		rows += rec.NumRows()
		for _, c := range rec.Columns() {
			fmt.Fprint(h, c)
		}
	}
	if err := r.Err(); err != nil {
		t.Fatal(err)
	}
	return rows, h.Sum64()
}

func TestTPCHIsDeterministic(t *testing.T) {
	g := TPCH{SF: 0.002, Seed: 5}
	n1, h1 := tpchHash(t, g.Lineitem())
	defer runtime.GOMAXPROCS(runtime.GOMAXPROCS(1))
	if n2, h2 := tpchHash(t, g.Lineitem()); n1 != n2 || h1 != h2 {
		t.Fatal("two runs differ")
	}
	g.Seed++
	if _, h2 := tpchHash(t, g.Lineitem()); h1 == h2 {
		t.Fatal("the seed changes nothing")
	}
	for _, sf := range []float64{0, -1, 1e9} {
		g.SF = sf
		r := g.Orders()
		if r.Next() || r.Err() == nil || g.Check() == nil {
			t.Errorf("scale factor %v is taken", sf)
		}
	}
}

// A seed's rows stay what they are from one version to the next.
func TestTPCHStaysTheSame(t *testing.T) {
	g := TPCH{SF: 0.002, Seed: 5}
	for _, c := range []struct {
		rows array.RecordReader
		n    int64
		hash uint64
	}{{g.Orders(), 3000, 0xbffe5ea2e8ef52b9}, {g.Lineitem(), 12075, 0x466f660efcb59137}} {
		if n, hash := tpchHash(t, c.rows); n != c.n || hash != c.hash {
			t.Errorf("%d rows with the hash %#x, want %d with %#x", n, hash, c.n, c.hash)
		}
	}
}

// Comments come as a last column, of the specification's lengths, and change no other.
func TestTPCHComments(t *testing.T) {
	plain := TPCH{SF: 0.02, Seed: 3}
	g := plain
	g.Comments = true
	for _, c := range []struct {
		name         string
		plain, rows  array.RecordReader
		least, most  int
		distinct, of int
	}{
		{"o_comment", plain.Orders(), g.Orders(), 19, 78, 29_000, 30_000},
		{"l_comment", plain.Lineitem(), g.Lineitem(), 10, 43, 100_000, 120_000},
	} {
		lengths, seen, rows := map[int]int{}, map[string]bool{}, 0
		for c.rows.Next() {
			rec := c.rows.RecordBatch()
			last := int(rec.NumCols()) - 1
			if !c.plain.Next() || rec.ColumnName(last) != c.name {
				t.Fatalf("%s: %s", c.name, rec.Schema())
			}
			for i, col := range c.plain.RecordBatch().Columns() {
				if !array.Equal(col, rec.Column(i)) {
					t.Errorf("%s: column %s is another", c.name, rec.ColumnName(i))
				}
			}
			for i := range int(rec.NumRows()) {
				text := rec.Column(last).ValueStr(i)
				lengths[len(text)]++
				seen[text] = true
				rows++
			}
		}
		if c.plain.Next() || rows < c.of-1500 || len(seen) < c.distinct || len(lengths) != c.most-c.least+1 || lengths[c.least] == 0 || lengths[c.most] == 0 {
			t.Errorf("%s: %d rows, %d texts, lengths %v", c.name, rows, len(seen), lengths)
		}
	}
	if text := string(tpchText()); strings.Contains(text, " .") || strings.Contains(text, "  ") || !strings.Contains(text, " pinto beans ") {
		t.Errorf("no text: %s", text[:200])
	}
}

// A stream that is given up ends its work.
func TestTPCHReleased(t *testing.T) {
	defer goleak.VerifyNone(t)
	r := TPCH{SF: 1, Seed: 1}.Lineitem()
	if !r.Next() {
		t.Fatal(r.Err())
	}
	r.Release()
}

// TestTPCHRules checks every row against the specification's rules, and the two tables against each other.
func TestTPCHRules(t *testing.T) {
	g := TPCH{SF: 0.01, Seed: 1}
	const customers, parts, suppliers = 1500, 2000, 100
	type order struct {
		date        int32
		total       int64
		status      string
		lines, open int
		sum         int64
	}
	orders := map[int64]*order{}
	next := int64(0)
	seen := map[string]int{}
	check := func(ok bool, what string, args ...any) {
		t.Helper()
		if !ok {
			t.Fatalf(what, args...)
		}
	}
	for r := g.Orders(); r.Next(); {
		rec := r.RecordBatch()
		check(rec.Schema().Equal(g.OrdersSchema()), "schema %s", rec.Schema())
		key, cust, date := rec.Column(0).(*array.Int64), rec.Column(1).(*array.Int64), rec.Column(4).(*array.Date32)
		for i := range int(rec.NumRows()) {
			k := key.Value(i)
			check(k == next/8*32+next%8+1, "row %d has key %d", next, k)
			check((k-1)%32 < 8, "key %d", k)
			next++
			c := cust.Value(i)
			check(c >= 1 && c <= customers && c%3 != 0, "customer %d", c)
			d := date.Value(i).ToTime().Format("2006-01-02")
			check(d >= "1992-01-01" && d <= "1998-08-02", "order date %s", d)
			clerk := rec.Column(6).ValueStr(i)
			check(clerk >= "Clerk#000000001" && clerk <= "Clerk#000000010" && len(clerk) == 15, "clerk %s", clerk)
			seen[rec.Column(5).ValueStr(i)]++
			orders[k] = &order{date: int32(date.Value(i)), total: rec.Column(3).(*array.Decimal128).Value(i).BigInt().Int64(), status: rec.Column(2).ValueStr(i)}
			check(rec.Column(7).ValueStr(i) == "0", "ship priority")
		}
	}
	check(next == 15000 && next == g.NumOrders(), "%d orders", next)

	counts, partSuppliers, lines := map[int]int{}, map[[2]int64]bool{}, 0
	for r := g.Lineitem(); r.Next(); {
		rec := r.RecordBatch()
		check(rec.Schema().Equal(g.LineitemSchema()), "schema %s", rec.Schema())
		i64 := func(c, i int) int64 { return rec.Column(c).(*array.Int64).Value(i) }
		cents := func(c, i int) int64 { return rec.Column(c).(*array.Decimal128).Value(i).BigInt().Int64() }
		day := func(c, i int) int32 { return int32(rec.Column(c).(*array.Date32).Value(i)) }
		for i := range int(rec.NumRows()) {
			lines++
			o := orders[i64(0, i)]
			check(o != nil, "line of no order %d", i64(0, i))
			o.lines++
			check(rec.Column(3).(*array.Int32).Value(i) == int32(o.lines), "line number")
			part, supp := i64(1, i), i64(2, i)
			check(part >= 1 && part <= parts, "part %d", part)
			found := false
			for k := range int64(4) {
				found = found || supp == (part+k*(suppliers/4+(part-1)/suppliers))%suppliers+1
			}
			check(found, "part %d of supplier %d", part, supp)
			partSuppliers[[2]int64{part, supp}] = true
			q, price, disc, tax := cents(4, i), cents(5, i), cents(6, i), cents(7, i)
			check(q >= 100 && q <= 5000 && q%100 == 0, "quantity %d", q)
			check(price == q/100*(90000+part/10%20001+100*(part%1000)), "price %d of %d of part %d", price, q, part)
			check(disc >= 0 && disc <= 10 && tax >= 0 && tax <= 8, "discount %d, tax %d", disc, tax)
			o.sum += price * (100 + tax) * (100 - disc)
			ship, commit, receipt := day(10, i), day(11, i), day(12, i)
			check(ship > o.date && ship <= o.date+121, "ship date")
			check(commit >= o.date+30 && commit <= o.date+90, "commit date")
			check(receipt > ship && receipt <= ship+30, "receipt date")
			current := arrow.Date32FromTime(arrow.Date32(9298).ToTime())
			check(current.FormattedString() == "1995-06-17", "today is %s", current.FormattedString())
			flag, status := rec.Column(8).ValueStr(i), rec.Column(9).ValueStr(i)
			check((receipt > 9298) == (flag == "N") && strings.Contains("RAN", flag), "flag %s", flag)
			check((ship > 9298) == (status == "O") && strings.Contains("OF", status), "status %s", status)
			if status == "O" {
				o.open++
			}
			seen[flag]++
			seen[rec.Column(13).ValueStr(i)]++
			seen[rec.Column(14).ValueStr(i)]++
		}
	}
	for k, o := range orders {
		counts[o.lines]++
		check(o.lines >= 1 && o.lines <= 7, "%d lines", o.lines)
		check(o.total == (o.sum+5000)/10000, "order %d: total %d, lines %d", k, o.total, o.sum)
		want := "P"
		if o.open == 0 {
			want = "F"
		} else if o.open == o.lines {
			want = "O"
		}
		check(o.status == want, "order %d: status %s, want %s", k, o.status, want)
	}
	check(lines > 59000 && lines < 61000, "%d lines", lines)
	check(len(counts) == 7, "%v", counts)
	for n, c := range counts {
		check(c > 1900 && c < 2400, "%d orders of %d lines", c, n)
	}
	check(len(partSuppliers) > 7900, "%d pairs of part and supplier", len(partSuppliers))
	for _, list := range [][]string{tpchPriorities, tpchInstruct, tpchModes, {"R", "A", "N"}} {
		for _, s := range list {
			check(seen[s] > 1000, "%s comes %d times", s, seen[s])
		}
	}
}
