package asm

// SwiGLU sets dst[i] = silu(gate[i])*up[i] with silu(g) = g/(1+exp(-g)).
func SwiGLU(dst, gate, up []float32) {
	if len(gate) != len(dst) || len(up) != len(dst) {
		mismatch("SwiGLU", len(dst), len(gate), len(up))
	}
	if wide && len(dst) > 0 {
		swiglu512Vec(len(dst), &dst[0], &gate[0], &up[0])
		return
	}
	if vector && len(dst) > 0 {
		swigluVec(len(dst), &dst[0], &gate[0], &up[0])
		return
	}
	swigluGeneric(dst, gate, up)
}

// SwiGLUBwd sets the gradients of SwiGLU from dy, that of its output. With
// s = 1/(1+exp(-gate)):
//
//	dgate = dy * up * s*(1 + gate*(1-s))
//	dup   = dy * gate*s
//
// dgate and dup must be different slices; each may be one of the inputs.
func SwiGLUBwd(dgate, dup, gate, up, dy []float32) {
	if len(dup) != len(dgate) || len(gate) != len(dgate) || len(up) != len(dgate) || len(dy) != len(dgate) {
		mismatch("SwiGLUBwd", len(dgate), len(dup), len(gate), len(up), len(dy))
	}
	if wide && len(dgate) > 0 {
		swigluBwd512Vec(len(dgate), &dgate[0], &dup[0], &gate[0], &up[0], &dy[0])
		return
	}
	if vector && len(dgate) > 0 {
		swigluBwdVec(len(dgate), &dgate[0], &dup[0], &gate[0], &up[0], &dy[0])
		return
	}
	swigluBwdGeneric(dgate, dup, gate, up, dy)
}

// RMSBwd adds the gradients of one row of RMSNorm, y = x*r*w with
// r = 1/sqrt(mean(x^2)+eps), to dx and dw:
//
//	dx += r*dy*w - k*x    where k = r^3 * sum(dy*w*x) / len(x), see Dot3
//	dw += r*dy*x
//
// dx and dw must differ from each other and from the inputs.
func RMSBwd(dx, dw, dy, w, x []float32, r, k float32) {
	if len(dw) != len(dx) || len(dy) != len(dx) || len(w) != len(dx) || len(x) != len(dx) {
		mismatch("RMSBwd", len(dx), len(dw), len(dy), len(w), len(x))
	}
	if vector && len(dx) > 0 {
		rmsBwdVec(len(dx), &dx[0], &dw[0], &dy[0], &w[0], &x[0], r, k)
		return
	}
	rmsBwdGeneric(dx, dw, dy, w, x, r, k)
}

// DSoftmax turns dp, the gradient of the probabilities p of one row, into that
// of the scores before scaling: dp = p*(dp-d)*s. d is the sum of p*dp over the
// row, s the factor on the scores.
func DSoftmax(p, dp []float32, d, s float32) {
	if len(dp) != len(p) {
		mismatch("DSoftmax", len(p), len(dp))
	}
	if vector && len(p) > 0 {
		dSoftmaxVec(len(p), &p[0], &dp[0], d, s)
		return
	}
	dSoftmaxGeneric(p, dp, d, s)
}

// The values AdamW expects in h, by index.
const (
	AdamBeta1    = iota // beta1
	AdamBeta1C          // 1 - beta1
	AdamBeta2           // beta2
	AdamBeta2C          // 1 - beta2
	AdamStep            // lr / (1 - beta1^t)
	AdamRootBias        // 1 / sqrt(1 - beta2^t)
	AdamEps             // epsilon
	AdamKeep            // 1 - lr*weight decay
	AdamScale           // factor on the gradient: clipping, mean over shards
	NumAdam
)

// AdamW makes one step t of decoupled AdamW (Loshchilov and Hutter, 2019) on
// parameters p with gradients g and moments m and v:
//
//	g' = g*scale
//	m  = beta1*m + (1-beta1)*g'
//	v  = beta2*v + (1-beta2)*g'*g'
//	p  = p*(1 - lr*decay) - lr/(1-beta1^t) * m / (sqrt(v)/sqrt(1-beta2^t) + eps)
//
// h holds the nine scalars at the indices AdamBeta1 to AdamScale; compute them in
// float64. p, m and v are updated in place, g and h are read.
func AdamW(p, g, m, v []float32, h *[NumAdam]float32) {
	if len(g) != len(p) || len(m) != len(p) || len(v) != len(p) {
		mismatch("AdamW", len(p), len(g), len(m), len(v))
	}
	if vector && len(p) > 0 {
		adamWVec(len(p), &p[0], &g[0], &m[0], &v[0], &h[0])
		return
	}
	adamWGeneric(p, g, m, v, h)
}
