package redis

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/internal/filters"
)

// Filters answer as RedisBloom's documentation says.
func TestFilters(t *testing.T) {
	s := serve(t, Options{})
	c := dial(t, s.addr)
	wrong := "-WRONGTYPE Operation against a key holding the wrong kind of value\r\n"
	for _, x := range []struct{ want, ask string }{
		{":0\r\n", "BF.EXISTS b x"}, {"*2\r\n:0\r\n:0\r\n", "BF.MEXISTS b x y"}, {":0\r\n", "BF.CARD b"},
		{"-ERR not found\r\n", "BF.INFO b"}, {":1\r\n", "BF.ADD b x"}, {":0\r\n", "BF.ADD b x"}, {":1\r\n", "BF.EXISTS b x"},
		{"*3\r\n:0\r\n:1\r\n:1\r\n", "BF.MADD b x y z"}, {"*3\r\n:1\r\n:0\r\n:1\r\n", "BF.MEXISTS b z none x"}, {":3\r\n", "BF.CARD b"},
		{"*1\r\n:100\r\n", "BF.INFO b CAPACITY"}, {"*1\r\n:2\r\n", "BF.INFO b expansion"}, {"+MBbloom--\r\n", "TYPE b"},
		{"-ERR item exists\r\n", "BF.RESERVE b 0.1 10"}, {"+OK\r\n", "BF.RESERVE n 0.001 3 NONSCALING"},
		{"*1\r\n$-1\r\n", "BF.INFO n EXPANSION"}, {"*3\r\n:1\r\n:1\r\n:1\r\n", "BF.MADD n a b c"}, {"-ERR non scaling filter is full\r\n", "BF.ADD n d"},
		{"*2\r\n:0\r\n-ERR non scaling filter is full\r\n", "BF.MADD n a d"}, {"-ERR (0 < error rate range < 1)\r\n", "BF.RESERVE x 1 10"},
		{"-ERR (capacity should be larger than 0)\r\n", "BF.RESERVE x 0.1 0"}, {"-ERR bad capacity\r\n", "BF.RESERVE x 0.1 x"},
		{"-ERR Nonscaling filters cannot expand\r\n", "BF.RESERVE x 0.1 10 NONSCALING EXPANSION 2"}, {"-ERR the filter would be too large\r\n",
			"BF.RESERVE x 0.0001 1000000000000"}, {"-ERR wrong number of arguments for 'bf.add' command\r\n", "BF.ADD b"},
		{wrong, "GET b"}, {wrong, "INCR b"}, {wrong, "APPEND b x"}, {wrong, "CF.ADD b x"}, {wrong, "PFADD b x"}, {wrong, "SETRANGE b 1 x"},
		{wrong, "STRLEN b"}, {wrong, "GETSET b x"}, {wrong, "SET b x GET"}, {wrong, "SETBIT b 1 1"}, {wrong, "PFCOUNT b"}, {wrong, "GETDEL b"},
		{"*2\r\n$-1\r\n$-1\r\n", "MGET b none"}, {"+OK\r\n", "SET s x"}, {wrong, "BF.ADD s x"}, {wrong, "CF.EXISTS s x"}, {wrong, "BF.INFO s"},
		{"$3\r\nraw\r\n", "OBJECT ENCODING b"}, {"+OK\r\n", "RENAME b b2"}, {":1\r\n", "COPY b2 b"}, {":1\r\n", "BF.ADD b new"}, {":0\r\n", "BF.EXISTS b2 new"},
		{":1\r\n", "BF.EXISTS b2 z"}, {":1\r\n", "EXPIRE b2 100"}, {":0\r\n", "SETNX b2 x"}, {"+OK\r\n", "SET b2 x"}, {"+string\r\n", "TYPE b2"},

		{"-ERR Not found\r\n", "CF.DEL c x"}, {":0\r\n", "CF.EXISTS c x"}, {":0\r\n", "CF.COUNT c x"}, {":1\r\n", "CF.ADD c x"}, {":1\r\n", "CF.ADD c x"},
		{":0\r\n", "CF.ADDNX c x"}, {":1\r\n", "CF.ADDNX c y"}, {":2\r\n", "CF.COUNT c x"}, {":1\r\n", "CF.DEL c x"}, {":1\r\n", "CF.COUNT c x"},
		{":1\r\n", "CF.DEL c x"}, {":0\r\n", "CF.DEL c x"}, {"*2\r\n:0\r\n:1\r\n", "CF.MEXISTS c x y"}, {"+MBbloomCF\r\n", "TYPE c"}, {wrong, "BF.EXISTS c x"},
		{"+OK\r\n", "CF.RESERVE d 1000 BUCKETSIZE 4 MAXITERATIONS 30 EXPANSION 2"}, {"-ERR item exists\r\n", "CF.RESERVE d 1000"},
		{"-ERR bad expansion\r\n", "CF.RESERVE e 1000 EXPANSION -1"}, {"-ERR syntax error\r\n", "CF.RESERVE e 1000 FOO 1"},
		{"*2\r\n$1\r\n0\r\n*2\r\n$1\r\nc\r\n$1\r\nd\r\n", "SCAN 0 TYPE MBbloomCF"}, {"*2\r\n$1\r\n0\r\n*2\r\n$1\r\nb\r\n$1\r\nn\r\n", "SCAN 0 TYPE mbbloom--"},
	} {
		got := c.do(strings.Split(x.ask, " ")...)
		if strings.HasPrefix(x.ask, "SCAN") && got != x.want { // in either order
			at := strings.LastIndex(x.want, "$1")
			x.want = x.want[:at-7] + x.want[at:] + x.want[at-7:at]
		}
		if got != x.want {
			t.Errorf("%s: %.200q, want %.200q", x.ask, got, x.want)
		}
	}
	if got := c.do("BF.INFO", "b"); !regexp.MustCompile(`^\*10\r\n\+Capacity\r\n:100\r\n\+Size\r\n:\d+\r\n\+Number of filters\r\n:1\r\n` +
		`\+Number of items inserted\r\n:4\r\n\+Expansion rate\r\n:2\r\n$`).MatchString(got) {
		t.Errorf("BF.INFO: %q", got)
	}
	c.do("HELLO", "3")
	c.want("#t\r\n", "BF.EXISTS", "b", "x")
	c.want("*2\r\n#f\r\n#t\r\n", "BF.MADD", "b", "x", "w")
	if got := c.do("CF.INFO", "c"); !strings.HasPrefix(got, "%8\r\n+Size\r\n:") || !strings.Contains(got, "deleted\r\n:2\r\n+Bucket size\r\n:15\r\n") {
		t.Errorf("CF.INFO: %q", got)
	}
}

// Filters that grow are as they were after a start, from the log and from a snapshot, and count against the bound.
func TestFiltersStay(t *testing.T) {
	folder := t.TempDir()
	o := Options{Folder: folder, Fsync: FsyncNever}
	s := serve(t, o)
	c := dial(t, s.addr)
	const n = 2000
	for i := range n {
		c.do("BF.ADD", "b", fmt.Sprint(i))
		c.do("CF.ADD", "c", fmt.Sprint(i))
	}
	for i := range n / 2 {
		c.do("CF.DEL", "c", fmt.Sprint(i))
	}
	for _, save := range []bool{false, true} {
		c := dial(t, s.addr)
		b, k := c.do("BF.INFO", "b"), c.do("CF.INFO", "c")
		if save {
			c.want("+OK\r\n", "SAVE")
		}
		if err := s.stop(); err != nil {
			t.Fatal(err)
		}
		s = serve(t, o)
		c = dial(t, s.addr)
		c.want(b, "BF.INFO", "b")
		c.want(k, "CF.INFO", "c")
		for i := range n {
			c.want(":1\r\n", "BF.EXISTS", "b", fmt.Sprint(i))
			if i >= n/2 {
				c.want(":1\r\n", "CF.EXISTS", "c", fmt.Sprint(i))
			}
		}
	}
	small := serve(t, Options{MaxMemory: 1 << 20})
	c = dial(t, small.addr)
	for _, ask := range []string{"BF.RESERVE b 0.01 1000000", "CF.RESERVE c 1000000"} {
		if got := c.do(strings.Split(ask, " ")...); !strings.HasPrefix(got, "-OOM") {
			t.Errorf("%s in 1 MiB: %q", ask, got)
		}
	}
	got := ""
	for i := range 3_000_000 {
		if got = c.do("BF.ADD", "b", fmt.Sprint(i)); got[0] == '-' {
			break
		}
	}
	if n := small.space.Counts(false); !strings.HasPrefix(got, "-OOM") || n.Allocated > 1<<20 {
		t.Errorf("%d bytes, %q", n.Allocated, got)
	}
	if err := small.space.Check(); err != nil {
		t.Error(err)
	}
}

// What is added to a filter, or deleted from it, is in the log as a whole: a filter counts as many items as it has,
// wherever a log is cut.
func TestCutFilters(t *testing.T) {
	folder := t.TempDir()
	s := serve(t, Options{Folder: folder, Fsync: FsyncNever})
	c := dial(t, s.addr)
	c.do("CF.RESERVE", "f", "20")
	for i := range 20 {
		c.want(":1\r\n", "CF.ADD", "f", fmt.Sprint(i%10))
		if i%4 == 3 {
			c.want(":1\r\n", "CF.DEL", "f", fmt.Sprint(i%10))
		}
	}
	c.do("BF.MADD", "b", "x", "y", "z")
	if err := s.stop(); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(folder, "log.1"))
	if err != nil {
		t.Fatal(err)
	}
	for n := len(text); n > 16; n -= 13 {
		at := t.TempDir()
		if err := os.WriteFile(filepath.Join(at, "log.1"), text[:n], 0o666); err != nil {
			t.Fatal(err)
		}
		again, err := New(Options{Folder: at})
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range []string{"f", "b"} {
			h := again.space.Hash([]byte(key))
			sh := again.space.Lock(h)
			v, _, there := sh.Filter(h, []byte(key), 0)
			if err := filters.Value(v).Check(); there && err != nil {
				t.Errorf("%d bytes of %d: %s has other items than it counts", n, len(text), key)
			}
			if i, _ := filters.Value(v).About(); key == "b" && there && i.Items != 3 {
				t.Errorf("%d bytes of %d: there are %d of 3 items", n, len(text), i.Items)
			}
			sh.Unlock()
		}
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
	}
}
