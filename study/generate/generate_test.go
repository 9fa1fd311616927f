package generate_test

import (
	"context"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"refrain/gpu"
	"refrain/gpu/host"
	"refrain/internal/num"
	"refrain/internal/run"
	"refrain/model"
	"refrain/store"
	"refrain/study/generate"
	"refrain/train/eval"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const vocab = 7

func tiny() model.Config {
	return model.Config{Vocab: vocab, Layers: 1, Dim: 8, Heads: 2, KVHeads: 1, FFN: 8, MaxT: 24, RopeTheta: 10000, NormEps: 1e-5, Init: model.InitPapers}
}

// weightsOf are weights far from initial ones, so that a token says much about the next.
func weightsOf(c model.Config, seed uint64) []float32 {
	l := c.Layout()
	w := make([]float32, l.Total)
	for _, p := range l.Params {
		s := num.NewStream("generate weights/"+p.Name, seed)
		for i := range p.Len {
			x := 0.5 * s.Normal(uint64(i))
			if p.Role == model.Norm {
				x++
			}
			w[p.Off+i] = float32(x)
		}
	}
	return w
}

func teacher(seed uint64) generate.Teacher {
	c := tiny()
	return generate.Teacher{Name: fmt.Sprintf("teacher %d", seed), Model: c, Weights: func(context.Context) ([]float32, error) { return weightsOf(c, seed), nil }}
}

// uniform is a teacher to whom every token is as likely: its hidden states are 0.
func uniform() generate.Teacher {
	t := teacher(1)
	t.Weights = func(context.Context) ([]float32, error) {
		w := weightsOf(t.Model, 1)
		for _, p := range t.Model.Layout().Params {
			if p.Role == model.Norm {
				clear(w[p.Off : p.Off+p.Len])
			}
		}
		return w, nil
	}
	return t
}

func teachers(seeds ...uint64) (list []generate.Teacher) {
	for _, s := range seeds {
		list = append(list, teacher(s))
	}
	return list
}

func devices(t *testing.T, n, threads int) (list []gpu.Device) {
	t.Helper()
	drv := host.New(host.Config{Devices: n, Threads: threads})
	for i := range n {
		d, err := drv.Open(i)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := d.Close(); err != nil {
				t.Error(err)
			}
		})
		list = append(list, d)
	}
	return list
}

func id(x uint32) *uint32 { return &x }

func rule(t *testing.T, b store.Boundary, docMask bool, most int) generate.Rule {
	t.Helper()
	r, err := generate.RuleOf(b, docMask, most)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// draw returns the documents of a configuration.
func draw(t *testing.T, c generate.Config) (docs []generate.Document, s generate.Stats) {
	t.Helper()
	s, err := generate.Documents(t.Context(), c, func(d generate.Document) error { docs = append(docs, d); return nil })
	if err != nil {
		t.Fatal(err)
	}
	return docs, s
}

// exact computes logits by full forward passes.
type exact struct {
	dev  gpu.Device
	held map[[2]uint64]*eval.Logits // by teacher and length
}

// next returns the logits of the token after a row of ids; from says where a document
// begins, before which nothing is seen.
func (e *exact) next(t *testing.T, seed uint64, ids []uint32, from int) (out []float64) {
	t.Helper()
	key := [2]uint64{seed, uint64(len(ids))}
	x := e.held[key]
	if x == nil {
		var err error
		if x, err = eval.NewLogits(t.Context(), e.dev, eval.Config{Model: tiny(), B: 1, T: len(ids), DocMask: true}); err != nil {
			t.Fatal(err)
		}
		if err := x.Load(t.Context(), weightsOf(tiny(), seed)); err != nil {
			t.Fatal(err)
		}
		e.held[key] = x
	}
	if _, err := x.Run(t.Context(), row{ids, from}, 0, 1, func(_ int64, _ []int32, logits []float32) error {
		for _, l := range logits[len(logits)-vocab:] {
			out = append(out, float64(l))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return out
}

func (e *exact) close(t *testing.T) {
	for _, x := range e.held {
		if err := x.Close(); err != nil {
			t.Error(err)
		}
	}
}

type row struct {
	ids  []uint32
	from int
}

func (row) Rows() int64 { return 1 }
func (r row) ReadRow(_ int64, tokens, targets []int32, starts []byte) (int, error) {
	clear(starts)
	starts[r.from/8] |= 1 << (r.from % 8)
	for i, x := range r.ids {
		tokens[i], targets[i] = int32(x), 0
	}
	return len(r.ids), nil
}

// softmax of the mean of logits at a temperature.
func softmax(temperature float64, logits ...[]float64) []float64 {
	p, sum := make([]float64, vocab), 0.0
	for i := range p {
		for _, l := range logits {
			p[i] += l[i] / float64(len(logits)) / temperature
		}
		p[i] = math.Exp(p[i])
		sum += p[i]
	}
	for i := range p {
		p[i] /= sum
	}
	return p
}

// TestRow24Distribution (E row 24): the first three tokens of documents have together the
// exact probabilities, from full forward passes, in every mode, at two temperatures, under
// both masks: a chi-squared test over all 7 + 49 + 343 beginnings.
func TestRow24Distribution(t *testing.T) {
	const n, eos = 20000, 3
	dev := devices(t, 1, 2)
	full := &exact{dev[0], map[[2]uint64]*eval.Logits{}}
	defer full.close(t)
	for _, v := range []struct {
		mode    generate.Mode
		seeds   []uint64
		temp    float64
		docMask bool
	}{
		{generate.Single, []uint64{1}, 1, true}, {generate.Single, []uint64{1}, 0.7, false},
		{generate.Average, []uint64{1, 2, 3}, 1, false}, {generate.Average, []uint64{1, 2}, 0.7, true},
		{generate.Pool, []uint64{1, 2, 3}, 1, true}, {generate.Pool, []uint64{1, 2}, 0.7, false},
	} {
		t.Run(fmt.Sprintf("%s of %d at %g, mask %t", v.mode, len(v.seeds), v.temp, v.docMask), func(t *testing.T) {
			docs, s := draw(t, generate.Config{
				Teachers: teachers(v.seeds...), Mode: v.mode, Rule: rule(t, store.Boundary{EOS: id(eos)}, v.docMask, 3),
				Temperature: v.temp, Seed: 5, Documents: n, Slots: 500, Devices: dev,
			})
			if len(docs) != n || s.Documents != n {
				t.Fatalf("%d documents", len(docs))
			}
			count := map[string]float64{}
			for _, d := range docs {
				count[fmt.Sprint(d.IDs)]++
			}
			// Walk all beginnings; each combination of teachers has its own tree.
			groups := [][]uint64{v.seeds}
			if v.mode == generate.Pool {
				groups = nil
				for _, s := range v.seeds {
					groups = append(groups, []uint64{s})
				}
			}
			want := map[string]float64{}
			var walk func(group []uint64, p float64, ids []uint32)
			walk = func(group []uint64, p float64, ids []uint32) {
				if len(ids) > 0 && (ids[len(ids)-1] == eos || len(ids) == 3) {
					want[fmt.Sprint(ids)] += p
					return
				}
				shown, from := append([]uint32{eos}, ids...), 0
				if v.docMask && len(ids) > 0 {
					from = 1 // the document does not see what ended the one before
				}
				var logits [][]float64
				for _, s := range group {
					logits = append(logits, full.next(t, s, shown, from))
				}
				for x, q := range softmax(v.temp, logits...) {
					walk(group, p*q, append(slices.Clone(ids), uint32(x)))
				}
			}
			for _, g := range groups {
				walk(g, 1/float64(len(groups)), nil)
			}
			chiSquared(t, count, want, n)
		})
	}
}

// chiSquared compares counts with probabilities; what is expected fewer than 5 times is taken
// together.
func chiSquared(t *testing.T, count, want map[string]float64, n float64) {
	t.Helper()
	var chi2, restWant, restGot, total float64
	cells := 0
	for k, p := range want {
		total += p
		if p*n < 5 {
			restWant, restGot = restWant+p*n, restGot+count[k]
		} else {
			cells++
			chi2 += (count[k] - p*n) * (count[k] - p*n) / (p * n)
		}
		delete(count, k)
	}
	if len(count) > 0 || math.Abs(total-1) > 1e-9 {
		t.Fatalf("documents that cannot be: %v; probabilities sum to %v", count, total)
	}
	if restWant > 0 {
		cells++
		chi2 += (restGot - restWant) * (restGot - restWant) / max(restWant, 1)
	}
	// Wilson and Hilferty: (chi2/df)^(1/3) is normal with this mean and deviation.
	df := float64(cells - 1)
	z := (math.Cbrt(chi2/df) - (1 - 2/(9*df))) / math.Sqrt(2/(9*df))
	t.Logf("chi-squared %.1f with %v degrees of freedom, z %.2f", chi2, df, z)
	if df < 40 || z > 4 {
		t.Errorf("chi-squared %.1f with %v degrees of freedom: z %.2f", chi2, df, z)
	}
}

// TestRow24BatchChangesNoToken (E row 24): documents do not depend on how many are worked on
// at a time, nor on threads and devices; another seed gives others; and more documents
// begin with the same ones.
func TestRow24BatchChangesNoToken(t *testing.T) {
	for _, mode := range []generate.Mode{generate.Single, generate.Average, generate.Pool} {
		seeds := []uint64{1, 2, 3}
		if mode == generate.Single {
			seeds = seeds[:1]
		}
		c := generate.Config{
			Teachers: teachers(seeds...), Mode: mode, Rule: rule(t, store.Boundary{EOS: id(0)}, true, 20),
			Temperature: 1, Seed: 11, Tokens: 250, Slots: 1, Devices: devices(t, 1, 1),
		}
		want, s := draw(t, c)
		if s.Tokens < 250 || s.Tokens-int64(len(want[len(want)-1].IDs)) >= 250 || s.Documents != int64(len(want)) {
			t.Errorf("%s: %+v: not the first document that makes it 250 tokens", mode, s)
		}
		for _, v := range [][3]int{{2, 1, 2}, {7, 2, 4}, {64, 1, 1}, {5, 3, 3}, {200, 1, 2}} {
			c.Slots, c.Devices = v[0], devices(t, v[1], v[2])
			got, g := draw(t, c)
			if !reflect.DeepEqual(got, want) {
				t.Errorf("%s: other documents with %d at a time on %d devices of %d threads", mode, v[0], v[1], v[2])
			}
			if g.Tokens != s.Tokens || g.Cut != s.Cut || g.Empty != s.Empty || !slices.Equal(g.ByTeacher, s.ByTeacher) {
				t.Errorf("%s: %+v and %+v", mode, g, s)
			}
		}
		c.Slots, c.Tokens, c.Documents = 9, 0, int64(len(want))+13
		if more, _ := draw(t, c); len(more) != len(want)+13 || !reflect.DeepEqual(more[:len(want)], want) {
			t.Errorf("%s: more documents do not begin with the same", mode)
		}
		c.Seed++
		if docs, _ := draw(t, c); reflect.DeepEqual(docs[:len(want)], want) {
			t.Errorf("%s: another seed gives the same documents", mode)
		}
	}
}

// TestRow24CopiesAreTheModel (E row 24): the mean of K copies, and a pool of them, write the
// documents of the one model.
func TestRow24CopiesAreTheModel(t *testing.T) {
	c := generate.Config{
		Teachers: teachers(4), Mode: generate.Single, Rule: rule(t, store.Boundary{BOS: id(1), EOS: id(0)}, true, 15),
		Temperature: 0.7, Seed: 3, Documents: 60, Devices: devices(t, 1, 2),
	}
	want, _ := draw(t, c)
	for _, k := range []int{1, 3, 6} {
		for _, mode := range []generate.Mode{generate.Average, generate.Pool} {
			c.Mode, c.Teachers = mode, teachers(slices.Repeat([]uint64{4}, k)...)
			got, _ := draw(t, c)
			for i := range got {
				if !slices.Equal(got[i].IDs, want[i].IDs) {
					t.Fatalf("%s of %d copies: document %d is %v, the model's is %v", mode, k, i, got[i].IDs, want[i].IDs)
				}
			}
		}
	}
}

// TestRow24PoolShares (E row 24): document i is by teacher i mod K and is what that teacher
// alone writes as document i.
func TestRow24PoolShares(t *testing.T) {
	c := generate.Config{
		Teachers: teachers(1, 2, 3), Mode: generate.Pool, Rule: rule(t, store.Boundary{EOS: id(0)}, false, 12),
		Temperature: 1, Documents: 50, Slots: 4, Devices: devices(t, 1, 1),
	}
	pool, s := draw(t, c)
	if got := []int64{s.ByTeacher[0].Documents, s.ByTeacher[1].Documents, s.ByTeacher[2].Documents}; !slices.Equal(got, []int64{17, 17, 16}) {
		t.Errorf("shares %v", got)
	}
	c.Mode = generate.Single
	for k := range 3 {
		c.Teachers = teachers(uint64(k + 1))
		alone, _ := draw(t, c)
		for i := k; i < len(pool); i += 3 {
			if pool[i].Teacher != k || !slices.Equal(pool[i].IDs, alone[i].IDs) {
				t.Errorf("document %d of the pool is by teacher %d and not the one that teacher %d writes", i, pool[i].Teacher, k)
			}
		}
	}
}

// TestPoolWaitsForTheSlow: a teacher of short documents does not run away from one of long
// ones, and the documents still come in order.
func TestPoolWaitsForTheSlow(t *testing.T) {
	c := generate.Config{
		Teachers: []generate.Teacher{uniform(), teacher(2)}, Mode: generate.Pool, Rule: rule(t, store.Boundary{EOS: id(0)}, true, 24),
		Temperature: 1, Documents: 3000, Slots: 8, Devices: devices(t, 1, 1),
	}
	docs, _ := draw(t, c)
	for i, d := range docs {
		if d.Number != int64(i) || d.Teacher != i%2 {
			t.Fatalf("document %d has number %d and teacher %d", i, d.Number, d.Teacher)
		}
	}
}

// TestRules: what a document holds under each pair of boundary ids.
func TestRules(t *testing.T) {
	for _, v := range []struct {
		b           store.Boundary
		first, last uint32 // vocab where anything may stand
	}{{store.Boundary{EOS: id(0)}, vocab, 0}, {store.Boundary{BOS: id(1), EOS: id(0)}, 1, 0}, {store.Boundary{BOS: id(1)}, 1, vocab}} {
		c := generate.Config{
			Teachers: []generate.Teacher{uniform()}, Mode: generate.Single, Rule: rule(t, v.b, true, 6),
			Temperature: 1, Documents: 300, Devices: devices(t, 1, 1),
		}
		docs, s := draw(t, c)
		var cut, empty int64
		for _, d := range docs {
			n := len(d.IDs)
			inner := d.IDs
			if v.first < vocab {
				if d.IDs[0] != v.first {
					t.Errorf("%v does not begin with %d", d.IDs, v.first)
				}
				inner = inner[1:]
			}
			if v.last < vocab && !d.Cut {
				if d.IDs[n-1] != v.last {
					t.Errorf("%v does not end with %d", d.IDs, v.last)
				}
				inner = inner[:len(inner)-1]
			}
			stop := v.last
			if stop == vocab {
				stop = v.first
			}
			if slices.Contains(inner, stop) || d.Cut != (n == 6 && (v.last == vocab || d.IDs[n-1] != v.last)) || n > 6 {
				t.Errorf("%+v", d)
			}
			if d.Cut {
				cut++
			}
			if len(inner) == 0 {
				empty++
			}
		}
		if s.Cut != cut || s.Empty != empty || cut == 0 || empty == 0 || cut+empty == 300 {
			t.Errorf("%d cut and %d empty, the statistics say %+v", cut, empty, s)
		}
	}
	if _, err := generate.RuleOf(store.Boundary{}, true, 9); err == nil || !strings.Contains(err.Error(), "no boundary ids") {
		t.Errorf("without boundaries: %v", err)
	}
	if _, err := generate.RuleOf(store.Boundary{BOS: id(1)}, true, 1); err == nil || !strings.Contains(err.Error(), "2 is the least") {
		t.Errorf("without room: %v", err)
	}
}

// TestRefuses: what cannot be generated is an error that says so, and leaves nothing running.
func TestRefuses(t *testing.T) {
	good := generate.Config{
		Teachers: teachers(1, 2), Mode: generate.Average, Rule: rule(t, store.Boundary{EOS: id(0)}, true, 12),
		Temperature: 1, Documents: 5, Devices: devices(t, 1, 1),
	}
	wider := teacher(3)
	wider.Model.Vocab++
	lost := teacher(4)
	lost.Weights = func(context.Context) ([]float32, error) { return nil, fmt.Errorf("lost") }
	diverged := teacher(5)
	diverged.Weights = func(context.Context) ([]float32, error) {
		w := weightsOf(diverged.Model, 5)
		w[len(w)-1] = float32(math.NaN())
		return w, nil
	}
	for part, change := range map[string]func(c *generate.Config){
		"mode single takes one model, and there are 2": func(c *generate.Config) { c.Mode = generate.Single },
		`mode "both"`:         func(c *generate.Config) { c.Mode = "both" },
		"there are no models": func(c *generate.Config) { c.Teachers = nil },
		"teacher 3 has a vocabulary of 8 and teacher 1 one of 7": func(c *generate.Config) { c.Teachers = []generate.Teacher{teacher(1), wider} },
		"up to 25 tokens; teacher 1 covers 24 positions":         func(c *generate.Config) { c.Rule.MaxLength = 25 },
		"0 tokens and 0 documents":                               func(c *generate.Config) { c.Documents = 0 },
		"-1 documents at a time":                                 func(c *generate.Config) { c.Slots = -1 },
		"a temperature of 0":                                     func(c *generate.Config) { c.Temperature = 0 },
		"no device":                                              func(c *generate.Config) { c.Devices = nil },
		"lost":                                                   func(c *generate.Config) { c.Teachers = []generate.Teacher{teacher(1), lost} },
		"teacher 5: a logit of token 0 of document 0 is not finite": func(c *generate.Config) { c.Teachers = []generate.Teacher{teacher(1), diverged} },
		"teacher 5: a logit of token 0 of document 1 is not finite": func(c *generate.Config) { c.Mode, c.Teachers = generate.Pool, []generate.Teacher{teacher(1), diverged} },
	} {
		c := good
		change(&c)
		_, err := generate.Documents(t.Context(), c, func(generate.Document) error { return nil })
		if err == nil || !strings.Contains(err.Error(), part) {
			t.Errorf("error %v, want %q", err, part)
		}
		if strings.Contains(part, "not finite") && run.ExitCode(err) != run.ExitNumerics {
			t.Errorf("exit %d for %v", run.ExitCode(err), err)
		}
	}
	if _, err := generate.Documents(t.Context(), good, func(generate.Document) error { return fmt.Errorf("no room") }); err == nil || !strings.Contains(err.Error(), "no room") {
		t.Errorf("emit fails: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	good.Documents = 1 << 40
	n := 0
	if _, err := generate.Documents(ctx, good, func(generate.Document) error {
		if n++; n == 20 {
			cancel()
		}
		return nil
	}); err != context.Canceled && !strings.Contains(err.Error(), "canceled") {
		t.Errorf("stopped: %v", err)
	}
}
