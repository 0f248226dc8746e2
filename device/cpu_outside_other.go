//go:build !linux

package device

func (b *cpuBackend) wrap(uint64, int64) error                        { return errSystem }
func (b *cpuBackend) allocShared(int64) (uint64, error)               { return 0, errSystem }
func (b *cpuBackend) unmapShared(uint64) (is bool, err error)         { return false, nil }
func (b *cpuBackend) share(uint64) (base uint64, _ []byte, err error) { return 0, nil, errSystem }
func (b *cpuBackend) openShared([]byte, int64) (uint64, error)        { return 0, errSystem }
func (b *cpuBackend) closeShared(uint64) error                        { return errSystem }
