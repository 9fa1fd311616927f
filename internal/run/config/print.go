package config

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strconv"
	"strings"

	"refrain/model"
)

// YAML writes the resolved configuration, one key a line, each with its origin
// in a comment. Load reads it back to an equal Config.
func (r *Resolved) YAML() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Resolved configuration, hash %s.\n", r.Hash())
	c := r.Config
	writeSection(&b, table().root, 0, func(f *field) (line, comment string) {
		line = f.name + ": " + f.format(&c)
		if f.path == "optim.warmup_frac" && c.Optim.WarmupSteps != nil {
			return "# " + line, "not used: optim.warmup_steps is set"
		}
		return line, r.origins[f.path].String()
	})
	return b.Bytes()
}

// writeSection writes the keys below f. line returns a key with its value and
// the comment beside it.
func writeSection(b *bytes.Buffer, f *field, depth int, line func(*field) (string, string)) {
	indent := strings.Repeat("  ", depth)
	for _, c := range f.children {
		if c.kind != kindSection {
			text, comment := line(c)
			fmt.Fprintf(b, "%-34s # %s\n", indent+text, comment)
			continue
		}
		fmt.Fprintf(b, "%s%s:\n", indent, c.name)
		writeSection(b, c, depth+1, line)
	}
}

// Hash identifies the experiment: SHA-256, in hex, over every key that can
// change a weight. Left out are names of folders (the fingerprint of the data
// is recorded beside it), ingest policies (they act through that fingerprint),
// and what only changes speed or what is watched: devices, threads, eval, save,
// log, endpoints. Two spellings of the same values have the same hash. A key that is
// younger than the hash counts only when it differs from its default.
func (r *Resolved) Hash() string { return r.Config.Hash() }

// Hash is the hash of Resolved.Hash for a Config that came from Load.
func (c *Config) Hash() string {
	h := sha256.New()
	h.Write([]byte("refrain config 1\n"))
	for _, f := range table().leaves {
		if f.weights && !(f.late && f.isDefault(c)) {
			fmt.Fprintf(h, "%s=%s\n", f.path, f.format(c))
		}
	}
	return hex.EncodeToString(h.Sum(nil))
}

// Change is a key whose value differs between two configurations.
type Change struct {
	Key     string
	A, B    string // as YAML
	Weights bool   // whether it can change a weight (see Hash)
}

// Diff lists the keys that differ, in the order of the struct.
func Diff(a, b *Config) []Change {
	var out []Change
	for _, f := range table().leaves {
		if x, y := f.format(a), f.format(b); x != y {
			out = append(out, Change{f.path, x, y, f.weights})
		}
	}
	return out
}

// Init returns a commented configuration for a preset, with every key there
// is. It trains as it is once data.store is set. An unknown preset is an error
// that lists the names.
func Init(preset string) ([]byte, error) {
	p, ok := FindPreset(preset)
	if !ok {
		l := newLoader("--preset")
		l.preset(assign{table().byPath["model.preset"], preset, Origin{Kind: FromOverride, N: 1, Text: preset}})
		return nil, fmt.Errorf("%s", l.problems.List[0].Text)
	}
	c, err := p.config()
	if err != nil {
		return nil, err
	}
	c.Model.Preset = p.Name
	c.Train.Epochs = 8
	return initText(fmt.Sprintf("preset %s: %s", p.Name, p.About), c, "model.preset"), nil
}

// InitFrom is Init for a run that starts from the weights in the folder dir, of a model of
// that shape: learning rate, decay and batch are those of Kim et al. for continued
// pretraining, with one pass over the data.
func InitFrom(dir string, m model.Config) ([]byte, error) {
	p := Preset{Name: dir, Model: m, Seq: min(m.MaxT, 4096), Batch: 64, LR: 3e-5}
	c, err := p.config()
	if err != nil {
		return nil, err
	}
	c.Model.From, c.Model.RopeScaling, c.Train.Epochs = dir, m.RopeScaling.String(), 1
	active := []string{"model.from", "model.rope_scaling"}
	for _, s := range p.settings() {
		if s.path != "model.init" {
			active = append(active, s.path)
		}
	}
	return initText("from the weights in "+dir, c, active...), nil
}

// config is the default configuration with the settings of p.
func (p Preset) config() (*Config, error) {
	var c Config
	for _, f := range table().leaves {
		f.setDefault(&c)
	}
	for _, s := range p.settings() {
		f := table().byPath[s.path]
		x, err := f.parse(s.text)
		if err != nil {
			return nil, fmt.Errorf("preset %s: %s: %w", p.Name, s.path, err)
		}
		f.set(&c, x)
	}
	return &c, nil
}

// initText prints c with the keys that stand in every new configuration, and those of
// active, switched on.
func initText(what string, c *Config, active ...string) []byte {
	on := map[string]bool{"data.store": true, "data.mode": true, "train.epochs": true, "train.seed": true, "optim.weight_decay": true}
	for _, k := range active {
		on[k] = true
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "# Training configuration, %s.\n", what)
	b.WriteString("# Set data.store, then: refrain train THIS_FILE. Lines that start with # show the value\n" +
		"# that holds without them; any key can also be given as key=value after the file.\n")
	writeInit(&b, table().root, 0, c, on)
	return b.Bytes()
}

func writeInit(b *bytes.Buffer, f *field, depth int, c *Config, active map[string]bool) {
	for _, k := range f.children {
		indent := strings.Repeat("  ", depth)
		if k.kind == kindSection {
			// Section names always stand: an empty section is legal, and a key
			// below it can be switched on by itself.
			if depth == 0 {
				fmt.Fprintf(b, "\n")
			}
			fmt.Fprintf(b, "%-34s # %s\n", indent+k.name+":", k.doc)
			writeInit(b, k, depth+1, c, active)
			continue
		}
		text := k.name + ": " + k.format(c)
		if !active[k.path] {
			// The mark stands at the column of the section, so that removing
			// it, with the two spaces it is worth, leaves correct YAML.
			text = "# " + text
		}
		doc := k.doc
		if a := k.allowed(); a != "" && k.lo.v+k.hi.v < 1e6 { // wide ranges tell nothing
			doc += " (" + a + ")"
		}
		if k.path == "data.store" {
			doc = "SET THIS: " + doc
		}
		fmt.Fprintf(b, "%-34s # %s\n", indent+text, doc)
	}
}

// Schema returns a JSON schema (draft 2020-12) of the configuration, for
// editors. Rules over several keys are not in it; Load has them all.
func Schema() []byte {
	root := schemaOf(table().root)
	root["$schema"] = "https://json-schema.org/draft/2020-12/schema"
	root["title"] = "refrain training configuration"
	out, err := json.MarshalIndent(root, "", "  ")
	if err != nil {
		panic("config: schema: " + err.Error()) // maps of plain values always encode
	}
	return append(out, '\n')
}

func schemaOf(f *field) map[string]any {
	m := map[string]any{}
	if f.doc != "" {
		m["description"] = f.doc
	}
	if f.kind == kindSection {
		props := map[string]any{}
		for _, c := range f.children {
			props[c.name] = schemaOf(c)
		}
		m["type"] = "object"
		m["properties"] = props
		m["additionalProperties"] = false
		return m
	}
	types := map[kind]string{kindString: "string", kindBool: "boolean", kindInt: "integer",
		kindUint: "integer", kindFloat: "number", kindList: "array"}
	// null takes any key back to its default.
	m["type"] = []string{types[f.kind], "null"}
	switch {
	case f.path == "data.val_docs": // 1% or a count
		m["type"] = []string{"string", "integer", "null"}
	case f.path == "model.preset":
		m["enum"] = append(anyList(PresetNames()), nil)
	case len(f.enum) > 0:
		m["enum"] = append(anyList(f.enum), nil)
	}
	if f.kind == kindList {
		m["items"] = map[string]any{"type": "string"}
	}
	if f.kind == kindUint {
		m["minimum"] = 0
	}
	for _, b := range []struct {
		b            bound
		closed, open string
	}{{f.lo, "minimum", "exclusiveMinimum"}, {f.hi, "maximum", "exclusiveMaximum"}} {
		if !b.b.set {
			continue
		}
		key := b.closed
		if b.b.open {
			key = b.open
		}
		m[key] = json.RawMessage(strconv.FormatFloat(b.b.v, 'f', -1, 64))
	}
	if f.def != "" {
		if x, err := f.parse(f.def); err == nil {
			m["default"] = x
		}
	}
	return m
}

func anyList(list []string) []any {
	out := make([]any, len(list))
	for i, s := range list {
		out[i] = s
	}
	return out
}
