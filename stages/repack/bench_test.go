package repack

import (
	"fmt"
	"testing"
	"unsafe"
)

// u16Corpus is a resident store: one block of uint16 ids and where each document
// starts. Lengths spread around a mean of 1,275 tokens.
type u16Corpus struct {
	memCorpus
	ids []uint16
}

func benchCorpus(tokens int) *u16Corpus {
	var lengths []uint32
	spread := NewPRP(2500, NewKey("bench", 0, 0))
	for total, i := 0, uint64(0); total < tokens; i++ {
		n := uint32(spread.At(i%2500)) + 26
		lengths = append(lengths, n)
		total += int(n)
	}
	c := &u16Corpus{memCorpus: *memOf(lengths)}
	c.ids = make([]uint16, c.total)
	for i := range c.ids {
		c.ids[i] = uint16(i * 40503)
	}
	return c
}

func (c *u16Corpus) Copy(doc, from, to int, dst []int32) {
	base := c.first[doc]
	widen(dst[:to-from], c.ids[base+int64(from):base+int64(to)])
}

// widen is the same four-at-a-time loop that a store uses.
func widen(dst []int32, src []uint16) {
	n := len(src) &^ 3
	_ = dst[:len(src)]
	for i := 0; i < n; i += 4 {
		x := *(*uint64)(unsafe.Pointer(&src[i]))
		*(*uint64)(unsafe.Pointer(&dst[i])) = x&0xffff | x<<16&(0xffff<<32)
		*(*uint64)(unsafe.Pointer(&dst[i+2])) = x>>32&0xffff | x>>16&(0xffff<<32)
	}
	for i := n; i < len(src); i++ {
		dst[i] = int32(src[i])
	}
}

// BenchmarkRows compares reading rows with the floor: a widening copy of the
// same number of tokens, then the shifted targets.
func BenchmarkRows(b *testing.B) {
	c := benchCorpus(32 << 20)
	for _, T := range []int{512, 4096} {
		tokens, targets, starts := make([]int32, T), make([]int32, T), make([]byte, (T+7)/8)
		report := func(b *testing.B) {
			b.ReportMetric(float64(T)*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mtok/s")
		}
		b.Run(fmt.Sprintf("copy/T=%d", T), func(b *testing.B) {
			at := 0
			for b.Loop() {
				widen(tokens, c.ids[at:at+T])
				copy(targets, tokens[1:])
				if at += T; at+T > len(c.ids) {
					at = 0
				}
			}
			report(b)
		})
		for _, mode := range []Mode{Fixed, Repack} {
			s := mustStream(b, c, Config{Mode: mode, Seed: 1, T: T})
			for e := range int64(2) {
				if _, err := s.Epoch(e); err != nil {
					b.Fatal(err)
				}
			}
			b.Run(fmt.Sprintf("%v/T=%d", mode, T), func(b *testing.B) {
				g, n := int64(0), s.FirstWindow(2)
				for b.Loop() {
					if _, err := s.ReadRow(g%n, tokens, targets, starts); err != nil {
						b.Fatal(err)
					}
					g++
				}
				report(b)
			})
		}
	}
}

// BenchmarkPlan builds the plan of one epoch of 164,459 documents.
func BenchmarkPlan(b *testing.B) {
	lengths := make([]uint32, 164_459)
	for i := range lengths {
		lengths[i] = uint32(i%2500 + 26)
	}
	s := mustStream(b, memOf(lengths), Config{Mode: Repack, T: 4096})
	e := int64(0)
	for b.Loop() {
		if _, err := s.build(b.Context(), e, nil); err != nil {
			b.Fatal(err)
		}
		e++
	}
}
