package frontier

import (
	"errors"
	"fmt"
	"math"
	"slices"
)

// Latency says how much faster a step becomes when p GPUs share the work of one, by
// tensor, sequence or pipeline parallelism or by fewer rows a GPU:
//
//	s(p) = 1 / (f + (1-f)/p + c(p)),   c(p) = c * log2(p)
//
// f is the share of a step that cannot be shared, c the time that every doubling of p adds
// in communication, as a share of the step on one GPU. No run has shown what follows from
// it: it is a projection.
type Latency struct {
	Serial        float64 `json:"f"`
	Communication float64 `json:"c"`
	From          string  `json:"from"` // "given", or the file that they were fitted to
	// Residual is the largest difference between a measured share tau(p)/tau(1) and the
	// formula; 0 when f and c are given.
	Residual float64 `json:"largest_residual,omitempty"`
}

// Speedup is s(p); exactly 1 for one GPU.
func (l *Latency) Speedup(p int) float64 {
	if p == 1 {
		return 1
	}
	n := float64(p)
	return 1 / (l.Serial + (1-l.Serial)/n + l.Communication*math.Log2(n))
}

func (l *Latency) check() error {
	if !(l.Serial >= 0 && l.Serial <= 1) || !(l.Communication >= 0) || math.IsInf(l.Communication, 0) {
		return fmt.Errorf("f is %g and c is %g; f is a share from 0 to 1 and c is 0 or more", l.Serial, l.Communication)
	}
	return nil
}

// NewLatency is a projection with given shares.
func NewLatency(f, c float64) (*Latency, error) {
	l := &Latency{Serial: f, Communication: c, From: "given"}
	return l, l.check()
}

// ShareTime is a measured step of one replica whose work so many GPUs share.
type ShareTime struct {
	Ways int     `json:"ways"`
	MS   float64 `json:"ms"`
}

// FitLatency finds f and c for measured step times, of which one has a single GPU and two
// or more have several: the least squares of tau(p)/tau(1) = 1/p + f*(1 - 1/p) + c*log2(p)
// with f from 0 to 1 and c at or above 0.
func FitLatency(list []ShareTime) (*Latency, error) {
	one := 0.0
	seen := map[int]bool{}
	for _, m := range list {
		switch {
		case m.Ways < 1 || !(m.MS > 0) || math.IsInf(m.MS, 0):
			return nil, fmt.Errorf("a step of %g ms on %d ways", m.MS, m.Ways)
		case seen[m.Ways]:
			return nil, fmt.Errorf("%d ways are there twice; keep one", m.Ways)
		}
		seen[m.Ways] = true
		if m.Ways == 1 {
			one = m.MS
		}
	}
	if one == 0 || len(list) < 3 {
		return nil, errors.New("f and c need the step time of 1 way and of two or more others")
	}
	// Normal equations of y = f*x + c*z.
	var xx, xz, zz, xy, zy float64
	for _, m := range list {
		n := float64(m.Ways)
		x, z, y := 1-1/n, math.Log2(n), m.MS/one-1/n
		xx, xz, zz, xy, zy = xx+x*x, xz+x*z, zz+z*z, xy+x*y, zy+z*y
	}
	off := func(f, c float64) (sum, most float64) {
		for _, m := range list {
			n := float64(m.Ways)
			d := m.MS/one - 1/n - f*(1-1/n) - c*math.Log2(n)
			sum, most = sum+d*d, max(most, math.Abs(d))
		}
		return sum, most
	}
	// The least squares inside the bounds lie inside, or on one of the edges.
	clampF := func(f float64) float64 { return min(1, max(0, f)) }
	det := xx*zz - xz*xz
	ways := [][2]float64{{clampF(xy / xx), 0}, {0, max(0, zy/zz)}, {1, max(0, (zy-xz)/zz)}}
	if f, c := (xy*zz-zy*xz)/det, (zy*xx-xy*xz)/det; det > 0 && f >= 0 && f <= 1 && c >= 0 {
		ways = append(ways, [2]float64{f, c})
	}
	var l *Latency
	least := math.Inf(1)
	for _, w := range ways {
		if sum, most := off(w[0], w[1]); sum < least {
			least, l = sum, &Latency{Serial: w[0], Communication: w[1], Residual: most}
		}
	}
	return l, nil
}

// ReadLatency reads a micro-benchmark of step times by ways, see docs/formats/frontier.md.
func ReadLatency(path string) (*Latency, error) {
	var f struct {
		Machine string      `json:"machine"`
		Ways    []ShareTime `json:"ways"`
	}
	if err := readTimings(path, &f, `machine and ways, a list of {"ways": P, "ms": MILLISECONDS}`); err != nil {
		return nil, err
	}
	l, err := FitLatency(f.Ways)
	if err != nil {
		return nil, usage("%s: %w", path, err)
	}
	l.From = path
	return l, nil
}

// projected is the axis of equivalents when p GPUs share the work of each, for every p of
// ways: what takes d GPUs and S*a equivalents takes d*p GPUs and S*a/s(p). With p = 1
// alone it is the axis of equivalents.
func (l *Latency) projected(perGPU int, ways []int) axis {
	observed := equivalents(perGPU)
	return func(r *Run) []option {
		var out []option
		for _, o := range observed(r) {
			for _, p := range ways {
				out = append(out, option{o.gpus * p, o.time / l.Speedup(p), p})
			}
		}
		slices.SortStableFunc(out, func(a, b option) int { return a.gpus - b.gpus })
		return out
	}
}
