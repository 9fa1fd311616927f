package kerneltest

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"

	"refrain/gpu"
	"refrain/internal/num"
	"refrain/internal/par"
)

// Case is one set of arguments of a kernel. Build makes the buffers and
// returns the op over them.
type Case struct {
	Name  string
	Build func(b *Builder) (gpu.Op, error)
	// Exact demands equal values of fast version and reference (copies, ids).
	Exact bool
	// NonFinite allows results that are not finite.
	NonFinite bool
}

// threadCounts are the pool sizes that must give equal bits.
var threadCounts = [...]int{1, 2, 3}

// Run puts one case through all trials but the gradient.
func Run(t *testing.T, c Case) {
	t.Helper()
	if err := Try(c); err != nil {
		t.Error(err)
	}
}

// Try is Run for callers that want the complaints as an error.
func Try(c Case) (err error) {
	b := &Builder{seed: 1}
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("panic: %v", v)
		}
	}()
	op, err := c.Build(b)
	if err != nil {
		return err
	}
	if cost := op.Cost(); !(cost.FLOPs >= 0 && cost.Bytes > 0) {
		return fmt.Errorf("cost is %+v", cost)
	}
	pools := make([]*par.Pool, len(threadCounts))
	for i, n := range threadCounts {
		pools[i] = par.New(n)
		defer pools[i].Close()
	}

	ref := NewHost(b, pools[0], true)
	if _, err := trial(b, ref, op); err != nil {
		return fmt.Errorf("reference: %w", err)
	}
	exact := NewWide(b, pools[0])
	exact.Allow(op)
	op.BindHost(exact)()
	if err := compareWide(b, op, c.NonFinite, ref, exact); err != nil {
		return fmt.Errorf("reference against its float64 form: %w", err)
	}
	first := NewHost(b, pools[0], false)
	if err := tryFast(b, op, c.Exact, pools[0], ref, first); err != nil {
		return err
	}
	for i, n := range threadCounts[1:] {
		h := NewHost(b, pools[i+1], false)
		if _, err := trial(b, h, op); err != nil {
			return fmt.Errorf("fast version, %d threads: %w", n, err)
		}
		if err := sameBits(b, op, first, h); err != nil {
			return fmt.Errorf("%d threads against 1: %w", n, err)
		}
	}
	if n := allocations(b, op, pools[1]); n != 0 {
		return fmt.Errorf("a replay allocates %v times", n)
	}
	return nil
}

// tryFast runs the fast version on one thread three times: as the first op of
// a device, as a second op that finds scratch and cached values in place, and
// replayed from the start.
func tryFast(b *Builder, op gpu.Op, exact bool, pool *par.Pool, ref, h *Host) error {
	body, err := trial(b, h, op)
	if err != nil {
		return fmt.Errorf("fast version: %w", err)
	}
	if err := compare(b, op, exact, ref, h); err != nil {
		return fmt.Errorf("fast version against reference: %w", err)
	}
	again := NewHost(b, pool, false)
	again.cached, again.scratch, again.fences = h.cached, h.scratch, h.fences
	if _, err := trial(b, again, op); err != nil {
		return fmt.Errorf("fast version, bound a second time: %w", err)
	}
	if err := sameBits(b, op, h, again); err != nil {
		return fmt.Errorf("bound a second time: %w", err)
	}
	h.Reset(b)
	h.undefine(op)
	body()
	if err := sameBits(b, op, again, h); err != nil {
		return fmt.Errorf("replayed: %w", err)
	}
	return nil
}

// allocations counts the heap allocations of one replay. The counter is the
// whole process's, so the lowest of a few tries is taken: a body that allocates
// does so every time.
func allocations(b *Builder, op gpu.Op, pool *par.Pool) float64 {
	h := NewHost(b, pool, false)
	h.Allow(op)
	body := op.BindHost(h)
	least := testing.AllocsPerRun(1, body)
	for try := 0; try < 5 && least > 0; try++ {
		least = min(least, testing.AllocsPerRun(1, body))
	}
	return least
}

// trial binds and runs op on fresh memory and checks what it touched.
func trial(b *Builder, h *Host, op gpu.Op) (body func(), err error) {
	h.Allow(op)
	body = op.BindHost(h)
	h.Reset(b)
	h.undefine(op)
	body()
	if err := h.guards(b); err != nil {
		return nil, err
	}
	if err := touched(b, h, op); err != nil {
		return nil, err
	}
	return body, nil
}

// touched checks that the op changed what it declares as written, all of it, and
// nothing else.
func touched(b *Builder, h *Host, op gpu.Op) error {
	reads, writes := op.Access()
	for i, u := range b.bufs {
		declared := find(writes, i)
		if declared == nil {
			if !bytes.Equal(h.mem[i], u.init) {
				return fmt.Errorf("%s is not declared as written, but changed", u.name)
			}
			continue
		}
		if err := untouchedOutside(h.mem[i], u.init, declared); err != nil {
			return fmt.Errorf("%s: %w", u.name, err)
		}
		if !u.scratch && !slices.Contains(reads, *declared) {
			if k := stillPoison(h.mem[i], declared, u.t.DType); k >= 0 {
				return fmt.Errorf("element %d of %s was not written", k, u.name)
			}
		}
	}
	return nil
}

func find(spans []gpu.Span, mem int) *gpu.Span {
	for i := range spans {
		if int(spans[i].Mem) == mem {
			return &spans[i]
		}
	}
	return nil
}

// untouchedOutside checks the bytes of a buffer outside its declared span.
func untouchedOutside(got, init []byte, s *gpu.Span) error {
	if !bytes.Equal(got[:s.Off], init[:s.Off]) || !bytes.Equal(got[s.Off+s.Len:], init[s.Off+s.Len:]) {
		return fmt.Errorf("bytes outside the declared [%d,%d) changed", s.Off, s.Off+s.Len)
	}
	return nil
}

func stillPoison(got []byte, s *gpu.Span, dt gpu.DType) int {
	if dt == gpu.BF16 {
		for i := int(s.Off / 2); i < int((s.Off+s.Len)/2); i++ {
			if binary.LittleEndian.Uint16(got[2*i:]) == poison16 {
				return i
			}
		}
		return -1
	}
	for i := int(s.Off / 4); i < int((s.Off+s.Len)/4); i++ {
		if binary.LittleEndian.Uint32(got[4*i:]) == poison(i) {
			return i
		}
	}
	return -1
}

// outputs calls f for every buffer whose final content is a result, and
// returns the first error with the buffer's name.
func outputs(b *Builder, op gpu.Op, f func(i int, u *buffer) error) error {
	_, writes := op.Access()
	for i := range b.bufs {
		u := &b.bufs[i]
		if u.scratch || find(writes, i) == nil {
			continue
		}
		if err := f(i, u); err != nil {
			return fmt.Errorf("%s: %w", u.name, err)
		}
	}
	return nil
}

// floats returns the elements of an F32 or BF16 buffer.
func floats(b []byte, dt gpu.DType) []float32 {
	if dt == gpu.BF16 {
		f := make([]float32, len(b)/2)
		for i := range f {
			f[i] = num.BF16(binary.LittleEndian.Uint16(b[2*i:])).Float32()
		}
		return f
	}
	f := make([]float32, len(b)/4)
	for i := range f {
		f[i] = math.Float32frombits(binary.LittleEndian.Uint32(b[4*i:]))
	}
	return f
}

// isReal reports a type whose elements are compared by value.
func isReal(dt gpu.DType) bool { return dt == gpu.F32 || dt == gpu.BF16 }

// tolerance is what the results of a case may be off: as soon as one tensor is
// BF16, an f32 result may be a sum of rounded products as well.
func tolerance(b *Builder) num.Tolerance {
	for _, u := range b.bufs {
		if u.t.DType == gpu.BF16 {
			return num.BFloat16
		}
	}
	return num.Float32
}

var errBits = errors.New("other bits")

func compareWide(b *Builder, op gpu.Op, nonFinite bool, ref *Host, exact *Wide) error {
	return outputs(b, op, func(i int, u *buffer) error {
		if !isReal(u.t.DType) {
			if !bytes.Equal(ref.mem[i], exact.mem[i]) {
				return errBits
			}
			return nil
		}
		for k, v := range exact.wide[i] {
			if !nonFinite && v-v != 0 {
				return fmt.Errorf("element %d is %v", k, v)
			}
		}
		return num.Check(floats(ref.mem[i], u.t.DType), exact.wide[i], tolerance(b))
	})
}

// compare sets the fast version against the reference. Both are rounded when they
// are stored, so two neighbours of the true value may meet: twice the share that
// one of them may be off by itself.
func compare(b *Builder, op gpu.Op, exact bool, ref, fast *Host) error {
	tol := tolerance(b)
	tol.Own *= 2
	return outputs(b, op, func(i int, u *buffer) error {
		if exact || !isReal(u.t.DType) {
			if !bytes.Equal(ref.mem[i], fast.mem[i]) {
				return errBits
			}
			return nil
		}
		return num.Check(floats(fast.mem[i], u.t.DType), floats(ref.mem[i], u.t.DType), tol)
	})
}

func sameBits(b *Builder, op gpu.Op, want, got *Host) error {
	return outputs(b, op, func(i int, u *buffer) error {
		if !bytes.Equal(want.mem[i], got.mem[i]) {
			return errBits
		}
		return nil
	})
}
