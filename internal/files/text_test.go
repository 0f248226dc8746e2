package files

import (
	"bytes"
	"io"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"
)

// The first bytes tell how a text is packed; what is cut or followed by other data is an error that says so.
func TestText(t *testing.T) {
	z, err := zstd.NewWriter(nil)
	if err != nil {
		t.Fatal(err)
	}
	text := letters(3, 500_000)
	if testing.Short() { // beside the race detector
		text = text[:100_000]
	}
	plain := func(s string) string { return s }
	packed := func(s string) string { return string(z.EncodeAll([]byte(s), nil)) }
	members := func(s string) string { return bgzfed("", cutUp(s, 9000)...) }
	for _, c := range []struct {
		name, packing string
		pack          func(string) string
	}{{"plain", "", plain}, {"gzip", "gzip", gzipped}, {"zstd", "zstd", packed}, {"BGZF", "gzip", members}} {
		for _, text := range []string{text, "ACGT", ""} {
			for _, u := range []Unpacking{{}, {Threads: 2}, {Bounded: true}, {Work: make(chan struct{}, 2), Ahead: 2},
				{Work: make(chan struct{}, 4), Ahead: 2}} {
				for behind, want := range map[string]string{"": "", "\x00\x00": "",
					"more": "other data stands behind it"} {
					if c.packing != "gzip" && behind != "" {
						continue
					}
					x, err := NewText(io.NopCloser(strings.NewReader(c.pack(text)+behind)), u)
					if err != nil {
						t.Fatal(err)
					}
					got, err := io.ReadAll(x)
					if string(got) != text || x.Packing != c.packing || (err == nil) != (want == "") || err != nil &&
						!strings.Contains(err.Error(), want) {
						t.Errorf("%s, %q behind, %+v: %d bytes, packed with %s, %v; want %d", c.name, behind, u,
							len(got), x.Packing, err, len(text))
					}
					if err := x.Close(); err != nil {
						t.Error(err)
					}
				}
				if c.packing == "" || text == "" {
					continue
				}
				whole := c.pack(text)
				x, err := NewText(io.NopCloser(strings.NewReader(whole[:len(whole)-5])), u)
				if err != nil {
					t.Fatal(err)
				}
				if _, err := io.Copy(io.Discard, x); err == nil || !strings.Contains(err.Error(), "ends too early") {
					t.Errorf("%s, cut, %+v: %v", c.name, u, err)
				}
				x.Close()
			}
		}
		if packing, err := PackingIn(bytes.NewReader([]byte(c.pack(text)))); err != nil || packing != c.packing {
			t.Errorf("%s: %q, %v", c.name, packing, err)
		}
	}
}
