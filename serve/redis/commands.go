package redis

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/warpmap/warpmap/internal/keyspace"
	"github.com/warpmap/warpmap/internal/resp"
)

// command is one that clients can ask for. arity counts its name; a negative one is the least. Its keys are the
// arguments from first to last, one of step each; a negative last counts from the end.
type command struct {
	name              string
	arity             int
	flags             flags
	first, last, step int
	do                func(c *session, args [][]byte)
}

type flags int

const (
	write   flags = 1 << iota // changes keys
	grows                     // may need memory
	unknown                   // also for clients that have not said their password
)

var commands map[string]*command

func init() { // some commands list all
	commands = map[string]*command{}
	for _, c := range []command{
		{"get", 2, 0, 1, 1, 1, get},
		{"set", -3, write | grows, 1, 1, 1, set},
		{"setnx", 3, write | grows, 1, 1, 1, setNX},
		{"setex", 4, write | grows, 1, 1, 1, setEX},
		{"psetex", 4, write | grows, 1, 1, 1, setEX},
		{"getset", 3, write | grows, 1, 1, 1, getSet},
		{"getdel", 2, write, 1, 1, 1, getDel},
		{"getex", -2, write, 1, 1, 1, getEX},
		{"mget", -2, 0, 1, -1, 1, mget},
		{"mset", -3, write | grows, 1, -1, 2, mset},
		{"msetnx", -3, write | grows, 1, -1, 2, msetNX},
		{"append", 3, write | grows, 1, 1, 1, appendTo},
		{"strlen", 2, 0, 1, 1, 1, strlen},
		{"incr", 2, write | grows, 1, 1, 1, incr},
		{"decr", 2, write | grows, 1, 1, 1, decr},
		{"incrby", 3, write | grows, 1, 1, 1, incrBy},
		{"decrby", 3, write | grows, 1, 1, 1, decrBy},
		{"del", -2, write, 1, -1, 1, del},
		{"unlink", -2, write, 1, -1, 1, del},
		{"exists", -2, 0, 1, -1, 1, exists},
		{"touch", -2, 0, 1, -1, 1, exists},
		{"expire", -3, write, 1, 1, 1, expire},
		{"pexpire", -3, write, 1, 1, 1, expire},
		{"expireat", -3, write, 1, 1, 1, expire},
		{"pexpireat", -3, write, 1, 1, 1, expire},
		{"ttl", 2, 0, 1, 1, 1, ttl},
		{"pttl", 2, 0, 1, 1, 1, ttl},
		{"expiretime", 2, 0, 1, 1, 1, ttl},
		{"pexpiretime", 2, 0, 1, 1, 1, ttl},
		{"persist", 2, write, 1, 1, 1, persist},
		{"type", 2, 0, 1, 1, 1, typeOf},
		{"keys", 2, 0, 0, 0, 0, keys},
		{"scan", -2, 0, 0, 0, 0, scan},
		{"dbsize", 1, 0, 0, 0, 0, dbsize},
		{"flushdb", -1, write, 0, 0, 0, flush},
		{"flushall", -1, write, 0, 0, 0, flush},
		{"pfadd", -2, write | grows, 1, 1, 1, pfadd},
		{"pfcount", -2, 0, 1, -1, 1, pfcount},
		{"pfmerge", -2, write | grows, 1, -1, 1, pfmerge},
		{"ping", -1, 0, 0, 0, 0, ping},
		{"echo", 2, 0, 0, 0, 0, echo},
		{"select", 2, 0, 0, 0, 0, selectDB},
		{"auth", -2, unknown, 0, 0, 0, auth},
		{"hello", -1, unknown, 0, 0, 0, hello},
		{"quit", -1, unknown, 0, 0, 0, quit},
		{"reset", 1, unknown, 0, 0, 0, reset},
		{"client", -2, 0, 0, 0, 0, client},
		{"config", -2, 0, 0, 0, 0, config},
		{"command", -1, 0, 0, 0, 0, commandCommand},
		{"info", -1, 0, 0, 0, 0, info},
		{"time", 1, 0, 0, 0, 0, timeNow},
		{"save", 1, 0, 0, 0, 0, save},
		{"bgsave", -1, 0, 0, 0, 0, save},
		{"lastsave", 1, 0, 0, 0, 0, lastSave},
	} {
		commands[c.name] = &c
	}
}

// lookUp finds a command by its name, in whatever case.
func lookUp(name []byte) *command {
	var b [16]byte
	if len(name) > len(b) {
		return nil
	}
	for i, ch := range name {
		if ch >= 'A' && ch <= 'Z' {
			ch += 'a' - 'A'
		}
		b[i] = ch
	}
	return commands[string(b[:len(name)])]
}

// do answers one request.
func (c *session) do(args [][]byte) *command {
	cmd := lookUp(args[0])
	switch {
	case cmd == nil:
		c.unknown(args)
		return nil
	case cmd.arity >= 0 && len(args) != cmd.arity || len(args) < -cmd.arity:
		c.wrongNumber(cmd.name)
	case !c.known && cmd.flags&unknown == 0:
		c.err("NOAUTH Authentication required.")
	case cmd.flags&write != 0 && !c.writable(cmd, args):
	default:
		c.wrote = c.wrote || cmd.flags&write != 0
		cmd.do(c, args)
	}
	return cmd
}

// writable tells whether a command that writes can go on; else it says why not.
func (c *session) writable(cmd *command, args [][]byte) bool {
	if err := c.s.space.Err(); err != nil {
		c.err("MISCONF Errors writing to the AOF file: " + err.Error())
		return false
	}
	if cmd.flags&grows == 0 || c.s.o.MaxMemory == 0 {
		return true
	}
	n := int64(0)
	for _, a := range args {
		n += int64(len(a)) + overhead/2
	}
	if !c.s.space.Admit(n, c.now) {
		c.s.metrics.full.Add(1)
		c.err("OOM command not allowed when used memory > 'maxmemory'.")
		return false
	}
	return true
}

// overhead is about what a key takes beside its bytes.
const overhead = 64

func (c *session) unknown(args [][]byte) {
	name := bytes.ToLower(args[0])
	if string(name) == "post" || string(name) == "host:" { // a browser that somebody has send requests here
		c.s.o.Log.Printf("%s sends HTTP: it is cut off", c.addr)
		c.closing = true
		return
	}
	var b strings.Builder
	for _, a := range args[1:] {
		if b.Len() >= 128 {
			break
		}
		fmt.Fprintf(&b, "'%s' ", text(a, 128-b.Len()))
	}
	c.err(fmt.Sprintf("ERR unknown command '%s', with args beginning with: %s", text(args[0], 128), b.String()))
}

// text is what C's printf shows of bytes: up to a zero, and so many at most.
func text(b []byte, most int) []byte {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return b[:min(len(b), most)]
}

func (c *session) wrongNumber(name string) {
	c.err("ERR wrong number of arguments for '" + name + "' command")
}

// unknownSub answers to a subcommand that is none.
func (c *session) unknownSub(args [][]byte) {
	c.err(fmt.Sprintf("ERR unknown subcommand '%s'. Try %s HELP.", text(args[1], 128), bytes.ToUpper(args[0])))
}

// is tells whether an argument is a word, in whatever case.
func is(arg []byte, word string) bool {
	if len(arg) != len(word) {
		return false
	}
	for i := range arg {
		if ch := arg[i]; ch != word[i] && (ch|0x20 != word[i]|0x20 || ch|0x20 < 'a' || ch|0x20 > 'z') {
			return false
		}
	}
	return true
}

const (
	errSyntax = "ERR syntax error"
	errInt    = "ERR value is not an integer or out of range"
)

// number reads a number, or answers that it is none.
func (c *session) number(arg []byte) (int64, bool) {
	n, ok := resp.Int(arg)
	if !ok {
		c.err(errInt)
	}
	return n, ok
}

// lock locks the shard of a key.
func (c *session) lock(key []byte) (sh *keyspace.Shard, hash uint64) {
	hash = c.s.space.Hash(key)
	return c.s.space.Lock(hash), hash
}

// lockAll locks the shards of keys, of which each step-th argument is one, and gives their hashes.
func (c *session) lockAll(args [][]byte, step int) (*keyspace.Several, []uint64) {
	var all keyspace.Several
	c.hashes = c.hashes[:0]
	for i := 0; i < len(args); i += step {
		hash := c.s.space.Hash(args[i])
		c.hashes = append(c.hashes, hash)
		all.Add(hash)
	}
	c.s.space.LockAll(&all)
	return &all, c.hashes
}

// names are the commands' names, in their order.
func names() (out []string) {
	for name := range commands {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}
