package report

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"refrain/internal/run"
	"refrain/internal/run/config"
	"refrain/study"
)

// recipe is a cell of a made-up sweep.
type recipe struct {
	epochs, decay, batch float64
	dim                  int
	tokens               int64 // unique
	mode                 string
	seed                 uint64
	status               study.Status // "" is done
}

func usual() recipe {
	return recipe{epochs: 4, decay: 0.1, batch: 8, dim: 64, tokens: 65536, mode: "repack"}
}

// loss is a valley over epochs that strong decay moves, laws over parameters and tokens,
// and a little for the order, the batch and the seed.
func (r recipe) loss() float64 {
	params, tokens := float64(r.params())/1e3, float64(r.tokens)/1e3
	l := 2 + 3/math.Pow(params, 0.8) + 20/math.Pow(tokens, 0.9)
	l += 0.05 * math.Pow(math.Log2(r.epochs/4)-math.Log2(1+r.decay), 2)
	l += 0.02 * math.Pow(math.Log2(r.batch/8), 2)
	if r.mode == "fixed" {
		l += 0.03
	}
	return l + 0.001*float64(r.seed)*math.Sqrt(r.epochs)
}

func (r recipe) params() int { return r.dim * r.dim * 10 }

// settings are in the order of a sweep.
func (r recipe) settings() []string {
	return []string{
		fmt.Sprintf("train.epochs=%g", r.epochs), fmt.Sprintf("optim.weight_decay=%g", r.decay), fmt.Sprintf("train.batch=%g", r.batch),
		fmt.Sprintf("model.dim=%d", r.dim), fmt.Sprintf("data.subset.tokens=%d", r.tokens), "data.mode=" + r.mode,
	}
}

func hash(parts ...any) string {
	s := sha256.Sum256([]byte(fmt.Sprint(parts...)))
	return hex.EncodeToString(s[:])
}

// put writes the record of a recipe, and its run folder when folders is set.
func put(t *testing.T, g *study.Registry, r recipe, folders bool) {
	t.Helper()
	status := r.status
	if status == "" {
		status = study.Done
	}
	s := r.settings()
	rec := &study.Record{Version: 1, Settings: map[string]string{}, Label: strings.Join(s, " "), Seed: r.seed, Status: status, Params: r.params(), Steps: 40, Tokens: 5000}
	for _, x := range s {
		k, v, _ := strings.Cut(x, "=")
		rec.Settings[k] = v
	}
	rec.Provenance = study.Provenance{ConfigHash: hash(rec.Label, r.seed), DataHash: hash("data", r.tokens), TokenizerHash: hash("tokenizer"), ValHash: hash("val"), ValRows: 10, Code: "0123456789abcdef"}
	rec.Identity = rec.Provenance.Identity()
	rec.Run = filepath.Join("runs", rec.Name())
	rec.Cost.Tokens = int64(r.epochs * float64(r.tokens))
	val, train := r.loss(), r.loss()-0.1*math.Log2(1+r.epochs)
	if status == study.Done {
		rec.Val, rec.Loss = &val, &train
	} else {
		rec.Reason = "the loss of step 7 is NaN"
	}
	if err := g.Put(rec); err != nil {
		t.Fatal(err)
	}
	if folders {
		runFolder(t, filepath.Join(g.Dir, rec.Run), rec, r, val, train)
	}
}

// runFolder writes what a run leaves.
func runFolder(t *testing.T, dir string, rec *study.Record, r recipe, val, train float64) {
	t.Helper()
	text, err := config.Init("micro-0.3M")
	if err != nil {
		t.Fatal(err)
	}
	over := append(r.settings(), "data.store=store", fmt.Sprintf("train.seed=%d", r.seed), "model.preset=", "model.heads=2", "model.kv_heads=1", "model.layers=2", "model.ffn=96")
	c, err := config.Parse("run.yaml", text, over)
	if err != nil {
		t.Fatal(err)
	}
	const steps = 40
	var metrics strings.Builder
	for k := 1; k <= steps; k++ {
		epoch := r.epochs * float64(k) / steps
		down := math.Exp(-6 * float64(k) / steps)
		fmt.Fprintf(&metrics, `{"type":"step","step":%d,"epoch":%g,"loss":%g,"norm":1,"lr":0.01,"chain":"%04x"`, k, epoch, train+2*down, k)
		if k%5 == 0 {
			fmt.Fprintf(&metrics, `,"tok_s":%d,"wait":0.001`, 20000+k)
		}
		metrics.WriteString("}\n")
		if k%8 == 0 {
			fmt.Fprintf(&metrics, `{"type":"eval","step":%d,"loss":%g,"tokens":5000}`+"\n", k, val+2*down-2*math.Exp(-6))
		}
	}
	info := run.Info{
		ID: rec.Name(), ConfigHash: rec.ConfigHash, DataHash: rec.DataHash, TokenizerHash: rec.TokenizerHash, Code: rec.Code,
		Go: "go1.26", OS: "linux", Arch: "amd64", CPU: "a processor", Precision: "f32", Args: []string{"refrain", "sweep", "made up.yaml"},
	}
	write(t, dir, map[string]any{
		run.RunFile: info, run.ExitFile: run.Exit{Status: "done", Step: steps}, run.PlanFile: map[string]any{"params": r.params(), "unique_tokens": r.tokens},
		run.ConfigFile: string(c.YAML()), run.MetricsFile: metrics.String(), run.LogFile: `{"msg":"started","step":0}` + "\n",
	})
}

// write writes files: text as it is, everything else as JSON.
func write(t *testing.T, dir string, files map[string]any) {
	t.Helper()
	for name, v := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		b, ok := []byte(nil), false
		if s, isText := v.(string); isText {
			b, ok = []byte(s), true
		}
		if !ok {
			var err error
			if b, err = json.Marshal(v); err != nil {
				t.Fatal(err)
			}
		}
		if err := os.WriteFile(path, b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// sweepOf writes a registry.
func sweepOf(t *testing.T, dir string, folders bool, recipes []recipe) {
	t.Helper()
	g, err := study.OpenRegistry(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, r := range recipes {
		put(t, g, r, folders)
	}
	if err := g.Close(); err != nil {
		t.Fatal(err)
	}
}

// grid has a valley over epochs for three decays and two orders, over three seeds.
func grid() (out []recipe) {
	for _, epochs := range []float64{1, 2, 4, 8, 16} {
		for _, decay := range []float64{0.1, 0.8, 3.2} {
			for _, mode := range []string{"fixed", "repack"} {
				for seed := range 3 {
					r := usual()
					r.epochs, r.decay, r.mode, r.seed = epochs, decay, mode, uint64(seed)
					out = append(out, r)
				}
			}
		}
	}
	return out
}

// ladders has sizes, amounts of data and batches, over two seeds.
func ladders() (out []recipe) {
	for seed := range 2 {
		at := func(change func(*recipe)) {
			r := usual()
			r.seed = uint64(seed)
			change(&r)
			out = append(out, r)
		}
		for _, dim := range []int{16, 32, 64, 128} {
			at(func(r *recipe) { r.dim = dim })
		}
		for _, tokens := range []int64{16384, 32768, 131072} {
			at(func(r *recipe) { r.tokens = tokens })
		}
		for _, batch := range []float64{2, 4, 16, 32} {
			at(func(r *recipe) { r.batch = batch })
		}
	}
	return out
}
