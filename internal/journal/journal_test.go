package journal

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"log"
	"math/rand/v2"
	"os"
	"path/filepath"
	"testing"

	"github.com/warpmap/warpmap/internal/testenv"
)

// plain is a form of records that say how long their bodies are.
var plain = &Format{Magic: "test\n", Holds: "tests", Body: func(head []byte) (int64, error) {
	return int64(binary.LittleEndian.Uint32(head[8:])), nil
}}

// Records of all sizes, in parts, are in the file in the order in which they were added, also where it could not be written
// meanwhile.
func TestParts(t *testing.T) {
	r := rand.New(rand.NewPCG(testenv.FirstSeed(), 1))
	j, err := Open(t.TempDir(), SyncAlways, plain, log.New(io.Discard, "", 0))
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Start(); err != nil {
		t.Fatal(err)
	}
	full, err := os.OpenFile(filepath.Join(t.TempDir(), "gone"), os.O_WRONLY|os.O_CREATE, 0o666)
	if err != nil {
		t.Fatal(err)
	}
	full.Close() // so that all fails that is written to it
	l, good := j.Last(), j.Last().Disk
	put := func(f *os.File) {
		l.Lock()
		defer l.Unlock()
		l.Disk = f
	}
	var want [][]byte
	for i := range 200 {
		record := make([]byte, HeadBytes, 1<<20)
		binary.LittleEndian.PutUint64(record[16:], uint64(i))
		var parts [][]byte
		for range r.IntN(4) {
			part := bytes.Repeat([]byte{byte(i)}, r.IntN(2<<r.IntN(17)))
			parts, record = append(parts, part), append(record, part...)
		}
		binary.LittleEndian.PutUint32(record[8:], uint32(len(record)-HeadBytes))
		Seal(record)
		want = append(want, record)
		j.Add(append([][]byte{bytes.Clone(record[:HeadBytes])}, parts...)...)
		switch r.IntN(6) {
		case 0:
			put(full)
			if !errors.Is(j.Commit(), os.ErrClosed) {
				t.Error("a log that cannot be written is committed")
			}
		case 1:
			put(good)
			if err := j.Commit(); err != nil {
				t.Error(err)
			}
		}
	}
	put(good)
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	n := 0
	if _, err := plain.ReadFile(j.Name(LogName, 1), func(head, body []byte) error {
		if n >= len(want) || !bytes.Equal(append(bytes.Clone(head), body...), want[n]) {
			t.Fatalf("record %d is another", n)
		}
		n++
		return nil
	}); err != nil || n != len(want) {
		t.Errorf("%d records of %d: %v", n, len(want), err)
	}
	if l.waits != 0 {
		t.Errorf("%d bytes wait", l.waits)
	}
}

// A log that is closed is not written while one before it cannot be. A log whose end is missing is an error where a later
// one has records, and else is cut.
func TestOlderFirst(t *testing.T) {
	record := make([]byte, HeadBytes)
	Seal(record)
	dir := t.TempDir()
	start := func() *Journal {
		t.Helper()
		j, err := Open(dir, SyncEverySecond, plain, log.New(io.Discard, "", 0))
		if err != nil {
			t.Fatal(err)
		}
		if err = j.Replay(0, false, func(_, _ []byte) error { return nil }); err == nil {
			err = j.Start()
		}
		if err != nil {
			t.Fatal(errors.Join(err, j.Close()))
		}
		return j
	}
	j := start()
	l := j.Last()
	l.Lock()
	l.Disk.Close()
	l.Unlock()
	j.Add(record)
	if err := j.Begin(); err != nil {
		t.Fatal(err)
	}
	j.Add(record)
	if j.Close() == nil {
		t.Error("a log that cannot be written is closed without an error")
	}
	text, err := os.ReadFile(j.Name(LogName, 2))
	if string(text) != plain.Magic || err != nil {
		t.Errorf("behind a log that could not be written, %d bytes are in the next: %v", len(text), err)
	}
	torn := append([]byte(plain.Magic), record[:10]...)
	if err := os.WriteFile(j.Name(LogName, 1), torn, 0o666); err != nil {
		t.Fatal(err)
	}
	if j = start(); j.Number != 3 {
		t.Errorf("log %d is the next", j.Number)
	}
	j.Add(record)
	if err := errors.Join(j.Close(), os.Truncate(j.Name(LogName, 1), 3)); err != nil {
		t.Fatal(err)
	}
	for _, repair := range []bool{false, true} {
		if j, err = Open(dir, NoLog, plain, log.New(io.Discard, "", 0)); err != nil {
			t.Fatal(err)
		}
		err := j.Replay(0, repair, func(_, _ []byte) error { return nil })
		if errors.As(err, new(*DamagedError)) == repair {
			t.Errorf("repair %t: %v", repair, err)
		}
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	}
}
