package config

import (
	"strconv"
	"strings"

	"refrain/model"
)

// Preset is a model shape of package model with the row length, batch and
// learning rate it is usually trained with.
type Preset struct {
	Name  string
	Model model.Config // Vocab 0 = from the store
	Seq   int
	Batch int
	LR    float64
	About string // where shape and learning rate come from
}

// Presets lists the named shapes, smallest first. The slice is the caller's.
//
// The large shapes are those of Kim et al. (vocabulary of Llama 3, rows of
// 4096, 64 rows a batch) with the learning rate that was best for their
// standard recipe at 200M unique tokens. The micro shapes run on two CPU cores:
// the learning rate of 0.3M is tuned, those of the others scale down from it
// and are not.
func Presets() []Preset {
	rates := map[string]float64{
		"micro-0.3M": 4e-3, "micro-1M": 4e-3, "micro-3M": 2e-3, "micro-11M": 1e-3,
		"150M": 3e-3, "300M": 1e-3, "600M": 1e-3, "1.4B": 3e-4, "1.5B": 1e-3, "3.2B": 3e-4,
	}
	var out []Preset
	for _, m := range model.Presets() {
		p := Preset{Name: m.Name, Model: m.Config, Seq: m.MaxT, Batch: 64, LR: rates[m.Name],
			About: "Kim et al., standard recipe at 200M tokens"}
		if strings.HasPrefix(m.Name, "micro-") {
			p.Model.Vocab = 0 // any tokenizer fits
			p.Batch, p.About = 8, "micro shape for the CPU"
		}
		out = append(out, p)
	}
	return out
}

// PresetNames lists the names in the order of Presets.
func PresetNames() []string {
	var names []string
	for _, p := range Presets() {
		names = append(names, p.Name)
	}
	return names
}

// FindPreset returns the preset of that name.
func FindPreset(name string) (Preset, bool) {
	for _, p := range Presets() {
		if p.Name == name {
			return p, true
		}
	}
	return Preset{}, false
}

// setting is one key with the text of its value.
type setting struct{ path, text string }

// settings lists the keys a preset fills, in struct order.
func (p Preset) settings() []setting {
	m := p.Model
	return []setting{
		{"model.vocab", strconv.Itoa(m.Vocab)},
		{"model.layers", strconv.Itoa(m.Layers)},
		{"model.dim", strconv.Itoa(m.Dim)},
		{"model.heads", strconv.Itoa(m.Heads)},
		{"model.kv_heads", strconv.Itoa(m.KVHeads)},
		{"model.ffn", strconv.Itoa(m.FFN)},
		{"model.rope_theta", strconv.FormatFloat(m.RopeTheta, 'g', -1, 64)},
		{"model.norm_eps", strconv.FormatFloat(m.NormEps, 'g', -1, 64)},
		{"model.tie", strconv.FormatBool(m.Tie)},
		{"model.init", string(m.Init)},
		{"data.seq", strconv.Itoa(p.Seq)},
		{"train.batch", strconv.Itoa(p.Batch)},
		{"optim.lr", strconv.FormatFloat(p.LR, 'g', -1, 64)},
	}
}
