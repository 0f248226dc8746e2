package redis

import (
	"bytes"
	"math/big"
	"strings"
)

// Redis adds with C's long double, which has 64 bits before its exponent of 15 bits on the machines that most use.
const longPrecision, longMost, longLeast = 64, 16384, -16445

const errFloat = "ERR value is not a valid float"

// longDouble reads a number as C's strtold does. inf is its infinity.
func longDouble(text []byte) (x *big.Float, ok bool) {
	if len(text) == 0 || len(text) >= 5<<10 || bytes.IndexByte(text, '_') >= 0 {
		return nil, false
	}
	s := strings.ToLower(string(text))
	digits := strings.TrimLeft(s, "+-")
	if len(s)-len(digits) > 1 {
		return nil, false
	}
	x = new(big.Float).SetPrec(longPrecision)
	if digits == "inf" || digits == "infinity" {
		return x.SetInf(s[0] == '-'), true
	}
	base := 10
	if strings.HasPrefix(digits, "0x") {
		base = 0
	} else if strings.Trim(digits, "0123456789.e+-") != "" {
		return nil, false
	}
	if _, _, err := x.Parse(s, base); err != nil || x.IsInf() {
		return nil, false
	}
	if exponent := x.MantExp(nil); x.Sign() != 0 && (exponent > longMost || exponent < longLeast) {
		return nil, false
	}
	if x.Sign() == 0 && strings.Trim(strings.SplitN(digits, "e", 2)[0], "0.") != "" && base == 10 {
		return nil, false // it is less than the least
	}
	return x, true
}

// longText is a number with 17 decimals, without zeros at their end.
func longText(x *big.Float) string {
	s := strings.TrimRight(x.Text('f', 17), "0")
	if s = strings.TrimSuffix(s, "."); s == "-0" {
		return "0"
	}
	return s
}

func incrByFloat(c *session, args [][]byte) {
	key := args[1]
	sh, h := c.lock(key)
	defer c.unlock(sh)
	v, expires, there, ok := c.value(sh, h, key)
	if !ok {
		return
	}
	x := new(big.Float).SetPrec(longPrecision)
	if there {
		if x, ok = longDouble(v); !ok {
			c.err(errFloat)
			return
		}
	}
	by, ok := longDouble(args[2])
	if !ok {
		c.err(errFloat)
		return
	}
	if x.IsInf() || by.IsInf() || x.Add(x, by).MantExp(nil) > longMost {
		c.err("ERR increment would produce NaN or Infinity")
		return
	}
	text := longText(x)
	sh.Put(h, key, []byte(text), expires, c.now)
	c.text(text)
}
