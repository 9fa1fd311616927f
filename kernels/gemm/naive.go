package gemm

// Naive is the definition: C[m,n] = op(A)*op(B), plus the old C when accumulate
// is set, with sums in float64. Arguments are those of Serial.Gemm; it checks
// nothing beyond what slices check.
func Naive(transA, transB bool, m, n, k int, a []float32, lda int, b []float32, ldb int, accumulate bool, c []float32, ldc int) {
	for i := range m {
		for j := range n {
			var sum float64
			if accumulate {
				sum = float64(c[i*ldc+j])
			}
			for kk := range k {
				x, y := i*lda+kk, kk*ldb+j
				if transA {
					x = kk*lda + i
				}
				if transB {
					y = j*ldb + kk
				}
				sum += float64(a[x]) * float64(b[y])
			}
			c[i*ldc+j] = float32(sum)
		}
	}
}
