package kernels

import (
	"fmt"

	"refrain/gpu"
)

// checker collects the first complaint about a kernel's arguments.
type checker struct{ err error }

func (c *checker) failf(format string, args ...any) {
	if c.err == nil {
		c.err = fmt.Errorf(format, args...)
	}
}

// is demands exactly this type and shape, and no empty axis.
func (c *checker) is(name string, t gpu.Tensor, dt gpu.DType, dims ...int) {
	if c.err != nil {
		return
	}
	if t.IsZero() {
		c.failf("%s is missing, want %v%v", name, dt, dims)
		return
	}
	if t.DType != dt {
		c.failf("%s is %v; today this op takes %v only", name, t, dt)
		return
	}
	if !t.Is(dt, dims...) {
		c.failf("%s is %v, want %v%v", name, t, dt, dims)
		return
	}
	c.filled(name, t)
}

func (c *checker) filled(name string, t gpu.Tensor) {
	for _, d := range t.Shape[:t.Rank] {
		if d < 1 {
			c.failf("%s is %v: empty axis", name, t)
		}
	}
	if want := int64(t.Elems()) * t.DType.Size(); t.Span.Len != want {
		c.failf("%s is %v, which needs %d bytes, over a span of %d", name, t, want, t.Span.Len)
	}
}

func (c *checker) f32(name string, t gpu.Tensor, dims ...int) { c.is(name, t, gpu.F32, dims...) }
func (c *checker) i32(name string, t gpu.Tensor, dims ...int) { c.is(name, t, gpu.I32, dims...) }

// ranked demands a type and a number of axes and returns the shape, from which
// the other arguments are then checked.
func (c *checker) ranked(name string, t gpu.Tensor, dt gpu.DType, rank int) (s [4]int) {
	if c.err != nil {
		return s
	}
	switch {
	case t.IsZero():
		c.failf("%s is missing", name)
	case t.DType != dt:
		c.failf("%s is %v; today this op takes %v only", name, t, dt)
	case int(t.Rank) != rank:
		c.failf("%s is %v, want %d axes", name, t, rank)
	default:
		c.filled(name, t)
	}
	for i := range s {
		s[i] = int(t.Shape[i])
	}
	return s
}

// stored demands a type that activations are stored in, F32 or BF16, and a
// number of axes. It returns the type and the shape.
func (c *checker) stored(name string, t gpu.Tensor, rank int) (gpu.DType, [4]int) {
	dt := gpu.F32
	if t.DType == gpu.BF16 {
		dt = gpu.BF16
	}
	return dt, c.ranked(name, t, dt, rank)
}

// either demands F32 or BF16 and this shape: what stands beside operands in
// type beside, which decides. Beside F32 there is F32 alone.
func (c *checker) either(name string, t gpu.Tensor, beside gpu.DType, dims ...int) {
	if t.DType == gpu.F32 {
		beside = gpu.F32
	}
	c.is(name, t, beside, dims...)
}

// flat demands an F32 tensor of any shape and returns its number of elements.
func (c *checker) flat(name string, t gpu.Tensor) int {
	if c.err == nil {
		c.ranked(name, t, gpu.F32, int(t.Rank))
	}
	return t.Elems()
}

// elems demands an F32 tensor of any shape with n elements.
func (c *checker) elems(name string, t gpu.Tensor, n int) {
	if got := c.flat(name, t); got != n {
		c.failf("%s is %v, want %d elements", name, t, n)
	}
}

func (c *checker) positive(name string, v int) {
	if v < 1 {
		c.failf("%s is %d, want at least 1", name, v)
	}
}

// names pairs tensors with their names for messages.
type names []struct {
	name string
	t    gpu.Tensor
}

// apart demands that no output shares memory with another output or an input.
// Absent tensors are skipped.
func (c *checker) apart(outs, ins names) {
	for i, o := range outs {
		for _, x := range append(outs[i+1:len(outs):len(outs)], ins...) {
			if overlap(o.t.Span, x.t.Span) {
				c.failf("%s and %s share memory", o.name, x.name)
			}
		}
	}
}

func overlap(a, b gpu.Span) bool {
	return a.Dev == b.Dev && a.Mem == b.Mem && a.Len > 0 && b.Len > 0 && a.Off < b.Off+b.Len && b.Off < a.Off+a.Len
}

// spans lists the memory of the tensors that are present.
func spans(ts ...gpu.Tensor) []gpu.Span {
	var s []gpu.Span
	for _, t := range ts {
		if !t.IsZero() {
			s = append(s, t.Span)
		}
	}
	return s
}

// bytesOf is the total size of the tensors: a floor on traffic when each is
// moved once. A tensor that is read and written is given twice.
func bytesOf(ts ...gpu.Tensor) (n float64) {
	for _, t := range ts {
		n += float64(t.Span.Len)
	}
	return n
}
