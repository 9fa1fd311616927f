package kernels

import (
	"reflect"
	"slices"
	"strings"
	"testing"

	"refrain/gpu"
	"refrain/internal/par"
	"refrain/kernels/kerneltest"
)

// suite is what a family's test file contributes for one kernel.
type suite struct {
	kernel string
	cases  []trial
	// gradients holds one check for each arrangement of a differentiable kernel
	// and its backward op; a kernel without derivative has none and says why.
	gradients map[string]func(t testing.TB, b *kerneltest.Builder) kerneltest.Gradient
	noGrad    string
	// wrong holds arguments that Check must refuse, by a part of the message.
	wrong map[string]func(b *kerneltest.Builder) error
}

func suites() []suite {
	return []suite{
		segmentsSuite(), embedSuite(), embedBwdSuite(), rmsnormSuite(), rmsnormBwdSuite(),
		matmulSuite(), matmulDXSuite(), matmulDWSuite(), ropeSuite(), ropeAtSuite(),
		attentionSuite(), attentionBwdSuite(), attnDecodeSuite(), swigluSuite(), swigluBwdSuite(),
		headLossSuite(), softTargetsSuite(), headDistillSuite(), sumLossSuite(), sumSquaresSuite(), fillSuite(), copySuite(), castSuite(), addToSuite(),
		guardSuite(), adamwSuite(), drawSuite(), dropoutSuite(), maskRowsSuite(), repeatRowsSuite(),
	}
}

// TestRegistry is the house rule: every kernel has a contract, a reference in
// both precisions, a cost, a name of its own, cases, refusals, and a gradient check
// or the reason why there is none.
func TestRegistry(t *testing.T) {
	have := map[string]suite{}
	for _, s := range suites() {
		have[s.kernel] = s
	}
	seen := map[string]bool{}
	for _, e := range All() {
		if seen[e.Name] || e.Name == "" {
			t.Errorf("kernel name %q is empty or used twice", e.Name)
		}
		seen[e.Name] = true
		if !e.HasCheck || !e.HasAccess || !e.HasCost || !e.HasRef || !e.HasWide || !e.HasFast {
			t.Errorf("kernel %s is incomplete: %+v", e.Name, e)
		}
		s := have[e.Name]
		if len(s.cases) < 2 || len(s.wrong) == 0 {
			t.Errorf("kernel %s has %d cases and %d refusals", e.Name, len(s.cases), len(s.wrong))
		}
		if (len(s.gradients) == 0) == (s.noGrad == "") {
			t.Errorf("kernel %s needs gradient checks or a reason for having none", e.Name)
		}
	}
	if len(have) != len(All()) {
		t.Errorf("%d suites for %d kernels", len(have), len(All()))
	}
}

func TestKernels(t *testing.T) {
	for _, s := range suites() {
		t.Run(s.kernel, func(t *testing.T) {
			for _, c := range s.cases {
				t.Run(c.Name, func(t *testing.T) {
					kerneltest.Run(t, c.Case)
					c.broken(t)
				})
			}
			for name, g := range s.gradients {
				t.Run("gradient/"+name, func(t *testing.T) { kerneltest.CheckGradient(t, g) })
			}
			for part, f := range s.wrong {
				t.Run("refuses/"+part, func(t *testing.T) {
					err := f(&kerneltest.Builder{})
					if err == nil || !strings.Contains(err.Error(), part) || !strings.HasPrefix(err.Error(), s.kernel+": ") {
						t.Errorf("error %q, want %q in it", err, part)
					}
				})
			}
		})
	}
}

// trial is a case, and the same arguments broken in every systematic way.
type trial struct {
	kerneltest.Case
	broken func(t *testing.T)
}

// of makes a case from a kernel and a function that makes its arguments.
func of[A any](k *Kernel[A], name string, args func(b *kerneltest.Builder) A) trial {
	return trial{
		Case:   kerneltest.Case{Name: name, Build: func(b *kerneltest.Builder) (gpu.Op, error) { return k.Op(args(b)) }},
		broken: func(t *testing.T) { breakArgs(t, k, args(&kerneltest.Builder{})) },
	}
}

// exactly is of for kernels whose fast version has the reference's bits.
func exactly[A any](k *Kernel[A], name string, args func(b *kerneltest.Builder) A) trial {
	c := of(k, name, args)
	c.Exact = true
	return c
}

// halved is of with these tensors in bfloat16.
func halved[A any](k *Kernel[A], name string, args func(b *kerneltest.Builder) A, half ...string) trial {
	return of(k, name+" bf16", inHalf(args, half...))
}

// inHalf makes the arguments of args with these tensors in bfloat16.
func inHalf[A any](args func(b *kerneltest.Builder) A, half ...string) func(b *kerneltest.Builder) A {
	return func(b *kerneltest.Builder) A {
		b.Halve(half...)
		return args(b)
	}
}

// both are the cases of one arrangement in f32 and in bf16.
func both[A any](k *Kernel[A], name string, args func(b *kerneltest.Builder) A, half ...string) []trial {
	return []trial{of(k, name, args), halved(k, name, args, half...)}
}

// eitherType lists the tensors that may have one of two types while the others
// keep theirs.
var eitherType = map[string]bool{
	"rmsnorm.Out": true, "rmsnorm_bwd.DY": true, "rope.QKV": true, "matmul.Y": true,
	"matmul_dx.DY": true, "matmul_dw.DY": true, "matmul_dw.X": true,
}

// optional lists the tensors that may be absent, by kernel and field.
var optional = map[string]bool{"matmul.Add": true, "dropout.Add": true, "adamw.DecayFactor": true, "head_loss.DX": true, "head_loss.DW": true, "head_distill.DX": true, "head_distill.DW": true}

// anyShape lists the tensors that are taken in every shape and determine it.
var anyShape = map[string]bool{"sum_loss.X": true, "sum_squares.X": true, "fill.X": true}

// mayAlias lists the pairs that may be one tensor: written field, other field.
var mayAlias = map[string]bool{"matmul.Y.Add": true, "matmul.Add.Y": true, "dropout.Y.X": true, "dropout.X.Y": true, "dropout.Y.Add": true, "dropout.X.Add": true}

// breakArgs gives every tensor of a another type, another shape and no value,
// and every pair of an output and another tensor the same memory. Check must
// refuse each.
func breakArgs[A any](t *testing.T, k *Kernel[A], a A) {
	t.Helper()
	if _, err := k.Op(a); err != nil {
		t.Fatal(err)
	}
	refused := func(what, part string, field int, change func(x *gpu.Tensor)) {
		t.Helper()
		b := a
		x := reflect.ValueOf(&b).Elem().Field(field).Addr().Interface().(*gpu.Tensor)
		change(x)
		if _, err := k.Op(b); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("%s %s: error %v, want %q", what, reflect.TypeOf(a).Field(field).Name, err, part)
		}
	}
	_, writes := k.Access(&a)
	tensors := tensorFields(&a)
	for i, x := range tensors {
		name := reflect.TypeOf(a).Field(i).Name
		for _, dt := range []gpu.DType{gpu.F32, gpu.BF16, gpu.U8} {
			if dt == x.DType || dt != gpu.U8 && eitherType[k.Name+"."+name] {
				continue
			}
			refused("another type for", "; today this op takes ", i, func(x *gpu.Tensor) {
				x.DType = dt
				x.Span.Len = int64(x.Elems()) * dt.Size()
			})
		}
		refused("a longer axis for", "", i, func(x *gpu.Tensor) { x.Shape[x.Rank-1]++ })
		refused("an empty axis for", "", i, func(x *gpu.Tensor) { x.Shape[0], x.Span.Len = 0, 0 })
		if !anyShape[k.Name+"."+name] {
			refused("another rank for", "", i, func(x *gpu.Tensor) {
				x.Rank, x.Shape, x.Span.Len = 4, [4]int32{1, 1, 1, 7}, 7*x.DType.Size()
			})
		}
		if !optional[k.Name+"."+name] {
			refused("no", " is missing", i, func(x *gpu.Tensor) { *x = gpu.Tensor{} })
		}
		if !slices.Contains(writes, x.Span) {
			continue
		}
		for j, y := range tensors {
			other := reflect.TypeOf(a).Field(j).Name
			if i == j || x.Span == y.Span || mayAlias[k.Name+"."+name+"."+other] {
				continue
			}
			refused("the memory of "+name+" for", "share memory", j, func(y *gpu.Tensor) {
				n := y.Span.Len
				y.Span = x.Span
				y.Span.Len = n
			})
		}
	}
}

// tensorFields returns the tensors of a that are present, by field number.
func tensorFields(a any) map[int]gpu.Tensor {
	m := map[int]gpu.Tensor{}
	v := reflect.ValueOf(a).Elem()
	for i := range v.NumField() {
		if x, ok := v.Field(i).Interface().(gpu.Tensor); ok && !x.IsZero() {
			m[i] = x
		}
	}
	return m
}

// refuse is the error of recording k with these arguments.
func refuse[A any](k *Kernel[A], args func(b *kerneltest.Builder) A) func(b *kerneltest.Builder) error {
	return func(b *kerneltest.Builder) error {
		_, err := k.Op(args(b))
		return err
	}
}

// must is the op of k over a, for gradient checks.
func must[A any](t testing.TB, k *Kernel[A], a A) gpu.Op {
	t.Helper()
	op, err := k.Op(a)
	if err != nil {
		t.Fatal(err)
	}
	return op
}

// bind runs op on a host of its own and returns the body; for benchmarks and
// for tests that look at results themselves.
func bind(t testing.TB, b *kerneltest.Builder, op gpu.Op, threads int, reference bool) (h *kerneltest.Host, body func()) {
	t.Helper()
	pool := par.New(threads)
	t.Cleanup(pool.Close)
	h = kerneltest.NewHost(b, pool, reference)
	h.Allow(op)
	return h, op.BindHost(h)
}

// bench times op on two threads and reports its rates.
func bench[A any](b *testing.B, k *Kernel[A], args func(b *kerneltest.Builder) A) {
	b.Helper()
	build := &kerneltest.Builder{}
	op := must(b, k, args(build))
	_, body := bind(b, build, op, 2, false)
	body()
	cost := op.Cost()
	b.SetBytes(int64(cost.Bytes))
	b.ReportAllocs()
	for b.Loop() {
		body()
	}
	b.ReportMetric(cost.FLOPs*float64(b.N)/b.Elapsed().Seconds()/1e9, "GFLOP/s")
}

// panics returns the panic value of f as text, or "" when it returns.
func panics(f func()) (msg string) {
	defer func() {
		if v := recover(); v != nil {
			if e, ok := v.(error); ok {
				msg = e.Error()
				return
			}
			msg, _ = v.(string)
		}
	}()
	f()
	return ""
}

type builder = kerneltest.Builder

// bf16 is t as if it were stored in bfloat16: what Check must refuse today.
func bf16(t gpu.Tensor) gpu.Tensor {
	t.DType = gpu.BF16
	return t
}
