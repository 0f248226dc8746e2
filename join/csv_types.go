package join

import (
	"bytes"
	"math"
	"strconv"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
)

// What a field can be, as bits: a column's type follows from all that its fields are.
const (
	csvNegative = 1 << iota // an integer below 0
	csvInt                  // an integer of 0 and up that fits int64
	csvUint                 // one over that, that fits uint64
	csvWide                 // beside the three: not exact as float64
	csvFloat
	csvBool
	csvDate
	csvStamp  // date and time
	csvStampZ // in UTC
	csvNano   // beside the two: needs nanoseconds
	csvFar    // beside the two: too far away for them
	csvText
)

// classify says what a field that is not null is. Only what can be written back with nothing but its
// spelling changed is more than text.
func classify(f []byte) int {
	if len(f) == 0 {
		return csvText // a quoted empty string
	}
	switch c := f[0]; {
	case c >= '0' && c <= '9' || c == '-':
		if class := classifyPlain(f); class != 0 {
			return class
		}
		if len(f) >= 10 && f[4] == '-' {
			if _, ok := parseDate(f); ok {
				return csvDate
			}
			if t, ok := parseStamp(f); ok {
				return t.class
			}
		}
		return classifyNumber(f)
	case c == 't' || c == 'T' || c == 'f' || c == 'F':
		if _, ok := parseBool(f); ok {
			return csvBool
		}
	case c == 'N' || c == 'I' || c == '+':
		if _, ok := parseSpecial(f); ok {
			return csvFloat
		}
	}
	return csvText
}

// classifyPlain knows most numbers: digits without a sign, with a point or without, that float64 holds whatever they
// are. It gives 0 for what is not one of them.
func classifyPlain(f []byte) int {
	if len(f) > 15 || f[0] == '0' && len(f) > 1 && f[1] != '.' {
		return 0
	}
	class := csvInt
	for i, c := range f {
		if c-'0' <= 9 {
			continue
		}
		if c != '.' || class == csvFloat || i == 0 || i == len(f)-1 {
			return 0
		}
		class = csvFloat
	}
	return class
}

func classifyNumber(f []byte) int {
	// -?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][-+]?[0-9]+)?
	b, digits, point := f, 0, false
	if b[0] == '-' {
		b = b[1:]
	}
	count := func() (n int) {
		for n < len(b) && b[n] >= '0' && b[n] <= '9' {
			n++
		}
		b = b[n:]
		return n
	}
	if len(b) > 1 && b[0] == '0' && b[1] >= '0' && b[1] <= '9' {
		return csvText // 007 is not 7
	}
	if digits = count(); digits == 0 {
		if _, ok := parseSpecial(f); ok {
			return csvFloat
		}
		return csvText
	}
	if len(b) == 0 && !(f[0] == '-' && digits == 1 && f[1] == '0') {
		if v, err := strconv.ParseInt(string(f), 10, 64); err == nil {
			class := csvInt
			if v < 0 {
				class = csvNegative
			}
			if v > 1<<53 || v < -1<<53 {
				class |= csvWide
			}
			return class
		}
		if _, err := strconv.ParseUint(string(f), 10, 64); err == nil {
			return csvUint | csvWide
		}
		return csvText
	}
	if len(b) > 0 && b[0] == '.' {
		b = b[1:]
		n := count()
		if n == 0 {
			return csvText
		}
		digits, point = digits+n, true
	}
	mantissa := f[:len(f)-len(b)]
	if len(b) > 0 && (b[0] == 'e' || b[0] == 'E') {
		if b = b[1:]; len(b) > 0 && (b[0] == '-' || b[0] == '+') {
			b = b[1:]
		}
		if count() == 0 {
			return csvText
		}
	}
	if len(b) > 0 {
		return csvText
	}
	v, err := strconv.ParseFloat(string(f), 64)
	if err != nil {
		return csvText
	}
	return exactFloat(v, mantissa, digits, point)
}

// exactFloat tells a decimal that float64 holds from one that it does not: every decimal of 15 digits comes back, one
// of more digits if those are the float's own.
func exactFloat(v float64, mantissa []byte, digits int, point bool) int {
	if digits <= 15 && (v != 0 || !bytes.ContainsAny(mantissa, "123456789")) && (v == 0 || math.Abs(v) >= 0x1p-1022) {
		return csvFloat
	}
	ds := make([]byte, 0, digits)
	for _, c := range mantissa {
		if c >= '0' && c <= '9' && (len(ds) > 0 || c != '0') {
			ds = append(ds, c)
		}
	}
	if len(ds) == 0 {
		return csvFloat // a zero
	}
	if len(ds) > 800 {
		return csvText
	}
	own := make([]byte, 0, len(ds)+8)
	for _, c := range strconv.AppendFloat(nil, math.Abs(v), 'e', len(ds)-1, 64) {
		if c == 'e' {
			break
		}
		if c != '.' {
			own = append(own, c)
		}
	}
	if bytes.Equal(own, ds) {
		return csvFloat
	}
	return csvText
}

func parseSpecial(f []byte) (float64, bool) {
	switch string(f) {
	case "NaN":
		return math.NaN(), true
	case "Inf", "+Inf":
		return math.Inf(1), true
	case "-Inf":
		return math.Inf(-1), true
	}
	return 0, false
}

func parseBool(f []byte) (bool, bool) {
	switch string(f) {
	case "true", "True", "TRUE":
		return true, true
	case "false", "False", "FALSE":
		return false, true
	}
	return false, false
}

// number reads decimal digits alone.
func number(f []byte) (n int, ok bool) {
	for _, c := range f {
		if c < '0' || c > '9' {
			return 0, false
		}
		n = n*10 + int(c-'0')
	}
	return n, true
}

// civil turns a date of the Gregorian calendar into days since 1970-01-01.
func civil(f []byte) (days int64, ok bool) {
	if len(f) != 10 || f[4] != '-' || f[7] != '-' {
		return 0, false
	}
	y, ok1 := number(f[:4])
	m, ok2 := number(f[5:7])
	d, ok3 := number(f[8:])
	if !ok1 || !ok2 || !ok3 || m < 1 || m > 12 || d < 1 || d > 31 {
		return 0, false
	}
	if d > 28 && time.Date(y, time.Month(m), d, 0, 0, 0, 0, time.UTC).Day() != d {
		return 0, false
	}
	// Years begin in March here, so that a leap day is a year's last.
	y += 400 // no negative ones
	if m -= 3; m < 0 {
		y, m = y-1, m+12
	}
	return int64(y*365+y/4-y/100+y/400+(153*m+2)/5+d-1) - marchOf400 - 719468, true
}

// marchOf400 is how many days 400 years have, and 719468 how many lie between March of the year 0 and 1970.
const marchOf400 = 146097

func parseDate(f []byte) (arrow.Date32, bool) {
	days, ok := civil(f)
	return arrow.Date32(days), ok
}

type stamp struct {
	sec   int64
	nano  int64
	class int
}

// parseStamp reads 2006-01-02 15:04:05, with T for the blank, up to nine decimals, and Z, or without.
func parseStamp(f []byte) (s stamp, ok bool) {
	if len(f) < 19 || f[10] != ' ' && f[10] != 'T' || f[13] != ':' || f[16] != ':' {
		return s, false
	}
	days, ok := civil(f[:10])
	h, ok1 := number(f[11:13])
	m, ok2 := number(f[14:16])
	c, ok3 := number(f[17:19])
	if !ok || !ok1 || !ok2 || !ok3 || h > 23 || m > 59 || c > 59 {
		return s, false
	}
	s.sec, s.class = days*86400+int64(h*3600+m*60+c), csvStamp
	f = f[19:]
	if len(f) > 0 && f[len(f)-1] == 'Z' {
		f = f[:len(f)-1]
		s.class = csvStampZ
	}
	if len(f) > 0 {
		n, ok := number(f[1:])
		if f[0] != '.' || len(f) < 2 || len(f) > 10 || !ok {
			return s, false
		}
		for range 10 - len(f) {
			n *= 10
		}
		if s.nano = int64(n); n%1000 != 0 {
			s.class |= csvNano
		}
	}
	if far(s.sec) {
		s.class |= csvFar
	}
	return s, true
}

// far tells that nanoseconds since 1970 do not fit int64.
func far(sec int64) bool {
	return sec < math.MinInt64/1_000_000_000+1 || sec > math.MaxInt64/1_000_000_000-1
}

// csvType is the type of a column whose fields were these.
func csvType(seen int) arrow.DataType {
	within := func(set int) bool { return seen&^set == 0 }
	switch {
	case seen == 0:
		return arrow.Null
	case within(csvNegative | csvInt | csvWide):
		return arrow.PrimitiveTypes.Int64
	case within(csvInt | csvUint | csvWide):
		return arrow.PrimitiveTypes.Uint64
	case within(csvNegative | csvInt | csvFloat):
		return arrow.PrimitiveTypes.Float64
	case within(csvBool):
		return arrow.FixedWidthTypes.Boolean
	case within(csvDate):
		return arrow.FixedWidthTypes.Date32
	case within(csvStamp | csvFar):
		return &arrow.TimestampType{Unit: arrow.Microsecond}
	case within(csvStampZ | csvFar):
		return &arrow.TimestampType{Unit: arrow.Microsecond, TimeZone: "UTC"}
	case within(csvStamp | csvNano):
		return &arrow.TimestampType{Unit: arrow.Nanosecond}
	case within(csvStampZ | csvNano):
		return &arrow.TimestampType{Unit: arrow.Nanosecond, TimeZone: "UTC"}
	}
	return arrow.BinaryTypes.String
}
