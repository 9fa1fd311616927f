package model_test

import (
	"encoding/json"
	"strings"
	"testing"

	"refrain/internal/golden"
	"refrain/model"
)

// TestHFRoundTrip: every shape comes back from its config.json.
func TestHFRoundTrip(t *testing.T) {
	configs := []model.Config{tiny(false), tiny(true)}
	for _, p := range model.Presets() {
		configs = append(configs, p.Config)
	}
	bos, eos := 3, 0
	for _, c := range configs {
		for _, h := range []model.HF{{}, {BOS: &bos, EOS: &eos}} {
			b, err := model.HFConfig(c, h)
			if err != nil {
				t.Fatal(err)
			}
			got, gh, err := model.ParseHFConfig(b)
			if err != nil {
				t.Fatalf("%v\n%s", err, b)
			}
			if got != c {
				t.Errorf("%+v came back as %+v", c, got)
			}
			if (gh.BOS == nil) != (h.BOS == nil) || (gh.EOS == nil) != (h.EOS == nil) || h.BOS != nil && (*gh.BOS != bos || *gh.EOS != eos) {
				t.Errorf("ids %v %v came back as %v %v", h.BOS, h.EOS, gh.BOS, gh.EOS)
			}
		}
	}
}

// TestHFConfigText: the file itself, whose keys others read by name.
func TestHFConfigText(t *testing.T) {
	eos := 0
	b, err := model.HFConfig(tiny(true), model.HF{EOS: &eos})
	if err != nil {
		t.Fatal(err)
	}
	golden.File(t, "testdata/config.json", b)
}

// TestHFRefuses: a config.json that asks for something else than what this
// program computes is refused by the name of the key, never approximated.
func TestHFRefuses(t *testing.T) {
	for _, c := range []struct {
		key  string
		val  any
		want string
	}{
		{"model_type", "mistral", "model_type"},
		{"hidden_act", "gelu", "hidden_act"},
		{"attention_bias", true, "attention_bias"},
		{"mlp_bias", true, "mlp_bias"},
		{"rope_scaling", map[string]any{"rope_type": "llama3", "factor": 8}, "rope_scaling"},
		{"rope_theta", 500000.0, "rope_theta is 500000 and rope_parameters.rope_theta is 10000"},
		{"rope_parameters", map[string]any{"rope_type": "yarn", "rope_theta": 10000}, "rope_type"},
		{"num_key_value_heads", 3, "kv_heads (3)"},
		{"vocab_size", 0, "vocab is 0"},
		{"vocab_size", -5, "vocab is -5"},
		{"rms_norm_eps", 0, "norm_eps"},
		{"hidden_size", "wide", "config.json"},
	} {
		m := hfMap(t)
		m[c.key] = c.val
		b, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := model.ParseHFConfig(b); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s = %v: error %v, want one that says %q", c.key, c.val, err, c.want)
		}
	}
	m := hfMap(t)
	delete(m, "rope_theta")
	delete(m, "rope_parameters")
	b, err := json.Marshal(m)
	if err != nil {
		t.Fatal(err)
	}
	if _, _, err := model.ParseHFConfig(b); err == nil || !strings.Contains(err.Error(), "rope_theta") {
		t.Errorf("no rotary base: error %v", err)
	}
	if _, _, err := model.ParseHFConfig([]byte("{")); err == nil || !strings.Contains(err.Error(), "config.json") {
		t.Errorf("half a file: error %v", err)
	}
}

// TestHFAccepts: the spellings of older and newer files.
func TestHFAccepts(t *testing.T) {
	change := func(f func(map[string]any)) model.Config {
		t.Helper()
		m := hfMap(t)
		f(m)
		b, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		c, _, err := model.ParseHFConfig(b)
		if err != nil {
			t.Error(err)
		}
		return c
	}
	want := tiny(true)
	if c := change(func(m map[string]any) { delete(m, "rope_parameters") }); c != want {
		t.Errorf("without rope_parameters: %+v", c)
	}
	if c := change(func(m map[string]any) { delete(m, "rope_theta") }); c != want {
		t.Errorf("without rope_theta: %+v", c)
	}
	plain := want
	plain.HeadDim, plain.KVHeads = 0, plain.Heads
	if c := change(func(m map[string]any) { delete(m, "head_dim"); delete(m, "num_key_value_heads") }); c != plain {
		t.Errorf("without head_dim and num_key_value_heads: %+v, want %+v", c, plain)
	}
	if c := change(func(m map[string]any) { m["eos_token_id"] = []int{1, 2} }); c != want {
		t.Errorf("with a list of end tokens: %+v", c)
	}
}

func hfMap(t *testing.T) map[string]any {
	t.Helper()
	b, err := model.HFConfig(tiny(true), model.HF{})
	if err != nil {
		t.Fatal(err)
	}
	var m map[string]any
	if err := json.Unmarshal(b, &m); err != nil {
		t.Fatal(err)
	}
	return m
}
