package tokenize

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// LoadOptions widens what Load accepts.
type LoadOptions struct {
	// AllowMissingBytes accepts a vocabulary without tokens for some bytes, as
	// trainers make that take the alphabet from the data. Encoding drops these
	// bytes, as Hugging Face does, and Encoder.Dropped counts them.
	AllowMissingBytes bool
}

// Load reads tokenizer.json of a byte-level BPE model with the split pattern of
// GPT-2, GPT-4 / Llama 3 or GPT-4o, exactly as spelled by those models. Whatever
// could change ids and is not supported (normalizers, other patterns, prefix space,
// dropout, byte fallback, unknown keys) is an error that names it. Limits: 64 MiB,
// 1,048,576 ids, 1 KiB a token, four merges a token.
func Load(r io.Reader) (*Tokenizer, error) { return LoadWith(r, LoadOptions{}) }

// LoadWith is Load with options.
func LoadWith(r io.Reader, o LoadOptions) (*Tokenizer, error) {
	b, err := readLimited(r)
	if err != nil {
		return nil, err
	}
	t, err := loadJSON(b, o)
	if err != nil {
		return nil, fmt.Errorf("tokenize: tokenizer.json: %w", err)
	}
	return t, nil
}

func readLimited(r io.Reader) ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(r, maxFileBytes+1))
	if err != nil {
		return nil, fmt.Errorf("tokenize: reading the tokenizer file: %w", err)
	}
	if len(b) > maxFileBytes {
		return nil, fmt.Errorf("tokenize: the tokenizer file is larger than %d MiB", maxFileBytes>>20)
	}
	return b, nil
}

// jsonFile is what is gathered while scanning.
type jsonFile struct {
	source
	vocab     map[string]uint32
	names     []string // of vocab, in the order of the file
	mergeSpan []string // names of the merge before ids are known, "a" then "b"
	seen      map[string]bool
	template  template
}

func loadJSON(b []byte, o LoadOptions) (*Tokenizer, error) {
	f := &jsonFile{seen: map[string]bool{}}
	f.allowMissing = o.AllowMissingBytes
	f.bos, f.eos = none, none
	s := &jsonScanner{b: bytes.TrimPrefix(b, []byte("\xef\xbb\xbf"))}
	s.object(func(name string) { f.topLevel(s, name) })
	s.end()
	if s.err != nil {
		return nil, s.err
	}
	for _, need := range []string{"model", "pre_tokenizer", "decoder"} {
		if !f.seen[need] {
			return nil, fmt.Errorf("key %q is missing", need)
		}
	}
	if err := f.resolve(); err != nil {
		return nil, err
	}
	t, err := build(f.source)
	if err != nil {
		return nil, err
	}
	if t.missing > 0 && f.unkToken != nil {
		return nil, fmt.Errorf("unk_token %q is not supported when bytes have no token", *f.unkToken)
	}
	return t, nil
}

func (f *jsonFile) topLevel(s *jsonScanner, name string) {
	f.seen[name] = true
	switch name {
	case "version":
		if v := s.text(); s.err == nil && string(v) != "1.0" {
			s.fail("version %q is not supported; 1.0 is", v)
		}
	case "truncation":
		f.rawTrunc = compactRaw(s)
	case "padding":
		f.rawPad = compactRaw(s)
	case "added_tokens":
		s.array(func() { f.addedToken(s) })
	case "normalizer":
		if !s.null() {
			s.fail("normalizer %.200s is not supported; only null is", s.raw())
		}
	case "pre_tokenizer":
		f.fam = preTokenizer(s)
	case "post_processor":
		f.postProcessor(s)
	case "decoder":
		f.decoder(s)
	case "model":
		s.object(func(name string) { f.model(s, name) })
	default:
		s.fail("key %q is not supported", name)
	}
}

// compactRaw keeps a value for writing it again; nil for null.
func compactRaw(s *jsonScanner) []byte {
	if s.null() {
		return nil
	}
	raw := s.raw()
	if s.err != nil {
		return nil
	}
	var out bytes.Buffer
	if err := json.Compact(&out, raw); err != nil {
		s.fail("%v", err)
	}
	return out.Bytes()
}

func (f *jsonFile) addedToken(s *jsonScanner) {
	a := AddedToken{ID: none, Normalized: true}
	s.object(func(name string) {
		switch name {
		case "id":
			a.ID = s.id()
		case "content":
			a.Content = string(s.text())
		case "single_word":
			a.SingleWord = s.bool()
		case "lstrip":
			a.LStrip = s.bool()
		case "rstrip":
			a.RStrip = s.bool()
		case "normalized":
			a.Normalized = s.bool()
		case "special":
			a.Special = s.bool()
		default:
			s.fail("key %q of an added token is not supported", name)
		}
	})
	if s.err == nil && (a.ID == none || a.Content == "") {
		s.fail("an added token needs id and content")
	}
	if len(f.added) >= maxVocab {
		s.fail("more than %d added tokens", maxVocab)
		return
	}
	f.added = append(f.added, a)
}

func (f *jsonFile) decoder(s *jsonScanner) {
	kind := ""
	s.object(func(name string) {
		switch name {
		case "type":
			kind = string(s.text())
		case "add_prefix_space", "trim_offsets", "use_regex":
			s.bool() // no effect on decoding
		default:
			s.fail("key %q of the decoder is not supported", name)
		}
	})
	if s.err == nil && kind != "ByteLevel" {
		s.fail("decoder %q is not supported; ByteLevel is", kind)
	}
}

func (f *jsonFile) model(s *jsonScanner, name string) {
	switch name {
	case "type":
		if v := s.text(); s.err == nil && string(v) != "BPE" {
			s.fail("model type %q is not supported; BPE is", v)
		}
	case "dropout":
		if !s.null() {
			if v := s.raw(); s.err == nil && string(v) != "0" && string(v) != "0.0" {
				s.fail("dropout %.40s is not supported: encoding must not be random", v)
			}
		}
	case "unk_token":
		if !s.null() {
			v := string(s.text())
			f.unkToken = &v
		}
	case "continuing_subword_prefix", "end_of_word_suffix":
		if !s.null() {
			if v := s.text(); s.err == nil && len(v) > 0 {
				s.fail("%s %q is not supported", name, v)
			}
		}
	case "fuse_unk":
		s.bool() // only with unknown characters, of which there are none
	case "byte_fallback":
		if s.bool() {
			s.fail("byte_fallback is not supported")
		}
	case "ignore_merges":
		f.wholePiece = s.bool()
	case "vocab":
		f.vocab = make(map[string]uint32, 1<<16)
		s.members(func(name []byte) {
			if _, ok := f.vocab[string(name)]; ok {
				s.fail("vocabulary entry %q is given twice", name)
				return
			}
			if len(f.vocab) >= maxVocab {
				s.fail("more than %d vocabulary entries", maxVocab)
				return
			}
			key := string(name)
			f.vocab[key] = s.id()
			f.names = append(f.names, key)
		})
	case "merges":
		f.readMerges(s)
	default:
		s.fail("key %q of the model is not supported", name)
	}
}

// readMerges reads both forms: "a b" and ["a", "b"].
func (f *jsonFile) readMerges(s *jsonScanner) {
	s.array(func() {
		if len(f.mergeSpan) >= 2*maxMergeRatio*maxVocab {
			s.fail("more than %d merges", maxMergeRatio*maxVocab)
			return
		}
		if s.peek() == '"' {
			line := s.text()
			if bytes.HasPrefix(line, []byte("#version")) {
				return // Hugging Face takes it for the head of an old merges file
			}
			k := bytes.IndexByte(line, ' ')
			if s.err == nil && (k <= 0 || k == len(line)-1 || bytes.IndexByte(line[k+1:], ' ') >= 0) {
				s.fail("merge %q is not two tokens with a space between", line)
			}
			if s.err == nil {
				f.mergeSpan = append(f.mergeSpan, string(line[:k]), string(line[k+1:]))
			}
			return
		}
		n := 0
		s.array(func() {
			n++
			f.mergeSpan = append(f.mergeSpan, string(s.text()))
		})
		if s.err == nil && n != 2 {
			s.fail("a merge has %d parts, want 2", n)
		}
	})
}

// resolve turns names into bytes and ids once the whole file has been seen.
func (f *jsonFile) resolve() error {
	if f.vocab == nil {
		return errors.New("the model has no vocab")
	}
	if n, limit := len(f.mergeSpan)/2, maxMergeRatio*len(f.vocab); n > limit {
		return fmt.Errorf("%d merges for %d vocabulary entries; the limit is %d", n, len(f.vocab), limit)
	}
	added := make(map[string]AddedToken, len(f.added))
	for _, a := range f.added {
		added[a.Content] = a
	}
	f.tokens = make([]token, 0, len(f.vocab))
	for _, name := range f.names {
		id := f.vocab[name]
		if a, ok := added[name]; ok {
			if a.ID != id {
				return fmt.Errorf("added token %q has id %d but vocabulary id %d", name, a.ID, id)
			}
			b, plain := nameBytes(name)
			if a.Special || !plain || string(b) != name {
				continue
			}
		}
		b, ok := nameBytes(name)
		if !ok {
			return fmt.Errorf("vocabulary entry %q (id %d) is not in the byte alphabet and no added token", name, id)
		}
		f.tokens = append(f.tokens, token{b, id})
	}
	sortTokens(f.tokens)
	f.merges = make([]merge, 0, len(f.mergeSpan)/2)
	for i := 0; i+1 < len(f.mergeSpan); i += 2 {
		m := merge{}
		for k, name := range []string{f.mergeSpan[i], f.mergeSpan[i+1], f.mergeSpan[i] + f.mergeSpan[i+1]} {
			id, ok := f.vocab[name]
			if !ok {
				return fmt.Errorf("merge %d (%q, %q) needs %q, which is not in the vocabulary", i/2, f.mergeSpan[i], f.mergeSpan[i+1], name)
			}
			switch k {
			case 0:
				m.left = id
			case 1:
				m.right = id
			default:
				m.id = id
			}
		}
		f.merges = append(f.merges, m)
	}
	return f.template.roles(&f.source, added)
}
