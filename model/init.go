package model

import (
	"math"

	"refrain/internal/num"
)

// Initialize fills dst (l.Total elements) with the initial weights of c for a
// seed. Every element is a function of (seed, tensor name, index) alone, so
// the values depend on nothing else.
func Initialize(dst []float32, c Config, l *Layout, seed uint64) {
	for i := range l.Params {
		p := &l.Params[i]
		x := dst[p.Off : p.Off+p.Len]
		if p.Role == Norm {
			for j := range x {
				x[j] = 1
			}
			continue
		}
		s := num.NewStream("init/"+p.Name, seed)
		sigma := c.sigma(p)
		for j := range x {
			if c.Init == InitPapers {
				x[j] = float32(sigma * s.Truncated(uint64(j), 3))
			} else {
				x[j] = float32(sigma * s.Normal(uint64(j)))
			}
		}
	}
}

// sigma is the standard deviation before truncation. Under InitPapers a tied
// matrix is the embedding, as in the papers' code.
func (c Config) sigma(p *Param) float64 {
	switch {
	case c.Init == InitNormal002:
		return 0.02
	case p.Role == Embedding || p.Role == Tied:
		return 1 / float64(c.Dim)
	}
	return 1 / math.Sqrt(float64(p.FanIn))
}
