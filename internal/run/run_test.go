package run_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"

	"refrain/internal/num"
	"refrain/internal/run"
	"refrain/internal/run/config"
	"refrain/model"
	"refrain/stages/repack"
	"refrain/store"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

const vocab = 67

// makeStore writes a store of docs documents of 5 to 60 tokens, and a
// validation store inside it.
func makeStore(t testing.TB, docs int) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "store")
	for _, part := range []struct {
		dir  string
		n    int
		seed uint64
	}{{dir, docs, 1}, {filepath.Join(dir, "val"), docs / 8, 2}} {
		w, err := store.Create(part.dir, store.Meta{Vocab: vocab, TokenizerHash: "none"})
		if err != nil {
			t.Fatal(err)
		}
		s := num.NewStream("test documents", part.seed)
		for d := range part.n {
			n := 5 + s.Uintn(uint64(d), 56)
			ids := make([]uint32, n)
			x := s.Uintn(uint64(d)+1<<32, vocab)
			for i := range ids {
				ids[i] = uint32(x)
				x = (x*5 + 3 + s.Uintn(uint64(d)<<20+uint64(i)+1<<40, 3)) % vocab
			}
			ids[n-1] = 0
			if err := w.Append(uint64(d), "test", ids); err != nil {
				t.Fatal(err)
			}
		}
		if _, err := w.Close(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

const tinyYAML = `
model: {layers: 2, dim: 32, heads: 4, kv_heads: 2, ffn: 40}
data: {seq: 16}
train: {batch: 8, epochs: 3, threads: 1}
optim: {lr: 0.01}
save: {every: 7}
log: {every: 5}
`

func setup(t testing.TB, dir string, overrides ...string) *run.Setup {
	t.Helper()
	r, err := config.Parse("tiny.yaml", []byte(tinyYAML), append([]string{"data.store=" + dir}, overrides...))
	if err != nil {
		t.Fatal(err)
	}
	s, err := run.NewSetup(&r.Config, r)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	})
	return s
}

// ledger reads the step lines of a run: the last line of every step, since a
// resumed run writes some again, which must say the same.
func ledger(t testing.TB, out string) []map[string]any {
	t.Helper()
	b, err := os.ReadFile(filepath.Join(out, run.MetricsFile))
	if err != nil {
		t.Fatal(err)
	}
	var steps []map[string]any
	for line := range strings.Lines(string(b)) {
		var m map[string]any
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("metrics line %q: %v", line, err)
		}
		if m["type"] != "step" {
			continue
		}
		i := int(m["step"].(float64)) - 1
		switch {
		case i == len(steps):
			steps = append(steps, m)
		case i < len(steps):
			for _, k := range []string{"window", "rows", "loss", "norm", "crc", "chain", "lr"} {
				if steps[i][k] != m[k] {
					t.Errorf("step %d: %s was %v, and %v when it ran again", i+1, k, steps[i][k], m[k])
				}
			}
		default:
			t.Fatalf("step %d follows step %d", i+1, len(steps))
		}
	}
	for i, m := range steps {
		if want := float64(i * 8); m["window"] != want {
			t.Fatalf("step %d consumed windows from %v, want %v", i+1, m["window"], want)
		}
	}
	return steps
}

func TestTrainSavesEvaluatesAndFinishes(t *testing.T) {
	dir := makeStore(t, 64)
	s := setup(t, dir)
	out := filepath.Join(t.TempDir(), "run")
	res, err := run.Train(t.Context(), run.Job{Setup: s, Out: out})
	if err != nil {
		t.Fatal(err)
	}
	if res.Step != s.Options.Steps || res.Val == nil || res.Val.Step != res.Step || res.Path == "" {
		t.Fatalf("result %+v", res)
	}
	steps := ledger(t, out)
	if int64(len(steps)) != res.Step {
		t.Errorf("%d step lines for %d steps", len(steps), res.Step)
	}
	if first, last := steps[0]["loss"].(float64), steps[len(steps)-1]["loss"].(float64); last > first-0.3 {
		t.Errorf("loss went from %.3f to %.3f", first, last)
	}
	var exit run.Exit
	b, err := os.ReadFile(filepath.Join(out, run.ExitFile))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(b, &exit); err != nil || exit.Status != "done" || exit.Code != 0 || exit.Step != res.Step {
		t.Errorf("exit.json is %s", b)
	}
	// Again: nothing to do.
	if _, err := run.Train(t.Context(), run.Job{Setup: s, Out: out, Resume: run.ResumeAuto}); err != nil {
		t.Error(err)
	}
	if _, err := run.Train(t.Context(), run.Job{Setup: s, Out: out}); run.ExitCode(err) != run.ExitUsage {
		t.Errorf("training into a finished run without --resume: %v", err)
	}
}

// TestRow05ResumeAnywhere stops at step k and continues on other devices and
// threads: the ledger and the final chain equal those of the run that never
// stopped.
func TestRow05ResumeAnywhere(t *testing.T) {
	dir := makeStore(t, 64)
	base := filepath.Join(t.TempDir(), "straight")
	s := setup(t, dir)
	want, err := run.Train(t.Context(), run.Job{Setup: s, Out: base})
	if err != nil {
		t.Fatal(err)
	}
	perEpoch := s.Stream.WindowsPerEpoch() / 8
	weights := hashOf(t, want.Path)
	for i, k := range []int64{0, 1, perEpoch, perEpoch + 1, 2 * perEpoch, s.Options.Steps - 1} {
		t.Run(fmt.Sprintf("step=%d", k), func(t *testing.T) {
			out := filepath.Join(t.TempDir(), "run")
			if k == 0 {
				stop := make(chan struct{})
				close(stop)
				if _, err := run.Train(t.Context(), run.Job{Setup: s, Out: out, Stop: stop}); !errors.Is(err, run.ErrStopped) {
					t.Fatalf("stopped before the first step: %v", err)
				}
			} else if _, err := run.Train(t.Context(), run.Job{Setup: s, Out: out, Limit: k}); !errors.Is(err, run.ErrStopped) {
				t.Fatalf("stopped at step %d: %v", k, err)
			}
			other := setup(t, dir, fmt.Sprintf("train.devices=%d", 1<<(i%3)), fmt.Sprintf("train.threads=%d", 1+i%2))
			got, err := run.Train(t.Context(), run.Job{Setup: other, Out: out, Resume: run.ResumeMust})
			if err != nil {
				t.Fatal(err)
			}
			if got.Chain != want.Chain {
				t.Errorf("chain %v, the run that never stopped has %v", got.Chain, want.Chain)
			}
			if got.Val.Loss != want.Val.Loss {
				t.Errorf("validation loss %v, want %v", got.Val.Loss, want.Val.Loss)
			}
			if h := hashOf(t, got.Path); h != weights {
				t.Errorf("final weights differ from those of the run that never stopped")
			}
			if a, b := ledger(t, out), ledger(t, base); len(a) != len(b) {
				t.Errorf("%d steps in the ledger, want %d", len(a), len(b))
			}
		})
	}
}

// hashOf returns the bytes of the tensors of a checkpoint as a string.
func hashOf(t testing.TB, path string) string {
	t.Helper()
	var all []byte
	for _, name := range []string{"model.safetensors", "optimizer.safetensors"} {
		b, err := os.ReadFile(filepath.Join(path, name))
		if err != nil {
			t.Fatal(err)
		}
		all = append(all, b...)
	}
	return string(all)
}

// TestCancelledRunIsInterrupted: a run that is ended from outside has not failed.
func TestCancelledRunIsInterrupted(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	out := filepath.Join(t.TempDir(), "run")
	_, err := run.Train(ctx, run.Job{Setup: setup(t, makeStore(t, 64)), Out: out, OnStart: func(*run.Running) { cancel() }})
	if !errors.Is(err, context.Canceled) {
		t.Fatalf("error %v, want context.Canceled", err)
	}
	b, err := os.ReadFile(filepath.Join(out, run.ExitFile))
	if err != nil {
		t.Fatal(err)
	}
	var exit run.Exit
	if err := json.Unmarshal(b, &exit); err != nil || exit.Status != "interrupted" || exit.Code != run.ExitInterrupted {
		t.Errorf("exit.json is %s", b)
	}
}

func TestChangedSettingsRefuseToResume(t *testing.T) {
	dir := makeStore(t, 64)
	out := filepath.Join(t.TempDir(), "run")
	if _, err := run.Train(t.Context(), run.Job{Setup: setup(t, dir), Out: out, Limit: 9}); !errors.Is(err, run.ErrStopped) {
		t.Fatal(err)
	}
	for _, o := range []string{"optim.lr=0.02", "train.epochs=4", "train.batch=4", "data.mode=fixed", "data.seed=9", "train.seed=5"} {
		_, err := run.Train(t.Context(), run.Job{Setup: setup(t, dir, o), Out: out, Resume: run.ResumeAuto})
		if key, _, _ := strings.Cut(o, "="); run.ExitCode(err) != run.ExitUsage || !strings.Contains(err.Error(), key+" was ") {
			t.Errorf("%s: exit code %d (%v), want %d and the key", o, run.ExitCode(err), err, run.ExitUsage)
		}
	}
	// A refusal is no event in the life of the run.
	var exit run.Exit
	b, err := os.ReadFile(filepath.Join(out, run.ExitFile))
	if err == nil {
		err = json.Unmarshal(b, &exit)
	}
	if err != nil || exit.Status != "stopped" || exit.Step != 9 {
		t.Errorf("exit.json says %s after refusals (%v)", b, err)
	}
	// Settings that cannot change a weight may change.
	if _, err := run.Train(t.Context(), run.Job{Setup: setup(t, dir, "save.every=3", "log.every=1", "train.devices=2"), Out: out, Resume: run.ResumeAuto}); err != nil {
		t.Error(err)
	}
}

func TestRow02SubsetsAndPools(t *testing.T) {
	dir := makeStore(t, 96)
	hash := func(o ...string) string { return setup(t, dir, o...).DataHash }
	all := hash()
	if hash("data.seed=3") != all || hash("train.seed=3") != all {
		t.Error("a seed of order or initialisation changes the documents")
	}
	hashes := []string{all, hash("data.pool=1/2"), hash("data.pool=2/2"), hash("data.subset.docs=40"), hash("data.subset.docs=40", "data.subset.seed=1"), hash("data.subset.tokens=700")}
	slices.Sort(hashes)
	if u := slices.Compact(slices.Clone(hashes)); len(u) != len(hashes) {
		t.Errorf("different choices of documents share a hash: %v", hashes)
	}
	s := setup(t, dir, "data.subset.tokens=700")
	if n := s.Stream.NumTokens(); n != 700 {
		t.Errorf("a subset of 700 tokens has %d", n)
	}
}

// TestSubsetsNest: a larger budget holds all tokens of a smaller one, and a subset,
// which has the store's fast ways, gives the tokens of the store.
func TestSubsetsNest(t *testing.T) {
	dir := makeStore(t, 96)
	whole := setup(t, dir).Train
	var before map[int]uint32
	for _, n := range []int{500, 640, 700, 1111} {
		s := setup(t, dir, fmt.Sprintf("data.subset.tokens=%d", n))
		p, ok := s.Corpus.(repack.Part)
		if !ok {
			t.Fatalf("%T is no part of a store", s.Corpus)
		}
		_, docs := p.Part()
		now, sum := map[int]uint32{}, 0
		for i, doc := range docs {
			l := p.Lengths()[i]
			now[doc], sum = l, sum+int(l)
			got, want := make([]int32, l), make([]int32, l)
			p.Copy(i, 0, int(l), got)
			whole.Copy(doc, 0, int(l), want)
			if l == 0 || !slices.Equal(got, want) {
				t.Errorf("document %d of %d tokens differs", i, n)
			}
		}
		if sum != n {
			t.Errorf("a subset of %d tokens has %d", n, sum)
		}
		for doc, l := range before {
			if now[doc] < l {
				t.Errorf("document %d has %d tokens among %d and fewer among more", doc, l, n)
			}
		}
		before = now
	}
	r, err := config.Parse("tiny.yaml", []byte(tinyYAML), []string{"data.store=" + dir, "data.pool=1/1000"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := run.NewSetup(&r.Config, r); err == nil || !strings.Contains(err.Error(), "use fewer pools") {
		t.Errorf("an empty pool: %v", err)
	}
}

// TestPrecisionReachesTheTrainer: what train.precision says is what the Programs
// are recorded in.
func TestPrecisionReachesTheTrainer(t *testing.T) {
	dir := makeStore(t, 16)
	var s *run.Setup
	for _, p := range []string{"f32", "bf16"} {
		s = setup(t, dir, "train.precision="+p)
		if got := s.Options.Policy.Act.String(); got != p || s.Config.Train.Precision != p {
			t.Errorf("activations in %s, train.precision is %s, want %s", got, s.Config.Train.Precision, p)
		}
	}
	if p := setup(t, dir).Config.Train.Precision; p != model.AutoPolicy().String() {
		t.Errorf("left open, train.precision is %s; this machine's is %s", p, model.AutoPolicy())
	}
	c := *s.Config
	c.Train.Precision = "f16"
	if again, err := run.NewSetup(&c, nil); err == nil || !strings.Contains(err.Error(), "train.precision") {
		t.Errorf("%+v, %v; want an error that says train.precision", again, err)
	}
}

// TestPrecisionIsKept: a run that began in one precision goes on in it, whatever
// "auto" means on the machine that resumes, to the bits of the run that never
// stopped; another one said outright is refused by name.
func TestPrecisionIsKept(t *testing.T) {
	dir := makeStore(t, 64)
	for _, began := range []string{"f32", "bf16"} {
		other := map[string]string{"f32": "bf16", "bf16": "f32"}[began]
		want, err := run.Train(t.Context(), run.Job{Setup: setup(t, dir, "train.precision="+began), Out: filepath.Join(t.TempDir(), "straight")})
		if err != nil {
			t.Fatal(err)
		}
		out := filepath.Join(t.TempDir(), "run")
		if _, err := run.Train(t.Context(), run.Job{Setup: setup(t, dir, "train.precision="+began), Out: out, Limit: 9}); !errors.Is(err, run.ErrStopped) {
			t.Fatal(err)
		}
		_, err = run.Train(t.Context(), run.Job{Setup: setup(t, dir, "train.precision="+other), Out: out, Resume: run.ResumeAuto})
		if said := fmt.Sprintf("train.precision was %s and is now %s", began, other); run.ExitCode(err) != run.ExitUsage || !strings.Contains(err.Error(), said) {
			t.Errorf("exit code %d (%v), want %d and %q", run.ExitCode(err), err, run.ExitUsage, said)
		}
		open, err := config.Parse("tiny.yaml", []byte(tinyYAML), []string{"data.store=" + dir, "train.devices=2"})
		if err != nil {
			t.Fatal(err)
		}
		kept := run.Kept(open, out)
		if kept.Config.Train.Precision != began || open.Config.Train.Precision != model.AutoPolicy().String() {
			t.Errorf("kept %s of a run in %s; what was given is now %s", kept.Config.Train.Precision, began, open.Config.Train.Precision)
		}
		s, err := run.NewSetup(&kept.Config, kept)
		if err != nil {
			t.Fatal(err)
		}
		got, err := run.Train(t.Context(), run.Job{Setup: s, Out: out, Resume: run.ResumeMust})
		if err == nil && (got.Chain != want.Chain || hashOf(t, got.Path) != hashOf(t, want.Path)) {
			t.Errorf("%s: the resumed run has chain %v, the one that never stopped %v", began, got.Chain, want.Chain)
		}
		if err := errors.Join(err, s.Close()); err != nil {
			t.Error(err)
		}
		r, err := run.ReadRecord(out)
		if err != nil || r.Info.Precision != began {
			t.Errorf("run.json says precision %q, want %s (%v)", r.Info.Precision, began, err)
		}
		// What is said outright stays, and so does a configuration without a run.
		said, err := config.Parse("tiny.yaml", []byte(tinyYAML), []string{"data.store=" + dir, "train.precision=" + other})
		if err != nil {
			t.Fatal(err)
		}
		if run.Kept(said, out) != said || run.Kept(open, t.TempDir()) != open {
			t.Error("a configuration that leaves nothing open, or has no run yet, is changed")
		}
	}
}

// TestHighestLearningRate: what the configuration allows, the trainer allows.
func TestHighestLearningRate(t *testing.T) {
	if s := setup(t, makeStore(t, 16), "optim.lr=10"); s.Options.Optim.LR != 10 {
		t.Errorf("learning rate %g", s.Options.Optim.LR)
	}
}

// TestRow31Beta2Reaches: the rule by half-life is off by default, and what it gives is what
// the trainer gets and the plan says.
func TestRow31Beta2Reaches(t *testing.T) {
	dir := makeStore(t, 16)
	if s := setup(t, dir, "train.batch=4", "optim.beta2=0.95"); s.Options.Optim.Beta2 != 0.95 {
		t.Errorf("off, beta2 is %g", s.Options.Optim.Beta2)
	}
	s := setup(t, dir, "train.batch=4", "optim.beta2=0.81", "optim.beta2_reference_batch=8")
	if b2 := s.Options.Optim.Beta2; math.Abs(b2-0.9) > 1e-15 {
		t.Errorf("half the batch of 0.81 gives %v", b2)
	}
}

// TestStartTellsWhatItVerifies: both stores, each from its first part to its end,
// before the folder is touched.
func TestStartTellsWhatItVerifies(t *testing.T) {
	out := filepath.Join(t.TempDir(), "run")
	var order []string
	left := map[string]int64{}
	_, err := run.Train(t.Context(), run.Job{
		Setup: setup(t, makeStore(t, 16)), Out: out, Limit: 1,
		OnVerify: func(key string, done, total int64) {
			if !slices.Contains(order, key) {
				order = append(order, key)
			}
			left[key] = total - done
			if _, err := os.Stat(out); !errors.Is(err, os.ErrNotExist) {
				t.Errorf("the folder is there while %s is read (%v)", key, err)
			}
		},
	})
	if !errors.Is(err, run.ErrStopped) || !slices.Equal(order, []string{"data.store", "data.val"}) || left["data.store"] != 0 || left["data.val"] != 0 {
		t.Errorf("told of %q, bytes left %v, %v", order, left, err)
	}
}
