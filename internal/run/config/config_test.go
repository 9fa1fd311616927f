package config

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"refrain/internal/golden"
	"refrain/model"
)

// TestErrors compares every message with the script, word by word.
func TestErrors(t *testing.T) {
	golden.Script(t, "testdata/errors.script", func(t *testing.T, c golden.Case) string {
		r, err := Parse("c.yaml", []byte(c.Input+"\n"), c.Args)
		if err != nil {
			var p *Problems
			if !errors.As(err, &p) || p.ExitCode() != 2 {
				t.Fatalf("line %d: error of type %T", c.Line, err)
			}
			return err.Error()
		}
		return "ok " + r.Hash()[:8]
	})
}

func TestInitGolden(t *testing.T) {
	for _, p := range PresetNames() {
		text, err := Init(p)
		if err != nil {
			t.Fatal(err)
		}
		golden.File(t, filepath.Join("testdata", "init", p+".yaml"), text)

		// As printed it lacks the store and nothing else.
		_, err = Parse("c.yaml", text, nil)
		var ps *Problems
		if !errors.As(err, &ps) || len(ps.List) != 1 || !strings.Contains(ps.List[0].Text, "data.store is not set") {
			t.Fatalf("%s: want one problem about data.store, got %v", p, err)
		}
		if !strings.HasPrefix(ps.List[0].Where, "c.yaml:") {
			t.Errorf("%s: the missing store is reported at %q, want the line of the key", p, ps.List[0].Where)
		}
		r, err := Parse("c.yaml", text, []string{"data.store=corpus"})
		if err != nil {
			t.Fatal(err)
		}
		shape, _ := FindPreset(p)
		if shape.LR <= 0 {
			t.Errorf("%s has no learning rate", p)
		}
		m, want := r.Config.Model, shape.Model
		if m.Layers != want.Layers || m.Dim != want.Dim || m.KVHeads != want.KVHeads || m.Tie != want.Tie || r.Config.Optim.LR != shape.LR ||
			r.Config.Data.Seq != shape.Seq || r.Config.Train.Batch != shape.Batch {
			t.Errorf("%s: resolved to %+v", p, r.Config)
		}
	}
	if _, err := Init("micro-2M"); err == nil || !strings.Contains(err.Error(), `did you mean "micro-1M"`) {
		t.Errorf("Init of an unknown preset: %v", err)
	}
}

// TestInitUncommented removes every comment mark: all keys of the printed file
// must be real ones with legal values.
func TestInitUncommented(t *testing.T) {
	text, err := Init("micro-1M")
	if err != nil {
		t.Fatal(err)
	}
	keys := 0
	var out []string
	for i, line := range strings.Split(string(text), "\n") {
		if i < 3 {
			continue // the head comment
		}
		body := strings.TrimLeft(line, " ")
		if rest, ok := strings.CutPrefix(body, "# "); ok {
			line = line[:len(line)-len(body)] + rest
		}
		if body != "" {
			keys++
		}
		out = append(out, line)
	}
	r, err := Parse("c.yaml", []byte(strings.Join(out, "\n")), []string{"data.store=s"})
	if err != nil {
		t.Fatal(err)
	}
	want, err := Parse("c.yaml", text, []string{"data.store=s"})
	if err != nil {
		t.Fatal(err)
	}
	for _, d := range Diff(&want.Config, &r.Config) {
		t.Errorf("%s: %s as comment, %s uncommented", d.Key, d.A, d.B)
	}
	if n := len(table().byPath); keys != n {
		t.Errorf("Init prints %d keys, there are %d", keys, n)
	}
}

func TestResolvedRoundTrip(t *testing.T) {
	cases := [][]string{
		{"model.preset=micro-1M", "train.epochs=4"},
		{"model.preset=150M", "train.tokens=1_000_000", "optim.warmup_steps=7", "data.seed=9", "train.seed=18446744073709551615"},
		{"model.layers=1", "model.dim=8", "model.heads=2", "model.ffn=3", "train.steps=5", "optim.head_decay=0", "optim.lr=1e-9",
			"data.inputs=[a b, \"c: #d\", \"\\u00e9\", 17, 'true', \"\\\"\"]", "data.tokenizer=train:300", "data.pool=2/3", "metrics.addr=localhost:0"},
		{"model.preset=micro-0.3M", "train.epochs=0.5", "data.store=s/", "data.mode=block", "eval.batch=3", "optim.lr_mul.tied=2.5"},
	}
	for _, o := range cases {
		if !strings.Contains(strings.Join(o, " "), "data.store") {
			o = append(o, "data.store=a folder/\u00fc: #x")
		}
		r, err := Parse("c.yaml", nil, o)
		if err != nil {
			t.Fatal(err)
		}
		text := r.YAML()
		again, err := Parse("config.yaml", text, nil)
		if err != nil {
			t.Fatalf("%v\n%s", err, text)
		}
		if d := Diff(&r.Config, &again.Config); len(d) > 0 || !reflect.DeepEqual(r.Config, again.Config) {
			t.Errorf("round trip changed %v\n%s", d, text)
		}
		if r.Hash() != again.Hash() {
			t.Error("round trip changed the hash")
		}
	}
}

func TestYAMLGolden(t *testing.T) {
	text := "model:\n  preset: micro-1M\n  tie: true\ndata:\n  store: corpus\ntrain:\n  epochs: 8\n"
	r, err := Parse("run.yaml", []byte(text), []string{"optim.lr=2e-3", "data.seq=256", "train.precision=bf16"})
	if err != nil {
		t.Fatal(err)
	}
	golden.File(t, "testdata/resolved.yaml", r.YAML())
	for key, want := range map[string]string{
		"model.layers": "preset micro-1M", "model.tie": "run.yaml:3", "optim.lr": "override 1",
		"data.seq": "override 2", "model.max_t": "derived: data.seq", "optim.clip": "default",
	} {
		if got := r.Origin(key).String(); got != want {
			t.Errorf("origin of %s is %q, want %q", key, got, want)
		}
	}
}

func TestSchemaGolden(t *testing.T) {
	s := Schema()
	if !json.Valid(s) {
		t.Fatal("the schema is not JSON")
	}
	golden.File(t, "testdata/schema.json", s)
}

func parse(t *testing.T, overrides ...string) *Resolved {
	t.Helper()
	for _, o := range []string{"model.preset=micro-1M", "data.store=s", "train.epochs=2"} {
		key, _, _ := strings.Cut(o, "=")
		if !strings.Contains(strings.Join(overrides, " "), key+"=") {
			overrides = append(overrides, o)
		}
	}
	r, err := Parse("c.yaml", nil, overrides)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// TestHash changes every key in turn: the hash must change exactly for those
// that can change a weight.
func TestHash(t *testing.T) {
	changes := map[string]string{
		"model.rope_scaling": "llama3:8:1:4:8192",
		"model.vocab":        "300", "model.layers": "3", "model.dim": "64", "model.heads": "2", "model.kv_heads": "2",
		"model.ffn": "100", "model.max_t": "1024", "model.rope_theta": "500000", "model.norm_eps": "1e-6",
		"model.tie": "false", "model.init": "normal-0.02", "data.subset.tokens": "9", "data.subset.docs": "9",
		"data.subset.seed": "1", "data.pool": "1/2", "data.mode": "fixed", "data.block": "7", "data.seq": "256",
		"data.seed": "5", "data.tail": "pad", "data.targets": "inside", "data.doc_mask": "false",
		"data.reset_positions": "true", "train.batch": "16", "train.epochs": "3", "train.shards": "2",
		"train.seed": "3", "optim.lr": "0.1", "optim.beta1": "0.8", "optim.beta2": "0.9", "optim.beta2_reference_batch": "64", "optim.eps": "1e-7",
		"optim.clip": "2", "optim.warmup_frac": "0.1", "optim.warmup_steps": "3", "optim.min_lr_ratio": "0.1",
		"optim.weight_decay": "1", "optim.head_decay": "1", "optim.embedding_decay": "1", "optim.tied_decay": "1",
		"optim.norm_decay": "1", "optim.lr_mul.hidden": "2", "optim.lr_mul.head": "2", "optim.lr_mul.embedding": "2",
		"optim.lr_mul.tied": "2", "optim.lr_mul.norm": "2", "data.synthetic.fraction": "0.75",
		"optim.schedule": "cyclic", "optim.cycles": "7", "optim.cycle_decay_from": "0.5", "optim.cycle_decay_to": "2",
		"regularize.dropout": "0.1", "regularize.masked_weight": "0.4", "regularize.masked_from": "0.1", "regularize.masked_to": "0.3", "regularize.masked_id": "eos",
		"distill.weight": "0.25", "distill.temperature": "2", "distill.top_k": "8",
	}
	quiet := map[string]string{
		"model.from": "f", "data.store": "other", "data.val": "v", "data.field": "body", "data.kind": "text", "data.max_batch": "5", "data.tokenizer": "t.json", "data.val_docs": "5",
		"data.invalid_utf8": "skip", "data.bad_line": "skip", "data.truncated": "skip", "data.too_long": "skip", "data.max_line": "5", "data.max_doc": "5", "data.include": "[a]", "data.exclude": "[a]", "data.empty": "fail",
		"data.duplicate": "fail", "data.skip_budget": "0.5", "train.device": "cuda", "train.devices": "2", "train.micro_batch": "4", "train.threads": "3",
		"eval.every": "5", "eval.rows": "5", "eval.batch": "5", "save.every": "5", "save.minutes": "5", "save.keep": "5",
		"data.synthetic.store": "z", "distill.teachers": "[b]", "log.every": "5", "metrics.addr": "localhost:0", "pprof.addr": "localhost:0",
	}
	// Reached in other ways: a preset only names a shape, and the other
	// lengths and lists need a second key to be legal.
	other := map[string]bool{"model.preset": true, "train.tokens": true, "train.steps": true, "train.precision": true, "data.inputs": true}
	for _, f := range table().leaves {
		v, loud := changes[f.path]
		q, silent := quiet[f.path]
		switch {
		case other[f.path]:
			continue
		case !loud && !silent:
			t.Errorf("%s is in neither list of this test", f.path)
			continue
		case loud != f.weights:
			t.Errorf("%s: the tag says weights=%v", f.path, f.weights)
		}
		// Keys that only go together with another one.
		var with []string
		switch {
		case f.path == "model.heads":
			with = []string{"model.kv_heads=2"}
		case strings.HasPrefix(f.path, "optim.cycle"):
			with = []string{"optim.schedule=cyclic"}
		}
		if strings.HasPrefix(f.path, "data.synthetic.") {
			with = []string{"data.synthetic.store=y", "data.synthetic.fraction=0.5"}
		}
		if strings.HasPrefix(f.path, "distill.") {
			with = []string{"distill.teachers=[a]"}
		}
		base := parse(t, with...)
		with = slices.DeleteFunc(with, func(o string) bool { return strings.HasPrefix(o, f.path+"=") })
		r := parse(t, append(with, f.path+"="+v+q)...)
		if changed := r.Hash() != base.Hash(); changed != loud {
			t.Errorf("%s=%s%s: hash changed: %v", f.path, v, q, changed)
		}
		found := false
		for _, d := range Diff(&base.Config, &r.Config) {
			found = found || d.Key == f.path && d.Weights == loud
		}
		if !found {
			t.Errorf("Diff does not name %s", f.path)
		}
	}
	if a, b := parse(t, "optim.lr=2e-3"), parse(t, "optim.lr=0.002"); a.Hash() != b.Hash() {
		t.Error("two spellings of one value have two hashes")
	}
}

// TestHashStays: a run that was begun by an older program keeps its hash, or it could not
// be resumed and its records would not be found. These were written down before any key
// had the tag hash.
func TestHashStays(t *testing.T) {
	for _, c := range []struct {
		want      string
		overrides []string
	}{
		{"d64d95153dd17428a0e37a9ef543429e70a230c7b89d9d4676beb1864ae0d8e9", []string{"train.precision=f32"}},
		{"65affa4a39bd1eb2aecc75951b4888aaa73c0fb2d8435c7dc6fa0bd40cb7856c", []string{"optim.lr=0.01", "train.seed=3", "train.precision=bf16"}},
	} {
		if got := parse(t, c.overrides...).Hash(); got != c.want {
			t.Errorf("%v: hash %s, was %s; a new key needs a default that changes nothing, and the tag hash:\"changed\"", c.overrides, got, c.want)
		}
	}
}

// TestPresetSizes counts parameters of the untied shapes against the published
// table (embedding, head, four attention matrices, three of the SwiGLU, norms).
func TestPresetSizes(t *testing.T) {
	want := map[string]int64{"150M": 154147328, "300M": 299649792, "600M": 602457088,
		"1.4B": 1431373824, "1.5B": 1540732416, "3.2B": 3243444224}
	for _, p := range Presets() {
		if strings.HasPrefix(p.Name, "micro-") {
			continue
		}
		m := p.Model
		d, hd := int64(m.Dim), int64(m.Dim/m.Heads)
		layer := 2*d*d + 2*d*int64(m.KVHeads)*hd + 3*d*int64(m.FFN) + 2*d
		if n := 2*int64(m.Vocab)*d + int64(m.Layers)*layer + d; n != want[p.Name] || m.Tie {
			t.Errorf("%s has %d parameters, want %d", p.Name, n, want[p.Name])
		}
	}
}

func TestHorizon(t *testing.T) {
	for _, c := range []struct {
		override string
		windows  int64
		steps    int64
		problem  string
	}{
		{"train.epochs=16", 512, 1024, ""},
		{"train.epochs=3", 13, 4, ""}, // 39 windows, 8 a step
		{"train.epochs=0.5", 512, 32, ""},
		{"train.epochs=1e6", 1 << 40, 1 << 37 * 1000000, ""},
		{"train.epochs=0.001", 512, 0, "less than one step"},
		{"train.steps=7", 512, 7, ""},
		{"train.tokens=8192", 512, 2, ""},
		{"train.tokens=8191", 512, 1, ""},
		{"train.epochs=1", 0, 0, "longer than the corpus"},
		{"train.epochs=1", 7, 0, "more than an epoch"},
		{"train.steps=1", 7, 0, "more than an epoch"},
		{"train.epochs=1", 1<<40 + 1, 0, "limit"},
	} {
		r, err := Parse("c.yaml", nil, []string{"model.preset=micro-1M", "data.store=s", c.override})
		if err != nil {
			t.Fatal(err)
		}
		n, err := r.Config.Horizon(c.windows)
		if n != c.steps || (err == nil) != (c.problem == "") || err != nil && !strings.Contains(err.Error(), c.problem) {
			t.Errorf("%s, %d windows: %d, %v; want %d, %q", c.override, c.windows, n, err, c.steps, c.problem)
		}
	}
}

// TestLimits is at each limit and one beyond.
func TestLimits(t *testing.T) {
	ok := "model: {preset: micro-1M}\ndata: {store: s}\ntrain: {epochs: 1}\n"
	pad := func(n int) string { return ok + "#" + strings.Repeat("x", n-len(ok)-2) + "\n" }
	deep := func(n int) string { return ok + "log: " + strings.Repeat("[", n) + strings.Repeat("]", n) + "\n" }
	for _, c := range []struct{ name, text, want string }{
		{"1 MiB", pad(maxFileBytes), ""},
		{"1 MiB + 1", pad(maxFileBytes + 1), "longer than 1048576 bytes"},
		{"depth 32", deep(32), "log holds keys"},
		{"depth 33", deep(33), "nested more than 32 deep"},
		{"half a million brackets", deep(500000), "nested more than 32 deep"},
		{"half a million list marks", ok + "log:\n" + strings.Repeat("- ", 500000), "nested more than 128 columns"},
		{"half a million colons", ok + strings.Repeat("a: ", 300000), "a second"},
		{"deep indent", ok + "log:\n" + strings.Repeat(" ", 200) + "every: 1\n", "indented by more than 128"},
		{"long key", ok + strings.Repeat("k", 900000) + ": 1\n", `unknown key "kkkk`},
		{"not UTF-8", ok + "# \xff\n", "c.yaml:4:1: the file is not valid UTF-8"},
	} {
		_, err := Parse("c.yaml", []byte(c.text), nil)
		switch {
		case c.want == "" && err != nil:
			t.Errorf("%s: %v", c.name, err)
		case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
			t.Errorf("%s: got %.300v, want %q", c.name, err, c.want)
		case err != nil && len(err.Error()) > 2000:
			t.Errorf("%s: a message of %d bytes", c.name, len(err.Error()))
		}
	}
}

func TestLoadFiles(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "c.yaml")
	if err := os.WriteFile(path, []byte("model: {preset: micro-1M}\ndata: {store: s}\ntrain: {epochs: 1}\n"), 0o666); err != nil {
		t.Fatal(err)
	}
	r, err := Load(path, []string{"data.store=other"})
	if err != nil || r.Config.Data.Store != "other" || r.Path != path || *r.Config.Data.Seed != 0 {
		t.Fatalf("%+v, %v", r, err)
	}
	big := filepath.Join(dir, "big.yaml")
	if err := os.WriteFile(big, make([]byte, maxFileBytes+1), 0o666); err != nil {
		t.Fatal(err)
	}
	for p, want := range map[string]string{
		filepath.Join(dir, "none.yaml"): "no such file; `refrain config init",
		dir:                             "is a folder",
		big:                             "longer than 1048576 bytes",
	} {
		_, err := Load(p, []string{"optim.lr=x"})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.HasSuffix(err.Error(), "1 problem; nothing was started.") {
			t.Errorf("%s: %v", p, err)
		}
	}
}

func TestAccessors(t *testing.T) {
	d := Data{ValDocs: "2.5%", Pool: "2/3"}
	if share, n, err := d.Validation(); share != 0.025 || n != 0 || err != nil {
		t.Error(share, n, err)
	}
	if k, n, err := d.PoolOf(); k != 2 || n != 3 || err != nil {
		t.Error(k, n, err)
	}
	d = Data{ValDocs: "40"}
	if share, n, err := d.Validation(); share != 0 || n != 40 || err != nil {
		t.Error(share, n, err)
	}
	if k, n, err := d.PoolOf(); k != 1 || n != 1 || err != nil {
		t.Error(k, n, err)
	}
}

// FuzzConfig: no input may panic, and whatever loads must survive a round trip
// through its resolved form.
func FuzzConfig(f *testing.F) {
	f.Add("model: {preset: micro-1M}\ndata: {store: s}\ntrain: {epochs: 1}\n", "optim.lr=1e-3")
	f.Add("data:\n  inputs: [a, \"b\\u0041\", 'c']\n  store: |\n    x\n    y\n", "model.preset=150M")
	f.Add("a: &x [1]\nb: *x\n<<: 2\n? q\n: !!int 3\n%YAML 1.2\n---\n...\n", "=")
	f.Add("- - - {a: [}, \t\"\\x\n", "data.inputs=[{]")
	f.Fuzz(func(t *testing.T, text, override string) {
		base := []string{"model.preset=micro-1M", "train.epochs=1", "train.steps=", "train.tokens="}
		for _, o := range [][]string{{override}, append(base, override)} {
			r, err := Parse("c.yaml", []byte(text), o)
			if err != nil {
				var p *Problems
				if !errors.As(err, &p) || len(p.List) == 0 {
					t.Fatalf("error without problems: %v", err)
				}
				continue
			}
			again, err := Parse("c.yaml", r.YAML(), nil)
			if err != nil {
				t.Fatalf("%v\n%s", err, r.YAML())
			}
			if d := Diff(&r.Config, &again.Config); len(d) > 0 {
				t.Fatalf("round trip changed %v", d)
			}
		}
	})
}

func ExampleLoad() {
	_, err := Parse("c.yaml", []byte("optim:\n  wieght_decay: 0.1\n"), []string{"model.preset=micro-1M", "data.store=s", "train.epochs=1"})
	fmt.Println(err)
	// Output:
	// c.yaml:2:3: unknown key "wieght_decay" in optim - did you mean "weight_decay"?
	// 1 problem; nothing was started.
}

// TestPrecision: "auto" is what the machine is good at, is never left standing, and
// gives way to a run that began otherwise; what is said outright does not.
func TestPrecision(t *testing.T) {
	load := func(o ...string) *Resolved {
		t.Helper()
		r, err := Parse("c.yaml", nil, append([]string{"model.preset=micro-1M", "data.store=s", "train.epochs=1"}, o...))
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	f32, bf16, open := load("train.precision=f32"), load("train.precision=bf16"), load()
	auto := load("train.precision=auto")
	if p := model.AutoPolicy().String(); open.Config.Train.Precision != p || auto.Config.Train.Precision != p || open.Origin("train.precision").Kind != FromRule {
		t.Errorf("left open it is %s, auto is %s (%v); want %s", open.Config.Train.Precision, auto.Config.Train.Precision, open.Origin("train.precision"), p)
	}
	if f32.Hash() == bf16.Hash() {
		t.Error("the precision is not in the hash")
	}
	for _, began := range []*Resolved{f32, bf16} {
		want := began.Config.Train.Precision
		for _, o := range []*Resolved{open, auto} {
			if k := o.Keep(began); k.Config.Train.Precision != want || k.Hash() != began.Hash() || o.Config.Train.Precision != model.AutoPolicy().String() {
				t.Errorf("kept %s of a run in %s; hash %.8s, want %.8s", k.Config.Train.Precision, want, k.Hash(), began.Hash())
			}
		}
		for _, said := range []*Resolved{f32, bf16} {
			if said.Keep(began) != said {
				t.Errorf("%s said outright gave way to %s", said.Config.Train.Precision, want)
			}
		}
	}
}
