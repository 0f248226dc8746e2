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
	more              func(c *session, args [][]byte) int64 // bytes that it needs beside its arguments; nil: none
	subs              map[string]*command                   // its subcommands, by their own names
}

type flags int

const (
	write      flags = 1 << iota // changes keys
	grows                        // may need memory
	unknown                      // also for clients that have not said their password
	direct                       // is done at once behind MULTI, too
	alone                        // may not be in a transaction
	everyShard                   // goes over keys that its arguments do not name
)

var commands map[string]*command

var getCommand, setCommand *command

// listed is what a command's line says.
type listed struct {
	name              string
	arity             int
	flags             flags
	first, last, step int
	do                func(c *session, args [][]byte)
}

// keyCommands are about keys and strings.
func keyCommands() []listed {
	return []listed{
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
		{"getrange", 4, 0, 1, 1, 1, getRange},
		{"substr", 4, 0, 1, 1, 1, getRange},
		{"setrange", 4, write | grows, 1, 1, 1, setRange},
		{"setbit", 4, write | grows, 1, 1, 1, setBit},
		{"getbit", 3, 0, 1, 1, 1, getBit},
		{"bitcount", -2, 0, 1, 1, 1, bitCount},
		{"strlen", 2, 0, 1, 1, 1, strlen},
		{"incr", 2, write | grows, 1, 1, 1, incr},
		{"decr", 2, write | grows, 1, 1, 1, decr},
		{"incrby", 3, write | grows, 1, 1, 1, incrBy},
		{"incrbyfloat", 3, write | grows, 1, 1, 1, incrByFloat},
		{"decrby", 3, write | grows, 1, 1, 1, decrBy},
		{"del", -2, write, 1, -1, 1, del},
		{"unlink", -2, write, 1, -1, 1, del},
		{"exists", -2, 0, 1, -1, 1, exists},
		{"touch", -2, 0, 1, -1, 1, exists},
		{"rename", 3, write, 1, 2, 1, rename},
		{"renamenx", 3, write, 1, 2, 1, rename},
		{"copy", -3, write | grows, 1, 2, 1, copyKey},
		{"randomkey", 1, everyShard, 0, 0, 0, randomKey},
		{"object", -2, 0, 2, 2, 1, object},
		{"memory", -2, 0, 2, 2, 1, memory},
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
		{"keys", 2, everyShard, 0, 0, 0, keys},
		{"scan", -2, everyShard, 0, 0, 0, scan},
		{"dbsize", 1, everyShard, 0, 0, 0, dbsize},
		{"flushdb", -1, write | everyShard, 0, 0, 0, flush},
		{"flushall", -1, write | everyShard, 0, 0, 0, flush},
	}
}

// sketchCommands are about sketches and filters.
func sketchCommands() []listed {
	return []listed{
		{"pfadd", -2, write | grows, 1, 1, 1, pfadd},
		{"pfcount", -2, 0, 1, -1, 1, pfcount},
		{"pfmerge", -2, write | grows, 1, -1, 1, pfmerge},
		{"bf.reserve", -4, write | grows, 1, 1, 1, bloomReserve},
		{"bf.add", 3, write | grows, 1, 1, 1, bloomAdd},
		{"bf.madd", -3, write | grows, 1, 1, 1, bloomAdd},
		{"bf.exists", 3, 0, 1, 1, 1, bloomExists},
		{"bf.mexists", -3, 0, 1, 1, 1, bloomExists},
		{"bf.card", 2, 0, 1, 1, 1, bloomCard},
		{"bf.info", -2, 0, 1, 1, 1, bloomInfo},
		{"cf.reserve", -3, write | grows, 1, 1, 1, cuckooReserve},
		{"cf.add", 3, write | grows, 1, 1, 1, cuckooAdd},
		{"cf.addnx", 3, write | grows, 1, 1, 1, cuckooAdd},
		{"cf.del", 3, write, 1, 1, 1, cuckooDelete},
		{"cf.exists", 3, 0, 1, 1, 1, cuckooExists},
		{"cf.mexists", -3, 0, 1, 1, 1, cuckooExists},
		{"cf.count", 3, 0, 1, 1, 1, cuckooCount},
		{"cf.info", 2, 0, 1, 1, 1, cuckooInfo},
	}
}

// otherCommands are about transactions, connections and the server.
func otherCommands() []listed {
	return []listed{
		{"multi", 1, direct, 0, 0, 0, multiBegin},
		{"exec", 1, direct, 0, 0, 0, execute},
		{"discard", 1, direct, 0, 0, 0, discard},
		{"watch", -2, direct, 1, -1, 1, watch},
		{"unwatch", 1, 0, 0, 0, 0, unwatch},
		{"ping", -1, 0, 0, 0, 0, ping},
		{"echo", 2, 0, 0, 0, 0, echo},
		{"select", 2, 0, 0, 0, 0, selectDB},
		{"auth", -2, unknown, 0, 0, 0, auth},
		{"hello", -1, unknown, 0, 0, 0, hello},
		{"quit", -1, unknown | direct, 0, 0, 0, quit},
		{"reset", 1, unknown | direct, 0, 0, 0, reset},
		{"client", -2, 0, 0, 0, 0, client},
		{"config", -2, everyShard, 0, 0, 0, config},
		{"command", -1, 0, 0, 0, 0, commandCommand},
		{"info", -1, everyShard, 0, 0, 0, info},
		{"time", 1, 0, 0, 0, 0, timeNow},
		{"wait", 3, 0, 0, 0, 0, wait},
		{"save", 1, alone, 0, 0, 0, save},
		{"bgsave", -1, 0, 0, 0, 0, save},
		{"lastsave", 1, 0, 0, 0, 0, lastSave},
	}
}

func init() { // some commands list all
	commands = map[string]*command{}
	for _, c := range slices.Concat(keyCommands(), sketchCommands(), otherCommands()) {
		cmd := &command{c.name, c.arity, c.flags, c.first, c.last, c.step, c.do, nil, nil}
		for sub, arity := range subcommands[c.name] {
			if cmd.subs == nil {
				cmd.subs = map[string]*command{}
			}
			one := *cmd
			one.name, one.arity, one.subs = c.name+"|"+sub, arity, nil
			cmd.subs[sub] = &one
		}
		commands[c.name] = cmd
	}
	getCommand, setCommand = commands["get"], commands["set"]
	for name, more := range map[string]func(c *session, args [][]byte) int64{
		"append": appendNeeds, "setrange": setRangeNeeds, "setbit": setBitNeeds, "copy": copyNeeds,
		"pfadd": sketchNeeds, "pfmerge": sketchNeeds, "bf.reserve": bloomNeeds, "cf.reserve": cuckooNeeds,
		"bf.add": addNeeds, "bf.madd": addNeeds, "cf.add": addNeeds, "cf.addnx": addNeeds,
		"rename": renameNeeds, "renamenx": renameNeeds,
	} {
		commands[name].more = more
	}
}

// subcommands are those of commands that have any, with both names counted in their arities.
var subcommands = map[string]map[string]int{ // by their commands
	"client": {"setname": 3, "getname": 2, "id": 2, "setinfo": 4, "info": 2, "list": -2, "kill": -3, "reply": 3,
		"no-evict": 3},
	"config":  {"get": -3, "set": -4, "resetstat": 2},
	"command": {"count": 2, "list": -2, "docs": -2, "info": -2, "getkeys": -3},
	"object":  {"encoding": 3, "idletime": 3, "refcount": 3, "freq": 3},
	"memory":  {"usage": -3},
}

// mostCommand is how long the name of a command is at most.
const mostCommand = 16

// lookUp finds a command by its name, in whatever case.
func lookUp(name []byte) *command {
	var b [mostCommand]byte
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
	if c.mute != heardAgain {
		return c.mutely(args)
	}
	cmd := c.usual
	if cmd == nil || !is(args[0], cmd.name) { // most clients ask for the same again
		if cmd = lookUp(args[0]); cmd == nil {
			c.unknown(args)
			return nil
		}
		c.usual = cmd
	}
	if cmd.subs != nil && len(args) > 1 {
		if cmd = cmd.sub(args[1]); cmd == nil {
			c.reject(fmt.Sprintf("ERR unknown subcommand '%s'. Try %s HELP.", text(args[1], 128),
				strings.ToUpper(lookUp(args[0]).name)))
			return nil
		}
	}
	switch {
	case wrongArity(cmd.arity, args):
		if cmd.name == "exec" { // which ends the transaction whatever happens
			c.abort(wrongNumber(cmd.name))
			return cmd
		}
		c.reject(wrongNumber(cmd.name))
	case !c.known && cmd.flags&unknown == 0:
		c.reject("NOAUTH Authentication required.")
	case c.multi.open && cmd.flags&direct == 0:
		c.later(cmd, args)
	case cmd.flags&write == 0:
		cmd.do(c, args)
	default:
		if why := c.refused(cmd.flags, c.needs(cmd, args)); why != "" {
			c.err(why)
			return cmd
		}
		c.wrote = true
		cmd.do(c, args)
	}
	return cmd
}

func wrongArity(arity int, args [][]byte) bool {
	return arity >= 0 && len(args) != arity || len(args) < -arity
}

// sub finds a subcommand by its name, in whatever case.
func (cmd *command) sub(name []byte) *command {
	if len(name) > mostCommand {
		return nil
	}
	return cmd.subs[string(bytes.ToLower(name))]
}

// mutely answers a request whose reply the client does not want.
func (c *session) mutely(args [][]byte) *command {
	was, before := c.mute, len(c.out)
	c.mute, c.heard = heardAgain, false
	cmd := c.do(args)
	if was == muteAll && !c.heard {
		c.mute = muteAll
	}
	if !c.heard {
		c.out = c.out[:min(before, len(c.out))]
	}
	return cmd
}

// later keeps a command for EXEC, if it is good for that.
func (c *session) later(cmd *command, args [][]byte) {
	if cmd.flags&alone != 0 {
		c.reject("ERR Command not allowed inside a transaction")
		return
	}
	if cmd.flags&write != 0 {
		if why := c.refused(cmd.flags, c.needs(cmd, args)); why != "" {
			c.reject(why)
			return
		}
	}
	c.enqueue(cmd, args)
}

// refused is why commands of these kinds, which need so much memory, cannot be done; empty if they can.
func (c *session) refused(kinds flags, needs int64) string {
	if kinds&write == 0 {
		return ""
	}
	if err := c.s.space.Err(); err != nil {
		return "MISCONF Errors writing to the AOF file: " + err.Error()
	}
	if needs > 0 && !c.s.space.Admit(needs, c.now) {
		c.s.metrics.full.Add(1)
		return errFull
	}
	return ""
}

const errFull = "OOM command not allowed when used memory > 'maxmemory'."

// needs is how many bytes of memory a command may need.
func (c *session) needs(cmd *command, args [][]byte) (n int64) {
	if most, _ := c.s.space.Bounds(); most == 0 {
		return 0
	}
	if cmd.flags&grows != 0 {
		for _, a := range args {
			n += int64(len(a)) + overhead/2
		}
	}
	if cmd.more != nil {
		n += cmd.more(c, args)
	}
	return n
}

// overhead is about what a key takes beside its bytes.
const overhead = 64

// length is how long the value of a key is.
func (c *session) length(key []byte) (n int64) {
	sh, h := c.lock(key)
	defer c.unlock(sh)
	v, _, _ := sh.Peek(h, key, c.now)
	return int64(len(v))
}

// appendNeeds: a value that is appended to has room for more then.
func appendNeeds(c *session, args [][]byte) int64 { return 2 * min(c.length(args[1]), 1<<20) }

func setRangeNeeds(c *session, args [][]byte) int64 {
	at, _ := resp.Int(args[2])
	return c.grown(args[1], at+int64(len(args[3])))
}

func setBitNeeds(c *session, args [][]byte) int64 {
	at, _ := resp.Int(args[2])
	return c.grown(args[1], at>>3+1)
}

// grown is what a key's value needs to be so long.
func (c *session) grown(key []byte, to int64) int64 {
	n := c.length(key)
	if to <= n || to > int64(c.s.o.Bulk) {
		return 0
	}
	return to - n + min(to, 1<<20)
}

// renameNeeds: a name that is shorter needs nothing, so that keys can be renamed where memory is full.
func renameNeeds(_ *session, args [][]byte) int64 { return int64(max(0, len(args[2])-len(args[1]))) }

func copyNeeds(c *session, args [][]byte) int64 {
	sh, h := c.lock(args[1])
	defer c.unlock(sh)
	n, _, _ := sh.Used(h, args[1], c.now)
	return n
}

// sketchNeeds: a sketch that is not there yet has all its registers at once.
func sketchNeeds(c *session, args [][]byte) int64 {
	if c.length(args[1]) > 0 {
		return 0
	}
	return sketchRegisters
}

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
	c.reject(fmt.Sprintf("ERR unknown command '%s', with args beginning with: %s", text(args[0], 128), b.String()))
}

// text is what C's printf shows of bytes: up to a zero, and so many at most.
func text(b []byte, most int) []byte {
	if i := bytes.IndexByte(b, 0); i >= 0 {
		b = b[:i]
	}
	return b[:min(len(b), most)]
}

func (c *session) wrongNumber(name string) { c.err(wrongNumber(name)) }

func wrongNumber(name string) string {
	return "ERR wrong number of arguments for '" + name + "' command"
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
	if c.held {
		return c.s.space.Of(hash), hash
	}
	return c.s.space.Lock(hash), hash
}

// unlock ends what lock began.
func (c *session) unlock(sh *keyspace.Shard) {
	if !c.held {
		sh.Unlock()
	}
}

// lockAll locks the shards of keys, of which each step-th argument is one, and gives their hashes.
func (c *session) lockAll(args [][]byte, step int) (*keyspace.Several, []uint64) {
	all, hashes := c.several(args, step)
	if !c.held {
		c.s.space.LockAll(all)
	}
	return all, hashes
}

// several is the shards and the hashes of keys, of which each step-th argument is one.
func (c *session) several(args [][]byte, step int) (*keyspace.Several, []uint64) {
	var all keyspace.Several
	c.hashes = c.hashes[:0]
	for i := 0; i < len(args); i += step {
		hash := c.s.space.Hash(args[i])
		c.hashes = append(c.hashes, hash)
		all.Add(hash)
	}
	return &all, c.hashes
}

// unlockAll ends what lockAll began.
func (c *session) unlockAll(all *keyspace.Several) {
	if !c.held {
		c.s.space.UnlockAll(all)
	}
}

// names are the commands' names, in their order.
func names() (out []string) {
	for name := range commands {
		out = append(out, name)
	}
	slices.Sort(out)
	return out
}
