package tokenize

import (
	"bytes"
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"strings"
	"testing"
)

// tinyJSON is a tokenizer.json with all bytes, the merges "a b" and "ab c", and one
// special token, into which tests put their own pieces.
func tinyJSON(edit ...string) string {
	var vocab strings.Builder
	for c := range 256 {
		w := jsonQuoted(byteName([]byte{byte(c)}))
		fmt.Fprintf(&vocab, "%s: %d, ", w, c)
	}
	doc := `{
  "version": "1.0", "truncation": null, "padding": null,
  "added_tokens": [{"id": 258, "content": "<|eos|>", "single_word": false, "lstrip": false, "rstrip": false, "normalized": false, "special": true}],
  "normalizer": null,
  "pre_tokenizer": {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
  "post_processor": null,
  "decoder": {"type": "ByteLevel"},
  "model": {"type": "BPE", "dropout": null, "unk_token": null, "continuing_subword_prefix": null, "end_of_word_suffix": null,
    "fuse_unk": false, "byte_fallback": false, "ignore_merges": false,
    "vocab": {` + vocab.String() + `"ab": 256, "abc": 257},
    "merges": ["a b", ["ab", "c"]]}
}`
	if len(edit)%2 != 0 {
		panic("edits come in pairs")
	}
	for i := 0; i < len(edit); i += 2 {
		if strings.Count(doc, edit[i]) != 1 {
			panic(fmt.Sprintf("%q occurs %d times", edit[i], strings.Count(doc, edit[i])))
		}
		doc = strings.Replace(doc, edit[i], edit[i+1], 1)
	}
	return doc
}

func jsonQuoted(s string) string {
	return `"` + strings.NewReplacer(`"`, `\"`, `\`, `\\`).Replace(s) + `"`
}

func TestLoadTiny(t *testing.T) {
	tok, err := Load(strings.NewReader(tinyJSON()))
	if err != nil {
		t.Fatal(err)
	}
	e := tok.NewEncoder(0)
	equalIDs(t, "abcab", e.Append(nil, []byte("abcab x<|eos|>")), append([]uint32{257, 256, ' ', 'x'}, ids("<|eos|>")...))
	equalIDs(t, "special", e.AppendSpecial(nil, []byte("<|eos|>ab<|eos|>")), []uint32{258, 256, 258})
	if id, ok := tok.EOS(); !ok || id != 258 {
		t.Errorf("EOS is %d, %v", id, ok)
	}
	if id, ok := tok.BOS(); ok {
		t.Errorf("BOS is %d, want none", id)
	}
	if id, ok := tok.SpecialID("<|eos|>"); !ok || id != 258 {
		t.Errorf("SpecialID gives %d, %v", id, ok)
	}
	if _, ok := tok.SpecialID("ab"); ok {
		t.Error("an ordinary token passes for special")
	}
	if tok.VocabSize() != 259 || tok.NumMerges() != 2 || tok.Family() != "r50k" {
		t.Errorf("size %d, merges %d, family %s", tok.VocabSize(), tok.NumMerges(), tok.Family())
	}
}

// TestLoadBacktracks: a vocabulary that has been written and read again encodes long
// pieces in the same way, special tokens or not.
func TestLoadBacktracks(t *testing.T) {
	tok := trainOn(t, "cl100k", "go", 600)
	back, err := Load(bytes.NewReader(jsonBytes(t, tok)))
	if err != nil {
		t.Fatal(err)
	}
	if len(tok.Added()) == 0 || tok.backtracks() == nil || back.backtracks() == nil {
		t.Errorf("%d added tokens; tables for long pieces: %v, read again %v", len(tok.Added()), tok.backtracks() != nil, back.backtracks() != nil)
	}
}

// ids are the ids of single bytes in tinyJSON.
func ids(s string) []uint32 {
	var out []uint32
	for _, c := range []byte(s) {
		out = append(out, uint32(c))
	}
	return out
}

// TestLoadAccepts lists harmless variations, each with the same ids as the original
// unless said otherwise.
func TestLoadAccepts(t *testing.T) {
	split := func(pattern, behavior string, invert bool) string {
		return fmt.Sprintf(`{"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": %q}, "behavior": %q, "invert": %v}, {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false}]}`, pattern, behavior, invert)
	}
	pre := `{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}`
	for name, c := range map[string]struct {
		edit   []string
		family string
	}{
		"byte order mark": {[]string{`{
  "version"`, "\xef\xbb\xbf{\"version\""}, "r50k"},
		"no version":           {[]string{`"version": "1.0", `, ``}, "r50k"},
		"no model type":        {[]string{`"type": "BPE", `, ``}, "r50k"},
		"empty prefix":         {[]string{`"continuing_subword_prefix": null`, `"continuing_subword_prefix": ""`}, "r50k"},
		"zero dropout":         {[]string{`"dropout": null`, `"dropout": 0.0`}, "r50k"},
		"unk token":            {[]string{`"unk_token": null`, `"unk_token": "<|eos|>"`}, "r50k"},
		"GPT-2 pattern spelt":  {[]string{pre, split(patternR50k, "Isolated", false)}, "r50k"},
		"cl100k":               {[]string{pre, split(patternCL100k, "Isolated", false)}, "cl100k"},
		"o200k, removed":       {[]string{pre, split(patternO200k, "Removed", true)}, "o200k"},
		"use_regex by default": {[]string{`, "use_regex": true}`, `}`}, "r50k"},
		"special in the vocab": {[]string{`"abc": 257`, `"abc": 257, "<|eos|>": 258`}, "r50k"},
		"merges file head":     {[]string{`["a b", `, `["#version: 0.2", "a b", `}, "r50k"},
		"escapes":              {[]string{`"ab": 256`, `"\u0061\u0062": 256`}, "r50k"},
		"padding":              {[]string{`"padding": null`, `"padding": {"strategy": "BatchLongest", "pad_id": 3}`}, "r50k"},
		"offsets":              {[]string{`"post_processor": null`, `"post_processor": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false}`}, "r50k"},
	} {
		tok, err := Load(strings.NewReader(tinyJSON(c.edit...)))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		if tok.Family() != c.family {
			t.Errorf("%s: family %s", name, tok.Family())
		}
		equalIDs(t, name, tok.NewEncoder(0).Append(nil, []byte("abcab")), []uint32{257, 256})
		var out bytes.Buffer
		if err := tok.WriteJSON(&out); err != nil {
			t.Fatal(err)
		}
		back, err := Load(&out)
		if err != nil || back.Hash() != tok.Hash() {
			t.Errorf("%s: reading what was written: %v", name, err)
		}
	}
}

func TestTemplateRoles(t *testing.T) {
	template := func(single string) string {
		return `"post_processor": {"type": "Sequence", "processors": [{"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false},
			{"type": "TemplateProcessing", "single": ` + single + `, "pair": [], "special_tokens": {}}]}`
	}
	added := []string{`"added_tokens": [`, `"added_tokens": [{"id": 259, "content": "<|here|>", "special": true, "normalized": false}, `}
	for single, want := range map[string][2]uint32{
		`[{"SpecialToken": {"id": "<|here|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]`:                                                    {259, 258},
		`[{"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<|here|>", "type_id": 0}}]`:                                                    {none, 259},
		`[{"SpecialToken": {"id": "<|eos|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}, {"SpecialToken": {"id": "<|here|>", "type_id": 0}}]`: {258, 259},
	} {
		tok, err := Load(strings.NewReader(tinyJSON(append(added, `"post_processor": null`, template(single))...)))
		if err != nil {
			t.Fatal(err)
		}
		if tok.bos != want[0] || tok.eos != want[1] {
			t.Errorf("%s: bos %d eos %d, want %v", single, tok.bos, tok.eos, want)
		}
		var out bytes.Buffer
		if err := tok.WriteJSON(&out); err != nil {
			t.Fatal(err)
		}
		back, err := Load(&out)
		if err != nil {
			t.Fatal(err)
		}
		if back.bos != tok.bos || back.eos != tok.eos || back.Hash() != tok.Hash() {
			t.Errorf("%s: roles or hash differ after writing", single)
		}
	}
	for _, bad := range []string{
		`[{"Sequence": {"id": "B", "type_id": 0}}]`,
		`[]`,
		`[{"SpecialToken": {"id": "<|gone|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]`,
		`[{"SpecialToken": {"id": "<|eos|>", "type_id": 0}}, {"SpecialToken": {"id": "<|here|>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}]`,
	} {
		if _, err := Load(strings.NewReader(tinyJSON(append(added, `"post_processor": null`, template(bad))...))); err == nil {
			t.Errorf("template %s is accepted", bad)
		}
	}
}

// TestLoadRefuses lists what must be an error and what the error must name.
func TestLoadRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		edit []string
		want string
	}{
		"cut off": {[]string{`"merges": ["a b", ["ab", "c"]]}
}`, `"merges": ["a b"`}, "end of the file"},
		"trailing": {[]string{`["ab", "c"]]}
}`, `["ab", "c"]]}} x`}, "after the end"},
		"unknown key":          {[]string{`"version": "1.0"`, `"versions": "1.0"`}, `"versions"`},
		"key of other case":    {[]string{`"normalizer": null`, `"Normalizer": null`}, `"Normalizer"`},
		"key twice":            {[]string{`"normalizer": null`, `"normalizer": null, "normalizer": null`}, "given twice"},
		"version":              {[]string{`"version": "1.0"`, `"version": "2.0"`}, `"2.0"`},
		"normalizer":           {[]string{`"normalizer": null`, `"normalizer": {"type": "NFC"}`}, "NFC"},
		"prefix space":         {[]string{`"add_prefix_space": false`, `"add_prefix_space": true`}, "add_prefix_space"},
		"pattern":              {[]string{`{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}`, `{"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": "\\w+|\\s+"}, "behavior": "Isolated", "invert": false}, {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]}`}, `\\w+`},
		"literal pattern":      {[]string{`{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}`, `{"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"String": "\\s+"}, "behavior": "Isolated", "invert": false}, {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]}`}, "String"},
		"split behaviour":      {[]string{`{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}`, `{"type": "Sequence", "pretokenizers": [{"type": "Split", "pattern": {"Regex": "` + strings.ReplaceAll(patternCL100k, `\`, `\\`) + `"}, "behavior": "MergedWithNext", "invert": false}, {"type": "ByteLevel", "add_prefix_space": false, "use_regex": false}]}`}, "MergedWithNext"},
		"digits":               {[]string{`{"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true}`, `{"type": "Sequence", "pretokenizers": [{"type": "Digits"}, {"type": "ByteLevel", "add_prefix_space": false, "use_regex": true}]}`}, "Digits"},
		"metaspace":            {[]string{`"type": "ByteLevel", "add_prefix_space": false`, `"type": "Metaspace", "add_prefix_space": false`}, "Metaspace"},
		"no split":             {[]string{`"use_regex": true`, `"use_regex": false`}, "use_regex"},
		"post-processor":       {[]string{`"post_processor": null`, `"post_processor": {"type": "BertProcessing"}`}, "BertProcessing"},
		"decoder":              {[]string{`"decoder": {"type": "ByteLevel"}`, `"decoder": {"type": "WordPiece"}`}, "WordPiece"},
		"no decoder":           {[]string{`"decoder": {"type": "ByteLevel"},`, ``}, `"decoder"`},
		"no model":             {[]string{`"model": {"type": "BPE", `, `"padding2": {`}, `"padding2"`},
		"model type":           {[]string{`"type": "BPE"`, `"type": "Unigram"`}, "Unigram"},
		"dropout":              {[]string{`"dropout": null`, `"dropout": 0.1`}, "dropout 0.1"},
		"suffix":               {[]string{`"end_of_word_suffix": null`, `"end_of_word_suffix": "</w>"`}, "end_of_word_suffix"},
		"byte fallback":        {[]string{`"byte_fallback": false`, `"byte_fallback": true`}, "byte_fallback"},
		"model key":            {[]string{`"fuse_unk": false`, `"fuse_unks": false`}, `"fuse_unks"`},
		"added token key":      {[]string{`"single_word": false`, `"single_words": false`}, `"single_words"`},
		"missing byte":         {[]string{`"z": 122, `, ``}, "AllowMissingBytes"},
		"foreign entry":        {[]string{`"ab": 256`, `"ab": 256, "a b": 300`}, `"a b"`},
		"entry twice":          {[]string{`"ab": 256`, `"ab": 256, "ab": 301`}, "given twice"},
		"id twice":             {[]string{`"abc": 257`, `"abc": 256`}, "id 256"},
		"merge of three":       {[]string{`["ab", "c"]`, `["ab", "c", "d"]`}, "3 parts"},
		"merge line of three":  {[]string{`"a b"`, `"a b c"`}, "a b c"},
		"merge into nothing":   {[]string{`["ab", "c"]`, `["ab", "d"]`}, `"abd"`},
		"merge of nothing":     {[]string{`["ab", "c"]`, `["xyz", "c"]`}, `"xyz"`},
		"empty merge":          {[]string{`["ab", "c"]`, `["", "ab"]`}, `""`},
		"special and ordinary": {[]string{`"content": "<|eos|>"`, `"content": "abc"`, `"id": 258`, `"id": 257`, `, "abc": 257`, ``}, `"abc"`},
		"added id of another":  {[]string{`"id": 258`, `"id": 256`}, "256"},
		"added like a byte":    {[]string{`"content": "<|eos|>"`, `"content": "\u0120"`}, "vocabulary id 32"},
		"fraction":             {[]string{`"ab": 256`, `"ab": 256.0`}, "whole number"},
		"negative":             {[]string{`"ab": 256`, `"ab": -1`}, "want an id"},
		"leading zero":         {[]string{`"ab": 256`, `"ab": 0256`}, "whole number"},
		"half a pair":          {[]string{`"content": "<|eos|>"`, `"content": "\ud83d"`}, "surrogate"},
		"not UTF-8":            {[]string{`"content": "<|eos|>"`, "\"content\": \"\xff\""}, "UTF-8"},
		"control byte":         {[]string{`"content": "<|eos|>"`, "\"content\": \"a\nb\""}, "control byte"},
		"bad escape":           {[]string{`"content": "<|eos|>"`, `"content": "\x41"`}, "escape"},
		"deep":                 {[]string{`"padding": null`, `"padding": ` + strings.Repeat("[", 40) + strings.Repeat("]", 40)}, "nested"},
	} {
		_, err := Load(strings.NewReader(tinyJSON(c.edit...)))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", name, err, c.want)
		}
	}
}

// TestLimits tries each limit at the limit and one above.
func TestLimits(t *testing.T) {
	accepts := func(name, doc string, ok bool, want string) {
		t.Helper()
		_, err := Load(strings.NewReader(doc))
		if ok && err != nil {
			t.Errorf("%s at the limit: %v", name, err)
		}
		if !ok && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s above the limit: error %v, want one with %q", name, err, want)
		}
	}
	for _, over := range []int{0, 1} {
		accepts("id", tinyJSON(`"abc": 257`, fmt.Sprintf(`"abc": 257, "abcd": %d`, maxVocab-1+over)), over == 0, "limit of 1048575")
		accepts("token", tinyJSON(`"abc": 257`, `"abc": 257, "`+strings.Repeat("x", maxTokenBytes+over)+`": 259`), over == 0, "1 to 1024")
		accepts("added token", tinyJSON(`"<|eos|>"`, `"`+strings.Repeat("x", maxTokenBytes+over)+`"`), over == 0, "1 to 1024")
		n := maxMergeRatio*258 - 2 + over
		accepts("merges", tinyJSON(`["ab", "c"]`, `["ab", "c"]`+strings.Repeat(`, "a b"`, n)), over == 0, "the limit is 1032")
		depth := maxJSONDepth - 1 + over
		accepts("depth", tinyJSON(`"padding": null`, `"padding": `+strings.Repeat("[", depth)+strings.Repeat("]", depth)), over == 0, "nested")
		blank := maxFileBytes - len(tinyJSON()) + over
		accepts("file", tinyJSON()+strings.Repeat(" ", blank), over == 0, "larger than 64 MiB")
	}
	_, err := Load(io.MultiReader(strings.NewReader(tinyJSON()), failing{}))
	if !errors.Is(err, errDisk) {
		t.Errorf("a reader that fails gives %v", err)
	}
}

var errDisk = errors.New("disk on fire")

type failing struct{}

func (failing) Read([]byte) (int, error)  { return 0, errDisk }
func (failing) Write([]byte) (int, error) { return 0, errDisk }

func TestWriteErrors(t *testing.T) {
	tok := trainOn(t, "cl100k", "go", 300)
	if err := tok.WriteJSON(failing{}); !errors.Is(err, errDisk) {
		t.Errorf("WriteJSON: %v", err)
	}
	if err := tok.WriteTiktoken(failing{}); !errors.Is(err, errDisk) {
		t.Errorf("WriteTiktoken: %v", err)
	}
	if err := unordered(t).WriteTiktoken(io.Discard); err == nil {
		t.Error("a vocabulary whose merges are not in the order of ids is written as ranks")
	}
}

// rankFile is a .tiktoken file of all bytes and more lines.
func rankFile(lines ...string) string {
	var b strings.Builder
	for c := range 256 {
		fmt.Fprintf(&b, "%s %d\n", base64Of(string([]byte{byte(c)})), c)
	}
	return b.String() + strings.Join(lines, "\n")
}

func base64Of(s string) string { return base64.StdEncoding.EncodeToString([]byte(s)) }

func TestLoadTiktoken(t *testing.T) {
	line := func(s string, rank int) string { return fmt.Sprintf("%s %d", base64Of(s), rank) }
	tok, err := LoadTiktoken(strings.NewReader(rankFile(line("ab", 256), line("zq", 260)+"\r", "", line("xyz", 270))), "r50k", map[string]uint32{"<|eos|>": 300})
	if err != nil {
		t.Fatal(err)
	}
	e := tok.NewEncoder(0)
	// xyz has no pair: it is a token only where it is the whole piece.
	equalIDs(t, "pieces", e.AppendSpecial(nil, []byte("xyz wxyz ab zq<|eos|>")), []uint32{270, ' ', 'w', 'x', 'y', 'z', ' ', 256, ' ', 260, 300})
	if tok.Unreachable() != 1 {
		t.Errorf("%d tokens out of reach, want 1", tok.Unreachable())
	}
	var out bytes.Buffer
	if err := tok.WriteJSON(&out); err != nil {
		t.Fatal(err)
	}
	back, err := Load(&out)
	if err != nil {
		t.Fatal(err)
	}
	equalIDs(t, "after tokenizer.json", back.NewEncoder(0).Append(nil, []byte("xyz wxyz")), []uint32{270, ' ', 'w', 'x', 'y', 'z'})

	for name, c := range map[string]struct{ file, family, want string }{
		"family":       {rankFile(), "p99k", "p99k"},
		"no rank":      {rankFile("YWI="), "r50k", "line 257"},
		"bad rank":     {rankFile("YWI= x"), "r50k", "line 257"},
		"negative":     {rankFile("YWI= -1"), "r50k", "line 257"},
		"id limit":     {rankFile(line("ab", maxVocab)), "r50k", "line 257"},
		"bad base64":   {rankFile("YW*= 256"), "r50k", "line 257"},
		"loose base64": {rankFile("YWJ= 256"), "r50k", "line 257"},
		"too long":     {rankFile(line(strings.Repeat("x", maxTokenBytes+1), 256)), "r50k", "1024"},
		"rank twice":   {rankFile(line("ab", 256), line("cd", 256)), "r50k", "256"},
		"token twice":  {rankFile(line("ab", 256), line("ab", 257)), "r50k", "same bytes"},
		"byte missing": {line("ab", 256), "r50k", "byte"},
		"empty token":  {rankFile(" 256"), "r50k", "0 bytes"},
		"blank tail":   {rankFile(line("\n ", 256)), "cl100k", "after the last newline"},
	} {
		if _, err := LoadTiktoken(strings.NewReader(c.file), c.family, nil); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", name, err, c.want)
		}
	}
	if _, err := LoadTiktoken(strings.NewReader(rankFile()), "r50k", map[string]uint32{"a": 300}); err == nil {
		t.Error("a special token that is a byte is accepted")
	}
	if _, err := LoadTiktoken(strings.NewReader(rankFile()), "r50k", map[string]uint32{"<a>": 300, "<b>": 300}); err == nil {
		t.Error("two special tokens with one id are accepted")
	}
	if _, err := LoadTiktoken(strings.NewReader(rankFile(line("\n ", 256))), "o200k", nil); err != nil {
		t.Errorf("o200k has one spelling of its pattern: %v", err)
	}
}
