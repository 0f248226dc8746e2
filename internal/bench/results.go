package bench

import (
	"encoding/json"
	"os"
	"path/filepath"

	"github.com/warpmap/warpmap/internal/files"
)

// Keep writes a result as JSON, as results/ has them; see Write.
func Keep(file string, result any) error {
	data, err := json.MarshalIndent(result, "", "  ")
	if err != nil {
		return err
	}
	return Write(file, append(data, '\n'))
}

// Write leaves the whole file or none, and makes its folder. A pipe or a device is written to as it is.
func Write(file string, data []byte) error {
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return files.WriteFile(file, func(f *os.File) error { _, err := f.Write(data); return err })
}
