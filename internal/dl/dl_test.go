package dl_test

import (
	"fmt"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"testing"

	"github.com/warpmap/warpmap/internal/dl"
)

// An error names what was not there, whatever other goroutines do, and although they change threads.
func TestErrorsNameWhatIsMissing(t *testing.T) {
	dir := t.TempDir()
	var w sync.WaitGroup
	for g := range 8 {
		w.Go(func() {
			for i := range 500 {
				path := filepath.Join(dir, fmt.Sprintf("lib%d-%d.so", g, i))
				for _, open := range []func(string) (uintptr, error){dl.OpenLocal, dl.OpenGlobal} {
					if _, err := open(path); err == nil || !strings.Contains(err.Error(), path) {
						t.Errorf("%s: error %v", path, err)
					}
				}
				if i%16 == 0 {
					runtime.GC() // stops the world, after which goroutines go on where they can
				}
			}
		})
	}
	w.Wait()
}
