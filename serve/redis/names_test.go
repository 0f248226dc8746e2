package redis

import (
	"strings"
	"testing"
)

// What a client says of itself is bounded, and what is too long changes nothing.
func TestLongNames(t *testing.T) {
	s := serve(t, Options{})
	c := dial(t, s.addr)
	most, long := strings.Repeat("n", mostName), strings.Repeat("m", mostName+1)
	c.want("+OK\r\n", "CLIENT", "SETNAME", most)
	c.want("+OK\r\n", "CLIENT", "SETINFO", "LIB-NAME", most)
	c.want("+OK\r\n", "CLIENT", "SETINFO", "LIB-VER", most)
	before := len(c.do("CLIENT", "INFO"))
	const refused = " cannot be longer than 65536 bytes.\r\n"
	c.want("-ERR Client names"+refused, "CLIENT", "SETNAME", long)
	c.want("-ERR Client names"+refused, "HELLO", "3", "SETNAME", long)
	c.want("-ERR lib-name"+refused, "CLIENT", "SETINFO", "LIB-NAME", long)
	c.want("-ERR lib-ver"+refused, "CLIENT", "SETINFO", "lib-ver", long)
	if got := c.do("CLIENT", "INFO"); len(got) != before || strings.Contains(got, "mm") {
		t.Errorf("%d bytes are told, %d before", len(got), before)
	}
	c.want("-ERR Client names cannot contain spaces, newlines or special characters.\r\n", "CLIENT", "SETNAME", "a b")
}
