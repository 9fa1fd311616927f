package tokenize

import (
	"bufio"
	"fmt"
	"io"
	"slices"
	"strconv"
	"unicode/utf8"
)

// sortTokens orders tokens by id.
func sortTokens(tokens []token) {
	slices.SortFunc(tokens, func(a, b token) int { return int(a.id) - int(b.id) })
}

// writeJSON writes the file in one fixed order. The vocabulary holds the added
// tokens too, so that readers which number added tokens by position agree.
func writeJSON(out io.Writer, t *Tokenizer) error {
	w := jsonWriter{bufio.NewWriterSize(out, 1<<16)}
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
		w.Write(strconv.AppendInt(w.AvailableBuffer(), int64(id), 10))
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
	return w.Flush()
}

// jsonWriter leaves errors to the sticky one of bufio.Writer, which Flush returns.
type jsonWriter struct{ *bufio.Writer }

func (w jsonWriter) print(s string) { w.WriteString(s) }

func (w jsonWriter) comma(i int) {
	if i > 0 {
		w.WriteByte(',')
	}
}

func (w jsonWriter) rawOrNull(raw []byte) {
	if raw == nil {
		w.WriteString("null")
		return
	}
	w.Write(raw)
}

// name writes the key of an id in the vocabulary: the content of an added token, or the
// bytes spelled in the byte alphabet, which has nothing to escape but quotes and
// backslashes.
func (w jsonWriter) name(t *Tokenizer, id uint32) {
	if !t.plain[id] {
		w.quote(string(t.bytesOf(id)))
		return
	}
	b := append(w.AvailableBuffer(), '"')
	for _, c := range t.bytesOf(id) {
		switch {
		case c == '"' || c == '\\':
			b = append(b, '\\', c)
		case '!' <= c && c <= '~':
			b = append(b, c)
		default:
			b = utf8.AppendRune(b, byteRune(c))
		}
	}
	w.Write(append(b, '"'))
}

func (w jsonWriter) quote(s string) {
	w.WriteByte('"')
	for i := range len(s) {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			w.WriteByte('\\')
			w.WriteByte(c)
		case c < ' ' || c == 0x7f:
			fmt.Fprintf(w, "\\u%04x", c)
		default:
			w.WriteByte(c)
		}
	}
	w.WriteByte('"')
}
