package redis

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/warpmap/warpmap/internal/keyspace"
	"github.com/warpmap/warpmap/internal/resp"
)

// answeredVersion is the version of Redis whose replies these are: clients choose by it what they ask for.
const answeredVersion = "7.0.15"

func ping(c *session, args [][]byte) {
	switch len(args) {
	case 1:
		c.simple("PONG")
	case 2:
		c.bulk(args[1])
	default:
		c.wrongNumber("ping")
	}
}

func echo(c *session, args [][]byte) { c.bulk(args[1]) }

const wrongPassword = "WRONGPASS invalid username-password pair or user is disabled."

// admit says a password, and answers if it is wrong.
func (c *session) admit(user, password []byte) bool {
	if c.s.o.Password == "" && (user == nil || string(user) == "default") {
		return true // anything will do, as in Redis
	}
	if !c.s.says(user, password) {
		c.s.metrics.refusedPasswords.Add(1)
		c.err(wrongPassword)
		return false
	}
	c.known, c.in.Strict = true, false
	return true
}

func auth(c *session, args [][]byte) {
	switch {
	case len(args) > 3:
		c.err(errSyntax)
	case len(args) == 2 && c.s.o.Password == "":
		c.err("ERR AUTH <password> called without any password configured for the default user. Are you sure your " +
			"configuration is correct?")
	case len(args) == 2:
		if c.admit(nil, args[1]) {
			c.ok()
		}
	default:
		if c.admit(args[1], args[2]) {
			c.ok()
		}
	}
}

func hello(c *session, args [][]byte) {
	version := int64(0)
	if len(args) > 1 {
		var ok bool
		if version, ok = resp.Int(args[1]); !ok {
			c.err("ERR Protocol version is not an integer or out of range")
			return
		}
		if version < 2 || version > 3 {
			c.err("NOPROTO unsupported protocol version")
			return
		}
	}
	var login [][]byte
	var name []byte
	named := false
	for i := 2; i < len(args); i++ {
		switch more := len(args) - 1 - i; {
		case is(args[i], "AUTH") && more >= 2:
			login = args[i+1 : i+3]
			i += 2
		case is(args[i], "SETNAME") && more >= 1:
			name, named = args[i+1], true
			if !c.mayBeNamed(name, "Client names") {
				return
			}
			i++
		default:
			c.err(fmt.Sprintf("ERR Syntax error in HELLO option '%s'", text(args[i], len(args[i]))))
			return
		}
	}
	if login != nil && !c.admit(login[0], login[1]) {
		return
	}
	if !c.known {
		c.err("NOAUTH HELLO must be called with the client already authenticated, otherwise the HELLO <proto> AUTH " +
			"<user> <pass> option can be used to authenticate the client and select the RESP protocol version at the " +
			"same time")
		return
	}
	if named {
		c.setName(name)
	}
	if version != 0 {
		c.version = int(version)
	}
	c.pairs(7)
	for _, pair := range [][2]string{{"server", "redis"}, {"version", answeredVersion}} {
		c.text(pair[0])
		c.text(pair[1])
	}
	c.text("proto")
	c.int(int64(c.version))
	c.text("id")
	c.int(c.id)
	for _, pair := range [][2]string{{"mode", "standalone"}, {"role", "master"}} {
		c.text(pair[0])
		c.text(pair[1])
	}
	c.text("modules")
	c.array(0)
}

func quit(c *session, _ [][]byte) {
	c.ok()
	c.closing = true
}

func reset(c *session, _ [][]byte) {
	c.version, c.known = 2, c.s.o.Password == ""
	c.in.Strict = !c.known
	c.strange = c.now
	c.setName(nil)
	c.endMulti()
	c.mute, c.heard = heardAgain, true
	c.simple("RESET")
}

// plain tells whether a name has no spaces and nothing that a terminal would not show.
func plain(name []byte) bool {
	for _, ch := range name {
		if ch < '!' || ch > '~' {
			return false
		}
	}
	return true
}

// mostName bounds what a client may say of itself, which is kept while it is there.
const mostName = 64 << 10

// mayBeNamed tells whether a name is good, or answers why it is not.
func (c *session) mayBeNamed(name []byte, what string) bool {
	switch {
	case len(name) > mostName:
		c.err(fmt.Sprintf("ERR %s cannot be longer than %d bytes.", what, mostName))
	case !plain(name):
		c.err(fmt.Sprintf("ERR %s cannot contain spaces, newlines or special characters.", what))
	default:
		return true
	}
	return false
}

func (c *session) setName(name []byte) {
	if len(name) == 0 {
		c.name.Store(nil)
		return
	}
	text := string(name)
	c.name.Store(&text)
}

func client(c *session, args [][]byte) {
	c.cmd.Store(commands["client"].sub(args[1])) // which it may tell about itself
	switch sub := args[1]; {
	case is(sub, "SETNAME"):
		if !c.mayBeNamed(args[2], "Client names") {
			return
		}
		c.setName(args[2])
		c.ok()
	case is(sub, "GETNAME"):
		if name := c.name.Load(); name != nil {
			c.text(*name)
		} else {
			c.null()
		}
	case is(sub, "ID"):
		c.int(c.id)
	case is(sub, "SETINFO"):
		c.setInfo(args[2], args[3])
	case is(sub, "INFO"):
		c.verbatim(c.describe())
	case is(sub, "LIST"):
		clientList(c, args)
	case is(sub, "KILL"):
		kill(c, args)
	case is(sub, "REPLY"):
		reply(c, args[2])
	case is(sub, "NO-EVICT"): // which is of clients' memory, and none of them is evicted for it
		if is(args[2], "ON") || is(args[2], "OFF") {
			c.ok()
		} else {
			c.err(errSyntax)
		}
	}
}

// clientList is CLIENT LIST, of all or of those whose numbers it names.
func clientList(c *session, args [][]byte) {
	all := c.s.clients()
	switch {
	case len(args) == 2:
	case is(args[2], "ID") && len(args) > 3:
		wanted := map[int64]bool{}
		for _, a := range args[3:] {
			n, ok := resp.Int(a)
			if !ok || n < 1 {
				c.err("ERR Invalid client ID")
				return
			}
			wanted[n] = true
		}
		all = slices.DeleteFunc(all, func(other *session) bool { return !wanted[other.id] })
	case is(args[2], "TYPE") && len(args) == 4:
		switch strings.ToLower(string(args[3])) {
		case "normal":
		case "master", "replica", "slave", "pubsub":
			all = nil
		default:
			c.err("ERR Unknown client type '" + string(text(args[3], 128)) + "'")
			return
		}
	default:
		c.err(errSyntax)
		return
	}
	var b strings.Builder
	room := c.s.o.Output - (len(c.out) - c.from)
	for _, other := range all {
		if b.WriteString(other.describe()); b.Len() > room { // the connection ends, so the rest is not made
			break
		}
	}
	c.verbatim(b.String())
}

// setInfo keeps what a library says of itself.
func (c *session) setInfo(what, value []byte) {
	at := 0
	switch {
	case is(what, "LIB-NAME"):
	case is(what, "LIB-VER"):
		at = 1
	default:
		c.err(fmt.Sprintf("ERR Unrecognized option '%s'", text(what, 128)))
		return
	}
	if !c.mayBeNamed(value, string(bytes.ToLower(what))) {
		return
	}
	text := string(value)
	c.lib[at].Store(&text)
	c.ok()
}

// describe is a line about a client. Other sessions call it, too.
func (c *session) describe() string {
	name, lib, version, last := "", "", "", "NULL"
	for to, from := range map[*string]*string{&name: c.name.Load(), &lib: c.lib[0].Load(), &version: c.lib[1].Load()} {
		if from != nil {
			*to = *from
		}
	}
	if cmd := c.cmd.Load(); cmd != nil {
		last = cmd.name
	}
	return fmt.Sprintf("id=%d addr=%s laddr=%s name=%s age=%d idle=%d flags=N db=0 cmd=%s user=default lib-name=%s "+
		"lib-ver=%s\n", c.id, c.addr, c.local, name, int64(time.Since(c.since).Seconds()),
		max(0, time.Now().UnixMilli()-c.last.Load())/1000, last, lib, version)
}

// settings are those that CONFIG GET tells.
func (s *Server) settings() [][2]string {
	policy, log, fsync, save := "noeviction", "no", "everysec", ""
	most, kept := s.space.Bounds()
	if kept == LRU {
		policy = "allkeys-lru"
	}
	if s.o.Fsync != NoLog {
		log = "yes"
	}
	switch s.o.Fsync {
	case FsyncAlways:
		fsync = "always"
	case FsyncNever:
		fsync = "no"
	}
	if s.o.Save > 0 {
		save = fmt.Sprintf("%d 1", max(1, int64(s.o.Save/time.Second)))
	}
	return [][2]string{
		{"appendfsync", fsync},
		{"appendonly", log},
		{"databases", "1"},
		{"dir", s.o.Folder},
		{"maxclients", strconv.Itoa(s.o.Clients)},
		{"maxmemory", strconv.FormatInt(most, 10)},
		{"maxmemory-policy", policy},
		{"port", strconv.FormatInt(s.port.Load(), 10)},
		{"proto-max-bulk-len", strconv.Itoa(s.o.Bulk)},
		{"save", save},
		{"timeout", strconv.FormatInt(s.idle.Load()/1000, 10)},
	}
}

func config(c *session, args [][]byte) {
	switch sub := args[1]; {
	case is(sub, "SET"):
		configSet(c, args)
		return
	case is(sub, "RESETSTAT"):
		c.s.space.Forget(c.held)
		c.s.metrics.forget()
		c.ok()
		return
	}
	var found [][2]string
	for _, setting := range c.s.settings() {
		for _, pattern := range args[2:] {
			if match(bytes.ToLower(pattern), []byte(setting[0])) {
				found = append(found, setting)
				break
			}
		}
	}
	c.pairs(len(found))
	for _, setting := range found {
		c.text(setting[0])
		c.text(setting[1])
	}
}

// commandCommand is COMMAND: all commands, some, their number, or no documents.
func commandCommand(c *session, args [][]byte) {
	switch {
	case len(args) == 1:
		all := names()
		c.array(len(all))
		for _, name := range all {
			c.describeCommand(commands[name])
		}
	case is(args[1], "COUNT"):
		c.int(int64(len(commands)))
	case is(args[1], "LIST"):
		commandList(c, args)
	case is(args[1], "GETKEYS"):
		commandKeys(c, args[2:])
	case is(args[1], "DOCS"):
		c.pairs(0)
	case is(args[1], "INFO"):
		c.array(len(args) - 2)
		for _, name := range args[2:] {
			if cmd := lookUp(name); cmd != nil {
				c.describeCommand(cmd)
			} else if c.version < 3 {
				c.out = append(c.out, "*-1\r\n"...)
			} else {
				c.null()
			}
		}
	}
}

// commandList is COMMAND LIST, of all or of those whose names match. There are no modules and no lists of access.
func commandList(c *session, args [][]byte) {
	all := names()
	for _, name := range names() {
		for _, sub := range commands[name].subs {
			all = append(all, sub.name)
		}
	}
	slices.Sort(all)
	switch {
	case len(args) == 2:
	case len(args) != 5 || !is(args[2], "FILTERBY"):
		c.err(errSyntax)
		return
	case is(args[3], "PATTERN"):
		all = slices.DeleteFunc(all, func(name string) bool { return !match(bytes.ToLower(args[4]), []byte(name)) })
	case is(args[3], "MODULE"), is(args[3], "ACLCAT"):
		all = nil
	default:
		c.err(errSyntax)
		return
	}
	c.array(len(all))
	for _, name := range all {
		c.text(name)
	}
}

// commandKeys answers with the keys of a request.
func commandKeys(c *session, args [][]byte) {
	cmd := lookUp(args[0])
	if cmd != nil && cmd.subs != nil && len(args) > 1 {
		cmd = cmd.sub(args[1])
	}
	switch {
	case cmd == nil:
		c.err("ERR Invalid command specified")
	case cmd.first == 0:
		c.err("ERR The command has no key arguments")
	case wrongArity(cmd.arity, args):
		c.err("ERR Invalid number of arguments specified for command")
	default:
		n := 0
		cmd.keys(args, func([]byte) { n++ })
		c.array(n)
		cmd.keys(args, func(key []byte) { c.bulk(key) })
	}
}

// describeCommand has the six parts that all versions have, and four that are empty.
func (c *session) describeCommand(cmd *command) {
	c.array(10)
	c.text(cmd.name)
	c.int(int64(cmd.arity))
	kind := "readonly"
	if cmd.flags&write != 0 {
		kind = "write"
	}
	c.array(1)
	c.simple(kind)
	c.int(int64(cmd.first))
	c.int(int64(cmd.last))
	c.int(int64(cmd.step))
	for range 4 {
		c.array(0)
	}
}

func timeNow(c *session, _ [][]byte) {
	now := time.Now()
	c.array(2)
	c.text(strconv.FormatInt(now.Unix(), 10))
	c.text(strconv.Itoa(now.Nanosecond() / 1000))
}

// save is SAVE and BGSAVE.
func save(c *session, args [][]byte) {
	background := is(args[0], "BGSAVE")
	if background && (len(args) > 2 || len(args) == 2 && !is(args[1], "SCHEDULE")) {
		c.err(errSyntax)
		return
	}
	var err error
	if background {
		err = c.s.background()
	} else {
		err = c.s.space.Save(true)
	}
	switch {
	case errors.Is(err, keyspace.ErrSaving):
		c.err("ERR Background save already in progress")
	case errors.Is(err, keyspace.ErrNoFolder):
		c.err("ERR there is no folder for snapshots: start the server with --data")
	case err != nil:
		c.err("ERR " + err.Error())
	case background:
		c.simple("Background saving started")
	default:
		c.ok()
	}
}

func lastSave(c *session, _ [][]byte) {
	at, _, _ := c.s.space.Saved()
	c.int(max(0, at.Unix()))
}

// sections of INFO, by their names.
var sections = []struct {
	name string
	of   func(c *session, line func(name string, value any))
}{
	{"Server", func(c *session, line func(string, any)) {
		s := c.s
		up := int64(time.Since(s.begun).Seconds())
		line("redis_version", answeredVersion)
		line("redis_mode", "standalone")
		line("server_name", "warpmap")
		line("os", runtime.GOOS+" "+runtime.GOARCH)
		line("arch_bits", 64)
		line("process_id", os.Getpid())
		line("tcp_port", s.port.Load())
		line("uptime_in_seconds", up)
		line("uptime_in_days", up/86400)
		line("io_threads_active", s.o.Loops)
	}},
	{"Clients", func(c *session, line func(string, any)) {
		s := c.s
		line("connected_clients", len(s.clients()))
		line("maxclients", s.o.Clients)
		line("blocked_clients", 0)
	}},
	{"Memory", func(c *session, line func(string, any)) {
		s := c.s
		n := s.space.Counts(c.held)
		policy := "noeviction"
		most, kept := s.space.Bounds()
		if kept == LRU {
			policy = "allkeys-lru"
		}
		line("used_memory", n.Allocated)
		line("used_memory_dataset", n.Live)
		line("maxmemory", most)
		line("maxmemory_policy", policy)
	}},
	{"Persistence", func(c *session, line func(string, any)) {
		s := c.s
		at, saving, failed := s.space.Saved()
		line("loading", 0)
		line("rdb_bgsave_in_progress", number(saving))
		line("rdb_last_save_time", max(0, at.Unix()))
		line("rdb_last_bgsave_status", status(!failed))
		line("aof_enabled", number(s.o.Fsync != NoLog))
		line("aof_last_write_status", status(s.space.Err() == nil))
	}},
	{"Stats", func(c *session, line func(string, any)) {
		s := c.s
		n := s.space.Counts(c.held)
		line("total_connections_received", s.metrics.connections.Load())
		line("total_commands_processed", s.metrics.requests.Load())
		line("rejected_connections", s.metrics.refused.Load())
		line("expired_keys", n.Expired)
		line("evicted_keys", n.Evicted)
		line("keyspace_hits", n.Hits)
		line("keyspace_misses", n.Misses)
		line("total_error_replies", s.metrics.errors.Load())
	}},
	{"Replication", func(_ *session, line func(string, any)) {
		line("role", "master")
		line("connected_slaves", 0)
	}},
	{"Cluster", func(_ *session, line func(string, any)) { line("cluster_enabled", 0) }},
	{"Keyspace", func(c *session, line func(string, any)) {
		s := c.s
		if n := s.space.Counts(c.held); n.Keys > 0 {
			line("db0", fmt.Sprintf("keys=%d,expires=%d,avg_ttl=0", n.Keys, n.Expiring))
		}
	}},
}

func number(is bool) int {
	if is {
		return 1
	}
	return 0
}

func status(good bool) string {
	if good {
		return "ok"
	}
	return "err"
}

func info(c *session, args [][]byte) {
	var b strings.Builder
	for _, section := range sections {
		wanted := len(args) == 1
		for _, a := range args[1:] {
			wanted = wanted || is(a, strings.ToUpper(section.name)) || is(a, "ALL") || is(a, "EVERYTHING") ||
				is(a, "DEFAULT")
		}
		if !wanted {
			continue
		}
		if b.Len() > 0 {
			b.WriteString("\r\n")
		}
		fmt.Fprintf(&b, "# %s\r\n", section.name)
		section.of(c, func(name string, value any) { fmt.Fprintf(&b, "%s:%v\r\n", name, value) })
	}
	c.verbatim(b.String())
}
