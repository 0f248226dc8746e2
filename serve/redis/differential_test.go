package redis

import (
	"fmt"
	"math"
	"math/rand/v2"
	"net"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/warpmap/warpmap/internal/testenv"
)

// startRedis starts Redis itself on a Unix socket.
func startRedis(t *testing.T) net.Addr {
	t.Helper()
	program, err := exec.LookPath("redis-server")
	testenv.Require(t, "redis-server", err)
	socket := filepath.Join(t.TempDir(), "redis")
	cmd := exec.Command(program, "--port", "0", "--unixsocket", socket, "--save", "", "--appendonly", "no", "--dir",
		t.TempDir())
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	for end := time.Now().Add(time.Minute); ; time.Sleep(10 * time.Millisecond) {
		c, err := net.Dial("unix", socket)
		if err == nil {
			c.Close()
			return c.RemoteAddr()
		}
		if time.Now().After(end) {
			t.Fatal("redis-server does not listen")
		}
	}
}

// words are what arguments are chosen from.
type words struct {
	*rand.Rand
	times *int
}

func (r words) of(all ...string) string { return all[r.IntN(len(all))] }

var (
	oddKeys               = []string{"", "\x00\xff", "a b", "key\r\n", strings.Repeat("k", 300)}
	plainKeys, sketchKeys = 12, 4
)

func (r words) key() string {
	if r.IntN(50) == 0 {
		return r.of(oddKeys...)
	}
	return "k" + strconv.Itoa(r.IntN(plainKeys))
}

// allKeys looks for all keys that there may be. So those go that were set with a time that has passed, which DBSIZE
// counts until they are looked for, or until Redis removes them sooner or later.
func allKeys() []string {
	all := append([]string{"EXISTS"}, oddKeys...)
	for i := range plainKeys {
		all = append(all, "k"+strconv.Itoa(i))
	}
	for i := range sketchKeys {
		all = append(all, "h"+strconv.Itoa(i))
	}
	return all
}

func (r words) value() string {
	switch r.IntN(12) {
	case 0:
		return strings.Repeat("v", r.IntN(3000))
	case 1:
		return r.of("", "\r\n", "\x00", "$5\r\n", "ä")
	case 2, 3, 4, 5:
		return r.number()
	}
	return "v" + strconv.Itoa(r.IntN(100))
}

func (r words) number() string {
	switch r.IntN(10) {
	case 0:
		return r.of("9223372036854775807", "-9223372036854775808", "9223372036854775808", "-9223372036854775809", "01", "+1",
			" 1", "1 ", "1.5", "", "-0", "0x10", "abc", "99999999999999999999", "-")
	case 1:
		return strconv.FormatInt(r.Int64()-r.Int64(), 10)
	}
	return strconv.Itoa(r.IntN(40) - 10)
}

// seconds are times that have passed, or do not pass while a test runs, or are none.
func (r words) seconds() string {
	if r.IntN(8) == 0 {
		return r.noTime()
	}
	*r.times++ // none comes twice, for which is later would be a matter of milliseconds
	return strconv.Itoa(100_000 + 1000*(*r.times*7919%500_009))
}

func (r words) noTime() string {
	return r.of("0", "-1", "abc", "9223372036854775807", "-9223372036854775808", "9223372036854776", "1.0", "")
}

// at is a time that is to come, or none: of keys that were set with a past one, DBSIZE counts those that are not
// removed yet.
func (r words) at(scale int64) string {
	if r.IntN(8) == 0 {
		return r.noTime()
	}
	return strconv.FormatInt(scale*(4_000_000_000+r.Int64N(3)*1_000_000), 10)
}

func (r words) cased(word string) string {
	switch r.IntN(4) {
	case 0:
		return strings.ToLower(word)
	case 1:
		return word[:1] + strings.ToLower(word[1:])
	}
	return word
}

func (r words) setOptions() (out []string) {
	for range r.IntN(4) {
		switch r.IntN(10) {
		case 0:
			out = append(out, "NX")
		case 1:
			out = append(out, "XX")
		case 2, 3:
			out = append(out, "GET")
		case 4:
			out = append(out, "KEEPTTL")
		case 5:
			out = append(out, "EX", r.seconds())
		case 6:
			out = append(out, "PX", r.seconds()+"000")
		case 7:
			out = append(out, "EXAT", r.at(1))
		case 8:
			out = append(out, "PXAT", r.at(1000))
		case 9:
			out = append(out, r.of("PERSIST", "EX", "foo", ""))
		}
	}
	return out
}

func (r words) keys(most int) (out []string) {
	for range 1 + r.IntN(most) {
		out = append(out, r.key())
	}
	return out
}

// plain are commands whose replies are the same, byte by byte.
func (r words) plain() []string {
	join := func(first string, rest ...string) []string { return append([]string{r.cased(first)}, rest...) }
	if r.IntN(3) == 0 {
		return r.later(join)
	}
	switch r.IntN(44) {
	case 0, 1, 2:
		return join("GET", r.key())
	case 3, 4, 5:
		return join("SET", append([]string{r.key(), r.value()}, r.setOptions()...)...)
	case 6:
		return join("SETNX", r.key(), r.value())
	case 7:
		return join("MGET", r.keys(5)...)
	case 8, 9:
		var args []string
		for range 1 + r.IntN(3) {
			args = append(args, r.key(), r.value())
		}
		if r.IntN(10) == 0 {
			args = append(args, r.key())
		}
		return join(r.of("MSET", "MSETNX"), args...)
	case 10, 11:
		return join(r.of("DEL", "UNLINK"), r.keys(4)...)
	case 12:
		return join(r.of("EXISTS", "TOUCH"), r.keys(4)...)
	case 13, 14:
		return join(r.of("INCR", "DECR"), r.key())
	case 15, 16, 17:
		return join(r.of("INCRBY", "DECRBY"), r.key(), r.number())
	case 18, 19:
		return join("APPEND", r.key(), r.value())
	case 20:
		return join("STRLEN", r.key())
	case 21, 22, 23, 24:
		args := []string{r.key(), r.seconds()}
		name := r.of("EXPIRE", "PEXPIRE", "EXPIREAT", "PEXPIREAT")
		switch name {
		case "PEXPIRE":
			args[1] += "000"
		case "EXPIREAT":
			args[1] = r.at(1)
		case "PEXPIREAT":
			args[1] = r.at(1000)
		}
		for range r.IntN(3) {
			args = append(args, r.of("NX", "XX", "GT", "LT", "nx", "foo"))
		}
		return join(name, args...)
	case 25, 26:
		return join(r.of("TTL", "PTTL", "EXPIRETIME", "PEXPIRETIME"), r.key())
	case 27:
		return join("PERSIST", r.key())
	case 28:
		return join("TYPE", r.key())
	case 29:
		return join("DBSIZE")
	case 30:
		if r.IntN(8) == 0 {
			return join(r.of("FLUSHDB", "FLUSHALL"), slices.Repeat([]string{r.of("SYNC", "ASYNC", "foo")}, r.IntN(3))...)
		}
		return join("PING", slices.Repeat([]string{r.value()}, r.IntN(3))...)
	case 31:
		return join("ECHO", r.value())
	case 32:
		return join("SELECT", r.of("0", "16", "-1", "abc", "99999999999"))
	case 33:
		return join("AUTH", slices.Repeat([]string{r.of("default", "foo", "x")}, 1+r.IntN(3))...)
	case 34:
		return join("CLIENT", r.of("SETNAME", "setname"), r.of("a", "b-c", "a b", "", "\n"))
	case 35:
		return join("CLIENT", r.of("GETNAME", "FOO", "getname"))
	case 36: // what is none, and wrong numbers of arguments
		// Redis takes "get\x00" for GET where both fall into one bucket, which depends on its seed: so none begins with a name.
		name, n := r.of("foo", "FOO\r\nbar", "", strings.Repeat("x", 200), "g\x00t", "gets"), r.IntN(5)
		switch r.IntN(3) {
		case 0:
			name, n = r.of("GET", "incrby", "strlen", "ttl", "setnx", "dbsize", "getset"), 4
		case 1:
			name, n = r.of("GET", "SET", "expire", "del", "mset", "scan", "keys", "client", "config", "pfadd", "pfcount", "auth"), 0
		}
		all := []string{name}
		for range n {
			all = append(all, r.value())
		}
		return all
	case 37:
		return join(r.of("SETEX", "PSETEX"), r.key(), r.seconds(), r.value())
	case 38:
		return join("GETSET", r.key(), r.value())
	case 39:
		return join("GETDEL", r.key())
	case 40:
		options := r.setOptions()
		if r.IntN(3) == 0 {
			options = []string{"PERSIST"}
		}
		return join("GETEX", append([]string{r.key()}, options...)...)
	case 41:
		return join("SCAN", r.of("0", "abc", "-", "", "1.0"), r.of("COUNT", "foo"), r.of("0", "-1", "abc"))
	case 42:
		return join("HELLO", r.of("1", "4", "abc"))
	}
	return join("HELLO", r.of("2", "3"), r.of("foo", "AUTH", "SETNAME"), "a b")
}

// later are commands that came after the first.
func (r words) later(join func(first string, rest ...string) []string) []string {
	switch r.IntN(16) {
	case 0:
		return join(r.of("GETRANGE", "SUBSTR"), r.key(), r.number(), r.number())
	case 1:
		return join("SETRANGE", r.key(), r.of("0", "1", "7", "100", "-1", "536870912", "a"), r.value())
	case 2:
		return join("INCRBYFLOAT", r.key(), r.float())
	case 3:
		return join("SET", r.key(), r.float())
	case 4:
		return join(r.of("RENAME", "RENAMENX"), r.key(), r.key())
	case 5:
		var options []string
		for range r.IntN(3) {
			options = append(options, r.of("REPLACE", "DB", "0", "foo", "99"))
		}
		return join("COPY", append([]string{r.key(), r.key()}, options...)...)
	case 6:
		return join("SETBIT", r.key(), r.of("0", "1", "7", "8", "1000", "-1", "4294967296", "a"), r.of("0", "1", "2", "a"))
	case 7:
		return join("GETBIT", r.key(), r.of("0", "1", "7", "8", "1000", "-1", "4294967295", "4294967296", "a"))
	case 8:
		args := []string{r.key()}
		if n := r.IntN(5); n > 0 {
			args = append(args, []string{r.number(), r.number(), r.of("BYTE", "BIT", "bit", "foo"), "foo"}[:n]...)
		}
		return join("BITCOUNT", args...)
	case 9, 10, 11:
		return join(r.of("MULTI", "EXEC", "DISCARD"))
	case 12:
		return join("WATCH", r.keys(3)...)
	case 13:
		return join(r.of("UNWATCH", "EXEC"), slices.Repeat([]string{"a"}, r.IntN(5)/4)...)
	case 14:
		return join("WAIT", "0", r.of("1", "-1", "a"))
	}
	return join("CLIENT", r.of("NO-EVICT", "KILL"), r.of("on", "off", "127.0.0.1:1"))
}

func (r words) float() string {
	if r.IntN(3) > 0 {
		return strconv.FormatFloat(r.NormFloat64()*math.Pow(10, float64(r.IntN(12)-6)), "feg"[r.IntN(3)], r.IntN(20)-1, 64)
	}
	return r.of("inf", "-inf", "nan", "1e400", "1e5000", "-1e4932", "1e4932", "1e-5000", "0x10", "0x1.8p3", "1e", ".5", "5.", "+5", "1 ", " 1", "1_0",
		"--1", "-0", "0", "3.0000", "1e-17", "infinity", "123456789012345678901234567890")
}

// sketches are commands about sketches, of so few texts that none share a register.
func (r words) sketches() []string {
	key := func() string { return "h" + strconv.Itoa(r.IntN(sketchKeys)) }
	texts := func() (out []string) {
		for range r.IntN(5) {
			out = append(out, "text "+strconv.Itoa(r.IntN(60)))
		}
		return out
	}
	switch r.IntN(6) {
	case 0, 1, 2:
		return append([]string{"PFADD", key()}, texts()...)
	case 3:
		return []string{"PFCOUNT", key()}
	case 4:
		return []string{r.of("PFCOUNT", "PFMERGE"), key(), key()}
	}
	return []string{r.of("DEL", "EXISTS", "TYPE", "TTL"), key()}
}

// timed are commands whose replies are times that pass.
func timed(name string) bool {
	return slices.Contains([]string{"ttl", "pttl", "expiretime", "pexpiretime"}, strings.ToLower(name))
}

// near tells whether two replies are the same, or times that a slow machine explains.
func near(a, b string, name string) bool {
	x, err1 := strconv.ParseInt(strings.TrimSpace(a[1:]), 10, 64)
	y, err2 := strconv.ParseInt(strings.TrimSpace(b[1:]), 10, 64)
	most := int64(60)
	if name[0] == 'p' || name[0] == 'P' {
		most *= 1000
	}
	return err1 == nil && err2 == nil && a[0] == ':' && b[0] == ':' && x > 0 && y > 0 && max(x-y, y-x) <= most
}

// nearAll tells whether two replies of EXEC are the same, but for times.
func nearAll(a, b, name string) bool {
	x, y := strings.Split(a, "\r\n"), strings.Split(b, "\r\n")
	return strings.EqualFold(name, "exec") && slices.EqualFunc(x, y, func(a, b string) bool {
		return a == b || a != "" && b != "" && len(a) > 5 && near(a, b, "p")
	})
}

// Random commands have the same replies from Redis, byte by byte, one by one and in pipelines.
func TestSameAsRedis(t *testing.T) {
	redis, own := startRedis(t), serve(t, Options{})
	perSeed := 6000
	for _, version := range []string{"2", "3"} {
		for seed := range uint64(testenv.Seeds(20)) {
			r := words{rand.New(rand.NewPCG(seed+testenv.FirstSeed(), uint64(version[0]))), new(int)}
			a, b := dial(t, redis), dial(t, own.addr)
			for _, c := range []*testClient{a, b} {
				c.do("FLUSHALL")
				if c.do("HELLO", version)[0] == '-' {
					t.Fatal("HELLO " + version)
				}
			}
			for done := 0; done < perSeed; {
				var all [][]string
				var text []byte
				for range 1 + r.IntN(1+r.IntN(60)) {
					args := r.plain()
					if r.IntN(8) == 0 {
						args = r.sketches()
					}
					if strings.EqualFold(args[0], "DBSIZE") {
						all = append(all, allKeys())
					}
					all = append(all, args)
				}
				for _, args := range all {
					text = append(text, request(args...)...)
				}
				a.send(text)
				b.send(text)
				for _, args := range all {
					want, got := a.reply(), b.reply()
					if got != want && !(timed(args[0]) && near(want, got, args[0])) && !nearAll(want, got, args[0]) {
						t.Fatalf("version %s, seed %d, command %d: %.300q\n%.300q, Redis gives\n%.300q", version, seed, done, args,
							got, want)
					}
					done++
				}
			}
			for _, c := range []*testClient{a, b} { // a transaction may be open
				c.do("DISCARD")
			}
			sameKeys(t, a, b)
			testenv.Tried(t, perSeed, "commands")
		}
	}
}

// sameKeys fails where two servers have other keys, by KEYS and by SCAN with patterns.
func sameKeys(t *testing.T, a, b *testClient) {
	t.Helper()
	for _, pattern := range []string{"*", "k*", "k?", "k[1-3]", "k[^1-3]*", "\\k1", "k[", "", "[", "*1*", "k[3-1]", "k[\\1]", "k\\"} {
		var sets [][]string
		for _, c := range []*testClient{a, b} {
			sets = append(sets, sorted(c.do("KEYS", pattern)))
			var found []string
			for cursor, first := "0", true; first || cursor != "0"; first = false {
				parts := strings.SplitN(c.do("SCAN", cursor, "MATCH", pattern, "COUNT", "3", "TYPE", "string"), "\r\n", 4)
				cursor = parts[2]
				found = append(found, sorted(parts[3])...)
			}
			slices.Sort(found)
			sets = append(sets, slices.Compact(found))
		}
		for _, set := range sets[1:] {
			if !slices.Equal(set, sets[0]) {
				t.Fatalf("pattern %q: %.300q and %.300q", pattern, set, sets[0])
			}
		}
	}
}

// sorted are the strings of an array.
func sorted(reply string) (out []string) {
	_, rest, _ := strings.Cut(reply, "\r\n")
	for rest != "" {
		var n int
		fmt.Sscanf(rest, "$%d", &n)
		_, rest, _ = strings.Cut(rest, "\r\n")
		out = append(out, rest[:n])
		rest = rest[n+2:]
	}
	slices.Sort(out)
	return out
}

// Bytes that are no requests have the same replies from Redis, and end the connection like there.
func TestSameAsRedisForWrongBytes(t *testing.T) {
	redis, own := startRedis(t), serve(t, Options{})
	for _, text := range []string{
		"PING\r\n", "ping\n", "\r\n\r\nPING\r\n", "SET a \"b c\\x41\\n\"\r\nGET a\r\n", "GET 'a\\'b'\r\n", "SET a \"b\r\n", "GET a\"b\"\r\n",
		"GET \"a\"b\r\n", "*0\r\nPING\r\n", "*-5\r\nPING\r\n", "*1\r\nPING\r\n", "*1\r\n:4\r\n", "*1\r\n$-1\r\n", "*1\r\n$abc\r\n",
		"*abc\r\n", "*01\r\n$4\r\nPING\r\n", "*1\r\n$4\r\nPING\r\n*2\r\n$3\r\nGET\r\n$1\r\na\r\n", "*99999999999\r\n",
		"*1\r\n$536870913\r\n", "*2147483648\r\n", "*1\r\n$4\r\nPINGxx*1\r\n$4\r\nPING\r\n", strings.Repeat("x", 70_000),
		"*1" + strings.Repeat("1", 70_000), "*1\r\n$1" + strings.Repeat("1", 70_000), "*\r\nPING\r\n", "*1\r\n$\r\n", "   PING   \r\n",
		"*+1\r\n$4\r\nPING\r\n", "*1\r\n4\r\nPING\r\n", "QUIT\r\nPING\r\n", "ECHO \"\\x4\"\r\n", "ECHO '\\n'\r\n",
		"ECHO \"\\q\\t\\a\\b\\r\"\r\n",
	} {
		var replies []string
		for _, addr := range []net.Addr{redis, own.addr} {
			c := dial(t, addr)
			c.Write([]byte(text)) // one that is closed meanwhile takes no more
			if u, is := c.Conn.(*net.UnixConn); is {
				u.CloseWrite()
			}
			replies = append(replies, c.ends())
		}
		if replies[0] != replies[1] {
			t.Errorf("%.60q: %.200q, Redis gives %.200q", text, replies[1], replies[0])
		}
	}
}
