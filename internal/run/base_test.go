package run_test

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"refrain/gpu"
	"refrain/internal/num"
	"refrain/internal/run"
	"refrain/internal/run/config"
	"refrain/model"
	"refrain/train/ckpt"
	"refrain/train/eval"
)

// trainBase trains a run of the tiny model and returns its folder, its newest checkpoint
// and its last validation loss.
func trainBase(t *testing.T, store string, overrides ...string) (out, path string, val float64) {
	t.Helper()
	out = filepath.Join(t.TempDir(), "run")
	res, err := run.Train(t.Context(), run.Job{Setup: setup(t, store, append([]string{"eval.every=1000"}, overrides...)...), Out: out})
	if err != nil {
		t.Fatal(err)
	}
	return out, res.Path, res.Val.Loss
}

// still are overrides under which a step changes next to nothing.
func still(from string) []string {
	return []string{"model.from=" + from, "train.epochs=null", "train.steps=1", "optim.lr=1e-12", "optim.weight_decay=0", "train.seed=77", "data.seed=0"}
}

// TestRow28ContinuedPretraining (E row 28): a run that starts from the checkpoint of
// another has its loss, whatever its own seed; training goes on from there; kill and
// resume and the identity of the run know the weights it came from.
func TestRow28ContinuedPretraining(t *testing.T) {
	store := makeStore(t, 64)
	_, from, val := trainBase(t, store)
	out, same, after := trainBase(t, store, still(from)...)
	if math.Abs(after-val) > 1e-6 {
		t.Errorf("the loss was %v and is %v", val, after)
	}
	if _, _, fresh := trainBase(t, store, still("")...); fresh < val+0.1 {
		t.Errorf("new weights have the loss %v, the trained ones %v", fresh, val)
	}
	if _, _, on := trainBase(t, store, "model.from="+from, "train.epochs=2", "train.seed=5"); on >= val {
		t.Errorf("two more epochs lead from %v to %v", val, on)
	}
	// The record says where the weights are from, and the folder is not needed to use it.
	rec, err := run.ReadRecord(out)
	if err != nil || rec.Info.BaseHash == "" {
		t.Fatalf("%+v, %v", rec, err)
	}
	a, b := setup(t, store, still(from)...), setup(t, store, still("")...)
	if a.ConfigHash() == b.ConfigHash() || a.ConfigHash() != rec.Info.ConfigHash || b.ConfigHash() != b.Config.Hash() {
		t.Errorf("hashes %s and %s, the run has %s", a.ConfigHash(), b.ConfigHash(), rec.Info.ConfigHash)
	}
	copied := copyFolder(t, from)
	if c := setup(t, store, still(copied)...); c.ConfigHash() != a.ConfigHash() {
		t.Error("the same weights elsewhere are another run")
	}
	_, err = run.Train(t.Context(), run.Job{Setup: b, Out: out, Resume: run.ResumeAuto})
	if err == nil || !strings.Contains(err.Error(), "started from the weights") || !strings.Contains(err.Error(), "new weights") {
		t.Errorf("%v", err)
	}
	if same == "" {
		t.Error("no checkpoint")
	}
}

// TestRow28ConfigFromWeights (E row 28): the configuration that is written for a folder of
// weights is one that starts from them.
func TestRow28ConfigFromWeights(t *testing.T) {
	store := makeStore(t, 64)
	c := model.Config{Vocab: vocab, Layers: 1, Dim: 24, Heads: 4, KVHeads: 2, FFN: 40, MaxT: 32, RopeTheta: 5e5, NormEps: 1e-6, Tie: true,
		RopeScaling: model.RopeScaling{Factor: 8, Low: 1, High: 4, Original: 16}, Init: model.InitPapers}
	dir := writeBase(t, c, make([]float32, c.Layout().Total), "BF16", 2, nil)
	b, err := run.OpenBase(dir)
	if err != nil {
		t.Fatal(err)
	}
	text, err := config.InitFrom(dir, b.Config)
	if err != nil {
		t.Fatal(err)
	}
	r, err := config.Parse("on.yaml", text, []string{"data.store=" + store, "train.batch=4"})
	if err != nil {
		t.Fatal(err)
	}
	s, err := run.NewSetup(&r.Config, r)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	if s.Base == nil || s.Options.Model != c || s.Options.T != 32 {
		t.Errorf("%+v instead of %+v", s.Options.Model, c)
	}
	if lines := strings.Join(run.Header(s, "out", 1e9), "\n"); !strings.Contains(lines, "from "+dir) {
		t.Errorf("%s", lines)
	}
}

// TestRow28InterruptedRun (E row 28): stopped and resumed it ends in the same bits.
func TestRow28InterruptedRun(t *testing.T) {
	store := makeStore(t, 64)
	_, from, _ := trainBase(t, store)
	list := []string{"model.from=" + from, "train.epochs=1"}
	whole, _, _ := trainBase(t, store, list...)
	out := filepath.Join(t.TempDir(), "run")
	_, err := run.Train(t.Context(), run.Job{Setup: setup(t, store, append(list, "eval.every=1000")...), Out: out, Limit: 3})
	if run.ExitCode(err) != run.ExitResumable {
		t.Fatal(err)
	}
	if _, err := run.Train(t.Context(), run.Job{Setup: setup(t, store, append(list, "eval.every=1000")...), Out: out, Resume: run.ResumeMust}); err != nil {
		t.Fatal(err)
	}
	x, y := ledger(t, whole), ledger(t, out)
	if len(x) != len(y) || x[len(x)-1]["chain"] != y[len(y)-1]["chain"] {
		t.Error("a run that was stopped ends in other bits")
	}
}

// TestRow28DTypesAndParts (E row 28): BF16, F16 and F32, in one file or several with an
// index, give the weights that their numbers say.
func TestRow28DTypesAndParts(t *testing.T) {
	c := model.Config{Vocab: 29, Layers: 2, Dim: 16, Heads: 4, KVHeads: 2, FFN: 24, MaxT: 32, RopeTheta: 1e4, NormEps: 1e-5, Init: model.InitPapers}
	l := c.Layout()
	want := make([]float32, l.Total)
	s := num.NewStream("weights of a base model", 1)
	for i := range want {
		want[i] = float32(s.Uintn(uint64(i), 512))/256 - 1 // exact in all three types
	}
	hash := ""
	for _, dtype := range []string{"F32", "BF16", "F16"} {
		for _, parts := range []int{1, 3} {
			b, err := run.OpenBase(writeBase(t, c, want, dtype, parts, nil))
			if err != nil {
				t.Fatalf("%s in %d: %v", dtype, parts, err)
			}
			got, err := b.Weights(t.Context())
			if err != nil || !slices.Equal(got, want) {
				t.Errorf("%s in %d: other weights, %v", dtype, parts, err)
			}
			h, err := run.HashBase(t.Context(), b)
			if err != nil || hash != "" && h != hash {
				t.Errorf("%s in %d: hash %s instead of %s, %v", dtype, parts, h, hash, err)
			}
			hash = h
		}
	}
}

// toF16 rounds a number that binary16 holds exactly.
func toF16(x float32) uint16 {
	b := math.Float32bits(x)
	if x == 0 {
		return uint16(b >> 16)
	}
	return uint16(b>>31<<15 | (b>>23&0xff-127+15)<<10 | b>>13&0x3ff)
}

// writeBase writes a Hugging Face folder, in one file or in parts with an index. change,
// when not nil, may alter the tensors.
func writeBase(t *testing.T, c model.Config, w []float32, dtype string, parts int, change func(list []ckpt.Tensor) []ckpt.Tensor) string {
	t.Helper()
	dir := t.TempDir()
	text, err := model.HFConfig(c, model.HF{})
	if err != nil {
		t.Fatal(err)
	}
	write := func(name string, b []byte) {
		if err := os.WriteFile(filepath.Join(dir, name), b, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write("config.json", text)
	var list []ckpt.Tensor
	for _, p := range c.Layout().Params {
		var raw []byte
		for _, v := range w[p.Off : p.Off+p.Len] {
			switch dtype {
			case "F32":
				raw = binary.LittleEndian.AppendUint32(raw, math.Float32bits(v))
			case "BF16":
				raw = binary.LittleEndian.AppendUint16(raw, uint16(num.ToBF16(v)))
			case "F16":
				raw = binary.LittleEndian.AppendUint16(raw, toF16(v))
			}
		}
		list = append(list, ckpt.Tensor{TensorInfo: ckpt.TensorInfo{Name: p.Name, DType: dtype, Shape: p.Shape}, Data: raw})
	}
	if change != nil {
		list = change(list)
	}
	index := map[string]string{}
	for i := range parts {
		name := ckpt.ModelFile
		if parts > 1 {
			name = fmt.Sprintf("model-%05d-of-%05d.safetensors", i+1, parts)
		}
		var some []ckpt.Tensor
		for j, x := range list {
			if j%parts == i {
				some = append(some, x)
				index[x.Name] = name
			}
		}
		var b bytes.Buffer
		if err := ckpt.EncodeTensors(&b, some); err != nil {
			t.Fatal(err)
		}
		write(name, b.Bytes())
	}
	if parts > 1 {
		b, err := json.Marshal(map[string]any{"metadata": map[string]int{"total_size": 1}, "weight_map": index})
		if err != nil {
			t.Fatal(err)
		}
		write("model.safetensors.index.json", b)
	}
	return dir
}

// TestRow28LossOfReference (E row 28): a folder with the weights of the fixture that a
// PyTorch model wrote, read as a base model, has the loss that PyTorch found.
func TestRow28LossOfReference(t *testing.T) {
	file, err := os.ReadFile(filepath.Join("..", "..", "model", "testdata", "parity.safetensors"))
	if err != nil {
		t.Fatal(err)
	}
	tensors, meta, err := ckpt.DecodeTensors(file)
	if err != nil {
		t.Fatal(err)
	}
	var cases map[string]struct {
		Vocab, Layers, Dim, Heads, FFN int
		KVHeads                        int `json:"kv_heads"`
		HeadDim                        int `json:"head_dim"`
		Theta, Eps                     float64
		Tie, Mask, Reset               bool
		B, T                           int
	}
	if err := json.Unmarshal([]byte(meta["cases"]), &cases); err != nil {
		t.Fatal(err)
	}
	devs, err := run.OpenDevices(1, 1, false)
	if err != nil {
		t.Fatal(err)
	}
	defer devs.Close()
	for _, name := range slices.Sorted(maps.Keys(cases)) {
		k := cases[name]
		c := model.Config{Vocab: k.Vocab, Layers: k.Layers, Dim: k.Dim, Heads: k.Heads, KVHeads: k.KVHeads, HeadDim: k.HeadDim, FFN: k.FFN,
			MaxT: k.T, RopeTheta: k.Theta, NormEps: k.Eps, Tie: k.Tie, Init: model.InitPapers}
		l := c.Layout()
		w := make([]float32, l.Total)
		for _, p := range l.Params {
			for i := range p.Len {
				u := float64(fixtureRaw(p.Name, i)>>8)/(1<<24) - 0.5
				if p.Role == model.Norm {
					u = 1 + u/2
				}
				w[p.Off+i] = float32(u)
			}
		}
		b, err := run.OpenBase(writeBase(t, c, w, "F32", 2, nil))
		if err != nil {
			t.Fatal(err)
		}
		read, err := b.Weights(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		ev, err := eval.New(t.Context(), devs[0], eval.Config{Model: b.Config, B: k.B, T: k.T, DocMask: k.Mask, ResetPositions: k.Reset})
		if err != nil {
			t.Fatal(err)
		}
		if err := ev.Load(t.Context(), read); err != nil {
			t.Fatal(err)
		}
		r, err := ev.Run(t.Context(), fixtureRows{k.Vocab, k.B, k.T}, nil)
		if err := ev.Close(); err != nil {
			t.Error(err)
		}
		i := slices.IndexFunc(tensors, func(x ckpt.Tensor) bool { return x.Name == name+".loss" })
		if i < 0 || err != nil {
			t.Fatalf("no loss of %s, %v", name, err)
		}
		want := gpu.BytesToFloat32s(slices.Clone(tensors[i].Data))[0]
		if math.Abs(r.Loss-float64(want)) > 1e-5 {
			t.Errorf("%s: loss %v, PyTorch has %v", name, r.Loss, want)
		}
	}
}

// fixtureRaw is value i of the array called name, as bench/peers/torch/parity.py makes it.
func fixtureRaw(name string, i int) uint32 {
	h := uint32(2166136261)
	for _, c := range []byte(name) {
		h = (h ^ uint32(c)) * 16777619
	}
	x := h + uint32(i)*0x9e3779b9
	x = (x ^ x>>16) * 0x85ebca6b
	x = (x ^ x>>13) * 0xc2b2ae35
	return x ^ x>>16
}

// fixtureRows are the rows of the fixture.
type fixtureRows struct{ vocab, b, t int }

func (f fixtureRows) Rows() int64 { return int64(f.b) }

func (f fixtureRows) ReadRow(g int64, tokens, targets []int32, starts []byte) (scored int, err error) {
	clear(starts)
	for j := range tokens {
		i := int(g)*f.t + j
		tokens[j] = int32(fixtureRaw("tokens.0", i) % uint32(f.vocab))
		targets[j] = int32(fixtureRaw("targets.0", i) % uint32(f.vocab))
		if fixtureRaw("masked.0", i)%7 == 0 {
			targets[j] = -1
		} else {
			scored++
		}
		if fixtureRaw("starts.0", i)%5 == 0 {
			starts[j/8] |= 1 << (j % 8)
		}
	}
	return scored, nil
}

// TestRow28Refuses (E row 28): what cannot be started from is refused, with the folder,
// what is wrong and what to write.
func TestRow28Refuses(t *testing.T) {
	store := makeStore(t, 64)
	_, from, _ := trainBase(t, store, "train.epochs=1")
	c := model.Config{Vocab: vocab, Layers: 2, Dim: 32, Heads: 4, KVHeads: 2, FFN: 40, MaxT: 16, RopeTheta: 1e4, NormEps: 1e-5, Init: model.InitPapers}
	w := make([]float32, c.Layout().Total)
	text := func(dir, name, content string) string {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(content), 0o644); err != nil {
			t.Fatal(err)
		}
		return dir
	}
	changed := func(change func(list []ckpt.Tensor) []ckpt.Tensor) string {
		return writeBase(t, c, w, "F32", 1, change)
	}
	scaled := c
	scaled.RopeScaling = model.RopeScaling{Factor: 8, Low: 1, High: 4, Original: 16}
	slow := writeBase(t, scaled, w, "F32", 1, nil)
	if err := trySetup(store, "model.from="+slow, "model.rope_scaling=llama3:8:1:4:16"); err != nil {
		t.Error(err)
	}
	nan := slices.Clone(w)
	nan[5] = float32(math.NaN())
	for _, x := range []struct {
		name string
		list []string
		want []string
	}{
		{"shape", []string{"model.from=" + from, "model.layers=3", "model.tie=true"}, []string{from, "model.layers is 3 and 2 there", "write model.layers=2 model.tie=false"}},
		{"scaling", []string{"model.from=" + slow}, []string{"model.rope_scaling is none and llama3:8:1:4:16 there", "write model.rope_scaling=llama3:8:1:4:16"}},
		{"length", []string{"model.from=" + from, "data.seq=24", "model.max_t=24"}, []string{"data.seq = 24 is longer than the 16 positions"}},
		{"gone", []string{"model.from=" + filepath.Join(from, "x")}, []string{"config.json", "name a folder"}},
		{"no weights", []string{"model.from=" + text(t.TempDir(), "config.json", "{}")}, []string{"model_type"}},
		{"cut", []string{"model.from=" + text(copyFolder(t, from), "model.safetensors", "12")}, []string{"model.safetensors", "2 bytes are too few"}},
		{"missing", []string{"model.from=" + changed(func(l []ckpt.Tensor) []ckpt.Tensor { return l[1:] })}, []string{"model.embed_tokens.weight is missing"}},
		{"extra", []string{"model.from=" + changed(func(l []ckpt.Tensor) []ckpt.Tensor {
			return append(l, ckpt.Tensor{TensorInfo: ckpt.TensorInfo{Name: "model.layers.0.self_attn.q_proj.bias", DType: "F32", Shape: []int{1}}, Data: make([]byte, 4)})
		})}, []string{"q_proj.bias is no parameter"}},
		{"dtype", []string{"model.from=" + changed(func(l []ckpt.Tensor) []ckpt.Tensor { l[0].DType = "I32"; return l })}, []string{"is I32; F32, BF16 and F16 are read"}},
		{"turned", []string{"model.from=" + changed(func(l []ckpt.Tensor) []ckpt.Tensor {
			slices.Reverse(l[0].Shape)
			return l
		})}, []string{"has the shape [32 67]; config.json says [67 32]"}},
		{"NaN", []string{"model.from=" + writeBase(t, c, nan, "F32", 1, nil)}, []string{"model.embed_tokens.weight", "element 5 is NaN"}},
		{"index", []string{"model.from=" + text(writeBase(t, c, w, "F32", 2, nil), "model.safetensors.index.json", `{"weight_map": {"a": "../x.safetensors"}}`)}, []string{"../x.safetensors"}},
	} {
		err := trySetup(store, x.list...)
		for _, want := range x.want {
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", x.name, err, want)
			}
		}
		if c := run.ExitCode(err); c != run.ExitUsage && c != run.ExitData {
			t.Errorf("%s: exit code %d", x.name, c)
		}
	}
}

// trySetup sets up the tiny model and returns what is wrong.
func trySetup(store string, overrides ...string) error {
	r, err := config.Parse("tiny.yaml", []byte(tinyYAML), append([]string{"data.store=" + store}, overrides...))
	if err != nil {
		return err
	}
	s, err := run.NewSetup(&r.Config, r)
	if err != nil {
		return err
	}
	return s.Close()
}
