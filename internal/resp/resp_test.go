package resp

import (
	"bytes"
	"fmt"
	"math"
	"strconv"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/internal/testenv"
)

var wide = Limits{Args: 1 << 20, Bulk: 512 << 20, Request: 1 << 30}

// all are the requests in a text, which comes in pieces of so many bytes, as strings, and what is wrong behind them.
func all(text []byte, l Limits, piece func() int) (out []string, err error) {
	p := NewParser(l)
	take := func() bool {
		for {
			args, e := p.Next()
			if err = e; e != nil || len(args) == 0 {
				break
			}
			one := ""
			for _, a := range args {
				one += strconv.Quote(string(a)) + " "
			}
			out = append(out, one)
		}
		p.Keep()
		return err == nil
	}
	for first := true; len(text) > 0; first = !first {
		n := min(len(text), max(1, piece()))
		if room := p.Room(n); room != nil && first {
			copy(room, text[:n])
			p.Filled(n)
		} else {
			p.Feed(bytes.Clone(text[:n]))
		}
		text = text[n:]
		if !take() {
			break
		}
	}
	return out, err
}

func TestParser(t *testing.T) {
	for _, c := range []struct {
		text, want string
		err        error
	}{
		{"*1\r\n$4\r\nPING\r\n", `"PING" `, nil},
		{"*2\r\n$3\r\nGET\r\n$0\r\n\r\n*0\r\n*-1\r\nPING a\r\n", `"GET" ""  "PING" "a" `, nil},
		{"\r\n\n  \r\nx\n", `"x" `, nil},
		{`a "b c" 'd\'e' "\x41\n\q" '\n'` + "\n", `"a" "b c" "d'e" "A\nq" "\\n" `, nil},
		{`a "b` + "\n", "", Error("unbalanced quotes in request")},
		{`a "b"c` + "\n", "", Error("unbalanced quotes in request")},
		{"*1\r\n+OK\r\n", "", Error("expected '$', got '+'")},
		{"*1048577\r\n", "", Error("invalid multibulk length")},
		{"*1\r\n$536870913\r\n", "", Error("invalid bulk length")},
		{"*1\r\n$-1\r\n", "", Error("invalid bulk length")},
		{"*3\r\n$536870912\r\n", "", nil},
		{"*01\r\n", "", Error("invalid multibulk length")},
		{"*\r\n", "", Error("invalid multibulk length")},
		{"*1\r\n$04\r\nPING\r\n", "", Error("invalid bulk length")},
		{"*1\r\n$00\r\n\r\n", "", Error("invalid bulk length")},
		{"*1\r\n$9999999\r\n", "", nil},
		{strings.Repeat("x", mostLine+1), "", Error("too big inline request")},
		{"*" + strings.Repeat("1", mostLine+1), "", Error("too big mbulk count string")},
		{"*1\r\n$" + strings.Repeat("1", mostLine+1), "", Error("too big bulk count string")},
	} {
		for _, piece := range []int{1, 3, 1 << 20} {
			if piece < 10 && len(c.text) > mostLine {
				continue
			}
			got, err := all([]byte(c.text), wide, func() int { return piece })
			if joined := strings.Join(got, " "); joined != c.want || err != c.err {
				t.Errorf("%.60q in pieces of %d: %s, %v; want %s, %v", c.text, piece, joined, err, c.want, c.err)
			}
		}
	}
}

// What is held grows with what came, and not with what is announced, and goes when it is done with.
func TestParserHoldsLittle(t *testing.T) {
	p := NewParser(wide)
	p.Feed([]byte("*1048576\r\n$536870912\r\nabc"))
	if args, err := p.Next(); args != nil || err != nil {
		t.Fatal(args, err)
	}
	if p.Keep(); p.Held() > 4<<10 {
		t.Errorf("%d bytes are held for announcements", p.Held())
	}
	p = NewParser(wide)
	value := strings.Repeat("v", 1<<20)
	text := fmt.Sprintf("*2\r\n$4\r\nECHO\r\n$%d\r\n%s\r\n", len(value), value)
	for i := 0; i < len(text); i += 10_000 {
		p.Feed([]byte(text[i:min(len(text), i+10_000)]))
		args, err := p.Next()
		if last := i+10_000 >= len(text); err != nil || last != (len(args) == 2) || last && string(args[1]) != value {
			t.Fatalf("at %d: %d arguments, %v", i, len(args), err)
		}
		if p.Keep(); p.Held() > 2*(i+10_000)+4<<10 {
			t.Fatalf("%d bytes are held for %d", p.Held(), i+10_000)
		}
	}
	if p.Held() > mostKept || p.Partial() {
		t.Errorf("%d bytes are held behind the last request", p.Held())
	}
}

func TestParserLimits(t *testing.T) {
	l := Limits{Args: 3, Bulk: 10, Request: 40}
	for text, wrong := range map[string]bool{
		"*3\r\n$1\r\na\r\n$1\r\nb\r\n$1\r\nc\r\n": false,
		"*4\r\n":                      true,
		"*1\r\n$10\r\n0123456789\r\n": false,
		"*1\r\n$11\r\n":               true,
		"*3\r\n$10\r\n0123456789\r\n$10\r\n0123456789\r\n$10\r\n": true,
	} {
		if _, err := all([]byte(text), l, func() int { return 100 }); (err != nil) != wrong {
			t.Errorf("%q: %v", text, err)
		}
	}
	for text, wrong := range map[string]bool{"*10\r\n": false, "*11\r\n": true, "*1\r\n$16384\r\n": false, "*1\r\n$16385\r\n": true} {
		p := NewParser(wide)
		p.Strict = true
		p.Feed([]byte(text))
		if _, err := p.Next(); (err != nil) != wrong {
			t.Errorf("a stranger's %q: %v", text, err)
		}
	}
}

// A request of many small arguments costs as much as its bytes, however they come.
func TestParserGoesOverBytesOnce(t *testing.T) {
	const n = 10_000
	text := []byte(fmt.Sprintf("*%d\r\n", n) + strings.Repeat("$1\r\nx\r\n", n))
	p := NewParser(wide)
	found := 0
	for i := range text {
		p.Feed(text[i : i+1])
		args, err := p.Next()
		if err != nil {
			t.Fatal(err)
		}
		found += len(args)
		p.Keep()
	}
	if found != n {
		t.Errorf("%d arguments", found)
	}
}

func TestInt(t *testing.T) {
	for text, want := range map[string]int64{"0": 0, "-1": -1, "10": 10, "9223372036854775807": math.MaxInt64,
		"-9223372036854775808": math.MinInt64} {
		if n, ok := Int([]byte(text)); !ok || n != want {
			t.Errorf("%q: %d, %v", text, n, ok)
		}
	}
	for _, text := range []string{"", "-", "-0", "00", "01", "+1", "1 ", " 1", "1.0", "a", "9223372036854775808", "-9223372036854775809",
		"18446744073709551616", "99999999999999999999"} {
		if n, ok := Int([]byte(text)); ok {
			t.Errorf("%q is %d", text, n)
		}
	}
}

func TestReplies(t *testing.T) {
	var b []byte
	b = AppendSimple(b, "OK")
	b = AppendError(b, "ERR a\r\nb")
	b = AppendInt(b, 7)
	b = AppendInt(b, -12)
	b = AppendBulk(b, "x\r\n")
	b = AppendMap(AppendMap(b, 2, 1), 3, 1)
	b = AppendNull(AppendNull(b, 2), 3)
	b = AppendVerbatim(AppendVerbatim(b, 2, "a"), 3, "a")
	want := "+OK\r\n-ERR a  b\r\n:7\r\n:-12\r\n$3\r\nx\r\n\r\n*2\r\n%1\r\n$-1\r\n_\r\n$1\r\na\r\n=5\r\ntxt:a\r\n"
	if string(b) != want {
		t.Errorf("%q, want %q", b, want)
	}
}

// FuzzParser: bytes have the same requests, and the same error behind them, however they are cut.
func FuzzParser(f *testing.F) {
	for _, text := range []string{"*2\r\n$3\r\nGET\r\n$1\r\na\r\n", "PING\r\n", "SET a \"b \\x41\\n\" 'c\\'d'\r\n", "*1\r\n$-1\r\n",
		"*0\r\n*-1\r\n*3\r\n$3\r\nSET\r\n$1\r\n\x00\r\n$4\r\n\r\n$1\r\n", "*11\r\n", "*1\r\n$99999\r\nabc", "*1\r\n:4\r\n", "\"\r\n"} {
		f.Add([]byte(text), uint64(1))
	}
	f.Fuzz(func(t *testing.T, text []byte, cuts uint64) {
		testenv.Bounded(t, len(text), func() {
			l := Limits{Args: 100, Bulk: 1000, Request: 2000}
			whole, err := all(text, l, func() int { return len(text) })
			parts, again := all(text, l, func() int {
				cuts = cuts*6364136223846793005 + 1442695040888963407
				return int(cuts >> 60)
			})
			if strings.Join(whole, "\n") != strings.Join(parts, "\n") || err != again {
				t.Fatalf("%q: %q, %v; in parts %q, %v", text, whole, err, parts, again)
			}
		})
	})
}
