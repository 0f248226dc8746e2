package redis

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/internal/testenv"
)

// local is a server on a port of this machine, and that port.
func local(t *testing.T, o Options) (s *serving, port string) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s = serve(t, o, l)
	_, port, _ = net.SplitHostPort(l.Addr().String())
	return s, port
}

// runs runs a program of others, and gives what it prints.
func runs(t *testing.T, input string, name string, args ...string) string {
	t.Helper()
	program, err := exec.LookPath(name)
	testenv.Require(t, "redis-tools", err)
	cmd := exec.Command(program, args...)
	cmd.Stdin = strings.NewReader(input)
	out, err := cmd.CombinedOutput()
	if err != nil {
		t.Fatalf("%s %q: %v: %s", name, args, err, out)
	}
	return string(out)
}

func TestRedisCLI(t *testing.T) {
	_, port := local(t, Options{})
	for _, version := range []string{"-2", "-3"} {
		got := runs(t, "SET a \"b c\"\nGET a\nINCR n\nMGET a none\nEXPIRE a 100\nTTL a\nPFADD h 1 2 3\nPFCOUNT h\nFOO\nFLUSHALL\n", "redis-cli",
			version, "-p", port)
		want := "OK\nb c\n1\nb c\n\n1\n100\n1\n3\nERR unknown command 'FOO', with args beginning with: \n\nOK\n"
		if got != want {
			t.Errorf("%s: %q, want %q", version, got, want)
		}
	}
	var pipe strings.Builder
	for i := range 5000 {
		pipe.Write(request("SET", fmt.Sprint("key ", i), "v"))
	}
	if got := runs(t, pipe.String(), "redis-cli", "-p", port, "--pipe"); !strings.Contains(got, "errors: 0, replies: 5000") {
		t.Errorf("--pipe: %s", got)
	}
	if got := runs(t, "", "redis-cli", "-p", port, "--scan", "--pattern", "key*"); strings.Count(got, "\n") != 5000 {
		t.Errorf("--scan gives %d lines", strings.Count(got, "\n"))
	}
}

// All tests of redis-benchmark that are of strings run, and no reply is an error.
func TestRedisBenchmark(t *testing.T) {
	s, port := local(t, Options{})
	for _, args := range [][]string{{"-P", "1"}, {"-P", "16", "-r", "1000"}, {"-P", "64", "-3"}} {
		got := runs(t, "", "redis-benchmark", append([]string{"-p", port, "-n", "2000", "-c", "20", "-t", "ping,set,get,incr,mset",
			"-q"}, args...)...)
		if n := strings.Count(got, "requests per second"); n != 6 || strings.Contains(got, "rror") {
			t.Errorf("%q: %d tests: %s", args, n, got)
		}
	}
	if n := s.metrics.errors.Load(); n > 0 {
		t.Errorf("%d replies are errors", n)
	}
}

const pythonClient = `
import redis, sys
for protocol in ([2, 3] if int(redis.__version__.split('.')[0]) >= 5 else [2]):
    kw = {'protocol': protocol} if protocol == 3 else {}
    r = redis.Redis(port=int(sys.argv[1]), password='secret', client_name='me', **kw)
    r.flushall()
    assert r.ping() and r.client_getname() in ('me', b'me')
    assert r.set(b'a\x00', b'\xff\r\n', ex=100) and r.get(b'a\x00') == b'\xff\r\n' and 95 <= r.ttl(b'a\x00') <= 100
    assert r.set('a', 1, nx=True) and r.set('a', 2, nx=True) is None and r.incrby('a', 41) == 42
    assert r.mset({'x': 1, 'y': 2}) and r.mget('x', 'z', 'y') == [b'1', None, b'2']
    pipe = r.pipeline(transaction=False)
    for i in range(1000):
        pipe.set('k%d' % i, i).get('k%d' % i)
    assert pipe.execute()[1::2] == [b'%d' % i for i in range(1000)]
    assert set(r.scan_iter('k*', count=50)) == {b'k%d' % i for i in range(1000)}
    assert r.dbsize() == 1004 and r.delete('x', 'y', 'z') == 2 and r.exists('x') == 0
    r.pfadd('h', *range(1000))
    pipe = r.pipeline()
    pipe.set('p', 1).incr('p').get('p')
    assert pipe.execute() == [True, 2, b'2']
    with r.pipeline() as pipe:
        pipe.watch('p')
        r.set('p', 5)
        pipe.multi()
        pipe.incr('p')
        try:
            pipe.execute()
            assert False
        except redis.WatchError:
            pass
    assert r.transaction(lambda p: (p.get('p'), p.multi(), p.incr('p')), 'p') == [6]
    assert r.bf().create('b', 0.01, 100) and r.bf().madd('b', 'x', 'y') == [1, 1] and r.bf().exists('b', 'x') == 1
    assert r.bf().info('b').insertedNum == 2 and r.bf().info('b').capacity == 100
    assert r.cf().create('c', 1000) and r.cf().add('c', 'x') == 1 and r.cf().addnx('c', 'x') == 0
    assert r.cf().count('c', 'x') == 1 and r.cf().delete('c', 'x') == 1 and r.cf().info('c').deletedNum == 1
    assert r.rename('p', 'q') and r.copy('q', 'p') and r.getrange('q', 0, 0) == b'6' and r.setbit('q', 7, 1) == 0
    r.delete('b', 'c', 'p', 'q', 'h')
    r.pfadd('h', *range(1000))
    assert 950 <= r.pfcount('h') <= 1050
    assert r.persist(b'a\x00') and r.ttl(b'a\x00') == -1 and r.type('a') == b'string'
    assert r.info()['redis_mode'] == 'standalone' and r.config_get('save') is not None and r.command_count() > 30
    assert r.append('a', 'x') == 3 and r.strlen('a') == 3
    try:
        r.incr('a')
        assert False
    except redis.ResponseError as e:
        assert 'not an integer' in str(e)
print('well')
`

// python is a Python that has redis-py.
func python(t *testing.T) (name string) {
	t.Helper()
	var err error
	for _, name = range []string{"python3", "/usr/bin/python3"} { // the second is where a distribution's packages are
		if err = exec.Command(name, "-c", "import redis").Run(); err == nil {
			return name
		}
	}
	testenv.Require(t, "python3-redis", err)
	return ""
}

// The page's program does what it says, and the page names all commands.
func TestPage(t *testing.T) {
	text, err := os.ReadFile("../../docs/serve.md")
	if err != nil {
		t.Skip("the sources are not here")
	}
	for _, name := range names() {
		if !regexp.MustCompile("[` ]" + strings.ToUpper(name) + "[` ]").Match(text) {
			t.Errorf("docs/serve.md does not name %s", strings.ToUpper(name))
		}
	}
	_, rest, _ := strings.Cut(string(text), "```python\n")
	program, _, _ := strings.Cut(rest, "```")
	_, port := local(t, Options{})
	got := runs(t, strings.Replace(program, "6379", port, 1), python(t), "-")
	if want := `^b'42' \d+\n\[b'1', b'2', None\] 6\n2\n\[4, 4\]\n1 1 0\n$`; !regexp.MustCompile(want).MatchString(got) {
		t.Errorf("the page's program prints %q, want %s", got, want)
	}
}

func TestPythonClient(t *testing.T) {
	_, port := local(t, Options{Password: "secret"})
	if got := runs(t, pythonClient, python(t), "-", port); got != "well\n" {
		t.Error(got)
	}
}
