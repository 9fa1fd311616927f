// Package model records dense Llama-style decoders as Programs: RMSNorm,
// rotary positions in the half-split layout, grouped-query attention, SwiGLU,
// tied or untied head, no biases. It computes nothing itself and knows no
// optimiser, no files and no device.
package model

import (
	"errors"
	"fmt"
)

// Config is the shape of a model.
type Config struct {
	Vocab   int
	Layers  int
	Dim     int
	Heads   int
	KVHeads int
	HeadDim int // 0 means Dim/Heads
	FFN     int // width of the gated MLP
	MaxT    int // longest sequence the position tables cover

	RopeTheta   float64
	RopeScaling RopeScaling
	NormEps     float64
	Tie         bool // one matrix for embedding and head
	Init        Init
}

// Init names an initialisation scheme.
type Init string

const (
	// InitPapers is the scheme of the repeated-data papers: truncated normal
	// (cut at 3 sigma) with sigma 1/sqrt(fan-in) for every matrix, 1/Dim for the
	// token embedding, norm scales 1.
	InitPapers Init = "papers"
	// InitNormal002 draws every matrix and the embedding from N(0, 0.02^2).
	InitNormal002 Init = "normal-0.02"
)

// C returns the head size.
func (c Config) C() int {
	if c.HeadDim != 0 {
		return c.HeadDim
	}
	return c.Dim / c.Heads
}

// Q returns the width of the fused query, key and value projection.
func (c Config) Q() int { return (c.Heads + 2*c.KVHeads) * c.C() }

// Validate reports every impossible value at once.
func (c Config) Validate() error {
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf(format, args...)) }
	for _, f := range []struct {
		name string
		v    int
	}{{"vocab", c.Vocab}, {"layers", c.Layers}, {"dim", c.Dim}, {"heads", c.Heads}, {"kv_heads", c.KVHeads}, {"ffn", c.FFN}, {"max_t", c.MaxT}} {
		if f.v < 1 {
			bad("%s is %d; it must be at least 1", f.name, f.v)
		}
	}
	if len(errs) > 0 {
		return errors.Join(errs...)
	}
	if c.HeadDim == 0 && c.Dim%c.Heads != 0 {
		bad("heads (%d) does not divide dim (%d)", c.Heads, c.Dim)
	}
	if c.Heads%c.KVHeads != 0 {
		bad("kv_heads (%d) does not divide heads (%d)", c.KVHeads, c.Heads)
	}
	if c.C()%2 != 0 {
		bad("the head size (%d) is odd; rotary positions need pairs", c.C())
	}
	if c.NormEps <= 0 {
		bad("norm_eps is %g; it must be positive", c.NormEps)
	}
	if c.RopeTheta <= 0 {
		bad("rope_theta is %g; it must be positive", c.RopeTheta)
	}
	if err := c.RopeScaling.validate(); err != nil {
		errs = append(errs, err)
	}
	switch c.Init {
	case InitPapers, InitNormal002:
	default:
		bad("init is %q; it must be %q or %q", c.Init, InitPapers, InitNormal002)
	}
	return errors.Join(errs...)
}

// Role says what a tensor is for; weight decay and learning-rate multipliers
// are chosen by role.
type Role uint8

// The roles, in the order in which they lie in the flat parameter buffer.
const (
	Embedding Role = iota
	Head
	Tied // embedding and head in one
	Hidden
	Norm

	NumRoles = int(Norm) + 1
)

func (r Role) String() string {
	return [...]string{"embedding", "head", "tied", "hidden", "norm"}[r]
}

// Param is one tensor under its Hugging Face name. Off and Len count elements
// of the flat buffer; the layout of matrices is [out, in], row-major.
type Param struct {
	Name  string
	Shape []int
	Role  Role
	Off   int
	Len   int
	FanIn int
}

// Layout is the place of every parameter in one flat buffer. Tensors that an
// op reads as one (q,k,v and gate,up) lie side by side; a role is one
// contiguous range, so the optimiser needs one op a role.
type Layout struct {
	Params []Param
	Total  int // elements
	Roles  [NumRoles]Range

	layers []layerOffsets
	embed  int
	head   int
	norm   int
}

// Range is elements [From, To) of the flat buffer.
type Range struct{ From, To int }

// Len returns the number of elements.
func (r Range) Len() int { return r.To - r.From }

type layerOffsets struct{ norm1, qkv, out, norm2, gateUp, down int }

// Layout computes the layout of c, which must be valid.
func (c Config) Layout() *Layout {
	l := &Layout{layers: make([]layerOffsets, c.Layers)}
	add := func(role Role, name string, shape ...int) int {
		p := Param{Name: name, Shape: shape, Role: role, Off: l.Total, Len: 1, FanIn: shape[len(shape)-1]}
		for _, d := range shape {
			p.Len *= d
		}
		l.Params = append(l.Params, p)
		if l.Roles[role].Len() == 0 {
			l.Roles[role].From = p.Off
		}
		l.Total += p.Len
		l.Roles[role].To = l.Total
		return p.Off
	}
	C := c.C()
	if c.Tie {
		l.embed = add(Tied, "model.embed_tokens.weight", c.Vocab, c.Dim)
		l.head = l.embed
	} else {
		l.embed = add(Embedding, "model.embed_tokens.weight", c.Vocab, c.Dim)
		l.head = add(Head, "lm_head.weight", c.Vocab, c.Dim)
	}
	for i := range l.layers {
		o := &l.layers[i]
		name := func(s string) string { return fmt.Sprintf("model.layers.%d.%s.weight", i, s) }
		o.qkv = add(Hidden, name("self_attn.q_proj"), c.Heads*C, c.Dim)
		add(Hidden, name("self_attn.k_proj"), c.KVHeads*C, c.Dim)
		add(Hidden, name("self_attn.v_proj"), c.KVHeads*C, c.Dim)
		o.out = add(Hidden, name("self_attn.o_proj"), c.Dim, c.Heads*C)
		o.gateUp = add(Hidden, name("mlp.gate_proj"), c.FFN, c.Dim)
		add(Hidden, name("mlp.up_proj"), c.FFN, c.Dim)
		o.down = add(Hidden, name("mlp.down_proj"), c.Dim, c.FFN)
	}
	for i := range l.layers {
		o := &l.layers[i]
		o.norm1 = add(Norm, fmt.Sprintf("model.layers.%d.input_layernorm.weight", i), c.Dim)
		o.norm2 = add(Norm, fmt.Sprintf("model.layers.%d.post_attention_layernorm.weight", i), c.Dim)
	}
	l.norm = add(Norm, "model.norm.weight", c.Dim)
	return l
}

// BodyParams returns the number of parameters outside embedding and head.
func (l *Layout) BodyParams() int { return l.Roles[Hidden].Len() + l.Roles[Norm].Len() }
