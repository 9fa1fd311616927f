//go:build !amd64 || purego

package tokenize

import "unsafe"

// haveMasks says whether windows are split by masks on this machine. Without vector
// instructions filling the masks costs more than scanning.
func haveMasks() bool { return false }

// classify fills the first seven masks of n blocks from 64*n bytes at p.
func classify(p *byte, n int, out *classBlock) {
	classifyGo(unsafe.Slice(p, 64*n), unsafe.Slice(out, n))
}

// classifyCase fills the first two masks of n blocks from 64*n bytes at p.
func classifyCase(p *byte, n int, out *caseBlock) {
	classifyCaseGo(unsafe.Slice(p, 64*n), unsafe.Slice(out, n))
}
