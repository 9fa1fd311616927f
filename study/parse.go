package study

import (
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml/ast"

	"refrain/internal/run/config"
)

// specKeys are the keys of a sweep file.
func specKeys() []string {
	return []string{"base", "grid", "list", "seeds", "vary", "budget", "out", "code", "descend", "compare", "test", "batches", "pools"}
}

// specParser walks the tree of a sweep file and gathers what is wrong with it.
type specParser struct {
	spec     *Spec
	text     []byte
	problems config.Problems
}

// at adds a problem where node stands; nil is the file as a whole.
func (p *specParser) at(node ast.Node, format string, args ...any) {
	where := p.spec.Path
	if node != nil && node.GetToken() != nil {
		pos := node.GetToken().Position
		where = fmt.Sprintf("%s:%d:%d", where, pos.Line, pos.Column)
	}
	p.problems.List = append(p.problems.List, config.Problem{Where: where, Text: fmt.Sprintf(format, args...)})
}

// pairs returns the keys of a section; what stands for its name in messages. A key that
// stands twice is a problem, and its second one is left out.
func (p *specParser) pairs(node ast.Node, what string) []*ast.MappingValueNode {
	var list []*ast.MappingValueNode
	switch n := node.(type) {
	case *ast.MappingNode:
		list = n.Values
	case *ast.MappingValueNode:
		list = []*ast.MappingValueNode{n}
	default:
		p.at(node, "%s holds keys, got %s", what, config.Describe(node))
	}
	seen := map[string]bool{}
	return slices.DeleteFunc(slices.Clone(list), func(kv *ast.MappingValueNode) bool {
		name := kv.Key.GetToken().Value
		if seen[name] {
			p.at(kv.Key, "key %q stands twice in %s; keep one", name, what)
		}
		twice := seen[name]
		seen[name] = true
		return twice
	})
}

func (p *specParser) file(root ast.Node) {
	pairs := p.pairs(root, "a sweep")
	nodes := map[string]*ast.MappingValueNode{}
	for i, kv := range pairs {
		name := kv.Key.GetToken().Value
		if !slices.Contains(specKeys(), name) {
			msg := fmt.Sprintf("unknown key %q", name)
			if n := config.Nearest(name, specKeys()); n != "" {
				msg += fmt.Sprintf(" - did you mean %q?", n)
			} else {
				msg += " - legal here: " + strings.Join(specKeys(), ", ")
			}
			p.at(kv.Key, "%s", msg)
			continue
		}
		nodes[name] = kv
		if name == "base" {
			end := 0 // the line of the next key
			if i+1 < len(pairs) {
				end = pairs[i+1].Key.GetToken().Position.Line
			}
			p.base(kv, end)
		}
	}
	if nodes["base"] == nil {
		p.at(nil, "base is not set: the configuration file that all cells start from, or a section with its keys")
	}
	switch {
	case nodes["grid"] != nil && nodes["list"] != nil:
		p.at(nodes["list"].Key, "grid and list are both there; keep one")
	case nodes["grid"] != nil:
		p.grid(nodes["grid"])
	case nodes["list"] != nil:
		p.list(nodes["list"])
	case nodes["seeds"] == nil:
		p.at(nil, "nothing varies: there is neither grid nor list nor seeds")
	}
	if kv := nodes["seeds"]; kv != nil {
		p.seeds(kv)
	}
	if kv := nodes["vary"]; kv != nil {
		p.spec.Vary = Vary(p.word(kv, string(VaryBoth), string(VaryInit), string(VaryOrder)))
	}
	if kv := nodes["code"]; kv != nil {
		p.spec.Code = CodePolicy(p.word(kv, string(SameCode), string(AnyCode)))
	}
	if kv := nodes["budget"]; kv != nil {
		p.budget(kv)
	}
	if kv := nodes["out"]; kv == nil {
		p.at(nil, "out is not set: the folder for runs and records")
	} else if text, ok := config.Scalar(kv.Value); !ok || text == "" {
		p.at(kv.Key, "out: want the name of a folder, got %s", config.Describe(kv.Value))
	} else {
		p.spec.Out = text
	}
	if kv := nodes["descend"]; kv != nil {
		p.descend(kv, nodes["grid"] != nil)
	}
	p.study(nodes)
	if n := p.spec.number(); n > MaxCells {
		p.at(nil, "%.0f cells; the limit is %d", n, MaxCells)
	}
}

// base takes the base configuration: a file, or the section itself. The section keeps
// its lines and columns: all around it is made blank.
func (p *specParser) base(kv *ast.MappingValueNode, end int) {
	if path, ok := config.Scalar(kv.Value); ok {
		text, err := os.ReadFile(path)
		if err != nil {
			p.at(kv.Value, "base: %s: %s", path, describeOpen(err))
			return
		}
		p.spec.baseName, p.spec.baseText = path, text
		return
	}
	switch kv.Value.(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
	default:
		p.at(kv.Key, "base: want a configuration file or a section with its keys, got %s", config.Describe(kv.Value))
		return
	}
	key := kv.Key.GetToken().Position
	if end == key.Line {
		p.at(kv.Key, "base: write its section on lines of its own")
		return
	}
	var b strings.Builder
	n := 0
	for line := range strings.Lines(string(p.text)) {
		n++
		switch {
		case n < key.Line || end > 0 && n >= end:
			line = "\n"
		case n == key.Line:
			colon := strings.IndexByte(line, ':')
			line = strings.Repeat(" ", colon+1) + line[colon+1:]
		}
		b.WriteString(line)
	}
	p.spec.baseName, p.spec.baseText = p.spec.Path, []byte(b.String())
}

// values reads a list of scalars as settings of key.
func (p *specParser) values(key string, node ast.Node, where ast.Node) []Setting {
	seq, ok := node.(*ast.SequenceNode)
	if !ok {
		p.at(where, "%s: want a list such as [1, 2], got %s", key, config.Describe(node))
		return nil
	}
	if len(seq.Values) == 0 {
		p.at(where, "%s: the list is empty", key)
	}
	var out []Setting
	for _, v := range seq.Values {
		x, ok := p.setting(key, v)
		if !ok {
			continue
		}
		if slices.ContainsFunc(out, func(o Setting) bool { return o.Value == x.Value }) {
			p.at(v, "%s: the value %s stands twice", key, x.Value)
			continue
		}
		out = append(out, x)
	}
	return out
}

func (p *specParser) setting(key string, v ast.Node) (Setting, bool) {
	text, ok := config.Scalar(v)
	if !ok {
		p.at(v, "%s: want a value, got %s", key, config.Describe(v))
		return Setting{}, false
	}
	pos := v.GetToken().Position
	return Setting{Key: key, Value: text, line: pos.Line, col: pos.Column}, true
}

func (p *specParser) grid(kv *ast.MappingValueNode) {
	pairs := p.pairs(kv.Value, "grid")
	if len(pairs) == 0 {
		p.at(kv.Key, "grid has no axes; write train.epochs: [4, 8]")
	}
	for _, a := range pairs {
		key := a.Key.GetToken().Value
		axis := Axis{Key: key}
		if sections(a.Value) {
			axis.Many = p.entries(a.Value, "axis "+key)
		} else {
			axis.Values = p.values(key, a.Value, a.Key)
		}
		p.spec.Grid = append(p.spec.Grid, axis)
	}
	set := map[string]string{} // key of the configuration -> axis
	for _, a := range p.spec.Grid {
		for _, key := range a.keys() {
			if other, there := set[key]; there {
				p.at(kv.Key, "%s is set by two axes, %s and %s; keep it in one", key, other, a.Key)
			}
			set[key] = a.Key
		}
	}
}

// sections reports whether a list has sections for entries, so that each level of an axis
// sets several keys.
func sections(node ast.Node) bool {
	seq, ok := node.(*ast.SequenceNode)
	if !ok || len(seq.Values) == 0 {
		return false
	}
	switch seq.Values[0].(type) {
	case *ast.MappingNode, *ast.MappingValueNode:
		return true
	}
	return false
}

// entries reads a list of sections.
func (p *specParser) entries(node ast.Node, what string) [][]Setting {
	out := [][]Setting{}
	for i, entry := range node.(*ast.SequenceNode).Values {
		out = append(out, p.settings(entry, fmt.Sprintf("entry %d of %s", i+1, what)))
	}
	return out
}

func (p *specParser) list(kv *ast.MappingValueNode) {
	seq, ok := kv.Value.(*ast.SequenceNode)
	if !ok || len(seq.Values) == 0 {
		p.at(kv.Key, "list: want entries such as - {train.epochs: 8}, got %s", config.Describe(kv.Value))
		return
	}
	p.spec.List = p.entries(seq, "list")
}

func (p *specParser) settings(node ast.Node, what string) (out []Setting) {
	for _, kv := range p.pairs(node, what) {
		if x, ok := p.setting(kv.Key.GetToken().Value, kv.Value); ok {
			out = append(out, x)
		}
	}
	return out
}

func (p *specParser) seeds(kv *ast.MappingValueNode) {
	for _, x := range p.values("seeds", kv.Value, kv.Key) {
		n, err := strconv.ParseUint(x.Value, 10, 64)
		if err != nil {
			p.at(kv.Key, "seeds: %q is not a whole number from 0", x.Value)
			continue
		}
		if slices.Contains(p.spec.Seeds, n) {
			p.at(kv.Key, "seeds: %d stands twice", n)
			continue
		}
		p.spec.Seeds = append(p.spec.Seeds, n)
	}
}

// word reads one of a few words.
func (p *specParser) word(kv *ast.MappingValueNode, words ...string) string {
	text, ok := config.Scalar(kv.Value)
	if !ok || !slices.Contains(words, text) {
		p.at(kv.Key, "%s: want one of %s, got %s", kv.Key.GetToken().Value, strings.Join(words, ", "), config.Describe(kv.Value))
		return words[0]
	}
	return text
}

func (p *specParser) budget(kv *ast.MappingValueNode) {
	set := 0
	for _, b := range p.pairs(kv.Value, "budget") {
		name := b.Key.GetToken().Value
		text, _ := config.Scalar(b.Value)
		var err error
		switch name {
		case "core_seconds":
			p.spec.Budget.CoreSeconds, err = strconv.ParseFloat(text, 64)
			if !(p.spec.Budget.CoreSeconds > 0) || p.spec.Budget.CoreSeconds > 1e12 {
				err = strconv.ErrRange
			}
		case "steps":
			p.spec.Budget.Steps, err = strconv.ParseInt(text, 10, 64)
			if p.spec.Budget.Steps <= 0 {
				err = strconv.ErrRange
			}
		default:
			p.at(b.Key, "unknown key %q in budget - legal here: core_seconds, steps", name)
			continue
		}
		if err != nil {
			p.at(b.Key, "budget: %s: want a number above 0, got %s", name, config.Describe(b.Value))
		}
		if set++; set > 1 {
			p.at(b.Key, "budget: core_seconds and steps are both there; keep one")
		}
	}
	if set == 0 && len(p.problems.List) == 0 {
		p.at(kv.Key, "budget: want core_seconds or steps")
	}
}

func (p *specParser) descend(kv *ast.MappingValueNode, grid bool) {
	if !grid {
		p.at(kv.Key, "descend needs a grid")
		return
	}
	d := &Descend{}
	p.spec.Descend = d
	for _, x := range p.pairs(kv.Value, "descend") {
		switch name := x.Key.GetToken().Value; name {
		case "start":
			d.Start = p.settings(x.Value, "start")
		case "freeze":
			for _, f := range p.values("freeze", x.Value, x.Key) {
				d.Freeze = append(d.Freeze, f.Value)
				if p.axis(f.Value) == nil {
					p.at(x.Key, "freeze: %s is not an axis of the grid", f.Value)
				}
			}
		case "sizes":
			seq, ok := x.Value.(*ast.SequenceNode)
			if !ok || len(seq.Values) == 0 {
				p.at(x.Key, "sizes: want entries such as - {model.preset: micro-1M}, got %s", config.Describe(x.Value))
				continue
			}
			d.Sizes = p.entries(seq, "sizes")
		default:
			p.at(x.Key, "unknown key %q in descend - legal here: start, freeze, sizes", name)
		}
	}
	for _, s := range d.Start {
		if a := p.axis(s.Key); a == nil {
			p.at(kv.Key, "start: %s is not an axis of the grid", s.Key)
		} else if !slices.ContainsFunc(a.Values, func(v Setting) bool { return v.Value == s.Value }) {
			p.at(kv.Key, "start: %s is not a value of that axis, which has %s", s, valuesText(a))
		}
	}
	for _, a := range p.spec.Grid {
		if a.Many != nil {
			p.at(kv.Key, "descend walks along numbers, and the levels of %s are sections", a.Key)
			continue
		}
		if !slices.ContainsFunc(d.Start, func(s Setting) bool { return s.Key == a.Key }) {
			p.at(kv.Key, "start: give a value of %s; it has %s", a.Key, valuesText(&a))
		}
		for _, v := range a.Values {
			if _, err := parseNumber(v.Value); err != nil {
				p.at(kv.Key, "descend walks along numbers, and %s has the value %q", a.Key, v.Value)
			}
		}
	}
}

func (p *specParser) axis(key string) *Axis {
	for i := range p.spec.Grid {
		if p.spec.Grid[i].Key == key {
			return &p.spec.Grid[i]
		}
	}
	return nil
}

func valuesText(a *Axis) string {
	var list []string
	for _, v := range a.Values {
		list = append(list, v.Value)
	}
	return strings.Join(list, ", ")
}

func parseNumber(text string) (float64, error) { return strconv.ParseFloat(text, 64) }
