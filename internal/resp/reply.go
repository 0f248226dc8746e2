package resp

import "strconv"

// A reply is written by functions that append to the bytes of a connection. Those of the form of two versions take the
// version, 2 or 3.

// AppendSimple appends a word, such as OK.
func AppendSimple(b []byte, word string) []byte {
	return append(append(append(b, '+'), word...), '\r', '\n')
}

// AppendError appends an error, whose first word is its kind: "ERR syntax error". Line breaks become spaces.
func AppendError(b []byte, text string) []byte {
	b = append(b, '-')
	for i := range len(text) {
		if c := text[i]; c == '\r' || c == '\n' {
			b = append(b, ' ')
		} else {
			b = append(b, c)
		}
	}
	return append(b, '\r', '\n')
}

// AppendInt appends a number.
func AppendInt(b []byte, n int64) []byte { return number(b, ':', n) }

func number(b []byte, kind byte, n int64) []byte {
	if n >= 0 && n < 10 {
		return append(b, kind, '0'+byte(n), '\r', '\n')
	}
	return append(strconv.AppendInt(append(b, kind), n, 10), '\r', '\n')
}

// AppendBulk appends a string of any bytes.
func AppendBulk[T []byte | string](b []byte, s T) []byte {
	b = number(b, '$', int64(len(s)))
	return append(append(b, s...), '\r', '\n')
}

// AppendArray begins an array of n replies.
func AppendArray(b []byte, n int) []byte { return number(b, '*', int64(n)) }

// AppendMap begins a map of n pairs of replies; in version 2 it is an array of twice as many.
func AppendMap(b []byte, version, n int) []byte {
	if version < 3 {
		return AppendArray(b, 2*n)
	}
	return number(b, '%', int64(n))
}

// AppendNull appends what stands for no string.
func AppendNull(b []byte, version int) []byte {
	if version < 3 {
		return append(b, "$-1\r\n"...)
	}
	return append(b, "_\r\n"...)
}

// AppendNullArray appends what stands for no array.
func AppendNullArray(b []byte, version int) []byte {
	if version < 3 {
		return append(b, "*-1\r\n"...)
	}
	return append(b, "_\r\n"...)
}

// AppendTruth appends whether something is so; in version 2 it is a number.
func AppendTruth(b []byte, version int, is bool) []byte {
	switch {
	case version < 3 && is:
		return append(b, ":1\r\n"...)
	case version < 3:
		return append(b, ":0\r\n"...)
	case is:
		return append(b, "#t\r\n"...)
	}
	return append(b, "#f\r\n"...)
}

// AppendVerbatim appends a text for people; in version 2 it is a string.
func AppendVerbatim(b []byte, version int, text string) []byte {
	if version < 3 {
		return AppendBulk(b, text)
	}
	b = number(b, '=', int64(len(text)+4))
	return append(append(append(b, "txt:"...), text...), '\r', '\n')
}
