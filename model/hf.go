package model

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"
)

// HF is what a Hugging Face config.json says beyond the shape.
type HF struct {
	BOS, EOS *int // token ids, nil when the tokenizer has none
}

type hfRope struct {
	Type  string  `json:"rope_type"`
	Theta float64 `json:"rope_theta"`
}

// hfConfig is config.json of LlamaForCausalLM. The rotary base is written in
// the old and in the new spelling: a reader that knows only one of them would
// otherwise fall back to its default without a word.
type hfConfig struct {
	Architectures []string        `json:"architectures"`
	ModelType     string          `json:"model_type"`
	Vocab         int             `json:"vocab_size"`
	Dim           int             `json:"hidden_size"`
	FFN           int             `json:"intermediate_size"`
	Layers        int             `json:"num_hidden_layers"`
	Heads         int             `json:"num_attention_heads"`
	KVHeads       int             `json:"num_key_value_heads"`
	HeadDim       int             `json:"head_dim"`
	Act           string          `json:"hidden_act"`
	MaxT          int             `json:"max_position_embeddings"`
	InitRange     float64         `json:"initializer_range"`
	NormEps       float64         `json:"rms_norm_eps"`
	Cache         bool            `json:"use_cache"`
	BOS           *int            `json:"bos_token_id"`
	EOS           json.RawMessage `json:"eos_token_id"`
	Tie           bool            `json:"tie_word_embeddings"`
	AttnBias      bool            `json:"attention_bias"`
	AttnDropout   float64         `json:"attention_dropout"`
	MLPBias       bool            `json:"mlp_bias"`
	RopeTheta     *float64        `json:"rope_theta"`
	RopeScaling   json.RawMessage `json:"rope_scaling"`
	Rope          *hfRope         `json:"rope_parameters"`
	DType         string          `json:"dtype"`
	TorchDType    string          `json:"torch_dtype"`
}

// HFConfig returns config.json for c.
func HFConfig(c Config, h HF) ([]byte, error) {
	eos := json.RawMessage("null")
	if h.EOS != nil {
		eos = json.RawMessage(fmt.Sprint(*h.EOS))
	}
	theta := c.RopeTheta
	b, err := json.MarshalIndent(hfConfig{
		Architectures: []string{"LlamaForCausalLM"}, ModelType: "llama",
		Vocab: c.Vocab, Dim: c.Dim, FFN: c.FFN, Layers: c.Layers, Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.C(),
		Act: "silu", MaxT: c.MaxT, InitRange: 0.02, NormEps: c.NormEps, Cache: true,
		BOS: h.BOS, EOS: eos, Tie: c.Tie,
		RopeTheta: &theta, RopeScaling: json.RawMessage("null"), Rope: &hfRope{"default", theta},
		DType: "float32", TorchDType: "float32",
	}, "", "  ")
	return append(b, '\n'), err
}

// ParseHFConfig reads config.json of a Llama model. Whatever this program
// cannot compute exactly is an error that names the key.
func ParseHFConfig(b []byte) (Config, HF, error) {
	var f hfConfig
	if err := json.Unmarshal(b, &f); err != nil {
		return Config{}, HF{}, fmt.Errorf("config.json: %w", err)
	}
	var errs []error
	bad := func(format string, args ...any) { errs = append(errs, fmt.Errorf("config.json: "+format, args...)) }
	if f.ModelType != "llama" {
		bad("model_type is %q; only \"llama\" is supported", f.ModelType)
	}
	if f.Act != "" && f.Act != "silu" {
		bad("hidden_act is %q; only \"silu\" is supported", f.Act)
	}
	if f.AttnBias || f.MLPBias {
		bad("attention_bias or mlp_bias is true; biases are not supported")
	}
	if s := strings.TrimSpace(string(f.RopeScaling)); s != "" && s != "null" {
		bad("rope_scaling is %s; only the default is supported", s)
	}
	c := Config{
		Vocab: f.Vocab, Layers: f.Layers, Dim: f.Dim, Heads: f.Heads, KVHeads: f.KVHeads, FFN: f.FFN, MaxT: f.MaxT,
		NormEps: f.NormEps, Tie: f.Tie, Init: InitPapers,
	}
	if c.KVHeads == 0 {
		c.KVHeads = c.Heads
	}
	if c.Heads > 0 && f.HeadDim != 0 && f.HeadDim*c.Heads != c.Dim {
		c.HeadDim = f.HeadDim
	}
	switch {
	case f.Rope != nil && f.Rope.Type != "" && f.Rope.Type != "default":
		bad("rope_parameters.rope_type is %q; only \"default\" is supported", f.Rope.Type)
	case f.Rope != nil && f.RopeTheta != nil && *f.RopeTheta != f.Rope.Theta:
		bad("rope_theta is %g and rope_parameters.rope_theta is %g; they must agree", *f.RopeTheta, f.Rope.Theta)
	case f.Rope != nil:
		c.RopeTheta = f.Rope.Theta
	case f.RopeTheta != nil:
		c.RopeTheta = *f.RopeTheta
	default:
		bad("neither rope_theta nor rope_parameters is given")
	}
	if len(errs) == 0 {
		if err := c.Validate(); err != nil {
			errs = append(errs, fmt.Errorf("config.json: %w", err))
		}
	}
	h := HF{BOS: f.BOS}
	var eos int
	if json.Unmarshal(f.EOS, &eos) == nil && string(f.EOS) != "null" {
		h.EOS = &eos
	}
	return c, h, errors.Join(errs...)
}
