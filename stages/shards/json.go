package shards

import (
	"bytes"
	"fmt"
	"slices"
	"sort"
	"unicode/utf8"
)

// jsonFault classes decide which policy a fault falls under.
type jsonFault int

const (
	faultSyntax  jsonFault = iota // not the JSON we read
	faultEnd                      // the value goes on after the last byte
	faultField                    // valid JSON without a usable text field
	faultUnicode                  // an escape that stands for no character
)

type jsonError struct {
	class jsonFault
	at    int // byte offset within the line
	msg   string
}

func (e *jsonError) Error() string { return fmt.Sprintf("byte %d of the line: %s", e.at, e.msg) }

// jsonReader finds one string field of one JSON object per call and checks the
// whole line against RFC 8259, more strictly than encoding/json does: exact
// case, no duplicate name in any object, no lone surrogate in names or text,
// nothing after the value, nesting of at most maxDepth. Its buffers are reused.
type jsonReader struct {
	field string
	mend  bool // a lone surrogate in the text becomes U+FFFD
	src   []byte
	pos   int

	mended bool     // some surrogate of the last text was mended
	names  [][]byte // names of the open objects, innermost last
	esc    []byte   // unescaped text
}

// find returns the text of the field, valid until the next call, or isNull for
// an explicit null.
func (j *jsonReader) find(line []byte) (text []byte, isNull bool, err error) {
	j.src, j.pos, j.names, j.mended = line, 0, j.names[:0], false
	j.space()
	if j.pos == len(line) {
		return nil, false, j.end()
	}
	if line[j.pos] != '{' {
		return nil, false, j.fault(faultField, j.pos, "a line must be one JSON object")
	}
	found := false
	var keys []string
	err = j.object(0, func(name []byte) error {
		if found || string(name) != j.field {
			if len(keys) < 64 {
				keys = append(keys, string(clip(name)))
			}
			return j.value(1)
		}
		found = true
		at := j.pos
		switch {
		case j.pos < len(line) && line[j.pos] == 'n':
			isNull = true
			return j.literal("null")
		case j.pos < len(line) && line[j.pos] != '"':
			if err := j.value(1); err != nil {
				return err
			}
			return j.fault(faultField, at, fmt.Sprintf("field %q is not a string", j.field))
		}
		raw, escaped, err := j.str()
		if err != nil {
			return err
		}
		text = raw
		if escaped {
			if j.esc, err = j.unescape(j.esc[:0], raw, at+1, j.mend); err != nil {
				return err
			}
			text = j.esc
		}
		return nil
	})
	if err != nil {
		return nil, false, err
	}
	j.space()
	if j.pos < len(line) {
		return nil, false, j.fault(faultSyntax, j.pos, "something follows the value; a line holds one value")
	}
	if !found {
		return nil, false, j.missing(keys)
	}
	return text, isNull, nil
}

func (j *jsonReader) missing(keys []string) error {
	msg := fmt.Sprintf("no field %q", j.field)
	if h := hint(nearest(j.field, keys)); h != "" {
		msg += "; " + h
	} else if len(keys) > 0 {
		sort.Strings(keys)
		msg += fmt.Sprintf(" among %q", shortList(keys))
	}
	return j.fault(faultField, 0, msg+" (the field is set by data.field)")
}

func (j *jsonReader) fault(c jsonFault, at int, msg string) error {
	return &jsonError{class: c, at: at, msg: msg}
}

func (j *jsonReader) end() error {
	return j.fault(faultEnd, len(j.src), "the line ends inside a value")
}

func (j *jsonReader) space() {
	for j.pos < len(j.src) {
		switch j.src[j.pos] {
		case ' ', '\t', '\r', '\n':
			j.pos++
		default:
			return
		}
	}
}

// value skips one value of any type.
func (j *jsonReader) value(depth int) error {
	if j.pos == len(j.src) {
		return j.end()
	}
	switch c := j.src[j.pos]; {
	case c == '{':
		return j.object(depth, func([]byte) error { return j.value(depth + 1) })
	case c == '[':
		return j.array(depth)
	case c == '"':
		_, _, err := j.str()
		return err
	case c == 't':
		return j.literal("true")
	case c == 'f':
		return j.literal("false")
	case c == 'n':
		return j.literal("null")
	case c == '-' || (c >= '0' && c <= '9'):
		return j.number()
	default:
		return j.fault(faultSyntax, j.pos, fmt.Sprintf("%q cannot start a value", c))
	}
}

// object reads an object, calling each with the position at a member's value,
// which it must consume.
func (j *jsonReader) object(depth int, each func(name []byte) error) error {
	if depth >= maxDepth {
		return j.fault(faultSyntax, j.pos, fmt.Sprintf("nested deeper than %d", maxDepth))
	}
	base := len(j.names)
	var set map[string]struct{} // only for objects of many names
	j.pos++
	for first := true; ; first = false {
		j.space()
		if j.pos == len(j.src) {
			return j.end()
		}
		if j.src[j.pos] == '}' && first {
			j.pos++
			return nil
		}
		if j.src[j.pos] != '"' {
			return j.fault(faultSyntax, j.pos, "expected a name in double quotes")
		}
		at := j.pos
		name, escaped, err := j.str()
		if err != nil {
			return err
		}
		if escaped {
			if name, err = j.unescape(nil, name, at+1, false); err != nil {
				return err
			}
		}
		if set, err = j.unique(base, name, at, set); err != nil {
			return err
		}
		j.space()
		if j.pos == len(j.src) {
			return j.end()
		}
		if j.src[j.pos] != ':' {
			return j.fault(faultSyntax, j.pos, "expected a colon after the name")
		}
		j.pos++
		j.space()
		if err := each(name); err != nil {
			return err
		}
		done, err := j.next('}')
		if err != nil || done {
			j.names = j.names[:base]
			return err
		}
	}
}

// unique records a name of the object whose names start at base. Up to 32 names
// are compared one by one; beyond that a set keeps hostile lines linear.
func (j *jsonReader) unique(base int, name []byte, at int, set map[string]struct{}) (map[string]struct{}, error) {
	names := j.names[base:]
	dup := false
	switch {
	case set != nil:
		_, dup = set[string(name)]
		set[string(name)] = struct{}{}
	case len(names) < 32:
		dup = slices.ContainsFunc(names, func(n []byte) bool { return bytes.Equal(n, name) })
		j.names = append(j.names, name)
	default:
		set = make(map[string]struct{}, 64)
		for _, n := range names {
			set[string(n)] = struct{}{}
		}
		_, dup = set[string(name)]
		set[string(name)] = struct{}{}
	}
	if dup {
		return nil, j.fault(faultSyntax, at, fmt.Sprintf("name %q appears twice in one object", clip(name)))
	}
	return set, nil
}

func (j *jsonReader) array(depth int) error {
	if depth >= maxDepth {
		return j.fault(faultSyntax, j.pos, fmt.Sprintf("nested deeper than %d", maxDepth))
	}
	j.pos++
	j.space()
	if j.pos < len(j.src) && j.src[j.pos] == ']' {
		j.pos++
		return nil
	}
	for {
		j.space()
		if err := j.value(depth + 1); err != nil {
			return err
		}
		if done, err := j.next(']'); err != nil || done {
			return err
		}
	}
}

// next consumes a comma or the closing byte.
func (j *jsonReader) next(closing byte) (done bool, err error) {
	j.space()
	if j.pos == len(j.src) {
		return false, j.end()
	}
	c := j.src[j.pos]
	if c != ',' && c != closing {
		return false, j.fault(faultSyntax, j.pos, fmt.Sprintf("expected a comma or %q", closing))
	}
	j.pos++
	return c == closing, nil
}

func (j *jsonReader) literal(want string) error {
	got := j.src[j.pos:min(len(j.src), j.pos+len(want))]
	if string(got) == want {
		j.pos += len(want)
		return nil
	}
	if len(got) < len(want) && want[:len(got)] == string(got) {
		return j.end()
	}
	return j.fault(faultSyntax, j.pos, fmt.Sprintf("expected %s", want))
}

func (j *jsonReader) digits() error {
	start := j.pos
	for j.pos < len(j.src) && j.src[j.pos] >= '0' && j.src[j.pos] <= '9' {
		j.pos++
	}
	if j.pos > start {
		return nil
	}
	if j.pos == len(j.src) {
		return j.end()
	}
	return j.fault(faultSyntax, j.pos, "expected a digit")
}

func (j *jsonReader) number() error {
	if j.src[j.pos] == '-' {
		j.pos++
	}
	zero := j.pos < len(j.src) && j.src[j.pos] == '0'
	if zero {
		j.pos++
	} else if err := j.digits(); err != nil {
		return err
	}
	if j.pos < len(j.src) && j.src[j.pos] == '.' {
		j.pos++
		if err := j.digits(); err != nil {
			return err
		}
	}
	if j.pos < len(j.src) && (j.src[j.pos] == 'e' || j.src[j.pos] == 'E') {
		j.pos++
		if j.pos < len(j.src) && (j.src[j.pos] == '+' || j.src[j.pos] == '-') {
			j.pos++
		}
		return j.digits()
	}
	return nil
}

// str reads a string at the opening quote and returns what lies between the
// quotes, still escaped, with every escape checked.
func (j *jsonReader) str() (raw []byte, escaped bool, err error) {
	j.pos++
	start := j.pos
	for j.pos < len(j.src) {
		switch c := j.src[j.pos]; {
		case c == '"':
			raw = j.src[start:j.pos]
			j.pos++
			return raw, escaped, nil
		case c == '\\':
			escaped = true
			if err := j.escape(); err != nil {
				return nil, false, err
			}
		case c < 0x20:
			return nil, false, j.fault(faultSyntax, j.pos, fmt.Sprintf("control character 0x%02x inside a string must be escaped", c))
		default:
			j.pos++
		}
	}
	return nil, false, j.end()
}

// escape steps over one escape sequence.
func (j *jsonReader) escape() error {
	if j.pos+1 >= len(j.src) {
		return j.end()
	}
	switch j.src[j.pos+1] {
	case '"', '\\', '/', 'b', 'f', 'n', 'r', 't':
		j.pos += 2
		return nil
	case 'u':
		for k := j.pos + 2; k < j.pos+6; k++ {
			if k >= len(j.src) {
				return j.end()
			}
			if hexValue(j.src[k]) < 0 {
				return j.fault(faultSyntax, k, `\u needs four hexadecimal digits`)
			}
		}
		j.pos += 6
		return nil
	}
	return j.fault(faultSyntax, j.pos, fmt.Sprintf(`\%c is no escape`, j.src[j.pos+1]))
}

func hexValue(c byte) rune {
	switch {
	case c >= '0' && c <= '9':
		return rune(c - '0')
	case c >= 'a' && c <= 'f':
		return rune(c-'a') + 10
	case c >= 'A' && c <= 'F':
		return rune(c-'A') + 10
	}
	return -1
}

// hex4 reads four digits that str has checked.
func hex4(b []byte) rune {
	return hexValue(b[0])<<12 | hexValue(b[1])<<8 | hexValue(b[2])<<4 | hexValue(b[3])
}

// unescape appends the characters of raw, which str has checked and which lies
// at offset at of the line. Surrogate pairs are joined; a lone one is a fault,
// or U+FFFD with mend set.
func (j *jsonReader) unescape(dst, raw []byte, at int, mend bool) ([]byte, error) {
	for i := 0; i < len(raw); {
		k := bytes.IndexByte(raw[i:], '\\')
		if k < 0 {
			return append(dst, raw[i:]...), nil
		}
		dst = append(dst, raw[i:i+k]...)
		i += k
		switch c := raw[i+1]; c {
		case 'b':
			dst = append(dst, '\b')
		case 'f':
			dst = append(dst, '\f')
		case 'n':
			dst = append(dst, '\n')
		case 'r':
			dst = append(dst, '\r')
		case 't':
			dst = append(dst, '\t')
		case 'u':
			r, n := hex4(raw[i+2:]), 6
			if r >= 0xd800 && r <= 0xdbff && i+12 <= len(raw) && raw[i+6] == '\\' && raw[i+7] == 'u' {
				if lo := hex4(raw[i+8:]); lo >= 0xdc00 && lo <= 0xdfff {
					r, n = (r-0xd800)<<10+(lo-0xdc00)+0x10000, 12
				}
			}
			if r >= 0xd800 && r <= 0xdfff {
				if !mend {
					return nil, j.fault(faultUnicode, at+i, fmt.Sprintf("%s is half of a surrogate pair", raw[i:i+6]))
				}
				j.mended = true
				r = utf8.RuneError
			}
			dst = utf8.AppendRune(dst, r)
			i += n
			continue
		default: // '"', '\\' and '/' stand for themselves
			dst = append(dst, c)
		}
		i += 2
	}
	return dst, nil
}

// clip shortens hostile input for a message.
func clip(b []byte) []byte {
	if len(b) > 64 {
		return append(append([]byte(nil), b[:64]...), "..."...)
	}
	return b
}

// shortList is the first few of names, each shortened, for a message.
func shortList(names []string) []string {
	var out []string
	for _, n := range names[:min(len(names), 16)] {
		out = append(out, string(clip([]byte(n))))
	}
	return out
}
