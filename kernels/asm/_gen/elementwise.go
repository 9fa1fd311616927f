package main

import (
	. "github.com/mmcloughlin/avo/build"
	. "github.com/mmcloughlin/avo/operand"
)

func scale() {
	begin("scaleVec", "func(n int, x *float32, s float32)", "scaleVec sets x = x*s.")
	n, ptrs := param("n"), params("x")
	s := broadcast("s")
	stream(n, ptrs, 4, func(b *block) {
		b.each(func(u int) {
			v := YMM()
			VMULPS(b.operand(0, u), s, v)
			b.store(v, 0, u)
		})
	})
	end()
}

func scaleMul() {
	begin("scaleMulVec", "func(n int, dst, x, w *float32, s float32)", "scaleMulVec sets dst = (x*s)*w.")
	n, ptrs := param("n"), params("dst", "x", "w")
	s := broadcast("s")
	stream(n, ptrs, 4, func(b *block) {
		b.each(func(u int) {
			v := YMM()
			VMULPS(b.operand(1, u), s, v)
			VMULPS(b.operand(2, u), v, v)
			b.store(v, 0, u)
		})
	})
	end()
}

func add() {
	begin("addVec", "func(n int, dst, x *float32)", "addVec sets dst = dst+x.")
	n, ptrs := param("n"), params("dst", "x")
	stream(n, ptrs, 4, func(b *block) {
		b.each(func(u int) {
			v := YMM()
			b.load(0, u, v)
			VADDPS(b.operand(1, u), v, v)
			b.store(v, 0, u)
		})
	})
	end()
}

func axpy() {
	begin("axpyVec", "func(n int, dst, x *float32, s float32)", "axpyVec sets dst = dst + x*s.")
	n, ptrs := param("n"), params("dst", "x")
	s := broadcast("s")
	stream(n, ptrs, 4, func(b *block) {
		b.each(func(u int) {
			v := YMM()
			b.load(0, u, v)
			VFMADD231PS(b.operand(1, u), s, v)
			b.store(v, 0, u)
		})
	})
	end()
}

func rope() {
	for _, k := range []struct{ name, doc string }{
		{"ropeVec", "ropeVec sets (a, b) = (a*cos - b*sin, b*cos + a*sin)."},
		{"ropeInvVec", "ropeInvVec sets (a, b) = (a*cos + b*sin, b*cos - a*sin)."},
	} {
		begin(k.name, "func(n int, a, b, cos, sin *float32)", k.doc)
		n, ptrs := param("n"), params("a", "b", "cos", "sin")
		stream(n, ptrs, 2, func(b *block) {
			b.each(func(u int) {
				x, y, sin, p, q := YMM(), YMM(), YMM(), YMM(), YMM()
				cos := YMM()
				b.load(0, u, x)
				b.load(1, u, y)
				b.load(2, u, cos)
				b.load(3, u, sin)
				VMULPS(sin, y, p)
				VMULPS(sin, x, q)
				if k.name == "ropeVec" {
					VFMSUB231PS(cos, x, p) // a*cos - (b*sin)
					VFMADD231PS(cos, y, q)
				} else {
					VFMADD231PS(cos, x, p)
					VFMSUB231PS(cos, y, q)
				}
				b.store(p, 0, u)
				b.store(q, 1, u)
			})
		})
		end()
	}
}

func rmsBwd() {
	begin("rmsBwdVec", "func(n int, dx, dw, dy, w, x *float32, r, k float32)",
		"rmsBwdVec sets dw += (dy*r)*x and dx += (dy*r)*w - x*k.")
	n, ptrs := param("n"), params("dx", "dw", "dy", "w", "x")
	r, k := broadcast("r"), broadcast("k")
	stream(n, ptrs, 2, func(b *block) {
		b.each(func(u int) {
			dyr, x, v := YMM(), YMM(), YMM()
			VMULPS(b.operand(2, u), r, dyr)
			b.load(4, u, x)
			b.load(1, u, v)
			VFMADD231PS(x, dyr, v)
			b.store(v, 1, u)
			b.load(0, u, v)
			VFMADD231PS(b.operand(3, u), dyr, v)
			VFNMADD231PS(x, k, v)
			b.store(v, 0, u)
		})
	})
	end()
}

func dSoftmax() {
	begin("dSoftmaxVec", "func(n int, p, dp *float32, d, s float32)", "dSoftmaxVec sets dp = ((dp-d)*s)*p.")
	n, ptrs := param("n"), params("p", "dp")
	d, s := broadcast("d"), broadcast("s")
	stream(n, ptrs, 4, func(b *block) {
		b.each(func(u int) {
			v := YMM()
			b.load(1, u, v)
			VSUBPS(d, v, v)
			VMULPS(s, v, v)
			VMULPS(b.operand(0, u), v, v)
			b.store(v, 1, u)
		})
	})
	end()
}

// adamW keeps all nine hyperparameters in registers. The order of operations is
// that of the plain Go version, with fused multiply-adds.
func adamW() {
	begin("adamWVec", "func(n int, p, grad, m, v, h *float32)",
		"adamWVec performs one AdamW update with the nine values at h.")
	n, ptrs := param("n"), params("p", "grad", "m", "v")
	h := param("h")
	c := vectors(9)
	for i := range c {
		VBROADCASTSS(Mem{Base: h, Disp: 4 * i}, c[i])
	}
	beta1, beta1c, beta2, beta2c, step, rootBias, eps, keep, scale := c[0], c[1], c[2], c[3], c[4], c[5], c[6], c[7], c[8]
	stream(n, ptrs, 1, func(b *block) {
		g, m, v, p := YMM(), YMM(), YMM(), YMM()
		VMULPS(b.operand(1, 0), scale, g)
		VMULPS(b.operand(2, 0), beta1, m)
		VFMADD231PS(g, beta1c, m)
		b.store(m, 2, 0)
		VMULPS(b.operand(3, 0), beta2, v)
		VMULPS(g, g, g)
		VFMADD231PS(g, beta2c, v)
		b.store(v, 3, 0)
		VSQRTPS(v, v)
		VFMADD213PS(eps, rootBias, v) // sqrt(v)/sqrt(1-beta2^t) + eps
		VMULPS(step, m, m)
		VDIVPS(v, m, m)
		VMULPS(b.operand(0, 0), keep, p)
		VSUBPS(m, p, p)
		b.store(p, 0, 0)
	})
	end()
}
