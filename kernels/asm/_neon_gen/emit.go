package main

import (
	"bytes"
	"fmt"
	"strings"
)

// kind is the type of a parameter.
type kind int

const (
	integer kind = iota
	pointer
	pointer16
	float
)

func (k kind) String() string { return [...]string{"int", "*float32", "*uint16", "float32"}[k] }

func (k kind) size() int {
	if k == float {
		return 4
	}
	return 8
}

// arg is a parameter and the number of the register that the function's first
// lines load it into: general for integers and pointers, vector for floats.
type arg struct {
	name string
	kind kind
	reg  int
}

// fn is an assembly function under construction. The registers in use are R0 to
// R15 and R19 to R25, which Go leaves to assembly, and all of V0 to V31.
type fn struct {
	name, doc string
	args      []arg
	result    bool // a float32
	body      bytes.Buffer
	labels    int
}

// begin starts a function: integers and pointers go to R0, R1 and so on in the
// order of the parameters, floats to the vector registers given.
func begin(name, doc string, args ...arg) *fn {
	f := &fn{name: name, doc: doc, args: args}
	next := 0
	offset := 0
	for i := range f.args {
		a := &f.args[i]
		at := fmt.Sprintf("%s+%d(FP)", a.name, offset)
		if a.kind == float {
			f.op("FMOVS", at, fmt.Sprintf("F%d", a.reg))
		} else {
			a.reg = next
			next++
			f.op("MOVD", at, gp(a.reg))
		}
		offset += a.kind.size()
	}
	return f
}

func ints(names ...string) []arg   { return params(integer, names) }
func ptrs(names ...string) []arg   { return params(pointer, names) }
func floatArg(n string, v int) arg { return arg{n, float, v} }

func params(k kind, names []string) []arg {
	var r []arg
	for _, n := range names {
		r = append(r, arg{name: n, kind: k})
	}
	return r
}

func join(groups ...[]arg) []arg {
	var r []arg
	for _, g := range groups {
		r = append(r, g...)
	}
	return r
}

// argSize returns the bytes of the parameters, and the offset of the result.
func (f *fn) argSize() int {
	n := 0
	for _, a := range f.args {
		n += a.kind.size()
	}
	return n
}

func (f *fn) writeCode(w *bytes.Buffer) {
	size := f.argSize()
	if f.result {
		size = f.resultOffset() + 4
	}
	fmt.Fprintf(w, "\n%s\nTEXT ·%s(SB), NOSPLIT, $0-%d\n", f.signature("// func "), f.name, size)
	w.Write(f.body.Bytes())
}

func (f *fn) writeStub(w *bytes.Buffer) {
	fmt.Fprintf(w, "\n// %s %s\n//\n//go:noescape\n%s\n", f.name, f.doc, f.signature("func "))
}

func (f *fn) signature(lead string) string {
	var s []string
	for _, a := range f.args {
		s = append(s, a.name+" "+a.kind.String())
	}
	r := lead + f.name + "(" + strings.Join(s, ", ") + ")"
	if f.result {
		r += " float32"
	}
	return r
}

func (f *fn) resultOffset() int { return (f.argSize() + 7) / 8 * 8 }

// returnFloat ends the function with the first lane of v as its result.
func (f *fn) returnFloat(v int) *fn {
	f.result = true
	f.op("FMOVS", fmt.Sprintf("F%d", v), fmt.Sprintf("ret+%d(FP)", f.resultOffset()))
	return f.end()
}

func (f *fn) end() *fn {
	f.op("RET")
	return f
}

// op writes an instruction in Go's syntax.
func (f *fn) op(mnemonic string, operands ...string) {
	fmt.Fprintf(&f.body, "\t%s", mnemonic)
	if len(operands) > 0 {
		fmt.Fprintf(&f.body, " %s", strings.Join(operands, ", "))
	}
	f.body.WriteByte('\n')
}

// label returns a name that is new in this function.
func (f *fn) label(name string) string {
	f.labels++
	return fmt.Sprintf("%s%d", name, f.labels)
}

func (f *fn) mark(label string) { fmt.Fprintf(&f.body, "\n%s:\n", label) }

func gp(r int) string { return fmt.Sprintf("R%d", r) }

// mem is the memory at disp bytes behind register r.
func mem(r, disp int) string {
	if disp == 0 {
		return fmt.Sprintf("(R%d)", r)
	}
	return fmt.Sprintf("%d(R%d)", disp, r)
}

func imm(n int) string { return fmt.Sprintf("$%d", n) }

func (f *fn) addImm(n, r int)       { f.op("ADD", imm(n), gp(r), gp(r)) }
func (f *fn) addReg(x, r int)       { f.op("ADD", gp(x), gp(r), gp(r)) }
func (f *fn) shiftLeft(n, r int)    { f.op("LSL", imm(n), gp(r), gp(r)) }
func (f *fn) load(r, disp, v int)   { f.op("FMOVQ", mem(r, disp), fmt.Sprintf("F%d", v)) }
func (f *fn) store(v, r, disp int)  { f.op("FMOVQ", fmt.Sprintf("F%d", v), mem(r, disp)) }
func (f *fn) load2(r, disp, v int)  { f.op("FLDPQ", mem(r, disp), pair(v)) }
func (f *fn) store2(v, r, disp int) { f.op("FSTPQ", pair(v), mem(r, disp)) }
func pair(v int) string             { return fmt.Sprintf("(F%d, F%d)", v, v+1) }
func s4(v int) string               { return fmt.Sprintf("V%d.S4", v) }
func h8(v int) string               { return fmt.Sprintf("V%d.H8", v) }
func b16(v int) string              { return fmt.Sprintf("V%d.B16", v) }

// What Go's assembler knows. Destinations come last throughout this program.

func (f *fn) zero(v int)             { f.op("VEOR", b16(v), b16(v), b16(v)) }
func (f *fn) move(from, to int)      { f.op("VMOV", b16(from), b16(to)) }
func (f *fn) fma(x, y, d int)        { f.op("VFMLA", s4(y), s4(x), s4(d)) } // d += x*y
func (f *fn) fms(x, y, d int)        { f.op("VFMLS", s4(y), s4(x), s4(d)) } // d -= x*y
func (f *fn) addInt(x, y, d int)     { f.op("VADD", s4(y), s4(x), s4(d)) }
func (f *fn) shl(n, x, d int)        { f.op("VSHL", imm(n), s4(x), s4(d)) }
func (f *fn) shr(n, x, d int)        { f.op("VUSHR", imm(n), s4(x), s4(d)) }
func (f *fn) or(x, y, d int)         { f.op("VORR", b16(y), b16(x), b16(d)) }
func (f *fn) and(x, y, d int)        { f.op("VAND", b16(y), b16(x), b16(d)) }
func (f *fn) broadcast(x, d int)     { f.op("VDUP", fmt.Sprintf("V%d.S[0]", x), s4(d)) }
func (f *fn) ext(n, x, y, d int)     { f.op("VEXT", imm(n), b16(y), b16(x), b16(d)) }
func (f *fn) bitIf(mask, x, d int)   { f.op("VBIT", b16(mask), b16(x), b16(d)) } // d = x where the mask is set
func (f *fn) bitElse(mask, x, d int) { f.op("VBIF", b16(mask), b16(x), b16(d)) } // d = x where it is not
func (f *fn) zip(half, x, y, d int)  { f.op(fmt.Sprintf("VZIP%d", half), s4(y), s4(x), s4(d)) }

// word writes an instruction by its encoding.
func (f *fn) word(code uint32, gnu string, operands ...any) {
	fmt.Fprintf(&f.body, "\tWORD $0x%08x // %s\n", code, fmt.Sprintf(gnu, operands...))
}

// same3 encodes an instruction on two vectors of four floats: Rm in bits 16 to
// 20, Rn in 5 to 9, Rd in 0 to 4.
func (f *fn) same3(base uint32, name string, x, y, d int) {
	f.word(base|uint32(y)<<16|uint32(x)<<5|uint32(d), name+" v%d.4s, v%d.4s, v%d.4s", d, x, y)
}

func (f *fn) addf(x, y, d int)    { f.same3(0x4e20d400, "fadd", x, y, d) }
func (f *fn) subf(x, y, d int)    { f.same3(0x4ea0d400, "fsub", x, y, d) }
func (f *fn) mulf(x, y, d int)    { f.same3(0x6e20dc00, "fmul", x, y, d) }
func (f *fn) divf(x, y, d int)    { f.same3(0x6e20fc00, "fdiv", x, y, d) }
func (f *fn) minf(x, y, d int)    { f.same3(0x4ea0f400, "fmin", x, y, d) }
func (f *fn) greater(x, y, d int) { f.same3(0x6ea0e400, "fcmgt", x, y, d) } // ones where x > y
func (f *fn) above(x, y, d int)   { f.same3(0x6ea03400, "cmhi", x, y, d) }  // ones where x > y, unsigned

// clearIf sets d = x where the mask is not set and 0 elsewhere.
func (f *fn) clearIf(mask, x, d int) {
	f.word(0x4e601c00|uint32(mask)<<16|uint32(x)<<5|uint32(d), "bic v%d.16b, v%d.16b, v%d.16b", d, x, mask)
}

// same2 encodes an instruction on one vector of four floats.
func (f *fn) same2(base uint32, name string, x, d int) {
	f.word(base|uint32(x)<<5|uint32(d), name+" v%d.4s, v%d.4s", d, x)
}

func (f *fn) neg(x, d int)   { f.same2(0x6ea0f800, "fneg", x, d) }
func (f *fn) sqrt(x, d int)  { f.same2(0x6ea1f800, "fsqrt", x, d) }
func (f *fn) toInt(x, d int) { f.same2(0x4e21a800, "fcvtns", x, d) } // nearest, ties to even; NaN gives 0

// byLane encodes an instruction on a vector and one lane of another: the lane's
// low bit is bit 21, its high bit bit 11.
func (f *fn) byLane(base uint32, name string, x, y, lane, d int) {
	l := uint32(lane)
	f.word(base|(l&1)<<21|(l>>1)<<11|uint32(y)<<16|uint32(x)<<5|uint32(d), name+" v%d.4s, v%d.4s, v%d.s[%d]", d, x, y, lane)
}

func (f *fn) fmaLane(x, y, lane, d int) { f.byLane(0x4f801000, "fmla", x, y, lane, d) } // d += x*y[lane]
func (f *fn) fmsLane(x, y, lane, d int) { f.byLane(0x4f805000, "fmls", x, y, lane, d) } // d -= x*y[lane]
func (f *fn) mulLane(x, y, lane, d int) { f.byLane(0x4f809000, "fmul", x, y, lane, d) } // d = x*y[lane]
