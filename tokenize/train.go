package tokenize

import (
	"context"
	"errors"
	"fmt"
	"iter"
	"runtime"
	"slices"
	"unicode/utf8"
)

// TrainConfig says what to train. The zero value of every field but Vocab is a
// usable default.
type TrainConfig struct {
	// Vocab is the number of ids wanted: special tokens, bytes and merges together.
	// A corpus that runs out of pairs gives fewer.
	Vocab int
	// Family is the split pattern: r50k, cl100k (default) or o200k.
	Family string
	// Specials are the special tokens; they get the first ids, in this order. nil
	// means <|endoftext|> alone; an empty slice means none.
	Specials []string
	// Workers is the number of goroutines that split and count; 0 means GOMAXPROCS.
	// The result does not depend on it.
	Workers int
	// MaxPieceBytes cuts longer pieces before they are counted, so that text without
	// places to split cannot fill the memory. 0 means 256; at most 1024.
	MaxPieceBytes int
	// MinFrequency stops merging when the most frequent pair occurs less often; 0 and
	// 1 mean that any pair will do.
	MinFrequency int64
	// AlphabetFromData starts from the bytes that occur instead of all 256. The
	// result cannot encode other bytes (see LoadOptions.AllowMissingBytes).
	AlphabetFromData bool
	// Progress, if set, is called on the goroutine that called Train while merges are
	// found, with the ids made so far and Vocab.
	Progress func(done, total int)
}

const (
	defaultMaxPiece = 256
	defaultSpecial  = "<|endoftext|>"
)

// Train learns a vocabulary from documents: again and again the most frequent pair
// of neighbouring tokens inside pieces becomes a token; among equals the pair with
// the smaller ids wins. The merge list is that of the BpeTrainer of Hugging Face
// tokenizers for the same settings. It does not depend on the order of the documents
// nor on the number of workers.
//
// Train reads every document once, on one goroutine of its own, and copies what it
// needs before it asks for the next. It blocks until done, until ctx is cancelled,
// or until docs yields an error, which it returns with the number of the document.
func Train(ctx context.Context, cfg TrainConfig, docs iter.Seq2[[]byte, error]) (*Tokenizer, error) {
	fam, err := cfg.fill()
	if err != nil {
		return nil, fmt.Errorf("tokenize: train: %w", err)
	}
	counts, err := countPieces(ctx, fam, cfg.Workers, cfg.MaxPieceBytes, docs)
	if err != nil {
		return nil, fmt.Errorf("tokenize: train: %w", err)
	}
	tr, err := newTrainer(cfg, counts)
	if err == nil {
		err = tr.run(ctx, cfg)
	}
	if err != nil {
		return nil, fmt.Errorf("tokenize: train: %w", err)
	}
	s := source{fam: fam, merges: tr.merges, allowMissing: cfg.AlphabetFromData, bos: none, eos: none}
	for id, content := range cfg.Specials {
		s.added = append(s.added, AddedToken{ID: uint32(id), Content: content, Special: true})
	}
	for id := len(cfg.Specials); id < len(tr.tokens); id++ {
		s.tokens = append(s.tokens, token{tr.tokens[id], uint32(id)})
	}
	t, err := build(s)
	if err != nil {
		return nil, fmt.Errorf("tokenize: train: %w", err)
	}
	return t, nil
}

// fill checks the configuration and puts in the defaults.
func (cfg *TrainConfig) fill() (*family, error) {
	if cfg.Family == "" {
		cfg.Family = "cl100k"
	}
	fam, err := familyByName(cfg.Family)
	if err != nil {
		return nil, err
	}
	if cfg.Specials == nil {
		cfg.Specials = []string{defaultSpecial}
	}
	for i, content := range cfg.Specials {
		if content == "" || !utf8.ValidString(content) || slices.Contains(cfg.Specials[:i], content) {
			return nil, fmt.Errorf("special token %q is empty, not UTF-8 or given twice", content)
		}
	}
	least := len(cfg.Specials) + 256
	if cfg.AlphabetFromData {
		least = len(cfg.Specials) + 1
	}
	if cfg.Vocab < least || cfg.Vocab > maxVocab {
		return nil, fmt.Errorf("vocab %d is not between %d (bytes and special tokens) and %d", cfg.Vocab, least, maxVocab)
	}
	if cfg.MaxPieceBytes == 0 {
		cfg.MaxPieceBytes = defaultMaxPiece
	}
	if cfg.MaxPieceBytes < utf8.UTFMax || cfg.MaxPieceBytes > maxTokenBytes {
		return nil, fmt.Errorf("max piece of %d bytes is not between %d and %d", cfg.MaxPieceBytes, utf8.UTFMax, maxTokenBytes)
	}
	if cfg.Workers == 0 {
		cfg.Workers = runtime.GOMAXPROCS(0)
	}
	if cfg.Workers < 0 || cfg.MinFrequency < 0 {
		return nil, errors.New("workers and min frequency must not be negative")
	}
	return fam, nil
}

// trainer holds the corpus as distinct words (pieces) of symbols (token ids).
type trainer struct {
	sym    []uint32 // symbols of all words, one after another; words shrink in place
	start  []int64  // [words] into sym
	length []int32  // [words]
	count  []int64  // [words]

	pairs   pairIndex
	total   []int64  // [pairs] occurrences
	seen    []uint64 // [pairs] serial<<32|word of the last occurrence noted, to note a word once
	pending []int32  // [pairs] words noted in the current merge
	queue   mergeQueue
	lists   [][]int32 // words of each queue entry; nil once merged

	tokens [][]byte
	byText map[string]uint32
	taken  map[string]string // bytes that spell a special token -> its content
	merges []merge
}

// newTrainer lays out the words and counts the pairs of bytes.
func newTrainer(cfg TrainConfig, counts *pieceCounter) (*trainer, error) {
	tr := &trainer{byText: map[string]uint32{}, taken: map[string]string{}}
	for _, content := range cfg.Specials {
		tr.tokens = append(tr.tokens, []byte(content))
		if b, ok := nameBytes(content); ok {
			tr.taken[string(b)] = content
		}
	}
	if int64(counts.used) > 1<<31-1 {
		return nil, fmt.Errorf("%d distinct pieces are more than can be trained on; give fewer documents", counts.used)
	}
	var present [256]bool
	counts.each(func(piece []byte, count int64) {
		for _, c := range piece {
			present[c] = true
		}
	})
	// Ids follow the characters that name the bytes, not the bytes.
	var id [256]uint32
	for r := rune(0); r < 0x200; r++ {
		c, ok := runeByte(r)
		if !ok || cfg.AlphabetFromData && !present[c] {
			continue
		}
		if content, ok := tr.taken[string([]byte{c})]; ok {
			return nil, fmt.Errorf("special token %q is a single byte of the alphabet", content)
		}
		id[c] = uint32(len(tr.tokens))
		tr.byText[string([]byte{c})] = id[c]
		tr.tokens = append(tr.tokens, []byte{c})
	}
	tr.sym = make([]uint32, 0, len(counts.keys))
	tr.start = make([]int64, 0, counts.used)
	tr.length = make([]int32, 0, counts.used)
	tr.count = make([]int64, 0, counts.used)
	counts.each(func(piece []byte, count int64) {
		tr.start = append(tr.start, int64(len(tr.sym)))
		tr.length = append(tr.length, int32(len(piece)))
		tr.count = append(tr.count, count)
		for _, c := range piece {
			tr.sym = append(tr.sym, id[c])
		}
	})
	tr.pairs = newPairIndex()
	tr.firstPairs()
	return tr, nil
}

func (tr *trainer) word(w int32) []uint32 {
	s := tr.start[w]
	return tr.sym[s : s+int64(tr.length[w])]
}

// pair returns the number of a pair and makes room for a new one.
func (tr *trainer) pair(left, right uint32) int32 {
	p := tr.pairs.find(uint64(left)<<32 | uint64(right))
	if int(p) == len(tr.total) {
		tr.total = append(tr.total, 0)
		tr.seen = append(tr.seen, 0)
		tr.pending = append(tr.pending, 0)
	}
	return p
}

// occurrence is a pair found in a word.
type occurrence struct{ pair, word int32 }

// note records an occurrence unless this word has given the same pair already.
// serial tells merges apart and is never zero.
func (tr *trainer) note(events []occurrence, p, w int32, serial uint32) []occurrence {
	stamp := uint64(serial)<<32 | uint64(uint32(w))
	if tr.seen[p] == stamp {
		return events
	}
	tr.seen[p] = stamp
	tr.pending[p]++
	return append(events, occurrence{p, w})
}

// firstPairs counts the pairs of the untouched words and queues all of them.
func (tr *trainer) firstPairs() {
	var events []occurrence
	for w := range tr.length {
		s := tr.word(int32(w))
		for j := 0; j+1 < len(s); j++ {
			p := tr.pair(s[j], s[j+1])
			tr.total[p] += tr.count[w]
			events = tr.note(events, p, int32(w), 1)
		}
	}
	tr.enqueue(events)
}
