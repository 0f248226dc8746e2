package journal

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// HeadBytes is how many bytes a record's head has. The first 4 are the checksum of the rest of the head, and the next 4
// that of the body. The format says what the others are.
const HeadBytes = 32

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Format is what a kind of files begins with, and how long its records are.
type Format struct {
	Magic string
	Holds string // in the plural: what files of it have, such as "keys"
	// Body is how many bytes of a body belong to a head, whose checksum is right. Errors: a head that none has.
	Body func(head []byte) (int64, error)
}

// DamagedError says where a file is damaged.
type DamagedError struct {
	Name string
	At   int64 // bytes of it that are sound
	Why  string
}

func (e *DamagedError) Error() string {
	return fmt.Sprintf("%s is damaged at byte %d: %s", e.Name, e.At, e.Why)
}

// errTorn ends a file within a record, or with one that is not whole.
var errTorn = errors.New("it ends within a record")

// unknownError is a file that does not begin as those do that are known. It may be sound, and of a newer version.
type unknownError struct{ holds string }

func (e *unknownError) Error() string {
	return fmt.Sprintf("it is no file of %s, or of a version that is not known", e.holds)
}

// stopError is an error that says nothing about the file that is read.
type stopError struct{ error }

func (e *stopError) Unwrap() error { return e.error }

// Stop has reading end with an error that is not the file's: nothing is cut for it.
func Stop(err error) error {
	if err == nil {
		return nil
	}
	return &stopError{err}
}

// Seal puts the checksums into the head of a record, whose body is all that is behind it.
func Seal(record []byte) { SealParts(record[:HeadBytes], record[HeadBytes:]) }

// SealParts is Seal where the body is in several parts.
func SealParts(head []byte, body ...[]byte) {
	sum := uint32(0)
	for _, part := range body {
		sum = crc32.Update(sum, castagnoli, part)
	}
	binary.LittleEndian.PutUint32(head[4:], sum)
	binary.LittleEndian.PutUint32(head, crc32.Update(0, castagnoli, head[4:]))
}

// Read reads the records of a file of so many bytes, and gives them to do, whose they are until it returns. sound is how
// many bytes hold whole records. Memory is taken for a record only where the file has all of it. Errors: errTorn;
// another, if a record that is not the last is damaged; those of the reader and of do.
func (f *Format) Read(r io.Reader, size int64, do func(head, body []byte) error) (sound int64, err error) {
	from := bufio.NewReaderSize(r, 1<<20)
	first := make([]byte, len(f.Magic))
	if size < int64(len(first)) {
		return 0, errTorn
	}
	if _, err := io.ReadFull(from, first); err != nil {
		return 0, err
	}
	if string(first) != f.Magic {
		if allZero(first) && zeros(from) {
			return 0, errors.New("it is nothing but zeros")
		}
		return 0, &unknownError{f.Holds}
	}
	sound = int64(len(first))
	head := make([]byte, HeadBytes)
	var body []byte
	for sound < size {
		if size-sound < HeadBytes {
			return sound, errTorn
		}
		if _, err := io.ReadFull(from, head); err != nil {
			return sound, err
		}
		if crc32.Update(0, castagnoli, head[4:]) != binary.LittleEndian.Uint32(head) {
			if zeros(from) { // as a file system leaves what it had no time to write
				return sound, errTorn
			}
			return sound, errors.New("a record's head has another checksum than it says")
		}
		n, err := f.Body(head)
		if err != nil {
			return sound, err
		}
		end := sound + HeadBytes + n
		if end > size {
			return sound, errTorn
		}
		if int64(cap(body)) < n {
			body = make([]byte, n)
		}
		body = body[:n]
		if _, err := io.ReadFull(from, body); err != nil {
			return sound, err
		}
		if crc32.Update(0, castagnoli, body) != binary.LittleEndian.Uint32(head[4:]) {
			if end == size || zeros(from) {
				return sound, errTorn
			}
			return sound, errors.New("a record has another checksum than it says")
		}
		if err := do(head, body); err != nil {
			return sound, err
		}
		sound = end
	}
	return sound, nil
}

func allZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// zeros tells whether nothing but zeros is left.
func zeros(r io.ByteReader) bool {
	for {
		c, err := r.ReadByte()
		if err != nil || c != 0 {
			return err == io.EOF
		}
	}
}
