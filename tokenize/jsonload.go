package tokenize

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
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
	if m, ok := r.(*bytes.Reader); ok && 0 < m.Len() && m.Len() <= maxFileBytes {
		whole := inMemory{o: o}
		if _, err := m.WriteTo(&whole); err != nil {
			return nil, fmt.Errorf("tokenize: tokenizer.json: %w", err)
		}
		return whole.t, nil
	}
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

// inMemory loads what is written to it at once, as bytes.Reader does without a copy.
type inMemory struct {
	o LoadOptions
	t *Tokenizer
}

func (m *inMemory) Write(b []byte) (n int, err error) {
	if m.t, err = loadJSON(b, m.o); err != nil {
		return 0, err
	}
	return len(b), nil
}

func readLimited(r io.Reader) ([]byte, error) {
	var buf bytes.Buffer
	if known, ok := r.(interface{ Len() int }); ok { // it lies in memory already
		buf.Grow(min(known.Len(), maxFileBytes+1) + bytes.MinRead)
	}
	_, err := buf.ReadFrom(io.LimitReader(r, maxFileBytes+1))
	b := buf.Bytes()
	if err != nil {
		return nil, fmt.Errorf("tokenize: reading the tokenizer file: %w", err)
	}
	if len(b) > maxFileBytes {
		return nil, fmt.Errorf("tokenize: the tokenizer file is larger than %d MiB", maxFileBytes>>20)
	}
	return b, nil
}

// bytesOfMerge is about what a file without blanks has for a merge.
const bytesOfMerge = 24

// bytesOfEntry is about what tokenizer.json has for a token, its id and its merge.
const bytesOfEntry = 48

// jsonFile is what is gathered while scanning.
type jsonFile struct {
	source
	names    byteIndex         // vocabulary entries in the byte alphabet, in the order of the file
	ids      []uint32          // of names
	odd      map[string]uint32 // the other entries; nil until there is a vocabulary
	mergesAt int               // where merges are that stand before the vocabulary
	seen     map[string]bool
	template template
	made     uint32 // the name that the last merge made

	buf                  [4 << 10]byte // names that are being read
	left, right, scratch []byte        // of a merge: its names, and their bytes one after the other

	pending    [64]pendingMerge
	numPending int
	touched    uint64 // what was read only for having been read
}

func loadJSON(b []byte, o LoadOptions) (*Tokenizer, error) {
	f := &jsonFile{seen: map[string]bool{}}
	f.allowMissing = o.AllowMissingBytes
	f.bos, f.eos = none, none
	f.joined = true
	s := &jsonScanner{b: bytes.TrimPrefix(b, []byte("\xef\xbb\xbf"))}
	s.object(func(name string) { f.topLevel(s, name) })
	s.end()
	if f.mergesAt > 0 && f.odd != nil {
		s.i = f.mergesAt
		f.readMerges(s)
	}
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
		// Files spend about this much on an entry and its merge.
		room := (len(s.b) - s.i) / bytesOfEntry
		f.names = newByteIndex(room)
		f.names.text = make([]byte, 0, 8*room)
		f.names.offsets = make([]uint32, 1, room+1)
		f.ids = make([]uint32, 0, room)
		f.odd = map[string]uint32{}
		s.group('{', '}', func() {
			for len(f.ids)+len(f.odd) < maxVocab {
				if len(f.ids)-f.names.len() >= len(f.pending) {
					if f.indexNew(s); s.err != nil {
						return
					}
				}
				if !f.quickEntry(s) {
					break
				}
				if !s.comma() {
					return
				}
			}
			name := s.text()
			if s.expect(':') {
				f.entry(s, name)
			}
		})
		if s.err == nil {
			f.indexNew(s)
		}
	case "merges":
		if f.odd == nil { // they are resolved when all names are known
			s.peek()
			f.mergesAt = s.i
			s.raw()
			return
		}
		f.readMerges(s)
	default:
		s.fail("key %q of the model is not supported", name)
	}
}

// entry reads the id of a vocabulary entry and keeps both.
func (f *jsonFile) entry(s *jsonScanner, name []byte) {
	if len(f.ids)+len(f.odd) >= maxVocab {
		s.fail("more than %d vocabulary entries", maxVocab)
		return
	}
	x := &f.names
	text, plain := appendNameBytes(x.text, name)
	if !plain {
		key := string(name)
		if _, ok := f.odd[key]; ok {
			s.fail("vocabulary entry %q is given twice", key)
			return
		}
		f.odd[key] = s.id()
		return
	}
	x.text, x.offsets = text, append(x.offsets, uint32(len(text)))
	f.ids = append(f.ids, s.id())
}

// indexNew makes the entries that are new since the last time found. Like the parts of
// merges they are looked up together.
func (f *jsonFile) indexNew(s *jsonScanner) {
	x := &f.names
	from, to := uint32(x.len()), uint32(len(f.ids))
	for i := from; i < to; i++ {
		f.touched += x.touch(x.at(i))
	}
	for i := from; i < to; i++ {
		if _, ok := x.add(i); !ok {
			s.fail("vocabulary entry %q is given twice", byteName(x.at(i)))
			return
		}
	}
}

// versionMark begins the line of old merges files that is no merge.
const versionMark = "#version"

// readMerges reads both forms: "a b" and ["a", "b"].
func (f *jsonFile) readMerges(s *jsonScanner) {
	f.merges = make([]merge, 0, max(len(f.ids), (len(s.b)-s.i)/bytesOfMerge))
	s.array(func() {
		for limit := f.mergeLimit(); len(f.merges)+f.numPending < limit; {
			if f.numPending == len(f.pending) {
				if f.settleMerges(s); s.err != nil {
					return
				}
			}
			if !f.quickMerge(s) {
				break
			}
			if !s.comma() {
				return
			}
		}
		if f.settleMerges(s); s.err == nil {
			f.slowMerge(s)
		}
	})
	if s.err == nil {
		f.settleMerges(s)
	}
}

// mergeLimit is how many merges a file may have.
func (f *jsonFile) mergeLimit() int { return maxMergeRatio * (len(f.ids) + len(f.odd)) }

// slowMerge reads any merge.
func (f *jsonFile) slowMerge(s *jsonScanner) {
	if s.peek() == '"' {
		line := s.text()
		if bytes.HasPrefix(line, []byte(versionMark)) {
			return // Hugging Face takes it for the head of an old merges file
		}
		k := bytes.IndexByte(line, ' ')
		if s.err == nil && (k <= 0 || k == len(line)-1 || bytes.IndexByte(line[k+1:], ' ') >= 0) {
			s.fail("merge %q is not two tokens with a space between", line)
		}
		if s.err == nil {
			f.left, f.right = append(f.left[:0], line[:k]...), append(f.right[:0], line[k+1:]...)
		}
	} else {
		n := 0
		s.array(func() {
			n++
			f.left, f.right = f.right, append(f.left[:0], s.text()...)
		})
		if s.err == nil && n != 2 {
			s.fail("a merge has %d parts, want 2", n)
		}
	}
	if limit := f.mergeLimit(); len(f.merges) == limit {
		s.fail("more merges than four for each of %d vocabulary entries; the limit is %d", limit/maxMergeRatio, limit)
	}
	if s.err == nil {
		f.merge(s)
	}
}

// merge finds the ids of f.left, f.right and of both together.
func (f *jsonFile) merge(s *jsonScanner) {
	b, plainLeft := appendNameBytes(f.scratch[:0], f.left)
	cut := len(b)
	b, plainRight := appendNameBytes(b, f.right)
	f.scratch = b
	var m merge
	for _, part := range []struct {
		id    *uint32
		plain bool
		bytes []byte
		name  func() string // of an entry that is not in the alphabet, and for the error
	}{
		{&m.left, plainLeft, b[:cut], func() string { return string(f.left) }},
		{&m.right, plainRight, b[cut:], func() string { return string(f.right) }},
		{&m.id, plainLeft && plainRight, b, func() string { return string(f.left) + string(f.right) }},
	} {
		i, ok := uint32(0), false
		if part.plain {
			if i, ok = f.names.find(part.bytes); ok {
				i = f.ids[i]
			}
		} else {
			i, ok = f.odd[part.name()]
			f.joined = false
		}
		if !ok {
			s.fail("merge %d (%q, %q) needs %q, which is not in the vocabulary", len(f.merges), f.left, f.right, part.name())
			return
		}
		*part.id = i
	}
	f.merges = append(f.merges, m)
}

// resolve turns the entries into tokens once the whole file has been seen.
func (f *jsonFile) resolve() error {
	if f.odd == nil {
		return errors.New("the model has no vocab")
	}
	added := make(map[string]AddedToken, len(f.added))
	control := make(map[uint32]bool) // names that are added tokens and no ordinary ones
	for _, a := range f.added {
		added[a.Content] = a
	}
	for _, a := range f.added {
		id, ok := f.odd[a.Content]
		if b, plain := nameBytes(a.Content); plain {
			var i uint32
			if i, ok = f.names.find(b); ok {
				id = f.ids[i]
				control[i] = a.Special || string(b) != a.Content
				f.joined = f.joined && string(b) == a.Content // else its bytes are not those of its name
			}
		}
		if ok && a.ID != id {
			return fmt.Errorf("added token %q has id %d but vocabulary id %d", a.Content, a.ID, id)
		}
	}
	for _, name := range slices.Sorted(maps.Keys(f.odd)) {
		if _, ok := added[name]; !ok {
			return fmt.Errorf("vocabulary entry %q (id %d) is not in the byte alphabet and no added token", name, f.odd[name])
		}
	}
	flat := f.joined
	for i, id := range f.ids {
		flat = flat && int(id) == i
	}
	if flat {
		f.flat = make([]bool, len(f.ids))
		for i := range f.flat {
			f.flat[i] = !control[uint32(i)]
		}
	} else {
		f.tokens = make([]token, 0, len(f.ids))
		for i, id := range f.ids {
			if !control[uint32(i)] {
				f.tokens = append(f.tokens, token{f.names.at(uint32(i)), id})
			}
		}
		sortTokens(f.tokens)
	}
	f.index, f.idsOf = &f.names, f.ids
	return f.template.roles(&f.source, added)
}
