// Load asks a server of example lookup for keys, from many clients at once, and tells how many answers a second there were, and how long they took. With
// --keep it writes that as bench/results has figures.
package main

import (
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/warpmap/warpmap/device"
	"github.com/warpmap/warpmap/internal/bench"
)

func main() {
	url := flag.String("url", "http://localhost:8080", "the server")
	n := flag.Uint64("n", 1_000_000, "its pairs; half of the requests are for keys that it has not")
	clients := flag.String("clients", "1,16,128,1000", "numbers of clients, each with a connection")
	each := flag.Duration("time", 2*time.Second, "how long a run takes: there are six, of which the first warms up")
	name := flag.String("device", "cpu", "what the server is on, for the record")
	keep := flag.String("keep", "", "file to write the figures to, as JSON")
	flag.Parse()
	fig, err := load(os.Stdout, *url, *clients, *n, *each)
	if err == nil && *keep != "" {
		err = write(fig, *name, *keep)
	}
	if err != nil {
		log.Fatal(err)
	}
}

// load measures each number of clients.
func load(out io.Writer, url, clients string, n uint64, each time.Duration) (*bench.Fig, error) {
	fig := &bench.Fig{
		Name: "library/http", Title: fmt.Sprintf("look-ups of a key over HTTP, of %d pairs of 8+8 bytes", n),
		Columns: []string{"clients", "requests/s", "least", "most", "p50 µs", "p99 µs", "wrong"},
		Notes:   []string{"the clients are on the server's machine; half of the keys are there; the median of 5 runs, and the least and the most"},
	}
	for text := range strings.SplitSeq(clients, ",") {
		count, err := strconv.Atoi(text)
		if err != nil || count < 1 {
			return nil, fmt.Errorf("%q clients: want numbers of 1 and more, with commas between", text)
		}
		transport := &http.Transport{MaxIdleConnsPerHost: count}
		client := &http.Client{Transport: transport}
		m, least, most, wrong, err := bench.AskRuns(count, each, func(rng *rand.Rand) (bool, error) { return ask(client, url, n, rng.Uint64N(2*n)) })
		if err != nil {
			return nil, err
		}
		transport.CloseIdleConnections()
		fig.Add(count, bench.Round(m.PerSecond()), bench.Round(least), bench.Round(most), m.Micros(50), m.Micros(99), wrong)
		fmt.Fprintf(out, "%d clients: %.0f requests/s (%.0f to %.0f), p50 %.0f µs, p99 %.0f µs, %d wrong\n", count, m.PerSecond(), least, most, m.Micros(50), m.Micros(99), wrong)
	}
	return fig, nil
}

// ask looks a key up, and tells whether the answer is right.
func ask(client *http.Client, url string, n, key uint64) (right bool, err error) {
	r, err := client.Get(url + "/?key=" + strconv.FormatUint(key, 10))
	if err != nil {
		return false, err
	}
	text, err := io.ReadAll(r.Body)
	if err = errors.Join(err, r.Body.Close()); err != nil {
		return false, err
	}
	if key >= n {
		return r.StatusCode == http.StatusNotFound, nil
	}
	value, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	return r.StatusCode == http.StatusOK && err == nil && value == key*key, nil
}

func write(fig *bench.Fig, name, file string) error {
	d, err := device.Open(name)
	if err != nil {
		return err
	}
	fig.Where = bench.Here(d)
	return errors.Join(d.Close(), bench.Keep(file, fig))
}
