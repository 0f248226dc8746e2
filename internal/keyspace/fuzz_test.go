package keyspace

import (
	"bytes"
	"io"
	"testing"

	"github.com/warpmap/warpmap/internal/testenv"
)

// entries reads the records of a file of so many bytes, and gives them to do, whose they are until it returns.
func entries(r io.Reader, size int64, do func(e entry) error) (sound int64, err error) {
	return format.Read(r, size, parsed(do))
}

// FuzzEntries: the sound part of a file, whatever it is, is read to the same records again, and these make the same bytes.
func FuzzEntries(f *testing.F) {
	whole := []byte(magic)
	group := appendEntry(appendEntry(nil, entry{kind: kindPut, key: []byte("g")}), entry{kind: kindDelete, key: []byte("g")})
	for _, e := range []entry{{kindPut, []byte("a"), []byte("b"), 0, true}, {kindAppend, []byte("a"), []byte("c"), 0, false},
		{kindPatch, []byte("a"), []byte("d"), 1, false}, {kindExpire, []byte("a"), nil, 1 << 60, false},
		{kindDelete, []byte("a"), nil, 0, false}, {kindGroup, nil, group, 0, false}, {kindClear, nil, nil, 0, false},
		{kindEnd, nil, nil, 3, false}} {
		whole = appendEntry(whole, e)
		f.Add(bytes.Clone(whole))
	}
	f.Add(append(bytes.Clone(whole), make([]byte, 50)...))
	f.Add(whole[:len(whole)-3])
	f.Fuzz(func(t *testing.T, text []byte) {
		testenv.Bounded(t, len(text), func() {
			s, err := Open(Options{})
			if err != nil {
				t.Fatal(err)
			}
			defer s.Close()
			written := []byte(magic)
			sound, err := entries(bytes.NewReader(text), int64(len(text)), func(e entry) error {
				written = appendEntry(written, e)
				s.again(e)
				return nil
			})
			if short := len(text) < len(magic); err == nil != (sound == int64(len(text)) && !short) || sound > int64(len(text)) {
				t.Fatalf("%d bytes of %d are sound, %v", sound, len(text), err)
			}
			if err := s.Check(); err != nil {
				t.Fatal(err)
			}
			if sound == 0 {
				return
			}
			if !bytes.Equal(written, text[:sound]) {
				t.Fatal("records are not written as they were read")
			}
			if again, err := entries(bytes.NewReader(text[:sound]), sound, func(entry) error { return nil }); again != sound || err != nil {
				t.Fatalf("of %d sound bytes %d are sound, %v", sound, again, err)
			}
		})
	})
}
