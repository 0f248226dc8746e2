package gph

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/warpmap/warpmap/internal/testenv"
)

// FuzzProfile: a profile that is read has settings that New takes, and is the same when it is saved and read again.
func FuzzProfile(f *testing.F) {
	const tuned = `{"key_bytes":4,"value_bytes":4,"load_factor":0.8,"bucket":16,"virtual_buckets":2,"cell_bytes":1,` +
		`"keys_per_cell":4,"insert_group":4,"find_group":4,"rate":1.5,"date":"2026-01-02T03:04:05Z"}`
	for _, text := range []string{`{"version":1,"model":"m","tuned":[` + tuned + `]}`, `{"version":1,"model":"m"}`,
		`{"version":2,"model":"m"}`, `{"version":1,"model":"m","tuned":[{}]}`, `{"version":1,"model":"m","tuned":[` + tuned + `,` +
			strings.ReplaceAll(tuned, "16", "1e300") + `]}`, `{"version":1e0`, ``, `null`} {
		f.Add([]byte(text))
	}
	dir := f.TempDir()
	f.Fuzz(func(t *testing.T, text []byte) {
		testenv.Bounded(t, len(text), func() {
			file := filepath.Join(dir, "profile")
			if err := os.WriteFile(file, text, 0o600); err != nil {
				t.Fatal(err)
			}
			p, err := ReadProfile(file, "m")
			if err != nil {
				if !strings.Contains(err.Error(), file) || strings.Contains(err.Error(), "\n") {
					t.Errorf("an error that does not name the file in a line: %q", err)
				}
				return
			}
			for _, x := range p.Tuned {
				p.find(x.KeyBytes, x.ValueBytes, x.LoadFactor)
			}
			if err := p.Save(file, "m"); err != nil {
				t.Skip(err) // a date beyond what JSON holds
			}
			again, err := ReadProfile(file, "m")
			if err != nil || !slices.EqualFunc(p.Tuned, again.Tuned, func(a, b Tuned) bool {
				same := a.Date.Equal(b.Date)
				a.Date = b.Date
				return same && a == b
			}) {
				t.Errorf("%+v is saved, and read as %+v, %v", p, again, err)
			}
		})
	})
}
