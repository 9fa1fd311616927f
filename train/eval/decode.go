package eval

import (
	"context"
	"errors"
	"fmt"
	"math"

	"refrain/gpu"
	"refrain/kernels"
	"refrain/model"
)

// DecoderConfig says what a Decoder computes.
type DecoderConfig struct {
	Models      []model.Config // one or more, with one vocabulary; their logits are averaged
	Slots       int            // sequences at a time
	MaxT        int            // positions of a sequence, covered by every model
	Vocab       int            // tokens that may be drawn; 0 is all of the models'
	Temperature float64        // above 0
}

// Slot is what one sequence gives to a step: its newest token and where that stands, which
// is its first position or the one after that of the step before, and the number in (0,1)
// that decides the next token. Positions from Pos on hold nothing for it, whatever another
// sequence left there.
type Slot struct {
	Token   uint32
	Pos     int
	Uniform float64
}

// Decoder draws the next token of many sequences in one step: every weight is read once
// for all of them, and caches, logits and draw stay on the device. It computes in float32.
// One goroutine at a time uses it. What a sequence draws does not depend, to the last bit,
// on the number of slots, on its slot, on the other slots, or on threads.
type Decoder struct {
	c      DecoderConfig
	v      int
	d      gpu.Device
	q      gpu.Lanes
	x      *gpu.Exec
	in     gpu.Span // tokens, positions, words of the uniforms
	ids    gpu.Span
	logits gpu.Span // [K,Slots,V]
	spans  []gpu.Span
	host   gpu.Pinned // in, then ids
	done   gpu.Event  // the ids have arrived
	busy   int        // slots of the step under way
}

func (c *DecoderConfig) check() error {
	switch {
	case len(c.Models) == 0:
		return errors.New("no model")
	case c.Slots < 1:
		return fmt.Errorf("%d slots; 1 is the least", c.Slots)
	case !(c.sharp() > 0) || math.IsInf(float64(c.sharp()), 1):
		return fmt.Errorf("a temperature of %g; use a number above 0", c.Temperature)
	}
	for i, m := range c.Models {
		if err := m.Validate(); err != nil {
			return err
		}
		if m.Vocab != c.Models[0].Vocab {
			return fmt.Errorf("model %d has a vocabulary of %d, model 1 one of %d; models whose logits are averaged predict the same tokens", i+1, m.Vocab, c.Models[0].Vocab)
		}
		if c.MaxT < 1 || c.MaxT > m.MaxT {
			return fmt.Errorf("%d positions; model %d covers 1 to %d", c.MaxT, i+1, m.MaxT)
		}
	}
	if c.Vocab < 0 || c.Vocab > c.Models[0].Vocab {
		return fmt.Errorf("%d tokens to draw from; the models have %d", c.Vocab, c.Models[0].Vocab)
	}
	return nil
}

// sharp is what logits are multiplied with.
func (c *DecoderConfig) sharp() float32 { return float32(1 / c.Temperature) }

// among is how many tokens may be drawn.
func (c *DecoderConfig) among() int {
	if c.Vocab == 0 {
		return c.Models[0].Vocab
	}
	return c.Vocab
}

// The externs of a decoder's Program that every model shares.
const (
	extIn     = "in"
	extIDs    = "ids"
	extLogits = "logits"
)

func extOf(name string, k int) string { return fmt.Sprintf("%s %d", name, k+1) }

// program is a step as a Program, with the sizes of its externs.
func (c *DecoderConfig) program() (*gpu.Program, map[string]int64, error) {
	if err := c.check(); err != nil {
		return nil, nil, err
	}
	p := gpu.NewProgram("decode")
	sizes := map[string]int64{}
	declare := func(name string, dt gpu.DType, shape ...int) gpu.Tensor {
		t := p.Extern(name, dt, shape...)
		sizes[name] = t.Len
		return t
	}
	k, b, v := len(c.Models), c.Slots, c.Models[0].Vocab
	in, logits := declare(extIn, gpu.I32, 4*b), declare(extLogits, gpu.F32, k, b, v)
	for i, m := range c.Models {
		l, cache, half := m.Layout(), m.CacheShape(b, c.MaxT), m.C()/2
		model.RecordDecode(p.On(gpu.Math), m, model.DecodeArgs{
			Weights: model.NewWeights(m, l, declare(extOf(extWeights, i), gpu.F32, l.Total)),
			B:       b, MaxT: c.MaxT,
			Tokens: in.View(0, b), Pos: in.View(b, b),
			Keys: declare(extOf("keys", i), gpu.F32, cache...), Values: declare(extOf("values", i), gpu.F32, cache...),
			Tables: model.Tables{Cos: declare(extOf(extCos, i), gpu.F32, c.MaxT, half), Sin: declare(extOf(extSin, i), gpu.F32, c.MaxT, half)},
			Logits: logits.View(i*b*v, b, v),
		})
	}
	kernels.Add(p.On(gpu.Math), &kernels.Draw, kernels.DrawArgs{
		Out: declare(extIDs, gpu.I32, b), Logits: logits, Uniform: in.View(2*b, b, 2), Among: c.among(), Sharp: c.sharp(),
	})
	return p, sizes, p.Seal()
}

// DecoderFootprint returns the bytes that a decoder takes on its device; the caches of keys
// and values are in it for all positions of all slots.
func DecoderFootprint(c DecoderConfig) (device int64, err error) {
	p, sizes, err := c.program()
	if err != nil {
		return 0, err
	}
	for _, n := range sizes {
		device += n
	}
	return device + p.ArenaBytes(), nil
}

// NewDecoder prepares generation on d. weights returns those of model k in the layout of
// the model; it is called once for each, in order, and what it returns is not kept.
func NewDecoder(ctx context.Context, d gpu.Device, c DecoderConfig, weights func(ctx context.Context, k int) ([]float32, error)) (*Decoder, error) {
	p, sizes, err := c.program()
	if err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	e := &Decoder{c: c, v: c.Models[0].Vocab, d: d}
	mem := map[string]gpu.Span{}
	if err = d.Run(ctx, func() error { return e.setUp(p, sizes, mem) }); err == nil {
		err = e.load(ctx, mem, weights)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("decode: %w", err), e.Close())
	}
	return e, nil
}

// setUp allocates everything and leaves the memory of the externs in mem.
func (e *Decoder) setUp(p *gpu.Program, sizes map[string]int64, mem map[string]gpu.Span) error {
	alloc := func(name string, bytes int64) (gpu.Span, error) {
		s, err := e.d.Alloc(bytes, "decode "+name)
		if err == nil {
			e.spans = append(e.spans, s)
		}
		return s, err
	}
	for name, bytes := range sizes {
		s, err := alloc(name, bytes)
		if err != nil {
			return err
		}
		mem[name] = s
	}
	arena, err := alloc("activations", p.ArenaBytes())
	if err != nil {
		return err
	}
	e.in, e.ids, e.logits = mem[extIn], mem[extIDs], mem[extLogits]
	if e.q, err = gpu.NewLanes(e.d, "decode"); err != nil {
		return err
	}
	if e.x, err = p.Bind(e.d, gpu.Binding{Arena: arena, Extern: mem}); err != nil {
		return err
	}
	if e.host, err = e.d.AllocPinned(e.in.Len + e.ids.Len); err != nil {
		return err
	}
	e.done, err = e.d.NewEvent()
	return err
}

func (e *Decoder) load(ctx context.Context, to map[string]gpu.Span, weights func(ctx context.Context, k int) ([]float32, error)) error {
	for i, m := range e.c.Models {
		w, err := weights(ctx, i)
		if err != nil {
			return err
		}
		cos, sin := model.RotaryTables(m, e.c.MaxT)
		for _, u := range []struct {
			name string
			x    []float32
		}{{extWeights, w}, {extCos, cos}, {extSin, sin}} {
			if err := gpu.UploadFloats(ctx, e.d, e.q[gpu.Math], to[extOf(u.name, i)], u.x); err != nil {
				return fmt.Errorf("%s of model %d: %w", u.name, i+1, err)
			}
		}
	}
	return nil
}

// Start enqueues a step of the first len(slots) slots and returns; Wait must follow. The
// decoder keeps no reference to slots.
func (e *Decoder) Start(ctx context.Context, slots []Slot) error {
	if len(slots) < 1 || len(slots) > e.c.Slots || e.busy != 0 {
		return fmt.Errorf("decode: a step of %d sequences in %d slots, %d under way", len(slots), e.c.Slots, e.busy)
	}
	b := e.c.Slots
	in := gpu.BytesToInt32s(e.host.Bytes()[:e.in.Len])
	for i := range b {
		s := Slot{Uniform: 0.5} // a slot without a sequence draws something that nobody reads
		if i < len(slots) {
			s = slots[i]
		}
		if int(s.Token) >= e.v || s.Pos < 0 || s.Pos >= e.c.MaxT || !(s.Uniform > 0 && s.Uniform < 1) {
			return fmt.Errorf("decode: slot %d has token %d at position %d and the number %g; there are %d tokens and %d positions, and numbers are between 0 and 1", i, s.Token, s.Pos, s.Uniform, e.v, e.c.MaxT)
		}
		u := math.Float64bits(s.Uniform)
		in[i], in[b+i], in[2*b+2*i], in[2*b+2*i+1] = int32(s.Token), int32(s.Pos), int32(u), int32(u>>32)
	}
	err := e.d.Run(ctx, func() error {
		q := e.q[gpu.Math]
		if err := q.Upload(e.in, e.host, 0); err != nil {
			return err
		}
		if err := e.x.Enqueue(ctx, &e.q); err != nil {
			return err
		}
		if err := q.Download(e.host, e.in.Len, e.ids); err != nil {
			return err
		}
		return q.Record(e.done)
	})
	if err != nil {
		return fmt.Errorf("decode: %w", err)
	}
	e.busy = len(slots)
	return nil
}

// Wait blocks until the step that was started has ended and returns the tokens drawn, one
// a slot and valid until the next Start; -1 where a logit is not finite.
func (e *Decoder) Wait(ctx context.Context) ([]int32, error) {
	if err := e.done.Sync(ctx); err != nil {
		return nil, fmt.Errorf("decode: %w", err)
	}
	n := e.busy
	e.busy = 0
	return gpu.BytesToInt32s(e.host.Bytes()[e.in.Len:])[:n], nil
}

// Logits copies the logits of the last step, [K,Slots,V], from the device. It blocks until
// they are there, and no step may be under way.
func (e *Decoder) Logits(ctx context.Context) (_ []float32, err error) {
	var to gpu.Pinned
	err = e.d.Run(ctx, func() error {
		if to, err = e.d.AllocPinned(e.logits.Len); err != nil {
			return err
		}
		return errors.Join(e.q[gpu.Math].Download(to, 0, e.logits), e.q[gpu.Math].Record(e.done))
	})
	if to == nil {
		return nil, fmt.Errorf("decode: logits: %w", err)
	}
	// The copy writes the pinned memory, so it is waited for even when ctx has ended.
	err = errors.Join(err, e.done.Sync(context.WithoutCancel(ctx)))
	x := append([]float32(nil), gpu.BytesToFloat32s(to.Bytes())...)
	if err = errors.Join(err, to.Free()); err != nil {
		return nil, fmt.Errorf("decode: logits: %w", err)
	}
	return x, nil
}

// NotFinite returns the first model whose logits of the last step, of tokens that may be
// drawn, are not finite in a slot, or -1 when all are. It blocks like Logits.
func (e *Decoder) NotFinite(ctx context.Context, slot int) (k int, err error) {
	x, err := e.Logits(ctx)
	if err != nil {
		return -1, err
	}
	for k := range e.c.Models {
		for _, l := range x[(k*e.c.Slots+slot)*e.v:][:e.c.among()] {
			if v := float64(l); math.IsNaN(v) || math.IsInf(v, 0) {
				return k, nil
			}
		}
	}
	return -1, nil
}

// Close waits for the decoder's work on the device and frees its memory.
func (e *Decoder) Close() error {
	err := release(e.d, &e.q, e.spans, e.host)
	e.spans, e.host = nil, nil
	return err
}
