//go:build (amd64 || arm64) && !purego

package par

// pause executes n processor hints for a polling loop.
func pause(n int)

// identity tells goroutines apart by the address of the runtime's descriptor,
// which is used for comparison only. It is unique among live goroutines.
type identity struct{}

func (*identity) self() uintptr { return goroutine() }

func goroutine() uintptr
