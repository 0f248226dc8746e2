package serve

import (
	"bytes"
	"context"
	"io"
	"net/http"
	"net/url"
	"strings"
	"testing"
	"time"

	"github.com/warpmap/warpmap/genome"
	"github.com/warpmap/warpmap/internal/testenv"
)

// FuzzRequest: a request of any parameters and any body has a line for each record that the body has, or an error that
// is the client's fault and says so in a line; and the server answers the next one.
func FuzzRequest(f *testing.F) {
	const most, letters = 1 << 16, 1 << 10
	w := newWorld(f)
	s := w.servePipes(f, Options{MaxBytes: most, MaxLetters: letters, Timeout: 5 * time.Second})
	reads := w.reads(1, 3)
	for _, query := range []string{"", "format=kraken", "format=metacache&paired=true", "format=report", "paired=x", "format", "%zz",
		"a=b", "paired=1&paired=0", "format=report;x"} {
		f.Add(query, "text/plain", []byte(reads))
	}
	kind, form := form(reads, reads)
	body, err := io.ReadAll(form)
	if err != nil {
		f.Fatal(err)
	}
	f.Add("", kind, body)
	f.Add("paired=true", kind, body[:len(body)/2])
	f.Add("", "multipart/form-data", body)
	f.Add("", `multipart/form-data; boundary="`+strings.Repeat("x", 99)+`"`, []byte("--"))
	f.Add("", "", []byte(gzipped(reads)))
	f.Add("", "", []byte(zstded(reads))[:40])
	f.Add("format=report", "", []byte(">a\n"+strings.Repeat("A", letters+1)))
	f.Add("", "", []byte(nil))
	f.Fuzz(func(t *testing.T, query, kind string, body []byte) {
		testenv.Bounded(t, len(query)+len(body), func() {
			if strings.ContainsAny(query, control+" ") {
				return // it ends the line of the request, to which net/http answers
			}
			ask, err := http.NewRequestWithContext(t.Context(), http.MethodPost, "http://warpmap/classify", bytes.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			ask.URL.RawQuery = query
			ask.Header.Set("Content-Type", kind)
			answer, err := s.client.Do(ask)
			if err != nil {
				if _, wrong := url.ParseQuery(query); wrong == nil && !strings.ContainsAny(query+kind, control) {
					t.Fatalf("%q, %q: %v", query, kind, err)
				}
				return // net/http does not send it
			}
			defer answer.Body.Close()
			text, broken := io.ReadAll(answer.Body)
			switch status := answer.StatusCode; {
			case status == http.StatusOK:
			case status < 400 || status >= 500 || strings.Count(string(text), "\n") != 1:
				t.Fatalf("status %d: %q", status, text)
			}
			if !strings.HasPrefix(kind, "multipart") && (query == "" || query == "format=kraken") {
				records, wrong := recordsIn(body, letters)
				if (wrong == nil) != (answer.StatusCode == http.StatusOK && broken == nil) {
					t.Fatalf("status %d, %v: the body has %d records, %v\n%q", answer.StatusCode, broken, records, wrong, text)
				}
				if lines := int64(strings.Count(string(text), "\n")); wrong == nil && lines != records {
					t.Fatalf("%d lines for %d records: %q", lines, records, text)
				}
			}
		})
	})
}

// control are characters that no header has.
var control = func() string {
	var b strings.Builder
	for c := range rune(0x20) {
		b.WriteRune(c)
	}
	return b.String() + "\x7f"
}()

// recordsIn reads a body as a command would.
func recordsIn(body []byte, letters int) (int64, error) {
	o := genome.Options{Threads: 1, MaxLetters: letters}
	o.Open = func(string) (io.ReadCloser, error) { return io.NopCloser(bytes.NewReader(body)), nil }
	counts, err := genome.Read(context.Background(), []string{"body"}, o, func(b *genome.Block) error {
		b.Release()
		return nil
	})
	return counts.Records, err
}
