package operations_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/warpmap/warpmap/internal/operations"
	"github.com/warpmap/warpmap/internal/testenv"
)

// FuzzFile parses files. What is parsed is printed, and parsed and printed again: both texts are the same.
func FuzzFile(f *testing.F) {
	files, err := filepath.Glob("testdata/*.ops")
	if err != nil || len(files) == 0 {
		f.Fatal(files, err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(string(text))
	}
	f.Add("operations 1\ntable set capacity=3\nground family=gph stress=7\ninsert keys=seq:5..9 n=4\nfind 1 2=3:x\n")
	f.Fuzz(func(t *testing.T, text string) {
		testenv.Bounded(t, len(text), func() {
			first, err := operations.Parse(text)
			if err != nil {
				return
			}
			printed := first.String()
			second, err := operations.Parse(printed)
			if err != nil {
				t.Fatalf("printed as %q: %v", printed, err)
			}
			if again := second.String(); again != printed {
				t.Fatalf("printed as %q, then as %q", printed, again)
			}
		})
	})
}
