package kernels

import (
	"refrain/gpu"
	"refrain/kernels/asm"
)

func ropeFast(h gpu.Host, a *RoPEArgs) func() {
	cos, sin := gpu.Float32s(h, a.Cos), gpu.Float32s(h, a.Sin)
	half, q, heads, pool := a.C/2, (a.H+2*a.KV)*a.C, a.H+a.KV, h.Pool()
	var seg []int32
	if a.Reset {
		seg = gpu.Int32s(h, a.Seg)
	}
	rotate := asm.Rope
	if a.Inverse {
		rotate = asm.RopeInv
	}
	// turnRow rotates the heads of row n by the angles of position p.
	var turnRow func(worker, n, p int)
	if a.QKV.DType == gpu.BF16 {
		qkv, room := gpu.BF16s(h, a.QKV), newParts(h, 1, 2*half*heads)
		turnRow = func(worker, n, p int) {
			row := qkv[n*q : n*q+2*half*heads]
			wide := room.widened(worker, 0, row)
			turn(rotate, wide, heads, cos[p*half:(p+1)*half], sin[p*half:(p+1)*half])
			asm.ToBF16(row, wide)
		}
	} else {
		qkv := gpu.Float32s(h, a.QKV)
		turnRow = func(_, n, p int) {
			turn(rotate, qkv[n*q:], heads, cos[p*half:(p+1)*half], sin[p*half:(p+1)*half])
		}
	}
	rows := func(worker, lo, hi int) {
		for n := lo; n < hi; n++ {
			p := n % a.T
			if seg != nil {
				p -= int(seg[n])
			}
			turnRow(worker, n, p)
		}
	}
	return func() { pool.For(a.B*a.T, rowGrain, rows) }
}

// turn rotates the first heads of one row.
func turn(rotate func(a, b, cos, sin []float32), row []float32, heads int, cos, sin []float32) {
	half := len(cos)
	for i := range heads {
		rotate(row[2*i*half:(2*i+1)*half], row[(2*i+1)*half:(2*i+2)*half], cos, sin)
	}
}

func ropeAtFast(h gpu.Host, a *RoPEAtArgs) func() {
	qkv, cos, sin, pos := gpu.Float32s(h, a.QKV), gpu.Float32s(h, a.Cos), gpu.Float32s(h, a.Sin), gpu.Int32s(h, a.Pos)
	half, q, heads, pool := a.C/2, (a.H+2*a.KV)*a.C, a.H+a.KV, h.Pool()
	rows := func(_, lo, hi int) {
		for b := lo; b < hi; b++ {
			p := checkPosition("rope_at", b, pos[b], a.Cos.Dim(0))
			turn(asm.Rope, qkv[b*q:], heads, cos[p*half:(p+1)*half], sin[p*half:(p+1)*half])
		}
	}
	return func() { pool.For(len(pos), rowGrain, rows) }
}
