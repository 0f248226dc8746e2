package nvrtc

import "testing"

// SearchOnly restricts Find, for one test, to these names and folders.
func SearchOnly(t testing.TB, names, folders []string) {
	n, p := sonames, patterns
	sonames, patterns = names, folders
	t.Cleanup(func() { sonames, patterns = n, p })
	t.Setenv(Env, "")
}

var Candidates = candidates
