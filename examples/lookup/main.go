// Lookup serves a table over HTTP: GET /?key=7 answers with the value, or 404. Requests that come at the same time are one batch.
package main

import (
	"flag"
	"fmt"
	"log"
	"net"
	"net/http"
	"strconv"

	"github.com/warpmap/warpmap"
	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/table"
)

func main() {
	name, listen := flag.String("device", "auto", "where the table is"), flag.String("listen", "localhost:8080", "address")
	n := flag.Int("n", 1_000_000, "pairs: of key i and value i·i")
	flag.Parse()
	d, err := device.Open(*name)
	fatal(err)
	m, err := warpmap.New[uint64, uint64](d, warpmap.WarpCore, table.Options{})
	fatal(err)
	keys, values := make([]uint64, *n), make([]uint64, *n)
	for i := range keys {
		keys[i], values[i] = uint64(i), uint64(i)*uint64(i)
	}
	fatal(m.Insert(keys, values))
	b, err := table.NewBatcher(m, table.BatcherOptions{})
	fatal(err)
	l, err := net.Listen("tcp", *listen)
	fatal(err)
	log.Printf("%d pairs on %v, at %v", *n, d, l.Addr())
	fatal(http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		key, wrong := strconv.ParseUint(r.FormValue("key"), 10, 64)
		value, found, err := b.Get(r.Context(), key)
		switch {
		case wrong != nil:
			http.Error(w, "which key?", http.StatusBadRequest)
		case err != nil:
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		case !found:
			http.NotFound(w, r)
		default:
			fmt.Fprintln(w, value)
		}
	})))
}

func fatal(err error) {
	if err != nil {
		log.Fatal(err)
	}
}
