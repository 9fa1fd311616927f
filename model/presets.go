package model

// Preset is a named model shape.
type Preset struct {
	Name string
	Config
}

// Presets lists the named shapes: the papers' family (vocabulary of 128,256,
// sequences of 4,096) and the micro models for a CPU, whose vocabulary is
// taken from the store when it differs.
func Presets() []Preset {
	paper := func(name string, layers, dim, heads, kv, ffn int) Preset {
		return Preset{name, Config{Vocab: 128256, Layers: layers, Dim: dim, Heads: heads, KVHeads: kv, FFN: ffn, MaxT: 4096, RopeTheta: 10000, NormEps: 1e-5, Init: InitPapers}}
	}
	micro := func(name string, vocab, layers, dim, heads, ffn int, tie bool) Preset {
		return Preset{name, Config{Vocab: vocab, Layers: layers, Dim: dim, Heads: heads, KVHeads: heads, FFN: ffn, MaxT: 512, RopeTheta: 10000, NormEps: 1e-5, Tie: tie, Init: InitPapers}}
	}
	return []Preset{
		micro("micro-0.3M", 2048, 2, 64, 2, 176, false),
		micro("micro-1M", 4096, 4, 128, 4, 352, true),
		micro("micro-3M", 4096, 6, 192, 6, 512, true),
		micro("micro-11M", 4096, 8, 320, 5, 864, true),
		paper("150M", 6, 512, 8, 8, 1792),
		paper("300M", 12, 768, 12, 12, 2688),
		paper("600M", 24, 1024, 16, 8, 3584),
		paper("1.4B", 16, 2048, 16, 8, 7168),
		paper("1.5B", 36, 1536, 16, 8, 5376),
		paper("3.2B", 48, 2048, 16, 8, 7168),
	}
}

// PresetByName returns the shape called name.
func PresetByName(name string) (Config, bool) {
	for _, p := range Presets() {
		if p.Name == name {
			return p.Config, true
		}
	}
	return Config{}, false
}
