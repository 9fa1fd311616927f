//go:build (!amd64 && !arm64) || purego

package par

import (
	"runtime"
	"sync"
)

// pause spends a little time without touching memory that others write.
//
//go:noinline
func pause(n int) {
	x := uint32(n)
	for range 8 * n {
		x = x*1664525 + 1013904223
	}
	if x == 0 {
		runtime.Gosched() // never mind: the result must be used for the loop to stay
	}
}

// identity tells goroutines apart by the number in the first line of their stack
// trace, "goroutine 18 [running]:". That takes a microsecond or two; the
// versions in assembly read an identity from a register.
type identity struct{ buffers sync.Pool }

func (id *identity) self() uintptr {
	buf, _ := id.buffers.Get().(*[32]byte)
	if buf == nil {
		buf = new([32]byte)
	}
	defer id.buffers.Put(buf)
	text := buf[:runtime.Stack(buf[:], false)]
	var n uintptr
	for _, c := range text[len("goroutine "):] {
		if c < '0' || c > '9' {
			break
		}
		n = n*10 + uintptr(c-'0')
	}
	return n
}
