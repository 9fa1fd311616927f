package tokenize

// Encoder encodes texts with one tokenizer. It owns a cache of pieces and scratch
// memory, so it is not safe for concurrent use: every worker has its own. The ids
// do not depend on what was encoded before, nor on the size of the cache.
type Encoder struct {
	t       *Tokenizer
	g       merger
	dropped int64
}

// NewEncoder returns an encoder whose cache takes at most about cacheBytes; 0 means
// 64 MiB. A full cache is emptied, not grown.
func (t *Tokenizer) NewEncoder(cacheBytes int) *Encoder {
	return &Encoder{t: t}
}

// Append appends the ids of text to dst and returns it. The text is taken as plain
// text: content of special tokens in it is encoded like any other characters and
// never yields a special id. Added tokens that are not special are ordinary
// vocabulary and are found. The text is only read, and dst belongs to the caller
// again afterwards. With room in dst and once the cache has seen the pieces nothing
// is allocated. Room means cap(dst)-len(dst) >= len(text)+4.
func (e *Encoder) Append(dst []uint32, text []byte) []uint32 {
	if !e.t.anyAdded {
		return e.appendPlain(dst, text)
	}
	return e.appendPass(dst, text, 0, false)
}

// AppendSpecial is Append, but the contents of special tokens in text become their
// ids. Use it only on text that may contain control tokens, never on data from
// outside.
func (e *Encoder) AppendSpecial(dst []uint32, text []byte) []uint32 {
	return e.appendPass(dst, text, 0, true)
}

// Dropped is the number of bytes left out so far because no token covers them; it
// stays zero unless Tokenizer.MissingBytes is not.
func (e *Encoder) Dropped() int64 { return e.dropped }

// appendPass cuts out the added tokens of one pass and hands the rest to the next.
func (e *Encoder) appendPass(dst []uint32, text []byte, pass int, special bool) []uint32 {
	if pass == len(e.t.matchers) {
		return e.appendPlain(dst, text)
	}
	m := e.t.matchers[pass]
	if m == nil {
		return e.appendPass(dst, text, pass+1, special)
	}
	for taken, resume := 0, 0; ; {
		k := m.next(text, taken, resume, special)
		if taken < k.start {
			dst = e.appendPass(dst, text[taken:k.start], pass+1, special)
		}
		if k.token == nil {
			return dst
		}
		dst = append(dst, k.token.ID)
		taken, resume = max(taken, k.end), k.resume
	}
}

// appendPlain encodes text without added tokens.
func (e *Encoder) appendPlain(dst []uint32, text []byte) []uint32 {
	next := e.t.fam.next
	for i := 0; i < len(text); {
		j := next(text, i)
		dst = e.appendPiece(dst, text[i:j])
		i = j
	}
	return dst
}

// appendPiece encodes one piece without the cache.
func (e *Encoder) appendPiece(dst []uint32, piece []byte) []uint32 {
	if e.t.wholePiece {
		if id, ok := e.t.index[string(piece)]; ok {
			return append(dst, id)
		}
	}
	dst, dropped := e.g.append(dst, e.t.table, piece, e.t.missing > 0)
	e.dropped += int64(dropped)
	return dst
}
