package train_test

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"refrain/gpu/host"
	"refrain/internal/golden"
	"refrain/internal/num"
	"refrain/model"
	"refrain/train"
	"refrain/train/eval"
)

// memory copies a buffer of device d.
func (r *rig) memory(d int, name string) []float32 {
	r.t.Helper()
	x, err := r.tr.ReplicaMemory(r.t.Context(), d, name)
	if err != nil {
		r.t.Fatal(err)
	}
	return x
}

func sumSquares(x []float32) (s float64) {
	for _, v := range x {
		s += float64(v) * float64(v)
	}
	return s
}

// TestOverfitOneBatch (N6): a model that cannot learn one batch by heart learns
// nothing else either.
func TestOverfitOneBatch(t *testing.T) {
	for _, tie := range []bool{false, true} {
		o := tinyOptions(1)
		o.Model.Tie, o.Steps, o.DocMask, o.Batch = tie, 200, false, 4
		for r := range o.Optim.Decay {
			o.Optim.Decay[r] = 0
		}
		r := newRig(t, o, host.Config{Threads: 1})
		r.fill = func(g int64, vocab int, tokens, targets []int32, starts []byte) int {
			g %= int64(o.Batch)
			s := num.NewStream("overfit", uint64(g))
			clear(starts)
			tokens[0] = int32(g) // rows differ from the first token on, or their targets could not be known
			for i := range targets {
				targets[i] = int32(s.Uintn(uint64(i), uint64(vocab)))
				if i+1 < len(tokens) {
					tokens[i+1] = targets[i]
				}
			}
			return len(targets)
		}
		res := r.run(o.Steps)
		if last := res[len(res)-1]; last.Loss > 0.02 {
			t.Errorf("tie=%v: %.4f nats after %d steps on one batch, began with %.3f", tie, last.Loss, last.Step, res[0].Loss)
		}
	}
}

// rowsOf is a Set of rows [from, from+n) of fill.
type rowsOf struct {
	r       *rig
	from, n int64
}

func (s rowsOf) Rows() int64 { return s.n }
func (s rowsOf) ReadRow(i int64, tokens, targets []int32, starts []byte) (int, error) {
	return s.r.fill(s.from+i, s.r.o.Model.Vocab, tokens, targets, starts), nil
}

// uneven masks most of some rows, and all of the third shard of four.
func uneven(g int64, vocab int, tokens, targets []int32, starts []byte) (scored int) {
	fillRow(g, vocab, tokens, targets, starts)
	for i := range targets {
		if row := g % 8; row == 4 || row == 5 || row < 4 && i > 1 {
			targets[i] = -1
		}
		if targets[i] >= 0 {
			scored++
		}
	}
	return scored
}

// TestRow13Accumulation (N10, N11; incidents I-01, I-02, I-04): one micro-step of
// eight rows, two of four, up to eight of one, on one, two and four devices,
// give the same bits, with token counts that differ from row to row and a
// shard in which every target is masked; and the loss is that of a plain
// evaluation: token losses over scored targets of the whole step.
func TestRow13Accumulation(t *testing.T) {
	var want []uint32
	var first []train.StepResult
	for _, c := range []struct{ devices, micro int }{{1, 1}, {1, 2}, {1, 4}, {1, 8}, {2, 1}, {2, 4}, {4, 1}, {4, 2}} {
		o := tinyOptions(c.devices)
		o.Micro, o.Shards = c.micro, 8
		r := newRig(t, o, host.Config{Threads: c.devices})
		r.fill = uneven
		start := r.snapshot(false).Weights
		res := r.run(3)
		got := bits(r.snapshot(false).Weights)
		if want == nil {
			want, first = got, res
			r.againstEvaluation(start, res[0])
			continue
		}
		if !slices.Equal(got, want) || !slices.Equal(res, first) {
			t.Errorf("%d devices with %d micro-steps differ from one of each", c.devices, c.micro)
		}
	}
}

// againstEvaluation compares the loss of the first step with an evaluation of
// its rows, and with the mean of the rows' means, which it must not be.
func (r *rig) againstEvaluation(weights []float32, step train.StepResult) {
	t := r.t
	t.Helper()
	e, err := eval.New(t.Context(), r.devs[0], eval.Config{Model: r.o.Model, B: 3, T: r.o.T, DocMask: r.o.DocMask})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Load(t.Context(), weights); err != nil {
		t.Fatal(err)
	}
	var ofMeans float64
	rows := 0
	res, err := e.Run(t.Context(), rowsOf{r, 0, int64(r.o.Batch)}, func(_ int64, targets []int32, loss []float32) {
		var sum float64
		n := 0
		for i, l := range loss {
			if targets[i] >= 0 {
				sum += float64(l)
				n++
			}
		}
		if n > 0 {
			ofMeans += sum / float64(n)
			rows++
		}
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := e.Close(); err != nil {
		t.Fatal(err)
	}
	if step.Tokens != res.Tokens || math.Abs(step.Loss-res.Loss) > 1e-6*res.Loss {
		t.Errorf("step 1 reports %.7f over %d targets, an evaluation of its rows %.7f over %d", step.Loss, step.Tokens, res.Loss, res.Tokens)
	}
	if d := math.Abs(ofMeans/float64(rows) - res.Loss); d < 1e-3 {
		t.Errorf("the mean of means is only %.2g away: the rows cannot tell the two apart", d)
	}
}

// TestReplicasAgree (N11): after every step all devices hold the same
// parameters and moments, bit for bit.
func TestReplicasAgree(t *testing.T) {
	r := newRig(t, tinyOptions(4), host.Config{Threads: 4, RaceCheck: true})
	for k := range int64(4) {
		r.run(k + 1)
		for _, name := range []string{"params", "m", "v", "grads"} {
			want := bits(r.memory(0, name))
			for d := 1; d < 4; d++ {
				if !slices.Equal(bits(r.memory(d, name)), want) {
					t.Errorf("step %d: %s of device %d differ from those of device 0", k+1, name, d)
				}
			}
		}
	}
}

// TestNormAndClip (N13; incidents I-08, I-09): the norm that is logged is that
// of the gradients summed over devices, every tensor once, a tied matrix once;
// and the first moment shows that gradients are clipped by it before the
// moments see them.
func TestNormAndClip(t *testing.T) {
	for _, tie := range []bool{false, true} {
		for _, devices := range []int{1, 4} {
			for _, clip := range []float64{0, 0.05, 1e6} {
				o := tinyOptions(devices)
				o.Model.Tie, o.Optim.Clip = tie, clip
				r := newRig(t, o, host.Config{Threads: devices})
				res := r.run(1)[0]
				l := r.tr.Layout()
				grads := r.memory(devices-1, "grads")[:l.Total]
				var sum float64
				for _, p := range l.Params {
					sum += sumSquares(grads[p.Off : p.Off+p.Len])
				}
				norm := math.Sqrt(sum)
				if math.Abs(res.Norm-norm) > 1e-6*norm {
					t.Errorf("tie=%v, %d devices: norm %v, the tensors give %v", tie, devices, res.Norm, norm)
				}
				scale := 1.0
				if clip > 0 {
					scale = min(1, clip/norm)
				}
				// m = (1-beta1) * scale * g after the first step.
				m := r.memory(0, "m")
				for i, g := range grads {
					if want := (1 - o.Optim.Beta1) * scale * float64(g); math.Abs(float64(m[i])-want) > 1e-6*math.Abs(want)+1e-30 {
						t.Fatalf("tie=%v, %d devices, clip %v: first moment %d is %v, want %v", tie, devices, clip, i, m[i], want)
					}
				}
			}
		}
	}
}

// decays are different for every role.
func decays(o *train.Options) {
	for r := range o.Optim.Decay {
		o.Optim.Decay[r] = 0.1 * float64(r+1)
		o.Optim.LRMul[r] = 1 + 0.25*float64(r)
	}
}

// TestRow10DecayByName (N12; incident I-07) measures weight decay instead of
// trusting a list: a step without scored targets has no gradient, so what is
// left of it is w -= lr*mul*decay*w, tensor by tensor.
func TestRow10DecayByName(t *testing.T) {
	for _, tie := range []bool{false, true} {
		o := tinyOptions(1)
		o.Model.Tie, o.Optim.Warmup = tie, 1
		decays(&o)
		r := newRig(t, o, host.Config{Threads: 1})
		r.fill = func(g int64, vocab int, tokens, targets []int32, starts []byte) int {
			fillRow(g, vocab, tokens, targets, starts)
			for i := range targets {
				targets[i] = -1
			}
			return 0
		}
		before := slices.Clone(r.snapshot(false).Weights)
		res := r.run(1)[0]
		if res.Loss != 0 || res.Norm != 0 || res.Tokens != 0 {
			t.Errorf("a step without targets reports %+v", res)
		}
		after := r.snapshot(false).Weights
		for _, p := range r.tr.Layout().Params {
			role := model.Hidden
			switch {
			case strings.Contains(p.Name, "norm"):
				role = model.Norm
			case strings.Contains(p.Name, "embed") && tie:
				role = model.Tied
			case strings.Contains(p.Name, "embed"):
				role = model.Embedding
			case strings.Contains(p.Name, "lm_head"):
				role = model.Head
			}
			shrink := 1 - o.Optim.LR*o.Optim.LRMul[role]*o.Optim.Decay[role]
			for i := p.Off; i < p.Off+p.Len; i++ {
				if want := float64(before[i]) * shrink; math.Abs(float64(after[i])-want) > 2e-7*math.Abs(want) {
					t.Fatalf("tie=%v: %s[%d] went from %v to %v, want %v", tie, p.Name, i-p.Off, before[i], after[i], want)
				}
			}
		}
	}
}

// TestDecayTable: what is printed at the start of a run is what the step does.
func TestDecayTable(t *testing.T) {
	var b strings.Builder
	for _, tie := range []bool{false, true} {
		o := tinyOptions(1)
		o.Model.Tie = tie
		decays(&o)
		n := 0
		fmt.Fprintf(&b, "tie=%v\n", tie)
		for _, d := range train.DecayTable(&o) {
			fmt.Fprintf(&b, "%-9s %6d parameters, decay %.2f, rate x%.2f\n", d.Role, d.Params, d.Decay, d.LRMul)
			n += d.Params
		}
		if n != o.Model.Layout().Total {
			t.Errorf("the table counts %d parameters, the model has %d", n, o.Model.Layout().Total)
		}
	}
	golden.File(t, "testdata/decay.txt", []byte(b.String()))
}

// TestStepCountAfterResume (N12; incident I-21): bias corrections go on with the
// count of steps, not with the count since the start of the process.
func TestStepCountAfterResume(t *testing.T) {
	o := tinyOptions(1)
	o.Steps, o.Optim.Warmup, o.Optim.MinRatio = 1002, 1, 1
	for r := range o.Optim.Decay {
		o.Optim.Decay[r] = 0
	}
	r := newRig(t, o, host.Config{Threads: 1})
	total := r.tr.Layout().Total
	w := slices.Clone(r.snapshot(false).Weights)
	m, v := make([]float32, total), make([]float32, total)
	for i := range m {
		m[i], v[i] = 1e-3, 1e-4
	}
	if err := r.tr.Restore(t.Context(), 999, w, m, v); err != nil {
		t.Fatal(err)
	}
	res := r.run(1000)
	if len(res) != 1 || res[0].Step != 1000 {
		t.Fatalf("results %+v", res)
	}
	grads, after := r.memory(0, "grads"), r.memory(0, "params")
	scale := min(1, o.Optim.Clip/res[0].Norm)
	b1, b2 := o.Optim.Beta1, o.Optim.Beta2
	for i, x := range w {
		g := scale * float64(grads[i])
		mh := (b1*1e-3 + (1-b1)*g) / (1 - math.Pow(b1, 1000))
		vh := (b2*1e-4 + (1-b2)*g*g) / (1 - math.Pow(b2, 1000))
		want := float64(x) - o.Optim.LR*mh/(math.Sqrt(vh)+o.Optim.Eps)
		if math.Abs(float64(after[i])-want) > 2e-7*max(math.Abs(want), 1e-2) {
			t.Fatalf("weight %d went from %v to %v at step 1000, want %v", i, x, after[i], want)
		}
	}
}

// TestRow31Beta2: with a reference batch the second moment keeps its half-life in tokens.
func TestRow31Beta2(t *testing.T) {
	eighth := 1.0
	for range 8 {
		eighth *= 0.95
	}
	for _, c := range []struct {
		beta2            float64
		reference, batch int
		want             float64
	}{
		{0.95, 0, 512, 0.95}, // off
		{0.95, 64, 64, 0.95},
		{0.95, 64, 512, eighth},
		{0.81, 64, 32, 0.9},
		{0.999, 512, 1, 0.9999980458996952},
		{0, 64, 32, 0},
	} {
		got := train.Beta2For(c.beta2, c.reference, c.batch)
		if math.Abs(got-c.want) > 1e-13 {
			t.Errorf("beta2 %g of batch %d at batch %d is %.15g, want %.15g", c.beta2, c.reference, c.batch, got, c.want)
		}
		if c.beta2 > 0 && c.reference > 0 {
			half := func(b2 float64, batch int) float64 { return float64(batch) * math.Log(0.5) / math.Log(b2) }
			if a, b := half(c.beta2, c.reference), half(got, c.batch); math.Abs(a/b-1) > 1e-9 {
				t.Errorf("the half-life of %g rows became %g", a, b)
			}
		}
	}
}

// TestRow11Schedule (N14; incidents I-19, I-20): the rate of every step of small
// horizons, and the properties of large ones.
func TestRow11Schedule(t *testing.T) {
	var b strings.Builder
	for _, c := range []struct {
		steps, warmup int64
		ratio         float64
	}{{12, 3, 0}, {10, 1, 0.1}, {1, 1, 0}, {4, 4, 0}, {3, 8, 0}} {
		o := train.Optim{LR: 1, Warmup: c.warmup, MinRatio: c.ratio}
		fmt.Fprintf(&b, "steps %d warmup %d ratio %g:", c.steps, c.warmup, c.ratio)
		for k := range c.steps {
			fmt.Fprintf(&b, " %.6f", o.Rate(k+1, c.steps))
		}
		b.WriteString("\n")
	}
	golden.File(t, "testdata/schedule.txt", []byte(b.String()))
	for _, steps := range []int64{2, 100, 51200} {
		o := train.Optim{LR: 3e-3, Warmup: max(1, steps/100)}
		last, peaks := 0.0, 0
		for k := int64(1); k <= steps; k++ {
			r := o.Rate(k, steps)
			if r <= 0 || r > o.LR {
				t.Fatalf("rate %g at step %d of %d", r, k, steps)
			}
			if r == o.LR {
				peaks++
			}
			if k <= o.Warmup != (r > last) {
				t.Fatalf("rate goes from %g to %g at step %d of %d, warm-up %d", last, r, k, steps, o.Warmup)
			}
			last = r
		}
		if peaks != 1 || last > 0.6*o.LR && steps > 2 {
			t.Errorf("%d steps: the peak is reached %d times, the last rate is %g", steps, peaks, last)
		}
	}
}

// TestResultsCarryTheSchedule (N14): the rate of a step is that of its number
// and the horizon, also after a restore; a horizon is not exceeded.
func TestResultsCarryTheSchedule(t *testing.T) {
	o := tinyOptions(1)
	r := newRig(t, o, host.Config{Threads: 1})
	res := r.run(5)
	s := r.snapshot(true)
	if err := r.tr.Restore(t.Context(), s.Step, s.Weights, s.M, s.V); err != nil {
		t.Fatal(err)
	}
	for i, x := range append(res, r.run(o.Steps)...) {
		if want := o.Optim.Rate(int64(i+1), o.Steps); x.Step != int64(i+1) || x.LR != want {
			t.Errorf("result %d is step %d with rate %g, want %g", i+1, x.Step, x.LR, want)
		}
	}
	if _, _, err := r.tr.Step(t.Context(), r.batch(o.Steps)); err == nil {
		t.Error("a step beyond the horizon is taken")
	}
	for _, k := range []int64{-1, o.Steps + 1} {
		if err := r.tr.Restore(t.Context(), k, s.Weights, s.M, s.V); err == nil {
			t.Errorf("a checkpoint of step %d fits a run of %d", k, o.Steps)
		}
	}
}
