package kernels

import (
	"errors"

	"refrain/gpu"
)

func ropeCUDA(l gpu.Launcher, a *RoPEArgs) error {
	sign, seg := float32(1), gpu.Tensor{}
	if a.Inverse {
		sign = -1
	}
	if a.Reset {
		seg = a.Seg
	}
	n, rotated := a.B*a.T, a.H+a.KV
	return launch(l, "rope", eachOf(n*rotated*a.C/2), valuesOf(l, a.QKV), a.Cos, a.Sin, seg, sign,
		n, a.T, rotated, a.C, (a.H+2*a.KV)*a.C)
}

func attentionCUDA(l gpu.Launcher, a *AttentionArgs) error {
	at := headShape{int64(a.T), int64(a.H), int64(a.KV), int64(a.C)}
	return launch(l, "attn", eachOf(a.B*a.H*a.T), valuesOf(l, a.O), a.LSE, valuesOf(l, a.QKV), a.Seg, a.B, at)
}

func attentionBwdCUDA(l gpu.Launcher, a *AttentionBwdArgs) error {
	at := headShape{int64(a.T), int64(a.H), int64(a.KV), int64(a.C)}
	args := []any{valuesOf(l, a.DQKV), valuesOf(l, a.DO), valuesOf(l, a.O), a.LSE, valuesOf(l, a.QKV), a.Seg, a.B, at}
	return errors.Join(
		launch(l, "attn_dq", eachOf(a.B*a.H*a.T), args...),
		launch(l, "attn_dkv", eachOf(a.B*a.KV*a.T), args...))
}
