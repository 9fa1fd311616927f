package tokenize

import (
	"bytes"
	"cmp"
	"crypto/sha256"
	"fmt"
	"io"
	"slices"
	"sync"
)

// Tokenizer is a vocabulary with its split pattern and merges. It does not change
// after it has been made and may be used by any number of goroutines at once;
// encoding goes through an Encoder, of which each goroutine has its own.
type Tokenizer struct {
	fam        *family
	wholePiece bool // a piece that is a token as a whole is that token, whatever the merges say

	text    []byte   // bytes of all tokens, one after another
	offsets []uint32 // [VocabSize+1] into text; an id without bytes is a hole
	special []bool   // [VocabSize]
	plain   []bool   // [VocabSize] ordinary tokens: what text can become

	index   byteIndex // finds tokens by their bytes: find
	ids     []uint32  // of what index finds; nil where it finds ids
	merges  []merge   // in rank order, each pair once
	table   *mergeTable
	missing int // single bytes without a token

	added      []AddedToken  // by id
	bos, eos   uint32        // none when there is no such role
	matchers   [2]*matcher   // added tokens found before and after normalisation; nil when there are none
	anyAdded   bool          // some added token is not special, so that plain text can contain it
	unkToken   *string       // kept for writing; without effect, since every byte has a token
	rawPost    []byte        // post_processor of the file that was read, compact; nil for the default
	rawTrunc   []byte        // truncation, likewise
	rawPad     []byte        // padding, likewise
	file       func() []byte // tokenizer.json
	hash       func() [32]byte
	reach      func() *reach
	backtracks func() *backtracker
}

type merge struct{ left, right, id uint32 }

// AddedToken is a token that is looked for in the text itself, before it is split.
// The fields are those of tokenizer.json.
type AddedToken struct {
	ID         uint32
	Content    string
	SingleWord bool // only between characters that are no part of a word
	LStrip     bool // takes the white space before it
	RStrip     bool // takes the white space after it
	Normalized bool // looked for in the second pass, in what the first pass left
	Special    bool // a control token: plain text never becomes it
}

// source is what the readers and the trainer hand to build.
type source struct {
	fam          *family
	wholePiece   bool
	tokens       []token // ordinary tokens
	merges       []merge // in rank order; of equal pairs the last counts
	added        []AddedToken
	allowMissing bool
	bos, eos     uint32 // from a post-processor; none to go by names
	unkToken     *string
	rawPost      []byte
	rawTrunc     []byte
	rawPad       []byte

	index  *byteIndex // has all tokens and maybe more; nil to have it made
	idsOf  []uint32   // of what index finds
	flat   []bool     // where all ids of index are in order from 0, instead of tokens: which are ordinary ones
	joined bool       // every merge is known to join its parts
}

type token struct {
	bytes []byte
	id    uint32
}

// build checks a source and makes the tables. It owns the slices of the source.
func build(s source) (*Tokenizer, error) {
	t := &Tokenizer{
		fam: s.fam, wholePiece: s.wholePiece, added: s.added,
		unkToken: s.unkToken, rawPost: s.rawPost, rawTrunc: s.rawTrunc, rawPad: s.rawPad,
	}
	if err := t.setTokens(s); err != nil {
		return nil, err
	}
	if err := t.setMerges(s.merges, s.allowMissing, s.joined); err != nil {
		return nil, err
	}
	t.setRoles(s.bos, s.eos)
	t.matchers[0] = newMatcher(t.added, false)
	t.matchers[1] = newMatcher(t.added, true)
	for _, a := range t.added {
		t.anyAdded = t.anyAdded || !a.Special
	}
	t.file = sync.OnceValue(func() []byte { return writeJSON(t) })
	t.hash = sync.OnceValue(func() [32]byte { return sha256.Sum256(t.file()) })
	t.reach = sync.OnceValue(t.findReach)
	t.backtracks = sync.OnceValue(t.newBacktracker)
	return t, nil
}

// setTokens lays out the bytes of ordinary and added tokens by id.
func (t *Tokenizer) setTokens(s source) error {
	slices.SortFunc(t.added, func(a, b AddedToken) int { return cmp.Compare(a.ID, b.ID) })
	size := len(s.flat)
	for _, k := range s.tokens {
		size = max(size, int(k.id)+1)
	}
	for _, a := range t.added {
		size = max(size, int(a.ID)+1)
	}
	if size > maxVocab {
		return fmt.Errorf("id %d is above the limit of %d", size-1, maxVocab-1)
	}
	t.special, t.plain = make([]bool, size), make([]bool, size)
	lay := t.layTokens
	if s.flat != nil {
		lay = t.layFlat
	}
	if err := lay(s); err != nil {
		return err
	}
	if s.index != nil {
		t.index, t.ids = *s.index, s.idsOf
		if s.flat != nil {
			t.index.text, t.index.offsets, t.ids = t.text, t.offsets, nil
		}
	} else if err := t.makeIndex(len(s.tokens)); err != nil {
		return err
	}
	for _, a := range t.added {
		if t.plain[a.ID] {
			continue
		}
		if named, ok := nameBytes(a.Content); ok {
			if id, ok := t.find(named); ok {
				return fmt.Errorf("added token %q is spelled like the ordinary token %d in the byte alphabet", a.Content, id)
			}
		}
	}
	return nil
}

// layTokens lays out tokens that come in any order.
func (t *Tokenizer) layTokens(s source) error {
	byID := make([][]byte, len(t.plain))
	total := 0
	for _, k := range s.tokens {
		if err := checkLength(k.id, len(k.bytes)); err != nil {
			return err
		}
		if byID[k.id] != nil {
			return fmt.Errorf("id %d is given to two tokens, %q and %q", k.id, byID[k.id], k.bytes)
		}
		byID[k.id] = k.bytes
		t.plain[k.id] = true
		total += len(k.bytes)
	}
	if err := t.checkAdded(func(id uint32) []byte { return byID[id] }); err != nil {
		return err
	}
	for _, a := range t.added {
		if byID[a.ID] == nil {
			byID[a.ID] = []byte(a.Content)
			total += len(a.Content)
		}
	}
	t.text = make([]byte, 0, total)
	t.offsets = make([]uint32, len(byID)+1)
	for id, b := range byID {
		t.text = append(t.text, b...)
		t.offsets[id+1] = uint32(len(t.text))
	}
	return nil
}

// layFlat takes over tokens that lie by id in the index already, and puts the added ones
// with higher ids behind.
func (t *Tokenizer) layFlat(s source) error {
	copy(t.plain, s.flat)
	x := s.index
	for i := range uint32(len(s.flat)) {
		if err := checkLength(i, int(x.offsets[i+1]-x.offsets[i])); err != nil {
			return err
		}
	}
	if err := t.checkAdded(func(id uint32) []byte {
		if int(id) < len(s.flat) && t.plain[id] {
			return x.at(id)
		}
		return nil
	}); err != nil {
		return err
	}
	t.text, t.offsets = x.text, x.offsets
	for _, a := range t.added {
		if int(a.ID) < len(s.flat) {
			continue
		}
		for len(t.offsets) <= int(a.ID) {
			t.offsets = append(t.offsets, uint32(len(t.text)))
		}
		t.text = append(t.text, a.Content...)
		t.offsets = append(t.offsets, uint32(len(t.text)))
	}
	return nil
}

func checkLength(id uint32, n int) error {
	if n == 0 || n > maxTokenBytes {
		return fmt.Errorf("token %d has %d bytes; 1 to %d are allowed", id, n, maxTokenBytes)
	}
	return nil
}

// checkAdded looks at the added tokens, with what the ordinary token of an id is, and
// notes which are special.
func (t *Tokenizer) checkAdded(ordinary func(id uint32) []byte) error {
	contents := make(map[string]uint32, len(t.added))
	for i, a := range t.added {
		if a.Content == "" || len(a.Content) > maxTokenBytes {
			return fmt.Errorf("added token %d has %d bytes; 1 to %d are allowed", a.ID, len(a.Content), maxTokenBytes)
		}
		if i > 0 && t.added[i-1].ID == a.ID {
			return fmt.Errorf("added tokens %q and %q share id %d", t.added[i-1].Content, a.Content, a.ID)
		}
		if other, ok := contents[a.Content]; ok {
			return fmt.Errorf("added token %q has two ids, %d and %d", a.Content, other, a.ID)
		}
		contents[a.Content] = a.ID
		if b := ordinary(a.ID); b != nil && (string(b) != a.Content || byteName(b) != a.Content) {
			return fmt.Errorf("id %d is the token %q and the added token %q", a.ID, b, a.Content)
		}
		t.special[a.ID] = a.Special
	}
	return nil
}

// makeIndex makes the ordinary tokens found by their bytes.
func (t *Tokenizer) makeIndex(numTokens int) error {
	t.index = newByteIndex(numTokens)
	t.index.text, t.index.offsets = t.text, t.offsets
	for id, plain := range t.plain {
		if !plain {
			continue
		}
		if other, ok := t.index.add(uint32(id)); !ok {
			return fmt.Errorf("ids %d and %d have the same bytes %q", other, id, t.bytesOf(uint32(id)))
		}
	}
	return nil
}

// find returns the id of the ordinary token with these bytes.
func (t *Tokenizer) find(b []byte) (uint32, bool) {
	i, ok := t.index.find(b)
	if !ok {
		return 0, false
	}
	if t.ids != nil {
		i = t.ids[i]
	}
	return i, t.plain[i]
}

// setMerges checks the merges and makes their table. joined says that they are known
// to join their parts.
func (t *Tokenizer) setMerges(merges []merge, allowMissing, joined bool) error {
	var byteID [256]uint32
	var lacking []byte
	for c := range byteID {
		id, ok := t.find([]byte{byte(c)})
		if !ok {
			id = none
			lacking = append(lacking, byte(c))
		}
		byteID[c] = id
	}
	t.missing = len(lacking)
	if t.missing > 0 && !allowMissing {
		return fmt.Errorf("the vocabulary lacks tokens for %d of 256 bytes (hex % x), which encoding would lose; load it with AllowMissingBytes to accept that", t.missing, lacking)
	}
	ordinary := make([]bool, t.VocabSize())
	for id := range ordinary {
		ordinary[id] = t.offsets[id] != t.offsets[id+1] && !t.special[id]
	}
	for i, m := range merges {
		for _, id := range [...]uint32{m.left, m.right, m.id} {
			if int64(id) >= int64(len(ordinary)) || !ordinary[id] {
				return fmt.Errorf("merge %d (%d, %d -> %d) uses id %d, which is not an ordinary token", i, m.left, m.right, m.id, id)
			}
		}
		if joined {
			continue
		}
		l, r := t.bytesOf(m.left), t.bytesOf(m.right)
		if whole := t.bytesOf(m.id); len(whole) != len(l)+len(r) || !bytes.HasPrefix(whole, l) || !bytes.HasSuffix(whole, r) {
			return fmt.Errorf("merge %d joins %q and %q into %q", i, l, r, whole)
		}
	}
	again, err := t.tableOf(byteID, merges)
	if err != nil || !again {
		return err
	}
	// Of equal pairs the last counts, and so has its later rank.
	kept := make([]merge, 0, len(merges))
	for i, m := range merges {
		if t.table.value(m.left, m.right) == uint32(i) {
			kept = append(kept, m)
		}
	}
	_, err = t.tableOf(byteID, kept)
	return err
}

// tableOf makes the table of the merges. With pairs that come again, which do not make
// ids in order, values are indexes and the last of equal pairs has its own.
func (t *Tokenizer) tableOf(byteID [256]uint32, merges []merge) (again bool, err error) {
	inOrder := true
	for i := 1; i < len(merges); i++ {
		inOrder = inOrder && merges[i].id > merges[i-1].id
	}
	t.merges, t.table = merges, newMergeTable(byteID, len(merges))
	if !inOrder {
		t.table.ids = make([]uint32, len(merges))
	}
	for i, m := range merges {
		if i&63 == 0 { // all together, since the places are far apart
			t.table.touch(merges[i:min(i+64, len(merges))])
		}
		value := m.id
		if !inOrder {
			value = uint32(i)
			t.table.ids[i] = m.id
		}
		was, err := t.table.add(m.left, m.right, value)
		if err != nil {
			return false, err
		}
		again = again || was
		if from := t.offsets[m.id]; t.offsets[m.id+1]-from == 2 {
			t.table.setDense(t.text[from], t.text[from+1], value)
		}
	}
	return again, nil
}

// Names looked for, in this order, where the file does not say which token begins
// and ends a text.
const (
	namesBOS = "<|bos|> <|begin_of_text|> <|startoftext|> <s>"
	namesEOS = "<|eos|> <|end_of_text|> <|endoftext|> </s>"
)

func (t *Tokenizer) setRoles(bos, eos uint32) {
	find := func(names string) uint32 {
		for _, name := range bytes.Fields([]byte(names)) {
			if id, ok := t.SpecialID(string(name)); ok {
				return id
			}
		}
		return none
	}
	t.bos, t.eos = bos, eos
	if t.bos == none {
		t.bos = find(namesBOS)
	}
	if t.eos == none {
		t.eos = find(namesEOS)
	}
}

func (t *Tokenizer) bytesOf(id uint32) []byte { return t.text[t.offsets[id]:t.offsets[id+1]] }

// ordinary lists the tokens that text can become, by id.
func (t *Tokenizer) ordinary() []token {
	out := make([]token, 0, t.index.len())
	for id, plain := range t.plain {
		if plain {
			out = append(out, token{t.bytesOf(uint32(id)), uint32(id)})
		}
	}
	return out
}

// Family is the name of the split pattern: r50k, cl100k or o200k.
func (t *Tokenizer) Family() string { return t.fam.name }

// VocabSize is the highest id plus one. There may be ids below it without a token.
func (t *Tokenizer) VocabSize() int { return len(t.offsets) - 1 }

// NumMerges is the number of merge rules.
func (t *Tokenizer) NumMerges() int { return len(t.merges) }

// TokenBytes returns the bytes an id decodes to, and whether the id has a token.
// The caller must not change them.
func (t *Tokenizer) TokenBytes(id uint32) ([]byte, bool) {
	if int64(id) >= int64(t.VocabSize()) {
		return nil, false
	}
	b := t.bytesOf(id)
	return b[:len(b):len(b)], len(b) > 0
}

// Added lists the added tokens by id. The slice is the caller's.
func (t *Tokenizer) Added() []AddedToken { return slices.Clone(t.added) }

// MissingBytes is the number of byte values that no token covers and that encoding
// drops. It is zero unless the vocabulary was loaded or trained to allow it.
func (t *Tokenizer) MissingBytes() int { return t.missing }

// SpecialID returns the id of the special token with this content.
func (t *Tokenizer) SpecialID(content string) (uint32, bool) {
	for _, a := range t.added {
		if a.Special && a.Content == content {
			return a.ID, true
		}
	}
	return 0, false
}

// BOS is the token that begins a text. It is the one a TemplateProcessing
// post-processor of the file puts first; without one, the first special token
// present of <|bos|>, <|begin_of_text|>, <|startoftext|>, <s>. Encoding never adds it.
func (t *Tokenizer) BOS() (uint32, bool) { return t.bos, t.bos != none }

// EOS is the token that ends a text. It is the one a TemplateProcessing
// post-processor of the file puts last; without one, the first special token
// present of <|eos|>, <|end_of_text|>, <|endoftext|>, </s>. Encoding never adds it.
func (t *Tokenizer) EOS() (uint32, bool) { return t.eos, t.eos != none }

// Hash is the SHA-256 of the bytes WriteJSON writes: it changes with anything that
// can change an id or a file.
func (t *Tokenizer) Hash() [32]byte { return t.hash() }

// Warm computes now what the first Hash would compute.
func (t *Tokenizer) Warm() { t.hash() }

// WriteJSON writes the vocabulary as tokenizer.json with merges as pairs. Equal
// vocabularies give equal bytes. The only errors are those of w.
func (t *Tokenizer) WriteJSON(w io.Writer) error {
	_, err := w.Write(t.file())
	return err
}

// reach is what takes a pass over the vocabulary to know and is only needed when
// somebody encodes long pieces.
type reach struct {
	halves  halves
	ordered bool // there are halves
	broken  int  // ordinary tokens that do not come out of their own bytes
}

func (t *Tokenizer) findReach() *reach {
	r := &reach{}
	r.halves, r.ordered = t.halves()
	var scratch merger
	for id, plain := range t.plain {
		if !plain {
			continue
		}
		b := t.bytesOf(uint32(id))
		self := false
		if r.ordered {
			self = r.halves.self(uint32(id), len(b))
		} else {
			self = t.selfByMerging(token{b, uint32(id)}, &scratch)
		}
		if !self {
			r.broken++
		}
	}
	return r
}

// selfByMerging says whether merging the bytes of k ends in k.
func (t *Tokenizer) selfByMerging(k token, g *merger) bool {
	var ids [1]uint32
	out, _ := g.append(ids[:0], t.table, k.bytes, t.missing > 0)
	return len(out) == 1 && out[0] == k.id
}

// Unreachable is the number of ordinary tokens that merging never produces from
// their own bytes. With whole-piece lookup they still stand for a piece equal to them.
func (t *Tokenizer) Unreachable() int { return t.reach().broken }
