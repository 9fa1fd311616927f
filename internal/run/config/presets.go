package config

import "strconv"

// Preset is a named model shape with the row length, batch and learning rate
// it is usually trained with.
type Preset struct {
	Name    string
	Vocab   int // 0 = from the store
	Layers  int
	Dim     int
	Heads   int
	KVHeads int
	FFN     int
	Seq     int
	Batch   int
	LR      float64
	About   string // where shape and learning rate come from
}

// Presets lists the named shapes, smallest first. The slice is the caller's.
//
// The six large shapes are those of Kim et al. (vocabulary of Llama 3, rows of
// 4096, 64 rows a batch) with the learning rate that was best for their
// standard recipe at 200M unique tokens. The micro shapes run on two CPU cores;
// 0.3M and 1M were tuned (2e-3 to 4e-3 is a plateau), 3M and 11M scale down
// from there and were not tuned.
func Presets() []Preset {
	const (
		micro = "micro shape for the CPU"
		kim   = "Kim et al., standard recipe at 200M tokens"
	)
	return []Preset{
		{"micro-0.3M", 0, 2, 64, 2, 2, 176, 512, 8, 4e-3, micro},
		{"micro-1M", 0, 4, 128, 4, 4, 352, 512, 8, 4e-3, micro},
		{"micro-3M", 0, 6, 192, 6, 6, 512, 512, 8, 2e-3, micro},
		{"micro-11M", 0, 8, 320, 8, 8, 864, 512, 8, 1e-3, micro},
		{"150M", 128256, 6, 512, 8, 8, 1792, 4096, 64, 3e-3, kim},
		{"300M", 128256, 12, 768, 12, 12, 2688, 4096, 64, 1e-3, kim},
		{"600M", 128256, 24, 1024, 16, 8, 3584, 4096, 64, 1e-3, kim},
		{"1.4B", 128256, 16, 2048, 16, 8, 7168, 4096, 64, 3e-4, kim},
		{"1.5B", 128256, 36, 1536, 16, 8, 5376, 4096, 64, 1e-3, kim},
		{"3.2B", 128256, 48, 2048, 16, 8, 7168, 4096, 64, 3e-4, kim},
	}
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
	return []setting{
		{"model.vocab", strconv.Itoa(p.Vocab)},
		{"model.layers", strconv.Itoa(p.Layers)},
		{"model.dim", strconv.Itoa(p.Dim)},
		{"model.heads", strconv.Itoa(p.Heads)},
		{"model.kv_heads", strconv.Itoa(p.KVHeads)},
		{"model.ffn", strconv.Itoa(p.FFN)},
		{"data.seq", strconv.Itoa(p.Seq)},
		{"train.batch", strconv.Itoa(p.Batch)},
		{"optim.lr", strconv.FormatFloat(p.LR, 'g', -1, 64)},
	}
}
