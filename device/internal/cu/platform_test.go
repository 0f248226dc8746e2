package cu

import (
	"go/build"
	"slices"
	"testing"
)

// Where warpmap does not run, the build says so: platform.go is in it, and does not compile.
func TestOtherPlatformsAreRefusedAtBuild(t *testing.T) {
	for platform, runs := range map[[2]string]bool{{"linux", "amd64"}: true, {"linux", "arm64"}: true, {"linux", "386"}: false, {"darwin", "arm64"}: false, {"windows", "amd64"}: false} {
		c := build.Default
		c.GOOS, c.GOARCH = platform[0], platform[1]
		p, err := c.ImportDir(".", 0)
		if err != nil {
			t.Fatal(err)
		}
		if slices.Contains(p.GoFiles, "platform.go") == runs {
			t.Errorf("%s: built from %v", platform, p.GoFiles)
		}
	}
}
