package eval

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"

	"refrain/gpu"
	"refrain/internal/num"
	"refrain/model"
)

// SampleConfig says how the next token is drawn.
type SampleConfig struct {
	Seed        uint64
	Temperature float64 // 0 takes the most likely token
	TopK        int     // 0 keeps all
	Stop        []uint32
	// Begin says that what is drawn begins a document, and the prompt is the end of the one
	// before: under a mask of documents, in which the model was trained, only the first token
	// drawn sees it.
	Begin bool
}

// Sampler generates text one token at a time with a key-value cache.
type Sampler struct {
	c      model.Config
	maxT   int
	d      gpu.Device
	q      gpu.Lanes
	x      *gpu.Exec
	token  gpu.Span
	pos    gpu.Span
	logits gpu.Span
	spans  []gpu.Span
	host   gpu.Pinned // token, position, then logits
	done   gpu.Event  // the logits have arrived
}

const logitsOff = 64 // bytes before the logits in the host buffer

// NewSampler prepares generation of sequences of at most maxT tokens, prompt
// included, from weights in the layout of the model.
func NewSampler(ctx context.Context, d gpu.Device, c model.Config, maxT int, weights []float32) (*Sampler, error) {
	if maxT < 1 || maxT > c.MaxT {
		return nil, fmt.Errorf("sample: %d positions; the model covers 1 to %d", maxT, c.MaxT)
	}
	l := c.Layout()
	p := gpu.NewProgram("decode")
	cache := c.CacheShape(1, maxT)
	ext := map[string]gpu.Tensor{}
	declare := func(name string, dt gpu.DType, shape ...int) gpu.Tensor {
		ext[name] = p.Extern(name, dt, shape...)
		return ext[name]
	}
	half := c.C() / 2
	args := model.DecodeArgs{
		Weights: model.NewWeights(c, l, declare("weights", gpu.F32, l.Total)),
		B:       1, MaxT: maxT,
		Tokens: declare("token", gpu.I32, 1), Pos: declare("pos", gpu.I32, 1),
		Keys: declare("keys", gpu.F32, cache...), Values: declare("values", gpu.F32, cache...),
		Tables: model.Tables{Cos: declare("cos", gpu.F32, maxT, half), Sin: declare("sin", gpu.F32, maxT, half)},
		Logits: declare("logits", gpu.F32, 1, c.Vocab),
	}
	model.RecordDecode(p.On(gpu.Math), c, args)
	if err := p.Seal(); err != nil {
		return nil, err
	}
	s := &Sampler{c: c, maxT: maxT, d: d}
	mem := map[string]gpu.Span{}
	err := d.Run(ctx, func() error { return s.setUp(p, ext, mem) })
	if err == nil {
		err = s.load(ctx, mem, weights)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("sample: %w", err), s.Close())
	}
	return s, nil
}

// setUp allocates everything and leaves the memory of the externs in mem.
func (s *Sampler) setUp(p *gpu.Program, ext map[string]gpu.Tensor, mem map[string]gpu.Span) error {
	for name, t := range ext {
		m, err := s.d.Alloc(t.Len, "sample "+name)
		if err != nil {
			return err
		}
		mem[name], s.spans = m, append(s.spans, m)
	}
	arena, err := s.d.Alloc(p.ArenaBytes(), "sample activations")
	if err != nil {
		return err
	}
	s.spans = append(s.spans, arena)
	if s.q, err = gpu.NewLanes(s.d, "sample"); err != nil {
		return err
	}
	if s.x, err = p.Bind(s.d, gpu.Binding{Arena: arena, Extern: mem}); err != nil {
		return err
	}
	if s.host, err = s.d.AllocPinned(logitsOff + int64(s.c.Vocab)*4); err != nil {
		return err
	}
	s.token, s.pos, s.logits = mem["token"], mem["pos"], mem["logits"]
	s.done, err = s.d.NewEvent()
	return err
}

func (s *Sampler) load(ctx context.Context, to map[string]gpu.Span, weights []float32) error {
	cos, sin := model.RotaryTables(s.c, s.maxT)
	for _, u := range []struct {
		name string
		x    []float32
	}{{"weights", weights}, {"cos", cos}, {"sin", sin}} {
		if err := gpu.UploadFloats(ctx, s.d, s.q[gpu.Math], to[u.name], u.x); err != nil {
			return fmt.Errorf("%s: %w", u.name, err)
		}
	}
	return nil
}

// next feeds token at position pos and returns the logits of the one after it,
// valid until the next call.
func (s *Sampler) next(ctx context.Context, token uint32, pos int) ([]float32, error) {
	b := s.host.Bytes()
	in := gpu.BytesToInt32s(b[:8])
	in[0], in[1] = int32(token), int32(pos)
	err := s.d.Run(ctx, func() error {
		q := s.q[gpu.Math]
		if err := q.Upload(s.token, s.host, 0); err != nil {
			return err
		}
		if err := q.Upload(s.pos, s.host, 4); err != nil {
			return err
		}
		if err := s.x.Enqueue(ctx, &s.q); err != nil {
			return err
		}
		if err := q.Download(s.host, logitsOff, s.logits); err != nil {
			return err
		}
		return q.Record(s.done)
	})
	if err == nil {
		err = s.done.Sync(ctx)
	}
	return gpu.BytesToFloat32s(b[logitsOff : logitsOff+int64(s.c.Vocab)*4]), err
}

// Generate continues prompt, which must not be empty, by up to n tokens and
// calls emit for each; it ends early at a stop token, which is not emitted, or
// when emit returns an error. Equal arguments give equal tokens.
func (s *Sampler) Generate(ctx context.Context, prompt []uint32, n int, cfg SampleConfig, emit func(id uint32) error) error {
	if len(prompt) == 0 {
		return fmt.Errorf("sample: the prompt has no tokens; start with the document boundary token")
	}
	if len(prompt)+n > s.maxT {
		return fmt.Errorf("sample: %d prompt tokens and %d new ones; the model covers %d positions", len(prompt), n, s.maxT)
	}
	for _, id := range prompt {
		if int(id) >= s.c.Vocab {
			return fmt.Errorf("sample: prompt token %d; the vocabulary has %d", id, s.c.Vocab)
		}
	}
	draw := num.NewStream("sample", cfg.Seed)
	var logits []float32
	var err error
	for i, id := range prompt {
		if logits, err = s.next(ctx, id, i); err != nil {
			return err
		}
	}
	for i := range n {
		id := pick(logits, cfg, draw.Float64(uint64(i)))
		if slices.Contains(cfg.Stop, id) {
			return nil
		}
		if err := emit(id); err != nil {
			return err
		}
		if i == n-1 {
			break
		}
		pos := len(prompt) + i
		if cfg.Begin {
			pos = i // over the prompt
		}
		if logits, err = s.next(ctx, id, pos); err != nil {
			return err
		}
	}
	return nil
}

// pick draws a token: softmax of the K largest logits at the temperature,
// inverted at u in (0,1). Ties keep the smaller id first.
func pick(logits []float32, cfg SampleConfig, u float64) uint32 {
	ids := make([]uint32, len(logits))
	for i := range ids {
		ids[i] = uint32(i)
	}
	slices.SortStableFunc(ids, func(a, b uint32) int {
		switch {
		case logits[a] > logits[b]:
			return -1
		case logits[a] < logits[b]:
			return 1
		}
		return 0
	})
	if cfg.Temperature <= 0 {
		return ids[0]
	}
	if cfg.TopK > 0 && cfg.TopK < len(ids) {
		ids = ids[:cfg.TopK]
	}
	p, sum := make([]float64, len(ids)), 0.0
	for i, id := range ids {
		p[i] = math.Exp((float64(logits[id]) - float64(logits[ids[0]])) / cfg.Temperature)
		sum += p[i]
	}
	u *= sum
	for i, id := range ids {
		if u -= p[i]; u < 0 {
			return id
		}
	}
	return ids[len(ids)-1]
}

// Close waits for the sampler's work on the device and frees its memory.
func (s *Sampler) Close() error {
	err := release(s.d, &s.q, s.spans, s.host)
	s.spans, s.host = nil, nil
	return err
}
