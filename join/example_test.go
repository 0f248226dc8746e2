package join_test

import (
	"context"
	"fmt"
	"strings"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/join"
)

// Two record readers are joined, and each batch of the output printed.
func ExampleJoin() {
	d, err := device.Open("auto")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer d.Close()

	customers := rows([]string{"id", "name"}, `[{"id": 1, "name": "Ada"}, {"id": 2, "name": "Grace"}]`)
	orders := rows([]string{"order", "customer"},
		`[{"order": 10, "customer": 2}, {"order": 11, "customer": 7}, {"order": 12, "customer": 1}]`)
	o := join.Options{On: []join.Pair{{Build: "id", Probe: "customer"}}, How: join.Left}
	s, err := join.Join(context.Background(), d, customers, orders, o, func(rec arrow.RecordBatch) error {
		for i := range int(rec.NumRows()) {
			fmt.Println(rec.Column(0).ValueStr(i), rec.Column(1).ValueStr(i), rec.Column(2).ValueStr(i))
		}
		return nil
	})
	fmt.Println(s.OutRows, err)
	// Output:
	// 10 2 Grace
	// 11 7 (null)
	// 12 1 Ada
	// 3 <nil>
}

// rows reads JSON into Arrow: columns named "name" are text, others integers.
func rows(names []string, json string) array.RecordReader {
	var fields []arrow.Field
	for _, n := range names {
		t := arrow.DataType(arrow.PrimitiveTypes.Int64)
		if n == "name" {
			t = arrow.BinaryTypes.String
		}
		fields = append(fields, arrow.Field{Name: n, Type: t, Nullable: true})
	}
	schema := arrow.NewSchema(fields, nil)
	rec, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, strings.NewReader(json))
	if err != nil {
		panic(err)
	}
	r, err := array.NewRecordReader(schema, []arrow.RecordBatch{rec})
	if err != nil {
		panic(err)
	}
	return r
}
