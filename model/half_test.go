package model_test

import (
	"math"
	"strings"
	"testing"

	"refrain/gpu"
	"refrain/kernels"
	"refrain/model"
)

// half is s in mixed precision.
func half(s spec) spec {
	s.Act = gpu.BF16
	return s
}

// TestHalfIsCloseToFloat64 (N3) compares mixed precision with the model in
// float64 that rounds nothing: loss, logits and the gradient of every tensor
// stay within bounds of bfloat16.
//
// One rounding is off by 2^-9/sqrt(3) = 0.0011 of the norm. A path through two
// layers meets about fifteen of them, the operands' included, so 0.0011*sqrt(15) =
// 0.0044 arrives at the logits where nothing amplifies; the weights here are
// three times as large as trained ones and amplify by about two. A gradient
// passes the way there and back through softmax and gates, whose slopes change
// with what was rounded: several times that, most in the first layer's scores.
func TestHalfIsCloseToFloat64(t *testing.T) {
	for _, s := range variants() {
		t.Run(s.String(), func(t *testing.T) {
			w, r := weightsOf(s.Config, 1), rowsOf(s, 2)
			want := on(t, wide, s, w, r)
			for _, bd := range []body{fast, reference} {
				got := on(t, bd, half(s), w, r)
				if g, x := got.mean(), want.mean(); math.Abs(g-x) > 0.005*x {
					t.Errorf("%s: loss %.6g, in float64 %.6g", bd, g, x)
				}
				if d := relative(got.get("logits"), want.get("logits")); d > 0.02 {
					t.Errorf("%s: logits differ by %.2g of their norm", bd, d)
				}
				if d := relative(got.get("losses"), want.get("losses")); d > 0.01 {
					t.Errorf("%s: token losses differ by %.2g of their norm", bd, d)
				}
				g, x := got.get("grads"), want.get("grads")
				if d := relative(g, x); d > 0.06 || d < 1e-4 {
					t.Errorf("%s: the gradient differs by %.2g of its norm; bfloat16 costs between 1e-4 and 0.06", bd, d)
				}
				for _, p := range got.l.Params {
					if d := relative(g[p.Off:p.Off+p.Len], x[p.Off:p.Off+p.Len]); d > 0.12 {
						t.Errorf("%s: gradient of %s differs by %.2g of its norm", bd, p.Name, d)
					}
				}
			}
		})
	}
}

// TestHalfIsTheSameFunction: with nothing rounded, the Program of mixed
// precision computes the function, and the gradient, of the one in f32.
func TestHalfIsTheSameFunction(t *testing.T) {
	for _, s := range variants() {
		w, r := weightsOf(s.Config, 1), rowsOf(s, 2)
		a, b := on(t, wide, s, w, r), on(t, wide, half(s), w, r)
		for _, name := range []string{"grads", "sum", "losses", "logits"} {
			if !same(a.get(name), b.get(name)) {
				t.Errorf("%v: %s differ without rounding", s, name)
			}
		}
	}
}

// TestHalfReplaysAndShares: in mixed precision too the bits depend neither on an
// earlier replay, nor on threads, nor on temporaries in each other's memory.
func TestHalfReplaysAndShares(t *testing.T) {
	for _, tie := range []bool{false, true} {
		s := half(spec{Config: tiny(tie), B: 4, T: 11, Shards: 2, Mask: true})
		w, r := weightsOf(s.Config, 1), rowsOf(s, 2)
		e := on(t, fast, s, w, r)
		want := map[string][]float64{}
		for _, name := range []string{"grads", "sum", "losses", "logits"} {
			want[name] = e.get(name)
		}
		e.batch(rowsOf(s, 9))
		e.run()
		if same(want["grads"], e.get("grads")) {
			t.Fatal("other rows give the same gradients")
		}
		e.batch(r)
		e.run()
		apart := s
		apart.KeepApart = true
		three := s
		three.Threads = 3
		for what, e := range map[string]*engine{"an earlier replay": e, "sharing of memory": on(t, fast, apart, w, r), "threads": on(t, fast, three, w, r)} {
			for name, x := range want {
				if !same(x, e.get(name)) {
					t.Errorf("tie=%v: %s depend on %s", tie, name, what)
				}
			}
		}
	}
}

// TestHalfKeepsDocumentsApart (N8) in mixed precision, to the bit.
func TestHalfKeepsDocumentsApart(t *testing.T) {
	s := half(spec{Config: tiny(true), B: 1, T: 24, Mask: true, Reset: true})
	w, r := weightsOf(s.Config, 1), rowsOf(s, 3)
	r.starts = []byte{1, 1 << 2, 0}
	for i := range r.targets {
		if i < 10 {
			r.targets[i] = -1
		} else {
			r.targets[i] = int32(i % s.Vocab)
		}
	}
	for _, bd := range []body{fast, reference} {
		e := on(t, bd, s, w, r)
		logits, grads := e.get("logits")[10*s.Vocab:], e.get("grads")
		c := r
		c.tokens = append([]int32(nil), r.tokens...)
		for i := range 10 {
			c.tokens[i] = (c.tokens[i] + 11) % int32(s.Vocab)
		}
		e.batch(c)
		e.run()
		if !same(logits, e.get("logits")[10*s.Vocab:]) || !same(grads, e.get("grads")) {
			t.Errorf("%s: the first document changes logits or gradients of the second", bd)
		}
	}
}

// TestHalfRecordsWhatItSays reads a recording: one op rounds the matrices, for
// all passes that are given the result; the norms are not among them; the
// residual stream stays f32.
func TestHalfRecordsWhatItSays(t *testing.T) {
	for _, tie := range []bool{false, true} {
		s := half(spec{Config: tiny(tie), B: 2, T: 8})
		l := s.Layout()
		p := gpu.NewProgram("half")
		r := p.On(gpu.Math)
		w := model.NewWeights(s.Config, l, p.Extern("weights", gpu.F32, l.Total)).Round(r, model.Policy{Act: gpu.BF16}, "")
		if w != w.Round(r, model.Policy{Act: gpu.BF16}, "again") {
			t.Error("weights are rounded a second time")
		}
		tab := model.Tables{Cos: p.Extern("cos", gpu.F32, 8, 3), Sin: p.Extern("sin", gpu.F32, 8, 3)}
		b := model.Batch{B: 2, T: 8, Tokens: p.Extern("t", gpu.I32, 16), Targets: p.Extern("g", gpu.I32, 16), Starts: p.Extern("s", gpu.U8, 2, 1)}
		model.RecordTrain(r, s.Config, model.TrainArgs{
			Weights: w, Grads: model.NewWeights(s.Config, l, p.Extern("grads", gpu.F32, l.Total)), Loss: p.Extern("sum", gpu.F32, 1),
			Scale: p.Extern("scale", gpu.F32, 1), Tables: tab, Batch: b, Policy: model.Policy{Act: gpu.BF16}, Shards: 1,
		})
		model.RecordLoss(r, s.Config, w, p.Extern("loss", gpu.F32, 16), b, tab, model.Policy{Act: gpu.BF16})
		if err := p.Seal(); err != nil {
			t.Fatal(err)
		}
		var dump strings.Builder
		if err := p.Dump(&dump); err != nil {
			t.Fatal(err)
		}
		if n := strings.Count(dump.String(), " "+kernels.Cast.Name+" "); n != 1 {
			t.Errorf("tie=%v: %d ops round, want 1:\n%s", tie, n, &dump)
		}
		from, to := 0, l.Roles[model.Hidden].To
		if !tie {
			from = l.Roles[model.Head].From
		}
		// The only access to weights that is not f32 is the cast's own read of them.
		want := "weights"
		if from != 0 || to != l.Total {
			want = "weights["
		}
		if !strings.Contains(dump.String(), "weights.bf16 <- "+want) {
			t.Errorf("tie=%v: the op that rounds does not read the matrices:\n%s", tie, &dump)
		}
	}
}
