package kerneltest

import (
	"encoding/binary"
	"fmt"
	"slices"
	"unsafe"

	"refrain/gpu"
	"refrain/internal/par"
)

// guardBytes of guard stand before and behind each buffer; 64 keeps buffers aligned.
const guardBytes = 64

// guardWord is a NaN, so that a read outside a buffer shows in the results.
const guardWord = 0x7fc0dead

// Host is a CPU device of one op at a time, for tests. It implements gpu.Host.
type Host struct {
	pool      *par.Pool
	reference bool
	mem       [][]byte // by Span.Mem, without guards
	raw       [][]byte // with guards
	half      []bool   // by Span.Mem: elements are BF16
	allowed   []gpu.Span
	scratch   map[string][]float32
	fences    map[string][]float32 // guard words behind scratch
	cached    map[string]any
}

// aligned returns n bytes at a 64-byte boundary.
func aligned(n int) []byte {
	b := make([]byte, n+64)
	off := int(-uintptr(unsafe.Pointer(unsafe.SliceData(b))) & 63)
	return b[off : off+n : off+n]
}

func fillWords(b []byte, w uint32) {
	for i := range len(b) / 4 {
		*(*uint32)(unsafe.Pointer(&b[4*i])) = w
	}
}

// NewHost returns a host with fresh memory holding the initial content of b.
func NewHost(b *Builder, pool *par.Pool, reference bool) *Host {
	h := &Host{pool: pool, reference: reference, scratch: map[string][]float32{}, fences: map[string][]float32{}, cached: map[string]any{}}
	for _, u := range b.bufs {
		size := (len(u.init) + 3) &^ 3
		raw := aligned(guardBytes + size + guardBytes)
		fillWords(raw, guardWord)
		h.raw = append(h.raw, raw)
		h.half = append(h.half, u.t.DType == gpu.BF16)
		h.mem = append(h.mem, raw[guardBytes:guardBytes+len(u.init):guardBytes+len(u.init)])
	}
	h.Reset(b)
	return h
}

// Reset gives all buffers their initial content again.
func (h *Host) Reset(b *Builder) {
	for i, u := range b.bufs {
		copy(h.mem[i], u.init)
	}
}

// Allow makes the accesses of op, and only those, resolvable.
func (h *Host) Allow(op gpu.Op) {
	r, w := op.Access()
	h.allowed = append(append([]gpu.Span(nil), r...), w...)
}

// Bytes resolves a span that the op declares.
func (h *Host) Bytes(s gpu.Span) []byte {
	for _, a := range h.allowed {
		if s.Dev == a.Dev && s.Mem == a.Mem && s.Off >= a.Off && s.Off+s.Len <= a.Off+a.Len {
			return h.mem[s.Mem][s.Off : s.Off+s.Len : s.Off+s.Len]
		}
	}
	panic(fmt.Sprintf("kerneltest: the op resolves %+v, which it does not declare", s))
}

// Pool returns the worker pool.
func (h *Host) Pool() *par.Pool { return h.pool }

// Reference reports whether ops run their reference bodies.
func (h *Host) Reference() bool { return h.reference }

// Scratch returns named scratch full of poison, with guard words behind it.
func (h *Host) Scratch(name string, n int) []float32 {
	if s := h.scratch[name]; len(s) >= n {
		return s[:n:n]
	}
	b := aligned(4*n + guardBytes)
	fillWords(b, guardWord)
	f := unsafe.Slice((*float32)(unsafe.Pointer(unsafe.SliceData(b))), len(b)/4)
	h.scratch[name], h.fences[name] = f[:n:n], f[n:]
	return h.scratch[name]
}

// Cached returns the value of that name, made at the first request.
func (h *Host) Cached(name string, build func() any) any {
	v, ok := h.cached[name]
	if !ok {
		v = build()
		h.cached[name] = v
	}
	return v
}

// undefine makes undefined what an op may not rely on: scratch, and buffers
// that it writes without declaring to read them.
func (h *Host) undefine(op gpu.Op) {
	for _, s := range h.scratch {
		for i := range s {
			*(*uint32)(unsafe.Pointer(&s[i])) = guardWord
		}
	}
	reads, writes := op.Access()
	for _, w := range writes {
		if slices.Contains(reads, w) {
			continue
		}
		m := h.mem[w.Mem]
		if h.half[w.Mem] {
			for i := w.Off / 2; i < (w.Off+w.Len)/2; i++ {
				binary.LittleEndian.PutUint16(m[2*i:], poison16)
			}
			continue
		}
		for i := w.Off / 4; i < (w.Off+w.Len)/4; i++ {
			*(*uint32)(unsafe.Pointer(&m[4*i])) = poison(int(i))
		}
	}
}

// guards reports the first damaged guard word.
func (h *Host) guards(b *Builder) error {
	for i, raw := range h.raw {
		n := len(h.mem[i])
		tail := raw[guardBytes+(n+3)&^3:]
		for _, g := range [][]byte{raw[:guardBytes], tail} {
			for k := range len(g) / 4 {
				if *(*uint32)(unsafe.Pointer(&g[4*k])) != guardWord {
					return fmt.Errorf("guard words around %s were overwritten", b.bufs[i].name)
				}
			}
		}
	}
	for name, f := range h.fences {
		for i := range f {
			if *(*uint32)(unsafe.Pointer(&f[i])) != guardWord {
				return fmt.Errorf("guard words behind scratch %s were overwritten", name)
			}
		}
	}
	return nil
}

// Wide is a Host whose F32 and BF16 tensors are float64; it satisfies kernels.WideHost.
type Wide struct {
	*Host
	wide [][]float64
}

// NewWide returns a host with fresh memory holding the initial content of b.
func NewWide(b *Builder, pool *par.Pool) *Wide {
	w := &Wide{Host: NewHost(b, pool, true)}
	for _, u := range b.bufs {
		w.wide = append(w.wide, append([]float64(nil), u.wide...))
	}
	return w
}

// Reset gives all buffers their initial content again.
func (w *Wide) Reset(b *Builder) {
	w.Host.Reset(b)
	for i, u := range b.bufs {
		copy(w.wide[i], u.wide)
	}
}

// Float64s resolves an F32 or BF16 tensor that the op declares.
func (w *Wide) Float64s(t gpu.Tensor) []float64 {
	w.Bytes(t.Span) // is it declared?
	size := t.DType.Size()
	return w.wide[t.Mem][t.Off/size : (t.Off+t.Len)/size]
}
