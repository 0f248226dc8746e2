//go:build !linux || !(amd64 || arm64)

// warpmap runs on Linux, on amd64 and arm64. Elsewhere the build ends here, with a name that says so.
package cu

var _ = warpmap_runs_on_linux_on_amd64_and_arm64_only
