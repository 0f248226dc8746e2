package tabletest

import (
	"os"
	"slices"
	"strings"
	"testing"
)

// Require skips the test where err says that what it needs ("cuda", "nvrtc") is missing here. On a machine that is
// there to test it, the environment's WARPMAP_REQUIRE lists it ("cuda,nvrtc"), and then the test fails instead.
func Require(t testing.TB, what string, err error) {
	t.Helper()
	if err == nil {
		return
	}
	if slices.Contains(strings.FieldsFunc(os.Getenv("WARPMAP_REQUIRE"), func(r rune) bool { return r == ',' || r == ' ' }), what) {
		t.Fatalf("WARPMAP_REQUIRE lists %s: %v", what, err)
	}
	t.Skipf("needs %s: %v", what, err)
}

// RequireNVRTC is Require for an error of device.CompileFor: a missing NVRTC may fail the test, one too new for an old
// architecture skips it.
func RequireNVRTC(t testing.TB, err error) {
	t.Helper()
	if err != nil && strings.Contains(err.Error(), "cannot compile for") {
		t.Skip(err)
	}
	Require(t, "nvrtc", err)
}
