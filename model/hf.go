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

// hfRope is rope_parameters, and with Theta nil rope_scaling.
type hfRope struct {
	Type     string   `json:"rope_type"`
	Theta    *float64 `json:"rope_theta,omitempty"`
	Factor   float64  `json:"factor,omitempty"`
	Low      float64  `json:"low_freq_factor,omitempty"`
	High     float64  `json:"high_freq_factor,omitempty"`
	Original int      `json:"original_max_position_embeddings,omitempty"`
}

// scaling is what r says beside theta. key is that of config.json.
func (r *hfRope) scaling(key string) (RopeScaling, error) {
	switch r.Type {
	case "", "default":
		return RopeScaling{}, nil
	case scalingName:
		s := RopeScaling{r.Factor, r.Low, r.High, r.Original}
		if s == (RopeScaling{}) {
			return s, fmt.Errorf("%s has the type %s without its factors", key, scalingName)
		}
		return s, s.validate()
	}
	return RopeScaling{}, fmt.Errorf("%s.rope_type is %q; only \"default\" and %q are supported", key, r.Type, scalingName)
}

// hfScaling writes rope_parameters and rope_scaling.
func hfScaling(theta float64, s RopeScaling) (*hfRope, json.RawMessage, error) {
	if s == (RopeScaling{}) {
		return &hfRope{Type: "default", Theta: &theta}, json.RawMessage("null"), nil
	}
	r := hfRope{Type: scalingName, Factor: s.Factor, Low: s.Low, High: s.High, Original: s.Original}
	b, err := json.Marshal(r)
	r.Theta = &theta
	return &r, b, err
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
	rope, scaling, err := hfScaling(theta, c.RopeScaling)
	if err != nil {
		return nil, err
	}
	b, err := json.MarshalIndent(hfConfig{
		Architectures: []string{"LlamaForCausalLM"}, ModelType: "llama",
		Vocab: c.Vocab, Dim: c.Dim, FFN: c.FFN, Layers: c.Layers, Heads: c.Heads, KVHeads: c.KVHeads, HeadDim: c.C(),
		Act: "silu", MaxT: c.MaxT, InitRange: 0.02, NormEps: c.NormEps, Cache: true,
		BOS: h.BOS, EOS: eos, Tie: c.Tie,
		RopeTheta: &theta, RopeScaling: scaling, Rope: rope,
		DType: "float32", TorchDType: "float32",
	}, "", "  ")
	return append(b, '\n'), err
}

// rope fills theta and scaling of c. The two spellings of each must agree.
func (f *hfConfig) rope(c *Config) error {
	var old hfRope
	if s := strings.TrimSpace(string(f.RopeScaling)); s != "" && s != "null" {
		if err := json.Unmarshal(f.RopeScaling, &old); err != nil {
			return fmt.Errorf("rope_scaling is %s: %w", s, err)
		}
		if old.Type == "" { // the spelling before "rope_type" was "type"
			return fmt.Errorf("rope_scaling is %s, without a rope_type; \"default\" and %q are supported", s, scalingName)
		}
	}
	scaling, err := old.scaling("rope_scaling")
	if err != nil {
		return err
	}
	switch r := f.Rope; {
	case r == nil && f.RopeTheta == nil:
		return errors.New("neither rope_theta nor rope_parameters is given")
	case r == nil:
		c.RopeTheta, c.RopeScaling = *f.RopeTheta, scaling
		return nil
	case r.Theta == nil && f.RopeTheta == nil:
		return errors.New("rope_parameters has no rope_theta")
	case r.Theta != nil && f.RopeTheta != nil && *f.RopeTheta != *r.Theta:
		return fmt.Errorf("rope_theta is %g and rope_parameters.rope_theta is %g; they must agree", *f.RopeTheta, *r.Theta)
	case r.Theta != nil:
		c.RopeTheta = *r.Theta
	default:
		c.RopeTheta = *f.RopeTheta
	}
	if c.RopeScaling, err = f.Rope.scaling("rope_parameters"); err != nil {
		return err
	}
	if old.Type != "" && scaling != c.RopeScaling {
		return fmt.Errorf("rope_scaling is %q and rope_parameters says %q; they must agree", scaling, c.RopeScaling)
	}
	return nil
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
	if err := f.rope(&c); err != nil {
		bad("%w", err)
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
