package kernels

// Entry is what the registry knows of a kernel.
type Entry struct {
	Name                                          string
	HasCheck, HasAccess, HasCost, HasRef, HasWide bool
	HasFast, HasCUDA                              bool
}

func (k *Kernel[A]) entry() Entry {
	return Entry{
		Name:     k.Name,
		HasCheck: k.Check != nil, HasAccess: k.Access != nil, HasCost: k.Cost != nil,
		HasRef: k.Ref != nil, HasWide: k.Wide != nil, HasFast: k.Fast != nil, HasCUDA: k.CUDA != nil,
	}
}

// All lists every kernel of the package, in the order in which a training step
// first meets them, then the decoding path.
func All() []Entry {
	return []Entry{
		MaskRows.entry(), RepeatRows.entry(), Segments.entry(), Embed.entry(), Dropout.entry(), RMSNorm.entry(), MatMul.entry(), RoPE.entry(), Attention.entry(),
		SwiGLU.entry(), HeadLoss.entry(), SumLoss.entry(), SoftTargets.entry(), HeadDistill.entry(),
		RMSNormBwd.entry(), MatMulDX.entry(), MatMulDW.entry(), SwiGLUBwd.entry(), AttentionBwd.entry(), EmbedBwd.entry(),
		Fill.entry(), Copy.entry(), Cast.entry(), AddTo.entry(), SumSquares.entry(), Guard.entry(), AdamW.entry(),
		RoPEAt.entry(), AttnDecode.entry(), Draw.entry(),
	}
}
