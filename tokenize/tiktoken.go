package tokenize

import (
	"bufio"
	"bytes"
	"encoding/base64"
	"fmt"
	"io"
	"maps"
	"slices"
	"sort"
	"strconv"
	"unicode/utf8"
)

// LoadTiktoken reads a .tiktoken rank file: one "base64 rank" a line. Such a file
// holds neither the split pattern nor the special tokens, so family names the
// pattern ("r50k", "cl100k", "o200k" or "llama3") and specials gives the ids of the
// special tokens by content. A rank is the id of its token and its merge priority.
func LoadTiktoken(r io.Reader, family string, specials map[string]uint32) (*Tokenizer, error) {
	fam, err := familyByName(family)
	if err != nil {
		return nil, err
	}
	b, err := readLimited(r)
	if err != nil {
		return nil, err
	}
	tokens, err := readRanks(b)
	if err != nil {
		return nil, fmt.Errorf("tokenize: .tiktoken: %w", err)
	}
	s := source{fam: fam, wholePiece: true, tokens: tokens, bos: none, eos: none}
	for _, content := range slices.Sorted(maps.Keys(specials)) {
		if !utf8.ValidString(content) {
			return nil, fmt.Errorf("tokenize: special token %q is not UTF-8", content)
		}
		s.added = append(s.added, AddedToken{ID: specials[content], Content: content, Special: true})
	}
	if s.merges, err = recoverMerges(tokens); err != nil {
		return nil, fmt.Errorf("tokenize: .tiktoken: %w", err)
	}
	if fam.name == "cl100k" {
		if k := blankTail(tokens); k >= 0 {
			return nil, fmt.Errorf("tokenize: .tiktoken: token %d (%q) is white space with blanks after the last newline; the published spellings of the cl100k pattern split such text differently at the end", tokens[k].id, tokens[k].bytes)
		}
	}
	t, err := build(s)
	if err != nil {
		return nil, fmt.Errorf("tokenize: .tiktoken: %w", err)
	}
	return t, nil
}

// readRanks reads the lines, sorted by rank.
func readRanks(b []byte) ([]token, error) {
	var tokens []token
	for line := 1; len(b) > 0; line++ {
		text, rest, _ := bytes.Cut(b, []byte{'\n'})
		b = rest
		text = bytes.TrimSuffix(text, []byte{'\r'})
		if len(text) == 0 {
			continue
		}
		code, rank, ok := bytes.Cut(text, []byte{' '})
		if !ok {
			return nil, fmt.Errorf("line %d: want base64, a space and a rank", line)
		}
		id, err := strconv.ParseUint(string(rank), 10, 32)
		if err != nil || id >= maxVocab {
			return nil, fmt.Errorf("line %d: rank %.40q is not a number below %d", line, rank, maxVocab)
		}
		if len(code) > base64.StdEncoding.EncodedLen(maxTokenBytes) {
			return nil, fmt.Errorf("line %d: the token is longer than %d bytes", line, maxTokenBytes)
		}
		text, err = base64.StdEncoding.Strict().AppendDecode(nil, code)
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", line, err)
		}
		if len(tokens) >= maxVocab {
			return nil, fmt.Errorf("line %d: more than %d tokens", line, maxVocab)
		}
		tokens = append(tokens, token{text, uint32(id)})
	}
	sortTokens(tokens)
	return tokens, nil
}

// recoverMerges finds the pair that makes each token: merge its bytes with all
// tokens of lower rank; if two parts are left, they are the pair. Inside the bytes
// of a token the order of merging does not depend on what surrounds them, so these
// pairs are all there is. A token that stays in more parts has no pair: only a piece
// equal to it becomes it. tokens must be sorted by id; damaged ones are left to build.
func recoverMerges(tokens []token) ([]merge, error) {
	var byteID [256]uint32
	for i := range byteID {
		byteID[i] = none
	}
	for _, k := range tokens {
		if len(k.bytes) == 1 {
			byteID[k.bytes[0]] = k.id
		}
	}
	for c, id := range byteID {
		if id == none {
			return nil, fmt.Errorf("no token for byte %#02x", c)
		}
	}
	table := newMergeTable(byteID, len(tokens))
	var merges []merge
	var g merger
	var parts []uint32
	for _, k := range tokens {
		if len(k.bytes) < 2 {
			continue
		}
		parts, _ = g.append(parts[:0], table, k.bytes, false)
		if len(parts) != 2 {
			continue
		}
		merges = append(merges, merge{parts[0], parts[1], k.id})
		if _, err := table.add(parts[0], parts[1], k.id); err != nil {
			return nil, err
		}
		if len(k.bytes) == 2 {
			table.setDense(k.bytes[0], k.bytes[1], k.id)
		}
	}
	return merges, nil
}

// blankTail finds a token of white space only that goes on after its last newline.
//
// Newer tiktoken releases write the cl100k pattern with \s++$, which keeps white
// space at the end of the text in one piece where the original cuts after the last
// newline. Only such a token could make the ids differ.
func blankTail(tokens []token) int {
	for k, tok := range tokens {
		end, last, newline := spaceRun(tok.bytes, 0)
		if end == len(tok.bytes) && newline > 0 && newline <= last {
			return k
		}
	}
	return -1
}

// WriteTiktoken writes the ordinary tokens as a rank file. Pattern and special
// tokens have no place in it. A vocabulary whose merges are not what the ranks imply
// is an error, since readers of the file would encode differently.
func (t *Tokenizer) WriteTiktoken(w io.Writer) error {
	tokens := t.ordinary()
	implied, err := recoverMerges(tokens)
	if err != nil {
		return fmt.Errorf("tokenize: cannot be written as ranks: %w", err)
	}
	own := slices.Clone(t.merges)
	sort.SliceStable(own, func(i, j int) bool { return own[i].id < own[j].id })
	if !slices.Equal(own, t.merges) || !slices.Equal(own, implied) {
		return fmt.Errorf("tokenize: cannot be written as ranks: %d merges are not the %d the ranks imply; write tokenizer.json", len(t.merges), len(implied))
	}
	if n := t.Unreachable(); n > 0 && !t.wholePiece {
		return fmt.Errorf("tokenize: cannot be written as ranks: %d tokens are out of reach of the merges, but readers of ranks look up whole pieces", n)
	}
	out := bufio.NewWriter(w)
	for _, k := range tokens {
		fmt.Fprintf(out, "%s %d\n", base64.StdEncoding.EncodeToString(k.bytes), k.id)
	}
	return out.Flush()
}
