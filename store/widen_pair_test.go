package store

import (
	"testing"
	"unsafe"
)

// pairWay is a vector form of widenPairPlain and the fewest pairs it takes.
type pairWay struct {
	least int
	pair  func(tokens, targets *int32, src *uint16, n int, next *Ahead)
}

// testPairs runs every vector form on the last ids of src, of every length, with tokens
// and targets at every place of a line, the same and another, and guard words around them.
func testPairs(t *testing.T, src []uint16) {
	const guard, room = -7, 16
	n := len(src) - 1
	ahead := Ahead{ids: unsafe.Pointer(&src[0]), lines: 3}
	tokens, targets := make([]int32, n+3*room), make([]int32, n+3*room)
	inLine := func(w []int32) int { return int(uintptr(unsafe.Pointer(&w[0]))/4) % room }
	for name, way := range pairWays(t) {
		for m := way.least; m <= n; m++ {
			ids := src[n-m:]
			for at := range room {
				for _, apart := range []int{0, 0, 5, 8} {
					for i := range tokens {
						tokens[i], targets[i] = guard, guard
					}
					a := (at-inLine(tokens)+room)%room + 1
					b := (at+apart-inLine(targets)+room)%room + 1
					h := ahead
					way.pair(&tokens[a], &targets[b], &ids[0], m, &h)
					for i := range tokens {
						x, y := int32(guard), int32(guard)
						if j := i - a; j >= 0 && j < m {
							x = int32(ids[j])
						}
						if j := i - b; j >= 0 && j < m {
							y = int32(ids[j+1])
						}
						if tokens[i] != x || targets[i] != y {
							t.Fatalf("%s of %d pairs, %d and %d words into a line: word %d is %d and %d, want %d and %d",
								name, m, at, at+apart, i, tokens[i], targets[i], x, y)
						}
					}
				}
			}
		}
	}
}

// TestPairForms runs all vector forms, also those that another one hides here.
func TestPairForms(t *testing.T) {
	src := make([]uint16, 120)
	for i := range src {
		src[i] = uint16(i*40503 + 1)
	}
	testPairs(t, src)
}
