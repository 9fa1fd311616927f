package config

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"os"
	"strconv"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of a configuration file.
const (
	maxFileBytes = 1 << 20
	maxDepth     = 32
	maxIndent    = 128 // columns; bounds the nesting of block style
)

// OriginKind says which layer a value comes from.
type OriginKind uint8

// The layers, lowest first. Derived values were left open and follow from others.
const (
	FromDefault OriginKind = iota
	FromPreset
	FromFile
	FromOverride
	FromRule
)

// Origin says where a value of the resolved configuration comes from.
type Origin struct {
	Kind      OriginKind
	File      string // FromFile: as given to Load
	Line, Col int    // FromFile: from 1
	N         int    // FromOverride: from 1
	Text      string // FromPreset: its name; FromOverride: the override; FromRule: the rule
}

// String words the origin for the resolved configuration.
func (o Origin) String() string {
	switch o.Kind {
	case FromPreset:
		return "preset " + o.Text
	case FromFile:
		return o.File + ":" + strconv.Itoa(o.Line)
	case FromOverride:
		return "override " + strconv.Itoa(o.N)
	case FromRule:
		return "derived: " + o.Text
	}
	return "default"
}

// explicit reports whether a person wrote the value.
func (o Origin) explicit() bool { return o.Kind == FromFile || o.Kind == FromOverride }

// where words the origin for a problem.
func (o Origin) where() (string, int) {
	if o.Kind == FromOverride {
		return fmt.Sprintf("override %d %s", o.N, clip(o.Text)), 1
	}
	return fmt.Sprintf("%s:%d:%d", o.File, o.Line, o.Col), 0
}

// Resolved is a configuration that passed every check, with the origin of
// every value. It is not changed after Load.
type Resolved struct {
	Config  Config
	Path    string // of the file, as given
	origins map[string]Origin
}

// Origin returns where the value of a key such as "optim.lr" comes from.
func (r *Resolved) Origin(key string) Origin { return r.origins[key] }

// Keep returns r with what was derived from the machine, the precision of
// "auto", as it is in old, the configuration of a run that goes on. r does not
// change.
func (r *Resolved) Keep(old *Resolved) *Resolved {
	const key = "train.precision"
	if r.Origin(key).Kind != FromRule || r.Config.Train.Precision == old.Config.Train.Precision {
		return r
	}
	k := *r
	k.origins = maps.Clone(r.origins)
	k.Config.Train.Precision = old.Config.Train.Precision
	k.origins[key] = Origin{Kind: FromRule, Text: "the run, which began so"}
	return &k
}

// assign is a value given by the file or an override. A nil value (null) takes
// back what lower assignments said.
type assign struct {
	f     *field
	value any
	from  Origin
}

// loader gathers assignments and problems.
type loader struct {
	path     string // printable
	cfg      Config
	origins  map[string]Origin
	assigns  []assign
	bad      map[string]bool // keys with a problem: rules over them stay silent
	problems Problems
}

// Load reads the YAML file at path, applies the overrides ("key=value", the
// key with its section: "optim.lr=2e-3") in order, fills what is open from the
// preset and the defaults, and checks everything. An empty value or null
// ("train.steps=") takes a key back to preset or default. File names inside
// the configuration are taken as they stand, relative to the working directory.
//
// A configuration with anything wrong gives a *Problems that lists all of it.
// A file that cannot be read gives a *Problems of one entry.
func Load(path string, overrides []string) (*Resolved, error) {
	l := newLoader(path)
	text, err := readLimited(path)
	if err != nil {
		l.file(0, 0, "%s", describeReadError(err))
		return nil, &l.problems
	}
	return l.resolve(text, overrides)
}

// Parse is Load for a text that is already in memory; name stands for its path
// in messages.
func Parse(name string, text []byte, overrides []string) (*Resolved, error) {
	l := newLoader(name)
	if len(text) > maxFileBytes {
		l.file(0, 0, "%s", errTooLong)
		return nil, &l.problems
	}
	return l.resolve(text, overrides)
}

func newLoader(path string) *loader {
	return &loader{path: printable(path), origins: map[string]Origin{}, bad: map[string]bool{}}
}

func (l *loader) resolve(text []byte, overrides []string) (*Resolved, error) {
	l.readFile(text)
	l.readOverrides(overrides)
	l.layer()
	l.check()
	l.derive()
	if len(l.problems.List) > 0 {
		l.problems.sort()
		return nil, &l.problems
	}
	return &Resolved{Config: l.cfg, Path: l.path, origins: l.origins}, nil
}

// printable returns path as it is, or quoted when it holds characters that
// would break a line of output or a comment.
func printable(path string) string {
	for _, r := range path {
		if r == utf8.RuneError || !unicode.IsPrint(r) {
			return strconv.Quote(path)
		}
	}
	return path
}

var errTooLong = fmt.Errorf("longer than %d bytes, the limit for a configuration; is this the right file?", maxFileBytes)

// readLimited reads at most the limit and one byte.
func readLimited(path string) ([]byte, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if st, err := f.Stat(); err != nil {
		return nil, err
	} else if st.IsDir() {
		return nil, errors.New("is a folder; name the configuration file in it")
	}
	text, err := io.ReadAll(io.LimitReader(f, maxFileBytes+1))
	if err != nil {
		return nil, err
	}
	if len(text) > maxFileBytes {
		return nil, errTooLong
	}
	return text, nil
}

func describeReadError(err error) string {
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "no such file; `refrain config init --preset micro-1M` prints one to start from"
	case errors.Is(err, fs.ErrPermission):
		return "no permission to read the file"
	}
	var pe *fs.PathError
	if errors.As(err, &pe) {
		return pe.Err.Error()
	}
	return err.Error()
}

// file adds a problem of the file; line 0 means the file as a whole.
func (l *loader) file(line, col int, format string, args ...any) {
	where := l.path
	if line > 0 {
		where = fmt.Sprintf("%s:%d:%d", l.path, line, col)
	}
	l.problems.List = append(l.problems.List, Problem{
		Where: where, Text: fmt.Sprintf(format, args...), line: line, col: col})
}

// at adds a problem where o points; a value nobody wrote belongs to the file
// as a whole and is sorted last.
func (l *loader) at(o Origin, format string, args ...any) {
	p := Problem{Where: l.path, Text: fmt.Sprintf(format, args...), group: 2}
	if o.explicit() {
		p.Where, p.group = o.where()
		p.line, p.col = o.Line, o.Col
		if o.Kind == FromOverride {
			p.line = o.N
		}
	}
	l.problems.List = append(l.problems.List, p)
}

func (l *loader) readOverrides(overrides []string) {
	seen := map[string]int{}
	for i, text := range overrides {
		o := Origin{Kind: FromOverride, N: i + 1, Text: text}
		key, raw, ok := strings.Cut(text, "=")
		if !ok {
			l.at(o, "write it as key=value, for example optim.lr=2e-3")
			continue
		}
		if !utf8.ValidString(text) {
			l.at(o, "is not valid UTF-8")
			continue
		}
		f := l.findKey(o, strings.TrimSpace(key))
		if f == nil {
			continue
		}
		if first, dup := seen[f.path]; dup {
			l.at(o, "%s is already set by override %d; keep one", f.path, first)
			continue
		}
		seen[f.path] = i + 1
		l.readOverride(o, f, raw)
	}
}

// findKey follows a dotted key from the top; nil after reporting a problem.
func (l *loader) findKey(o Origin, key string) *field {
	f := table().root
	for part := range strings.SplitSeq(key, ".") {
		if f.kind != kindSection {
			l.at(o, "%s has no keys of its own", f.path)
			return nil
		}
		c := f.child(part)
		if c == nil {
			l.unknown(o, part, f)
			return nil
		}
		f = c
	}
	if f.kind == kindSection {
		l.at(o, "%s is a section; set one of its keys, for example %s=...", f.path, f.children[0].path)
		return nil
	}
	return f
}

func (l *loader) readOverride(o Origin, f *field, raw string) {
	text := strings.TrimSpace(raw)
	if text == "" || text == "null" {
		l.give(f, nil, o)
		return
	}
	switch f.kind {
	case kindString: // verbatim: the shell has already removed the quotes
		l.give(f, raw, o)
	case kindList:
		list, err := parseFlowList(text)
		if err != nil {
			l.reject(f, o, "%s: %v", f.path, err)
			return
		}
		l.give(f, list, o)
	default:
		x, err := f.parse(text)
		if err != nil {
			l.reject(f, o, "%s: %s", f.path, typeMessage(f, clip(text)))
			return
		}
		l.give(f, x, o)
	}
}

// typeMessage words a value of the wrong type.
func typeMessage(f *field, got string) string {
	msg := fmt.Sprintf("want %v, got %s", f.kind, got)
	if a := f.allowed(); a != "" {
		msg += " (allowed: " + a + ")"
	}
	return msg
}

// unknown reports a key that section f does not have. The key it was meant to
// be is silenced: that it is not set follows from the slip.
func (l *loader) unknown(o Origin, key string, f *field) {
	msg, meant := unknownKey(key, f)
	l.at(o, "%s", msg)
	if m := table().byPath[meant]; m != nil && m.kind == kindSection {
		l.silence(m)
	} else if m != nil {
		l.bad[meant] = true
	}
}

// reject adds a problem and silences the rules that look at f.
func (l *loader) reject(f *field, o Origin, format string, args ...any) {
	l.bad[f.path] = true
	l.at(o, format, args...)
}

// give checks one value by itself and keeps it for layering.
func (l *loader) give(f *field, x any, o Origin) {
	if s, ok := x.(string); ok && len(f.enum) > 0 {
		found := false
		for _, e := range f.enum {
			found = found || e == s
		}
		if !found {
			l.reject(f, o, "%s", enumMessage(f, s))
			return
		}
	}
	var v float64
	switch n := x.(type) {
	case int64:
		v = float64(n)
	case uint64:
		v = float64(n)
	case float64:
		v = n
	}
	if f.kind != kindString && f.kind != kindBool && f.kind != kindList && x != nil && !f.inRange(v) {
		l.reject(f, o, "%s: %v is out of range (allowed: %s)", f.path, x, f.allowed())
		return
	}
	l.assigns = append(l.assigns, assign{f, x, o})
}

func enumMessage(f *field, got string) string {
	msg := fmt.Sprintf("%s: %s is not one of %s", f.path, clip(got), f.allowed())
	if n := nearest(got, f.enum); n != "" {
		msg += fmt.Sprintf(" - did you mean %q?", n)
	}
	return msg
}

// layer applies defaults, preset, file and overrides, in this order.
func (l *loader) layer() {
	t := table()
	final := map[string]assign{} // the last word on each key
	for _, a := range l.assigns {
		if a.value == nil {
			delete(final, a.f.path)
			continue
		}
		final[a.f.path] = a
	}
	preset := l.preset(final["model.preset"])
	for _, f := range t.leaves {
		f.setDefault(&l.cfg)
		l.origins[f.path] = Origin{Kind: FromDefault}
	}
	if preset != nil {
		for _, s := range preset.settings() {
			f := t.byPath[s.path]
			x, err := f.parse(s.text)
			if err != nil {
				panic("config: preset " + preset.Name + ": " + err.Error())
			}
			f.set(&l.cfg, x)
			l.origins[s.path] = Origin{Kind: FromPreset, Text: preset.Name}
		}
	}
	for _, f := range t.leaves {
		if a, ok := final[f.path]; ok {
			f.set(&l.cfg, a.value)
			l.origins[f.path] = a.from
		}
	}
}

// preset finds the chosen preset; nil when there is none or it is unknown.
func (l *loader) preset(a assign) *Preset {
	name, _ := a.value.(string)
	if name == "" {
		return nil
	}
	p, ok := FindPreset(name)
	if ok {
		return &p
	}
	msg := fmt.Sprintf("model.preset: %s is not one of %s", clip(name), strings.Join(PresetNames(), ", "))
	lower := map[string]string{}
	var names []string
	for _, n := range PresetNames() {
		names = append(names, strings.ToLower(n))
		lower[strings.ToLower(n)] = n
	}
	if n := nearest(name, names); n != "" {
		msg += fmt.Sprintf(" - did you mean %q?", lower[n])
	}
	l.reject(a.f, a.from, "%s", msg)
	return nil
}
