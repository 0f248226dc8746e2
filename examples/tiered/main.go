// Tiered serves numbers over HTTP from a file that may be larger than memory. Those that are asked for most are in a
// cache, and what is put is written to the file behind:
//
//	go run ./examples/tiered -file numbers &
//	curl -X PUT -d 49 localhost:8080/7
//	curl localhost:8080/7
//
// At SIGINT or SIGTERM it writes what waits, and ends.
package main

import (
	"context"
	"encoding/binary"
	"errors"
	"flag"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"os/signal"
	"strconv"
	"syscall"
	"time"

	"github.com/warpmap/warpmap/cache"
	"github.com/warpmap/warpmap/device"
)

// mostKey bounds keys, and so the file.
const mostKey = 1 << 40

// source is the file as the lower tier: the number of key k is in its bytes 8k to 8k+7, and 0 for none.
func source(f *os.File) cache.Source[uint64, uint64] {
	return cache.Source[uint64, uint64]{
		Fetch: func(_ context.Context, keys, values []uint64, found []bool) error {
			for i, k := range keys {
				var b [8]byte
				if _, err := f.ReadAt(b[:], int64(8*k)); err != nil && !errors.Is(err, io.EOF) {
					return err
				}
				values[i] = binary.LittleEndian.Uint64(b[:])
				found[i] = values[i] != 0
			}
			return nil
		},
		Store: func(_ context.Context, keys, values []uint64) error {
			for i, k := range keys {
				if _, err := f.WriteAt(binary.LittleEndian.AppendUint64(nil, values[i]), int64(8*k)); err != nil {
					return err
				}
			}
			return f.Sync()
		},
	}
}

// handler answers GET and PUT of /KEY.
func handler(t *cache.Tiered[uint64, uint64]) http.Handler {
	m := http.NewServeMux()
	m.HandleFunc("GET /{key}", func(w http.ResponseWriter, r *http.Request) {
		key, err := number(r.PathValue("key"), mostKey)
		if err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		value, found := make([]uint64, 1), make([]bool, 1)
		switch err := t.Get(r.Context(), []uint64{key}, value, found); {
		case err != nil:
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
		case !found[0]:
			http.NotFound(w, r)
		default:
			fmt.Fprintln(w, value[0])
		}
	})
	m.HandleFunc("PUT /{key}", func(w http.ResponseWriter, r *http.Request) {
		key, wrongKey := number(r.PathValue("key"), mostKey)
		text, wrongText := io.ReadAll(io.LimitReader(r.Body, 100))
		value, wrongValue := number(string(text), 1<<64-1)
		if value == 0 && wrongValue == nil {
			wrongValue = errors.New("0 stands for no number: put another")
		}
		if err := errors.Join(wrongKey, wrongText, wrongValue); err != nil {
			http.Error(w, err.Error(), http.StatusBadRequest)
			return
		}
		// The error may be of numbers that were put earlier. This one is put by none of them: the client is to try again.
		if err := t.Put(r.Context(), []uint64{key}, []uint64{value}); err != nil {
			http.Error(w, err.Error(), http.StatusServiceUnavailable)
			return
		}
		w.WriteHeader(http.StatusNoContent)
	})
	return m
}

// number is a decimal number from 0 to most.
func number(text string, most uint64) (uint64, error) {
	x, err := strconv.ParseUint(text, 10, 64)
	if err == nil && x > most {
		err = fmt.Errorf("%d is more than %d", x, most)
	}
	return x, err
}

func main() {
	name, listen := flag.String("file", "numbers", "the file"), flag.String("listen", "localhost:8080", "address")
	on := flag.String("device", "auto", "where the cache is")
	places := flag.Int("places", 100_000, "numbers that the cache has room for")
	wait := flag.Duration("wait", time.Second, "how long a number waits to be written, at most")
	flag.Parse()
	if err := run(*on, *name, *listen, *places, *wait); err != nil {
		log.Fatal(err)
	}
}

func run(on, name, listen string, places int, wait time.Duration) (err error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer f.Close()
	d, err := device.Open(on)
	if err != nil {
		return err
	}
	defer d.Close()
	c, err := cache.New[uint64, uint64](d, cache.Options{Capacity: places, Policy: cache.Aged})
	if err != nil {
		return err
	}
	defer c.Close()
	t, err := cache.NewTieredBehind(c, source(f), cache.Behind{Wait: wait})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, t.Close(context.Background())) }() // before c and f are closed
	l, err := net.Listen("tcp", listen)
	if err != nil {
		return err
	}
	log.Printf("numbers of %s at %v", name, l.Addr())
	s := &http.Server{Handler: handler(t), ReadHeaderTimeout: 10 * time.Second}
	ended := make(chan error, 1)
	go func() {
		<-ctx.Done()
		ended <- s.Shutdown(context.Background())
	}()
	if err := s.Serve(l); !errors.Is(err, http.ErrServerClosed) {
		return err
	}
	return <-ended
}
