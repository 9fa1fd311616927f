package config

import (
	"fmt"
	"math"
	"reflect"
	"strconv"
	"strings"
	"sync"
)

// kind is what a key accepts.
type kind uint8

const (
	kindSection kind = iota
	kindString
	kindBool
	kindInt
	kindUint
	kindFloat
	kindList
)

func (k kind) String() string {
	return [...]string{"a section", "text", "true or false", "an integer",
		"an integer of at least 0", "a number", "a list such as [a, b]"}[k]
}

// bound is one end of a range.
type bound struct {
	set  bool
	open bool
	v    float64
	text string
}

// field describes one key: everything the tags say.
type field struct {
	path     string // "optim.lr_mul.head"
	name     string // "head"
	index    []int  // for reflect.Value.FieldByIndex
	kind     kind
	optional bool // pointer: null is a value
	def      string
	doc      string
	enum     []string
	lo, hi   bound
	weights  bool     // may change a weight
	late     bool     // left out of the hash while it has its default
	children []*field // of a section, in order of the struct
}

// schemaTable is the tree of keys and the flat list of leaves in struct order.
type schemaTable struct {
	root   *field
	leaves []*field
	byPath map[string]*field
}

// table reads the tags once. They are constants of this package, so a mistake
// in one is a broken build and panics in the first test.
var table = sync.OnceValue(func() *schemaTable {
	t := &schemaTable{byPath: map[string]*field{}}
	t.root = &field{name: "the top level", kind: kindSection}
	t.add(t.root, reflect.TypeFor[Config](), nil)
	return t
})

func (t *schemaTable) add(parent *field, typ reflect.Type, index []int) {
	for i := range typ.NumField() {
		sf := typ.Field(i)
		tag := sf.Tag
		f := &field{
			name:    tag.Get("yaml"),
			path:    tag.Get("yaml"),
			index:   append(append([]int(nil), index...), i),
			def:     tag.Get("default"),
			doc:     tag.Get("doc"),
			weights: tag.Get("weights") != "no",
			late:    tag.Get("hash") == "changed",
			lo:      readBound(tag, "min", "above"),
			hi:      readBound(tag, "max", "below"),
		}
		if f.name == "" || f.doc == "" {
			panic(fmt.Sprintf("config: field %s.%s lacks a yaml or doc tag", typ, sf.Name))
		}
		if parent.path != "" {
			f.path = parent.path + "." + f.name
		}
		if e := tag.Get("enum"); e != "" {
			f.enum = strings.Split(e, "|")
		}
		ft := sf.Type
		if ft.Kind() == reflect.Pointer {
			f.optional = true
			ft = ft.Elem()
		}
		switch ft.Kind() {
		case reflect.Struct:
			f.kind = kindSection
		case reflect.String:
			f.kind = kindString
		case reflect.Bool:
			f.kind = kindBool
		case reflect.Int, reflect.Int64:
			f.kind = kindInt
		case reflect.Uint64:
			f.kind = kindUint
		case reflect.Float64:
			f.kind = kindFloat
		case reflect.Slice:
			f.kind = kindList
		default:
			panic(fmt.Sprintf("config: field %s has unsupported type %s", f.path, sf.Type))
		}
		parent.children = append(parent.children, f)
		t.byPath[f.path] = f
		if f.kind == kindSection {
			t.add(f, ft, f.index)
		} else {
			t.leaves = append(t.leaves, f)
		}
	}
}

func readBound(tag reflect.StructTag, closed, open string) bound {
	for _, k := range []string{closed, open} {
		text := tag.Get(k)
		if text == "" {
			continue
		}
		v, err := strconv.ParseFloat(text, 64)
		if err != nil {
			panic("config: tag " + k + ": " + err.Error())
		}
		return bound{set: true, open: k == open, v: v, text: text}
	}
	return bound{}
}

// child finds a key of a section.
func (f *field) child(name string) *field {
	for _, c := range f.children {
		if c.name == name {
			return c
		}
	}
	return nil
}

// allowed words the legal values of f, or "" when anything goes.
func (f *field) allowed() string {
	if len(f.enum) > 0 {
		return strings.TrimPrefix(strings.Join(f.enum, ", "), ", ")
	}
	var lo, hi string
	if f.lo.set {
		lo = "at least " + f.lo.text
		if f.lo.open {
			lo = "above " + f.lo.text
		}
	}
	if f.hi.set {
		hi = "at most " + f.hi.text
		if f.hi.open {
			hi = "below " + f.hi.text
		}
	}
	switch {
	case lo != "" && hi != "" && !f.lo.open && !f.hi.open:
		return f.lo.text + " to " + f.hi.text
	case lo != "" && hi != "":
		return lo + ", " + hi
	}
	return lo + hi
}

// inRange reports whether v is within the bounds.
func (f *field) inRange(v float64) bool {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return false
	}
	if f.lo.set && (v < f.lo.v || f.lo.open && v == f.lo.v) {
		return false
	}
	return !f.hi.set || v < f.hi.v || v == f.hi.v && !f.hi.open
}

// value returns the settable struct field of c, through pointers to sections
// (there are none) but not through pointers to optional values.
func (f *field) value(c *Config) reflect.Value {
	return reflect.ValueOf(c).Elem().FieldByIndex(f.index)
}

// number returns a numeric value as float64; for a null optional, zero.
func (f *field) number(c *Config) float64 {
	v := f.value(c)
	if f.optional {
		if v.IsNil() {
			return 0
		}
		v = v.Elem()
	}
	switch f.kind {
	case kindInt:
		return float64(v.Int())
	case kindUint:
		return float64(v.Uint())
	case kindFloat:
		return v.Float()
	}
	return 0
}

// set stores a parsed value, which has the Go type of the kind: string, bool,
// int64, uint64, float64 or []string. nil makes an optional value null.
func (f *field) set(c *Config, x any) {
	v := f.value(c)
	if x == nil {
		v.SetZero()
		return
	}
	if f.optional {
		p := reflect.New(v.Type().Elem())
		v.Set(p)
		v = p.Elem()
	}
	switch x := x.(type) {
	case string:
		v.SetString(x)
	case bool:
		v.SetBool(x)
	case int64:
		v.SetInt(x)
	case uint64:
		v.SetUint(x)
	case float64:
		v.SetFloat(x)
	case []string:
		if len(x) == 0 {
			x = nil // one way to say "none"
		}
		v.Set(reflect.ValueOf(x))
	default:
		panic(fmt.Sprintf("config: %s: value of type %T", f.path, x))
	}
}

// setDefault applies the default tag.
func (f *field) setDefault(c *Config) {
	if f.def == "" {
		f.value(c).SetZero()
		return
	}
	x, err := f.parse(f.def)
	if err != nil {
		panic("config: default of " + f.path + ": " + err.Error())
	}
	f.set(c, x)
}

// isDefault reports whether f has its default in c.
func (f *field) isDefault(c *Config) bool {
	var d Config
	f.setDefault(&d)
	return f.format(c) == f.format(&d)
}

// parse reads the text of a plain scalar as the kind of f.
func (f *field) parse(text string) (any, error) {
	clean := strings.ReplaceAll(text, "_", "")
	switch f.kind {
	case kindString:
		return text, nil
	case kindBool:
		switch text {
		case "true":
			return true, nil
		case "false":
			return false, nil
		}
	case kindInt:
		if n, err := strconv.ParseInt(clean, 10, 64); err == nil {
			return n, nil
		}
		// 1e6 and 2.5e5 are whole numbers that people write. 2^53 is where
		// float64 stops holding every integer.
		if v, err := strconv.ParseFloat(clean, 64); err == nil && v == math.Trunc(v) && math.Abs(v) <= 1<<53 {
			return int64(v), nil
		}
	case kindUint:
		if n, err := strconv.ParseUint(clean, 10, 64); err == nil {
			return n, nil
		}
	case kindFloat:
		if v, err := strconv.ParseFloat(clean, 64); err == nil && !math.IsNaN(v) && !math.IsInf(v, 0) {
			return v, nil
		}
	}
	return nil, fmt.Errorf("want %v, got %q", f.kind, text)
}

// format writes the value of f as YAML that Load reads back exactly.
func (f *field) format(c *Config) string {
	v := f.value(c)
	if f.optional {
		if v.IsNil() {
			return "null"
		}
		v = v.Elem()
	}
	switch f.kind {
	case kindString:
		return quote(v.String())
	case kindBool:
		return strconv.FormatBool(v.Bool())
	case kindInt:
		return strconv.FormatInt(v.Int(), 10)
	case kindUint:
		return strconv.FormatUint(v.Uint(), 10)
	case kindFloat:
		return strconv.FormatFloat(v.Float(), 'g', -1, 64)
	}
	parts := make([]string, v.Len())
	for i := range parts {
		parts[i] = quote(v.Index(i).String())
	}
	return "[" + strings.Join(parts, ", ") + "]"
}

// quote leaves plain words as they are and double-quotes the rest. The words
// that YAML would read as something else are quoted too.
func quote(s string) string {
	plain := s != ""
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '_', c == '/':
		case i > 0 && (c >= '0' && c <= '9' || c == '-' || c == '.' || c == '%'):
		default:
			plain = false
		}
	}
	switch strings.ToLower(s) {
	case "true", "false", "null", "yes", "no", "on", "off", "y", "n":
		plain = false
	}
	if plain {
		return s
	}
	return yamlQuote(s)
}

// yamlQuote writes a double-quoted YAML scalar in ASCII.
func yamlQuote(s string) string {
	var b strings.Builder
	b.WriteByte('"')
	for _, r := range s {
		switch {
		case r == '"' || r == '\\':
			b.WriteByte('\\')
			b.WriteRune(r)
		case r == '\n':
			b.WriteString(`\n`)
		case r == '\t':
			b.WriteString(`\t`)
		case r < 0x20 || r == 0x7f:
			fmt.Fprintf(&b, `\x%02x`, r)
		case r > 0xffff:
			fmt.Fprintf(&b, `\U%08x`, r)
		case r > 0x7f:
			fmt.Fprintf(&b, `\u%04x`, r)
		default:
			b.WriteRune(r)
		}
	}
	b.WriteByte('"')
	return b.String()
}
