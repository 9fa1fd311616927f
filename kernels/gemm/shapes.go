package gemm

import "fmt"

// Shape is a product for benchmarks, with rows stored without gaps.
type Shape struct {
	M, N, K int
	Form    Form
}

// Form says which operands are stored transposed.
type Form string

// The three forms of a linear layer y = x*W^T with W stored as [out, in].
const (
	NT Form = "NT" // y = x*W^T
	NN Form = "NN" // dx = dy*W
	TN Form = "TN" // dW = dy^T*x
)

// TransA reports whether A is stored as [k,m].
func (s Shape) TransA() bool { return s.Form == TN }

// TransB reports whether B is stored as [n,k].
func (s Shape) TransB() bool { return s.Form == NT }

// Strides returns the row lengths of A, B and C as stored.
func (s Shape) Strides() (lda, ldb, ldc int) {
	lda, ldb, ldc = s.K, s.N, s.N
	if s.TransA() {
		lda = s.M
	}
	if s.TransB() {
		ldb = s.K
	}
	return lda, ldb, ldc
}

// FLOPs returns the floating point operations of the product: 2*M*N*K.
func (s Shape) FLOPs() float64 { return 2 * float64(s.M) * float64(s.N) * float64(s.K) }

// String returns "512x768x256-NT", fit for a benchmark name.
func (s Shape) String() string { return fmt.Sprintf("%dx%dx%d-%s", s.M, s.N, s.K, s.Form) }

// Shapes returns the 27 products against which this package is measured: the
// forward and backward products of small to middling transformers, heads
// included.
func Shapes() []Shape {
	return []Shape{
		{512, 256, 256, NT}, {512, 768, 256, NT}, {512, 256, 768, NT},
		{1024, 384, 384, NT}, {1024, 2048, 384, NT}, {1024, 384, 1024, NT},
		{2048, 512, 512, NT}, {2048, 1536, 512, NT}, {2048, 512, 1536, NT},
		{4096, 1024, 1024, NT}, {4096, 4096, 1024, NT}, {1024, 4096, 256, NT},
		{1024, 32000, 384, NT},
		{512, 256, 256, NN}, {1024, 384, 384, NN}, {2048, 512, 1536, NN},
		{2048, 1536, 512, NN}, {4096, 1024, 1024, NN}, {1024, 256, 4096, NN},
		{1024, 384, 32000, NN},
		{256, 256, 1024, TN}, {384, 384, 1024, TN}, {512, 1536, 2048, TN},
		{1536, 512, 2048, TN}, {1024, 1024, 4096, TN}, {4096, 256, 1024, TN},
		{32000, 384, 1024, TN},
	}
}
