package inflate

import (
	"bytes"
	"compress/gzip"
	"encoding/binary"
	"errors"
	"hash/crc32"
)

// place is what comes next between blocks.
type place byte

const (
	atBlockHeader place = iota
	atTrailer           // of a member
	atMember            // or behind the last
)

const (
	headerBytes  = 10 // of a member, at least
	trailerBytes = 8
	mostName     = 512 // bytes of a name or of a comment, with the zero behind it
)

// ErrBehind is the error of what stands behind gzip data and is none. Zeros may: they are room that a tape or a disk
// had.
var ErrBehind = errors.New("other data stands behind it: cut that off")

// errors of header
var errStarved = errors.New("the header is not all there")

// header takes the header of a member (RFC 1952), and gives its length. Errors: errStarved; gzip.ErrHeader.
func header(in []byte) (n int, err error) {
	if len(in) < headerBytes {
		return 0, errStarved
	}
	if !bytes.HasPrefix(in, magic) {
		return 0, gzip.ErrHeader
	}
	const sum, extra, name, comment, reserved = 2, 4, 8, 16, 0xe0
	flags := in[3]
	n = headerBytes
	if flags&extra != 0 {
		if len(in) < n+2 {
			return 0, errStarved
		}
		n += 2 + int(binary.LittleEndian.Uint16(in[n:]))
		if len(in) < n {
			return 0, errStarved
		}
	}
	for _, text := range []byte{name, comment} {
		if flags&text == 0 {
			continue
		}
		some := in[n:min(len(in), n+mostName)]
		end := bytes.IndexByte(some, 0)
		switch {
		case end < 0 && len(some) < mostName:
			return 0, errStarved
		case end < 0:
			return 0, gzip.ErrHeader
		}
		n += end + 1
	}
	if flags&sum != 0 {
		if len(in) < n+2 {
			return 0, errStarved
		}
		if binary.LittleEndian.Uint16(in[n:]) != uint16(crc32.ChecksumIEEE(in[:n])) {
			return 0, gzip.ErrHeader
		}
		n += 2
	}
	if flags&reserved != 0 {
		return 0, gzip.ErrHeader
	}
	return n, nil
}

// end is the end of a member in a text.
type end struct {
	at        int // of the text's bytes
	crc, size uint32
}

// trailer takes a member's trailer.
func trailer(in []byte, at int) end {
	return end{at, binary.LittleEndian.Uint32(in), binary.LittleEndian.Uint32(in[4:])}
}
