//go:build amd64 && !purego

package tokenize

import "golang.org/x/sys/cpu"

// haveMasks says whether windows are split by masks on this machine.
func haveMasks() bool { return cpu.X86.HasAVX2 }

// classify fills the first seven masks of n blocks from 64*n bytes at p.
//
//go:noescape
func classify(p *byte, n int, out *classBlock)

// classifyCase fills the first two masks of n blocks from 64*n bytes at p.
//
//go:noescape
func classifyCase(p *byte, n int, out *caseBlock)
