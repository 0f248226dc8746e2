package bench

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
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
	if i, err := os.Stat(file); err == nil && !i.Mode().IsRegular() && !i.IsDir() {
		f, err := os.OpenFile(file, os.O_WRONLY, 0)
		if err != nil {
			return err
		}
		_, err = f.Write(data)
		return errors.Join(err, f.Close())
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	file, err := files.Target(file) // through a link, not over it
	if err != nil {
		return err
	}
	tmp, err := os.OpenFile(filepath.Join(filepath.Dir(file), fmt.Sprintf(".result-%016x", rand.Uint64())), os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o666)
	if err != nil {
		return err
	}
	defer os.Remove(tmp.Name())
	_, err = tmp.Write(data)
	if err == nil {
		err = tmp.Sync()
	}
	if err = errors.Join(err, tmp.Close()); err != nil {
		return err
	}
	return files.Rename(tmp.Name(), file)
}
