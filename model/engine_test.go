package model_test

import (
	"fmt"
	"math"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"refrain/gpu"
	"refrain/gpu/host"
	"refrain/internal/num"
	"refrain/kernels"
	"refrain/kernels/kerneltest"
	"refrain/model"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// body is one implementation of all the ops.
type body string

const (
	fast      body = "fast"
	reference body = "reference"
	wide      body = "wide" // float64
)

// spec is what an engine records.
type spec struct {
	model.Config
	B, T         int
	Shards       int
	Mask, Reset  bool
	KeepApart    bool // no sharing of memory between temporaries
	Threads      int
	WithoutTrain bool // record only the forward passes
	Act          gpu.DType
	Noise        noise
	Teachers     []model.Config // of a distillation, with weights of their own
	Distill      model.Distill  // how, if there are teachers
}

// noise is what a spec does at random, and the share of the second loss in the sum.
type noise struct {
	Dropout, Weight, From, To float64
	ID                        int
	Key                       uint64
	Row                       int
}

// rows are the inputs of a spec.
type rows struct {
	tokens, targets []int32
	starts          []byte
}

// engine is a Program with everything a model computes: loss and gradients,
// the losses of the targets, the logits.
type engine struct {
	t    testing.TB
	s    spec
	l    *model.Layout
	dev  gpu.Device
	wide *kerneltest.WideDevice // nil on the host driver
	x    *gpu.Exec
	q    gpu.Lanes
	mem  map[string]gpu.Span
}

// record appends the passes of s to a new Program.
func record(s spec, l *model.Layout) *gpu.Program {
	p := gpu.NewProgram("truth")
	n, v, half := s.B*s.T, s.Vocab, s.C()/2
	w := model.NewWeights(s.Config, l, p.Extern("weights", gpu.F32, l.Total))
	tab := model.Tables{Cos: p.Extern("cos", gpu.F32, s.T, half), Sin: p.Extern("sin", gpu.F32, s.T, half)}
	b := model.Batch{
		B: s.B, T: s.T, Tokens: p.Extern("tokens", gpu.I32, n), Targets: p.Extern("targets", gpu.I32, n),
		Starts: p.Extern("starts", gpu.U8, s.B, (s.T+7)/8), DocMask: s.Mask, ResetPositions: s.Reset,
	}
	pol := model.Policy{Act: s.Act}
	r := p.On(gpu.Math)
	if s.KeepApart {
		p.KeepApart()
	}
	if !s.WithoutTrain {
		model.RecordTrain(r, s.Config, model.TrainArgs{
			Weights: w, Grads: model.NewWeights(s.Config, l, p.Extern("grads", gpu.F32, l.Total)),
			Loss: p.Extern("sum", gpu.F32, 1), Scale: p.Extern("scale", gpu.F32, 1),
			Tables: tab, Batch: b, Policy: pol, Shards: max(1, s.Shards), Tag: "train.", Noise: s.noise(p), Distill: teachers(p, s),
		})
	}
	model.RecordLoss(r, s.Config, w, p.Extern("losses", gpu.F32, n), b, tab, pol)
	model.RecordLogits(r, s.Config, w, p.Extern("logits", gpu.F32, n, v), b, tab, pol)
	return p
}

// noise declares what the noise of s needs.
func (s spec) noise(p *gpu.Program) model.Noise {
	n := model.Noise{Dropout: s.Noise.Dropout, Row: s.Noise.Row}
	if n.Dropout > 0 || s.Noise.Weight > 0 {
		n.Draw = p.Extern("draw", gpu.I32, 4)
	}
	if s.Noise.Weight > 0 {
		n.Masked = &model.Masked{
			From: s.Noise.From, To: s.Noise.To, ID: s.Noise.ID, Vocab: s.Vocab,
			Scale: p.Extern("masked scale", gpu.F32, 1), Loss: p.Extern("masked sum", gpu.F32, 1),
		}
	}
	return n
}

func newEngine(t testing.TB, s spec, bd body) *engine {
	t.Helper()
	e := &engine{t: t, s: s, l: s.Layout(), mem: map[string]gpu.Span{}}
	p := record(s, e.l)
	e.must(p.Seal())
	if bd == wide {
		e.wide = kerneltest.NewWideDevice()
		e.dev = e.wide
	} else {
		d, err := host.New(host.Config{Threads: max(1, s.Threads), Reference: bd == reference}).Open(0)
		e.must(err)
		e.dev = d
	}
	t.Cleanup(func() { e.must(e.dev.Close()) })
	n, half := int64(s.B*s.T), int64(s.C()/2)
	sizes := []struct {
		name  string
		bytes int64
	}{
		{"weights", 4 * int64(e.l.Total)}, {"cos", 4 * int64(s.T) * half}, {"sin", 4 * int64(s.T) * half},
		{"tokens", 4 * n}, {"targets", 4 * n}, {"starts", int64(s.B * ((s.T + 7) / 8))},
		{"losses", 4 * n}, {"logits", 4 * n * int64(s.Vocab)},
		{"grads", 4 * int64(e.l.Total)}, {"sum", 4}, {"scale", 4},
		{"draw", 16}, {"masked scale", 4}, {"masked sum", 4},
	}
	for i, c := range s.Teachers {
		table := 4 * int64(s.T*c.C()/2)
		for _, a := range []struct {
			name  string
			bytes int64
		}{{"teacher", 4 * int64(c.Layout().Total)}, {"cos", table}, {"sin", table}} {
			a.name += fmt.Sprint(i)
			sizes = append(sizes, a)
		}
	}
	for _, a := range sizes {
		span, err := e.dev.Alloc(a.bytes, a.name)
		e.must(err)
		e.mem[a.name] = span
	}
	arena, err := e.dev.Alloc(p.ArenaBytes(), "arena")
	e.must(err)
	e.q, err = gpu.NewLanes(e.dev, "truth")
	e.must(err)
	e.x, err = p.Bind(e.dev, gpu.Binding{Arena: arena, Extern: e.mem})
	e.must(err)
	cos, sin := model.RotaryTables(s.Config, s.T)
	e.put("cos", widen(cos))
	e.put("sin", widen(sin))
	for i, c := range s.Teachers {
		cos, sin := model.RotaryTables(c, s.T)
		e.put(fmt.Sprintf("cos%d", i), widen(cos))
		e.put(fmt.Sprintf("sin%d", i), widen(sin))
		e.put(fmt.Sprintf("teacher%d", i), weightsOf(c, uint64(50+i)))
	}
	return e
}

func (e *engine) must(err error) {
	e.t.Helper()
	if err != nil {
		e.t.Fatal(err)
	}
}

// move copies between pinned memory and the device.
func (e *engine) move(span gpu.Span, f func(q gpu.Queue, p gpu.Pinned) error) {
	e.t.Helper()
	p, err := e.dev.AllocPinned(span.Len)
	e.must(err)
	e.must(f(e.q[gpu.Math], p))
	e.must(e.q[gpu.Math].Sync(e.t.Context()))
	e.must(p.Free())
}

// put writes a float buffer.
func (e *engine) put(name string, x []float64) {
	e.t.Helper()
	if e.wide != nil {
		copy(e.wide.Float64s(e.mem[name]), x)
		return
	}
	e.move(e.mem[name], func(q gpu.Queue, p gpu.Pinned) error {
		for i, v := range x {
			gpu.BytesToFloat32s(p.Bytes())[i] = float32(v)
		}
		return q.Upload(e.mem[name], p, 0)
	})
}

// get reads a float buffer.
func (e *engine) get(name string) []float64 {
	e.t.Helper()
	if e.wide != nil {
		return slices.Clone(e.wide.Float64s(e.mem[name]))
	}
	out := make([]float64, e.mem[name].Len/4)
	e.move(e.mem[name], func(q gpu.Queue, p gpu.Pinned) error {
		if err := q.Download(p, 0, e.mem[name]); err != nil {
			return err
		}
		if err := q.Sync(e.t.Context()); err != nil {
			return err
		}
		for i := range out {
			out[i] = float64(gpu.BytesToFloat32s(p.Bytes())[i])
		}
		return nil
	})
	return out
}

// putBytes writes a buffer of bytes.
func (e *engine) putBytes(name string, b []byte) {
	e.t.Helper()
	e.move(e.mem[name], func(q gpu.Queue, p gpu.Pinned) error {
		copy(p.Bytes(), b)
		return q.Upload(e.mem[name], p, 0)
	})
}

// batch sets the rows and the divisor, and returns the number of scored targets.
func (e *engine) batch(r rows) (scored int) {
	e.t.Helper()
	ints := func(x []int32) []byte {
		b := make([]byte, 0, 4*len(x))
		for _, v := range x {
			b = append(b, byte(v), byte(v>>8), byte(v>>16), byte(v>>24))
		}
		return b
	}
	e.putBytes("tokens", ints(r.tokens))
	e.putBytes("targets", ints(r.targets))
	e.putBytes("starts", r.starts)
	for _, v := range r.targets {
		if v >= 0 {
			scored++
		}
	}
	e.put("scale", []float64{1 / float64(max(1, scored))})
	e.put("masked scale", []float64{e.s.Noise.Weight / float64(max(1, scored))})
	words := kernels.DrawWords(e.s.Noise.Key, 0)
	e.putBytes("draw", ints(words[:]))
	return scored
}

// run replays the Program and waits.
func (e *engine) run() {
	e.t.Helper()
	e.must(e.x.Enqueue(e.t.Context(), &e.q))
	e.must(e.q[gpu.Math].Sync(e.t.Context()))
}

// on runs s over body bd with weights w and rows r.
func on(t testing.TB, bd body, s spec, w []float64, r rows) *engine {
	t.Helper()
	e := newEngine(t, s, bd)
	e.put("weights", w)
	e.batch(r)
	e.run()
	return e
}

func widen(x []float32) []float64 {
	y := make([]float64, len(x))
	for i, v := range x {
		y[i] = float64(v)
	}
	return y
}

// tiny is a model with every feature: two layers, grouped heads, a head size
// that is not Dim/Heads.
func tiny(tie bool) model.Config {
	return model.Config{
		Vocab: 29, Layers: 2, Dim: 16, Heads: 4, KVHeads: 2, HeadDim: 6, FFN: 20, MaxT: 32,
		RopeTheta: 10000, NormEps: 1e-5, Tie: tie, Init: model.InitPapers,
	}
}

// weightsOf are weights far from the initial ones, so that nothing is small or
// symmetric: matrices near 0.3*N(0,1), norms around 1.
func weightsOf(c model.Config, seed uint64) []float64 {
	l := c.Layout()
	w := make([]float64, l.Total)
	for _, p := range l.Params {
		s := num.NewStream("truth weights/"+p.Name, seed)
		for i := range p.Len {
			x := 0.3 * s.Normal(uint64(i))
			if p.Role == model.Norm {
				x++
			}
			w[p.Off+i] = float64(float32(x))
		}
	}
	return w
}

// rowsOf are random rows with boundaries and masked targets here and there.
func rowsOf(s spec, seed uint64) rows {
	n, sr := s.B*s.T, (s.T+7)/8
	r := rows{make([]int32, n), make([]int32, n), make([]byte, s.B*sr)}
	rnd := num.NewStream("truth rows", seed)
	for i := range n {
		r.tokens[i] = int32(rnd.Uintn(uint64(4*i), uint64(s.Vocab)))
		r.targets[i] = int32(rnd.Uintn(uint64(4*i+1), uint64(s.Vocab)))
		if rnd.Uintn(uint64(4*i+2), 7) == 0 {
			r.targets[i] = -1
		}
		if rnd.Uintn(uint64(4*i+3), 5) == 0 {
			r.starts[i/s.T*sr+i%s.T/8] |= 1 << (i % s.T % 8)
		}
	}
	return r
}

// same reports whether x and y hold equal values; zeros of either sign are equal.
func same(x, y []float64) bool { return slices.Equal(x, y) }

// mean is the mean over scored targets of what the engine computed.
func (e *engine) mean() float64 { return e.get("sum")[0] * e.get("scale")[0] }

// total is mean and the weighted second loss.
func (e *engine) total() float64 {
	return e.mean() + e.get("masked sum")[0]*e.get("masked scale")[0]
}

// norm is the Euclidean norm.
func norm(x []float64) float64 {
	var s float64
	for _, v := range x {
		s += v * v
	}
	return math.Sqrt(s)
}

// relative is |x-y| / |y|.
func relative(x, y []float64) float64 {
	d := make([]float64, len(x))
	for i := range x {
		d[i] = x[i] - y[i]
	}
	return norm(d) / max(norm(y), 1e-30)
}
