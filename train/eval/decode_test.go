package eval_test

import (
	"context"
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"refrain/internal/num"
	"refrain/model"
	"refrain/train/eval"
)

// other is a second shape with the vocabulary of tiny.
func other() model.Config {
	c := tiny()
	c.Layers, c.Dim, c.Heads, c.KVHeads, c.FFN, c.Tie = 1, 24, 2, 1, 32, true
	return c
}

func newDecoder(t testing.TB, threads int, c eval.DecoderConfig) *eval.Decoder {
	t.Helper()
	var d *eval.Decoder
	dev := open(t, threads) // closed last
	d, err := eval.NewDecoder(t.Context(), dev, c, func(_ context.Context, k int) ([]float32, error) { return weightsOf(c.Models[k]), nil })
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	})
	return d
}

// text is sequence i of a test: its tokens, 3 to 20 of them.
func text(i int) []uint32 {
	s := num.NewStream("decode text", uint64(i))
	ids := make([]uint32, 3+s.Uintn(0, 18))
	for p := range ids {
		ids[p] = uint32(s.Uintn(uint64(p+1), 37))
	}
	return ids
}

// feed decodes sequences 0 to n-1 with continuous batching, each taking a slot as soon as
// one is free, and returns the logits of every model at every position of every sequence.
func feed(t *testing.T, n, slots, threads int, c eval.DecoderConfig) (logits [][][]float32) {
	t.Helper()
	c.Slots = slots
	d := newDecoder(t, threads, c)
	type place struct{ seq, pos int }
	v, next := c.Models[0].Vocab, 0
	at := make([]place, slots)
	logits = make([][][]float32, n)
	for i := range at {
		at[i], next = place{next, 0}, next+1
	}
	for busy := true; busy; {
		busy = false
		step := make([]eval.Slot, slots)
		for i, p := range at {
			if step[i].Uniform = 0.25; p.seq < n {
				step[i].Token, step[i].Pos, busy = text(p.seq)[p.pos], p.pos, true
			}
		}
		if err := d.Start(t.Context(), step); err != nil {
			t.Fatal(err)
		}
		if _, err := d.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		x, err := d.Logits(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		for i := range at {
			p := &at[i]
			if p.seq >= n {
				continue
			}
			var all []float32
			for k := range c.Models {
				all = append(all, x[(k*slots+i)*v:][:v]...)
			}
			logits[p.seq] = append(logits[p.seq], all)
			if p.pos++; p.pos == len(text(p.seq)) {
				*p, next = place{next, 0}, next+1
			}
		}
	}
	return logits
}

// TestRow24CacheParity (E row 24): logits of many sequences at a time, each at a position
// of its own and in slots that others used before, are those of the full forward pass over
// the sequence, of each of two models of different shapes.
func TestRow24CacheParity(t *testing.T) {
	const n, T = 9, 20
	c := eval.DecoderConfig{Models: []model.Config{tiny(), other()}, MaxT: T, Temperature: 1}
	got := feed(t, n, 4, 2, c)
	for k, m := range c.Models {
		full, err := eval.NewLogits(t.Context(), open(t, 1), eval.Config{Model: m, B: 2, T: T, DocMask: true})
		if err != nil {
			t.Fatal(err)
		}
		if err := full.Load(t.Context(), weightsOf(m)); err != nil {
			t.Fatal(err)
		}
		_, err = full.Run(t.Context(), set{n, func(row int64, tokens, targets []int32, starts []byte) int {
			clear(starts)
			clear(tokens)
			for p, id := range text(int(row)) {
				tokens[p] = int32(id)
			}
			return copy(targets, tokens)
		}}, 0, n, func(row int64, _ []int32, logits []float32) error {
			for p, x := range got[row] {
				if err := num.Check(x[k*m.Vocab:(k+1)*m.Vocab], logits[p*m.Vocab:(p+1)*m.Vocab], num.Float32); err != nil {
					t.Errorf("model %d, sequence %d, position %d: %v", k, row, p, err)
				}
			}
			return nil
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := full.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestRow24SlotsChangeNoBit (E row 24): the logits of a sequence have the same bits for any
// number of slots and threads, whatever stands in the other slots.
func TestRow24SlotsChangeNoBit(t *testing.T) {
	const n = 9
	c := eval.DecoderConfig{Models: []model.Config{tiny(), other()}, MaxT: 20, Temperature: 1}
	want := feed(t, n, 1, 1, c)
	for _, v := range [][2]int{{2, 1}, {5, 3}, {13, 2}, {30, 1}} {
		got := feed(t, n, v[0], v[1], c)
		for seq := range want {
			if !slices.EqualFunc(got[seq], want[seq], slices.Equal[[]float32]) {
				t.Errorf("sequence %d has other logits in %d slots on %d threads", seq, v[0], v[1])
			}
		}
	}
}

// TestDecoderAverages: the token drawn is that of the mean of the models' logits at the
// temperature, among the tokens that may be drawn.
func TestDecoderAverages(t *testing.T) {
	const slots, among = 40, 30
	c := eval.DecoderConfig{Models: []model.Config{tiny(), other(), tiny()}, MaxT: 1, Temperature: 0.7, Slots: slots, Vocab: among}
	d := newDecoder(t, 2, c)
	step := make([]eval.Slot, slots)
	for i := range step {
		step[i] = eval.Slot{Token: 7, Uniform: (float64(i) + 0.5) / slots}
	}
	if err := d.Start(t.Context(), step); err != nil {
		t.Fatal(err)
	}
	ids, err := d.Wait(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	x, err := d.Logits(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	v := c.Models[0].Vocab
	var p [among]float64
	var total float64
	for i := range p {
		p[i] = math.Exp((float64(x[i]) + float64(x[slots*v+i]) + float64(x[2*slots*v+i])) / 3 / c.Temperature)
		total += p[i]
	}
	kinds := map[int32]bool{}
	for i, id := range ids {
		want, left := int32(-1), step[i].Uniform*total
		for left >= 0 {
			want++
			left -= p[want]
		}
		if id != want {
			t.Errorf("slot %d drew %d, the mean of the logits gives %d", i, id, want)
		}
		kinds[id] = true
	}
	if len(kinds) < 5 {
		t.Errorf("only %d kinds of tokens were drawn: the test says little", len(kinds))
	}
}

// TestDecoderNamesTheModel: a logit that is not a number draws -1, and the model is named.
func TestDecoderNamesTheModel(t *testing.T) {
	c := eval.DecoderConfig{Models: []model.Config{tiny(), other()}, MaxT: 2, Temperature: 1, Slots: 3}
	d, err := eval.NewDecoder(t.Context(), open(t, 1), c, func(_ context.Context, k int) ([]float32, error) {
		w := weightsOf(c.Models[k])
		if k == 1 {
			w[9*24] = float32(math.NaN()) // in the embedding of token 9
		}
		return w, nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Start(t.Context(), []eval.Slot{{Token: 9, Uniform: 0.5}, {Token: 8, Uniform: 0.5}}); err != nil {
		t.Fatal(err)
	}
	ids, err := d.Wait(t.Context())
	if err != nil || len(ids) != 2 || ids[0] != -1 {
		t.Errorf("%v, %v", ids, err)
	}
	if k, err := d.NotFinite(t.Context(), 0); k != 1 || err != nil {
		t.Errorf("model %d, %v", k, err)
	}
	if err := d.Close(); err != nil {
		t.Error(err)
	}
}

// TestDecoderRefuses: what cannot be decoded is an error that says so.
func TestDecoderRefuses(t *testing.T) {
	dev, good := open(t, 1), eval.DecoderConfig{Models: []model.Config{tiny(), other()}, MaxT: 8, Temperature: 1, Slots: 2}
	weights := func(_ context.Context, k int) ([]float32, error) { return weightsOf(good.Models[k]), nil }
	for part, change := range map[string]func(c *eval.DecoderConfig){
		"no model":               func(c *eval.DecoderConfig) { c.Models = nil },
		"0 slots":                func(c *eval.DecoderConfig) { c.Slots = 0 },
		"a temperature of 0":     func(c *eval.DecoderConfig) { c.Temperature = 0 },
		"65 positions":           func(c *eval.DecoderConfig) { c.MaxT = 65 },
		"38 tokens to draw from": func(c *eval.DecoderConfig) { c.Vocab = 38 },
		"model 2 has a vocabulary of 38, model 1 one of 37": func(c *eval.DecoderConfig) {
			m := other()
			m.Vocab++
			c.Models = []model.Config{tiny(), m}
		},
	} {
		c := good
		change(&c)
		if _, err := eval.NewDecoder(t.Context(), dev, c, weights); err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("error %v, want %q", err, part)
		}
	}
	if _, err := eval.NewDecoder(t.Context(), dev, good, func(context.Context, int) ([]float32, error) { return nil, fmt.Errorf("gone") }); err == nil || !strings.Contains(err.Error(), "gone") {
		t.Errorf("without weights: %v", err)
	}
	d := newDecoder(t, 1, good)
	for _, bad := range [][]eval.Slot{nil, make([]eval.Slot, 3), {{Token: 37, Uniform: 0.5}}, {{Pos: 8, Uniform: 0.5}}, {{Pos: -1, Uniform: 0.5}}, {{}}, {{Uniform: 1}}} {
		if err := d.Start(t.Context(), bad); err == nil {
			t.Errorf("%+v is accepted", bad)
		}
	}
}

// BenchmarkDecode is the rate of generation by the number of sequences at a time: one
// sequence reads every weight for every token.
func BenchmarkDecode(b *testing.B) {
	m := model.Config{Vocab: 2048, Layers: 4, Dim: 128, Heads: 4, KVHeads: 4, FFN: 384, MaxT: 128, RopeTheta: 10000, NormEps: 1e-5, Init: model.InitPapers}
	for _, slots := range []int{1, 8, 32, 96} {
		b.Run(fmt.Sprintf("sequences=%d", slots), func(b *testing.B) {
			d := newDecoder(b, 1, eval.DecoderConfig{Models: []model.Config{m}, Slots: slots, MaxT: m.MaxT, Temperature: 1})
			step := make([]eval.Slot, slots)
			for i := range step {
				step[i].Uniform = 0.5
			}
			for pos := 0; b.Loop(); pos++ {
				for i := range step {
					step[i].Pos = pos % m.MaxT
				}
				if err := d.Start(b.Context(), step); err != nil {
					b.Fatal(err)
				}
				if _, err := d.Wait(b.Context()); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(slots)*float64(b.N)/b.Elapsed().Seconds(), "tok/s")
		})
	}
}
