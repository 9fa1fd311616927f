package repack

import (
	"fmt"
	"math"
	"testing"
)

// R8: a bijection at every size where known implementations fail.
func TestPRPBijection(t *testing.T) {
	sizes := []uint64{1, 2, 3}
	for k := uint(2); k <= 20; k++ {
		sizes = append(sizes, 1<<k-1, 1<<k, 1<<k+1)
	}
	for _, n := range sizes {
		p := NewPRP(n, NewKey("doc", 3, n))
		seen := make([]uint64, n/64+1)
		for i := range n {
			v := p.At(i)
			if v >= n || seen[v/64]>>(v%64)&1 == 1 {
				t.Fatalf("n = %d: At(%d) = %d is out of range or given twice", n, i, v)
			}
			seen[v/64] |= 1 << (v % 64)
		}
		for _, from := range []uint64{0, 1, n / 2} {
			got := make([]uint64, min(n-from, 1000))
			p.Fill(got, from)
			for i, v := range got {
				if v != p.At(from+uint64(i)) {
					t.Fatalf("n = %d: Fill gives %d at %d, At gives %d", n, v, from+uint64(i), p.At(from+uint64(i)))
				}
			}
		}
	}
}

// R8: neighbours are independent in their low bits, successors are as varied as
// those of a uniform shuffle, and epochs share none of them.
func TestPRPQuality(t *testing.T) {
	for _, n := range []int{7711, 65536, 65537, 200_000, 262_145, 1_000_000} {
		a, b := order(n, 0), order(n, 1)
		if p := equalParity(a); math.Abs(p-0.5) > 0.01 {
			t.Errorf("n = %d: %.4f of neighbours share parity, want 0.49..0.51", n, p)
		}
		// A uniform permutation has n(1 - 1/e) of them.
		got, want := float64(distinctSteps(a)), float64(n)*(1-1/math.E)
		if math.Abs(got/want-1) > 0.01 {
			t.Errorf("n = %d: %v distinct successor steps, a true shuffle has %.0f", n, got, want)
		}
		if o := sharedSuccessors(a, b); o > 12 {
			t.Errorf("n = %d: %d successor pairs common to two epochs, about 1 expected", n, o)
		}
	}
}

func order(n int, epoch uint64) []int {
	p := NewPRP(uint64(n), NewKey("doc", 11, epoch))
	out := make([]int, n)
	for i := range out {
		out[i] = int(p.At(uint64(i)))
	}
	return out
}

func equalParity(a []int) float64 {
	same := 0
	for i := 1; i < len(a); i++ {
		same += 1 - (a[i]^a[i-1])&1
	}
	return float64(same) / float64(len(a)-1)
}

func distinctSteps(a []int) int {
	n := len(a)
	seen := make([]bool, n)
	count := 0
	for i := 1; i < n; i++ {
		d := (a[i] - a[i-1] + n) % n
		if !seen[d] {
			seen[d] = true
			count++
		}
	}
	return count
}

func sharedSuccessors(a, b []int) int {
	next := make([]int, len(a))
	for i := range next {
		next[i] = -1
	}
	for i := 1; i < len(a); i++ {
		next[a[i-1]] = a[i]
	}
	shared := 0
	for i := 1; i < len(b); i++ {
		if next[b[i-1]] == b[i] {
			shared++
		}
	}
	return shared
}

// Small domains: over many keys every order of up to 4 things, and every (place,
// value) pair up to 64, comes equally often as far as chi-squared can see; the
// orders of 5 things come within 40 % of it (see numRounds).
func TestPRPSmallDomains(t *testing.T) {
	const keys = 60_000
	fact := 1
	for n := 2; n <= 5; n++ {
		fact *= n
		count := map[string]int{}
		for k := range keys {
			p := NewPRP(uint64(n), NewKey("small", uint64(k), uint64(n)))
			var perm []byte
			for i := range n {
				perm = append(perm, byte('0'+p.At(uint64(i))))
			}
			count[string(perm)]++
		}
		if n <= 4 {
			checkChi(t, fmt.Sprintf("orders of %d", n), values(count), fact, keys)
			continue
		}
		if len(count) != fact {
			t.Errorf("%d of %d orders of %d things occur", len(count), fact, n)
		}
		for perm, c := range count {
			if share := float64(c) * float64(fact) / keys; share < 0.6 || share > 1.4 {
				t.Errorf("order %s has %.2f of an equal share", perm, share)
			}
		}
	}
	for _, n := range []int{5, 7, 16, 17, 64} {
		cells := make([]int, n*n)
		const draws = 20_000
		for k := range draws {
			p := NewPRP(uint64(n), NewKey("small", uint64(k), uint64(n)))
			for i := range n {
				cells[i*n+int(p.At(uint64(i)))]++
			}
		}
		checkChi(t, fmt.Sprintf("places of %d", n), cells, n*n, draws*n)
	}
}

func values(m map[string]int) []int {
	var out []int
	for _, v := range m {
		out = append(out, v)
	}
	return out
}

// checkChi fails when chi-squared over cells is more than five standard
// deviations above its mean.
func checkChi(t *testing.T, what string, got []int, cells, total int) {
	t.Helper()
	want := float64(total) / float64(cells)
	chi := float64(cells-len(got)) * want // cells never seen
	for _, g := range got {
		chi += (float64(g) - want) * (float64(g) - want) / want
	}
	dof := float64(cells - 1)
	if limit := dof + 5*math.Sqrt(2*dof) + 5; chi > limit {
		t.Errorf("%s: chi-squared %.0f over %d cells, limit %.0f", what, chi, cells, limit)
	}
}

func BenchmarkPRP(b *testing.B) {
	for _, n := range []uint64{164_459, 1_320_000} {
		b.Run(fmt.Sprint(n), func(b *testing.B) {
			p := NewPRP(n, NewKey("doc", 1, 1))
			var sink, i uint64
			for b.Loop() {
				sink ^= p.At(i % n)
				i++
			}
			_ = sink
		})
	}
}

// TestFillWays compares Fill with and without a table with At, from odd starts and
// over lengths around its block, in domains with every number of rounds.
func TestFillWays(t *testing.T) {
	for _, n := range []uint64{1, 2, 5, 255, 256, 257, 1000, 1<<12 + 1, 70_000, 1<<18 + 1, 1 << 20, 1<<32 - 5, 1<<40 + 3} {
		plain := NewPRP(n, NewKey("fill", 7, n))
		table := plain
		table.Tabulate()
		if got, want := table.table != nil, n >= 256 && n <= 1<<32; got != want {
			t.Errorf("n = %d: a table: %v, want %v", n, got, want)
		}
		for _, m := range []uint64{1, 3, 4, 255, 256, 257, 777} {
			m = min(m, n)
			for _, from := range []uint64{0, 1, n / 3, n - m} {
				from = min(from, n-m)
				a, b := make([]uint64, m), make([]uint64, m)
				plain.Fill(a, from)
				table.Fill(b, from)
				for i := range a {
					want := plain.At(from + uint64(i))
					if a[i] != want || b[i] != want {
						t.Fatalf("n = %d: image of %d is %d, by table %d, want %d", n, from+uint64(i), a[i], b[i], want)
					}
				}
			}
		}
	}
}
