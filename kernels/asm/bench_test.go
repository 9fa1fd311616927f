package asm

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"
)

// BenchmarkKernels runs each function on slices of 4096, which stay in L1 and
// L2, and counts the bytes it reads and writes: that of every slice, twice for
// those it updates.
func BenchmarkKernels(b *testing.B) {
	const n = 4096
	for _, k := range cases() {
		for set, call := range map[string]func([][]float32) float32{"generic": k.generic, "active": k.call} {
			b.Run(fmt.Sprintf("%s/set=%s", k.name, set), func(b *testing.B) {
				r := rand.New(rand.NewPCG(1, 2))
				fresh, s := make([][]float32, k.slices), make([][]float32, k.slices)
				for j := range s {
					fresh[j], s[j] = make([]float32, n), make([]float32, n)
					for i := range fresh[j] {
						fresh[j][i] = 0.5 + r.Float32()
					}
				}
				b.SetBytes(int64(4 * n * (k.slices + len(k.writes))))
				calls := 0
				for b.Loop() {
					// Values updated in place drift towards overflow or subnormals.
					if calls%64 == 0 {
						for j := range s {
							copy(s[j], fresh[j])
						}
					}
					calls++
					call(s)
				}
				b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/n, "ns/element")
			})
		}
	}
}

// BenchmarkConversions runs both ways between float32 and bfloat16 on 4096 elements.
func BenchmarkConversions(b *testing.B) {
	const n = 4096
	wide, half := make([]float32, n), make([]uint16, n)
	for i := range wide {
		wide[i] = float32(i) - 0.3
	}
	for name, convert := range map[string]func(){
		"ToBF16/set=active": func() { ToBF16(half, wide) }, "ToBF16/set=generic": func() { toBF16Generic(half, wide) },
		"FromBF16/set=active": func() { FromBF16(wide, half) }, "FromBF16/set=generic": func() { fromBF16Generic(wide, half) },
	} {
		b.Run(name, func(b *testing.B) {
			best := time.Hour
			for b.Loop() {
				start := time.Now()
				convert()
				best = min(best, time.Since(start))
			}
			b.ReportMetric(float64(best.Nanoseconds())/n, "ns/element")
		})
	}
}
