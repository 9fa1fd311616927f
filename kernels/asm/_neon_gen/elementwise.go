package main

// In this file, functions keep scalars in V24 to V31 and values below. Each step
// rounds as the AVX2 set's does.

func scale() *fn {
	f := begin("scaleVec", "sets x = x*s.", join(ints("n"), ptrs("x"), []arg{floatArg("s", 31)})...)
	f.broadcast(31, 31)
	return stream(f, 0, []int{1}, 4, func(b *block) {
		b.load(0, 0)
		b.each(func(u int) { f.mulf(u, 31, u) })
		b.store(0, 0)
	})
}

func scaleMul() *fn {
	f := begin("scaleMulVec", "sets dst = (x*s)*w.", join(ints("n"), ptrs("dst", "x", "w"), []arg{floatArg("s", 31)})...)
	f.broadcast(31, 31)
	return stream(f, 0, []int{1, 2, 3}, 4, func(b *block) {
		b.load(1, 0)
		b.load(2, 4)
		b.each(func(u int) {
			f.mulf(u, 31, u)
			f.mulf(u, 4+u, u)
		})
		b.store(0, 0)
	})
}

func add() *fn {
	f := begin("addVec", "sets dst = dst+x.", join(ints("n"), ptrs("dst", "x"))...)
	return stream(f, 0, []int{1, 2}, 4, func(b *block) {
		b.load(0, 0)
		b.load(1, 4)
		b.each(func(u int) { f.addf(u, 4+u, u) })
		b.store(0, 0)
	})
}

func axpy() *fn {
	f := begin("axpyVec", "sets dst = dst + x*s.", join(ints("n"), ptrs("dst", "x"), []arg{floatArg("s", 31)})...)
	f.broadcast(31, 31)
	return stream(f, 0, []int{1, 2}, 4, func(b *block) {
		b.load(0, 0)
		b.load(1, 4)
		b.each(func(u int) { f.fma(4+u, 31, u) })
		b.store(0, 0)
	})
}

// rope negates the sine instead of a product, so that zeros have the sign that a
// fused multiply-subtract gives them.
func rope(inverse bool) *fn {
	name, doc := "ropeVec", "sets (a, b) = (a*cos - b*sin, b*cos + a*sin)."
	if inverse {
		name, doc = "ropeInvVec", "sets (a, b) = (a*cos + b*sin, b*cos - a*sin)."
	}
	f := begin(name, doc, join(ints("n"), ptrs("a", "b", "cos", "sin"))...)
	return stream(f, 0, []int{1, 2, 3, 4}, 2, func(b *block) {
		const x, y, cos, sin, minus, p, q = 0, 2, 4, 6, 8, 10, 12
		b.load(0, x)
		b.load(1, y)
		b.load(2, cos)
		b.load(3, sin)
		b.each(func(u int) {
			f.neg(sin+u, minus+u)
			ofY, ofX := minus+u, sin+u
			if inverse {
				ofY, ofX = ofX, ofY
			}
			f.mulf(y+u, ofY, p+u)
			f.mulf(x+u, ofX, q+u)
			f.fma(x+u, cos+u, p+u)
			f.fma(y+u, cos+u, q+u)
		})
		b.store(p, 0)
		b.store(q, 1)
	})
}

func rmsBwd() *fn {
	const r, k = 30, 31
	f := begin("rmsBwdVec", "sets dw += (dy*r)*x and dx += (dy*r)*w - x*k.",
		join(ints("n"), ptrs("dx", "dw", "dy", "w", "x"), []arg{floatArg("r", r), floatArg("k", k)})...)
	f.broadcast(r, r)
	f.broadcast(k, k)
	return stream(f, 0, []int{1, 2, 3, 4, 5}, 2, func(b *block) {
		const dx, dw, dy, w, x = 0, 2, 4, 6, 8
		b.load(2, dy)
		b.load(4, x)
		b.load(1, dw)
		b.each(func(u int) {
			f.mulf(dy+u, r, dy+u)
			f.fma(x+u, dy+u, dw+u)
		})
		b.store(dw, 1)
		b.load(0, dx)
		b.load(3, w)
		b.each(func(u int) {
			f.fma(w+u, dy+u, dx+u)
			f.fms(x+u, k, dx+u)
		})
		b.store(dx, 0)
	})
}

func dSoftmax() *fn {
	const d, s = 30, 31
	f := begin("dSoftmaxVec", "sets dp = ((dp-d)*s)*p.",
		join(ints("n"), ptrs("p", "dp"), []arg{floatArg("d", d), floatArg("s", s)})...)
	f.broadcast(d, d)
	f.broadcast(s, s)
	return stream(f, 0, []int{1, 2}, 4, func(b *block) {
		b.load(1, 0)
		b.load(0, 4)
		b.each(func(u int) {
			f.subf(u, d, u)
			f.mulf(u, s, u)
			f.mulf(u, 4+u, u)
		})
		b.store(0, 1)
	})
}

// adamW keeps all nine hyperparameters in registers. The order of operations is
// that of the plain Go version, with fused multiply-adds.
func adamW() *fn {
	f := begin("adamWVec", "performs one AdamW update with the nine values at h.", join(ints("n"), ptrs("p", "grad", "m", "v", "h"))...)
	const h = 5
	f.op("VLD4R.P", mem(h, 16), "[V24.S4, V25.S4, V26.S4, V27.S4]")
	f.op("VLD4R.P", mem(h, 16), "[V28.S4, V29.S4, V30.S4, V31.S4]")
	f.op("VLD1R", mem(h, 0), "[V23.S4]")
	const beta1, beta1c, beta2, beta2c, step, rootBias, eps, keep, scale = 24, 25, 26, 27, 28, 29, 30, 31, 23
	return stream(f, 0, []int{1, 2, 3, 4}, 2, func(b *block) {
		const p, g, m, v, root = 0, 2, 4, 6, 8
		b.load(1, g)
		b.load(2, m)
		b.load(3, v)
		b.load(0, p)
		b.each(func(u int) {
			f.mulf(g+u, scale, g+u)
			f.mulf(m+u, beta1, m+u)
			f.fma(g+u, beta1c, m+u)
			f.mulf(v+u, beta2, v+u)
			f.mulf(g+u, g+u, g+u)
			f.fma(g+u, beta2c, v+u)
		})
		b.store(m, 2)
		b.store(v, 3)
		b.each(func(u int) {
			f.sqrt(v+u, v+u)
			f.move(eps, root+u)
			f.fma(v+u, rootBias, root+u) // sqrt(v)/sqrt(1-beta2^t) + eps
			f.mulf(m+u, step, m+u)
			f.divf(m+u, root+u, m+u)
			f.mulf(p+u, keep, p+u)
			f.subf(p+u, m+u, p+u)
		})
		b.store(p, 0)
	})
}
