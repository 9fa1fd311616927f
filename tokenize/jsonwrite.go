package tokenize

import (
	"fmt"
	"slices"
	"strconv"
)

// sortTokens orders tokens by id.
func sortTokens(tokens []token) {
	slices.SortFunc(tokens, func(a, b token) int { return int(a.id) - int(b.id) })
}

// writeJSON writes the file in one fixed order. The vocabulary holds the added
// tokens too, so that readers which number added tokens by position agree.
func writeJSON(t *Tokenizer) []byte {
	w := jsonWriter{b: make([]byte, 0, t.jsonSize())}
	w.print("{\n  \"version\": \"1.0\",\n  \"truncation\": ")
	w.rawOrNull(t.rawTrunc)
	w.print(",\n  \"padding\": ")
	w.rawOrNull(t.rawPad)
	w.print(",\n  \"added_tokens\": [")
	for i, a := range t.added {
		w.comma(i)
		w.print("\n    {\"id\": " + strconv.Itoa(int(a.ID)) + ", \"content\": ")
		w.quote(a.Content)
		w.print(fmt.Sprintf(", \"single_word\": %t, \"lstrip\": %t, \"rstrip\": %t, \"normalized\": %t, \"special\": %t}",
			a.SingleWord, a.LStrip, a.RStrip, a.Normalized, a.Special))
	}
	w.print("\n  ],\n  \"normalizer\": null,\n  \"pre_tokenizer\": ")
	if t.fam.pattern == "" {
		w.print(`{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}`)
	} else {
		w.print(`{"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": `)
		w.quote(t.fam.pattern)
		w.print(`}, "behavior": "Isolated", "invert": false}, {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]}`)
	}
	w.print(",\n  \"post_processor\": ")
	w.rawOrNull(t.rawPost)
	w.print(",\n  \"decoder\": {\"type\": \"ByteLevel\", \"add_prefix_space\": true, \"trim_offsets\": true, \"use_regex\": true},\n")
	w.print("  \"model\": {\n    \"type\": \"BPE\",\n    \"dropout\": null,\n    \"unk_token\": ")
	if t.unkToken == nil {
		w.print("null")
	} else {
		w.quote(*t.unkToken)
	}
	w.print(",\n    \"continuing_subword_prefix\": null,\n    \"end_of_word_suffix\": null,\n    \"fuse_unk\": false,\n    \"byte_fallback\": false,\n")
	w.print(fmt.Sprintf("    \"ignore_merges\": %t,\n    \"vocab\": {", t.wholePiece))
	first := 0
	for id := range t.VocabSize() {
		if len(t.bytesOf(uint32(id))) == 0 {
			continue
		}
		w.comma(first)
		first++
		w.print("\n      ")
		w.name(t, uint32(id))
		w.print(": ")
		w.b = strconv.AppendInt(w.b, int64(id), 10)
	}
	w.print("\n    },\n    \"merges\": [")
	for i, m := range t.merges {
		w.comma(i)
		w.print("\n      [")
		w.name(t, m.left)
		w.print(", ")
		w.name(t, m.right)
		w.print("]")
	}
	w.print("\n    ]\n  }\n}\n")
	return w.b
}

// jsonSize is about how long the file gets. A name is a third longer than its bytes.
func (t *Tokenizer) jsonSize() int {
	n := 4<<10 + 18*t.VocabSize() + 17*len(t.merges) + 200*len(t.added)
	named := len(t.text)
	for _, m := range t.merges {
		named += int(t.offsets[m.id+1] - t.offsets[m.id])
	}
	return n + named*4/3
}

// spelling is how a byte is written within a name: by one or two bytes.
type spelling struct {
	two [2]byte
	n   int
}

// spellings are those of all bytes. The byte alphabet has nothing to escape but quotes
// and backslashes.
var spellings = func() (table [256]spelling) {
	for c := range table {
		e := &table[c]
		if c == '"' || c == '\\' {
			*e = spelling{[2]byte{'\\', byte(c)}, 2}
		} else {
			e.n = copy(e.two[:], string(byteRune(byte(c))))
		}
	}
	return table
}()

// jsonWriter writes to memory.
type jsonWriter struct{ b []byte }

func (w *jsonWriter) print(s string) { w.b = append(w.b, s...) }

func (w *jsonWriter) comma(i int) {
	if i > 0 {
		w.b = append(w.b, ',')
	}
}

func (w *jsonWriter) rawOrNull(raw []byte) {
	if raw == nil {
		w.print("null")
		return
	}
	w.b = append(w.b, raw...)
}

// name writes the key of an id in the vocabulary: the content of an added token, or the
// bytes spelled in the byte alphabet.
func (w *jsonWriter) name(t *Tokenizer, id uint32) {
	bytes := t.bytesOf(id)
	if !t.plain[id] {
		w.quote(string(bytes))
		return
	}
	room := 2*len(bytes) + 2
	w.b = slices.Grow(w.b, room)
	n := len(w.b)
	b := w.b[:n+room]
	b[n] = '"'
	n++
	for _, c := range bytes {
		e := &spellings[c]
		b[n], b[n+1] = e.two[0], e.two[1]
		n += e.n
	}
	b[n] = '"'
	w.b = b[:n+1]
}

func (w *jsonWriter) quote(s string) {
	w.b = append(w.b, '"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			w.b = append(w.b, '\\', c)
		case c < ' ' || c == 0x7f:
			w.b = fmt.Appendf(w.b, "\\u%04x", c)
		default:
			w.b = append(w.b, c)
		}
	}
	w.b = append(w.b, '"')
}
