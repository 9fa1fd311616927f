package tokenize

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"iter"
	"math/rand/v2"
	"runtime"
	"slices"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// TestTrainOrder shuffles documents and changes how many workers count them.
func TestTrainOrder(t *testing.T) {
	var docs []string
	for line := range bytes.Lines(corpusText(t, "mixed")) {
		docs = append(docs, string(line))
	}
	var want [32]byte
	for k := range 4 {
		rand.New(rand.NewPCG(14, uint64(k))).Shuffle(len(docs), func(i, j int) { docs[i], docs[j] = docs[j], docs[i] })
		tok, err := Train(t.Context(), TrainConfig{Vocab: 1200, Workers: k + 1}, docsOf(docs...))
		if err != nil {
			t.Fatal(err)
		}
		if k == 0 {
			want = tok.Hash()
		} else if tok.Hash() != want {
			t.Errorf("shuffle %d with %d workers gives another vocabulary", k, k+1)
		}
	}
}

func TestTrainSettings(t *testing.T) {
	train := func(cfg TrainConfig, docs ...string) *Tokenizer {
		t.Helper()
		tok, err := Train(t.Context(), cfg, docsOf(docs...))
		if err != nil {
			t.Fatal(err)
		}
		return tok
	}
	tok := train(TrainConfig{Vocab: 260}, "aaab aaab", "aab")
	// <|endoftext|>, the bytes, then the most frequent pairs: "aaa" counts as two of aa.
	if got := string(tok.bytesOf(257)); tok.VocabSize() != 260 || got != "aa" {
		t.Errorf("size %d, first merge %q", tok.VocabSize(), got)
	}
	if id, ok := tok.EOS(); !ok || id != 0 {
		t.Errorf("EOS is %d, %v", id, ok)
	}
	if tok.Family() != "cl100k" {
		t.Errorf("the default family is %s", tok.Family())
	}
	// Ties go to the smaller ids, which follow the characters that name the bytes.
	tok = train(TrainConfig{Vocab: 259, Specials: []string{}}, "zy ba \xa1\xa2")
	if got := []string{string(tok.bytesOf(256)), string(tok.bytesOf(257))}; !slices.Equal(got, []string{"ba", "zy"}) {
		t.Errorf("ties went to %q", got)
	}
	if tok = train(TrainConfig{Vocab: 500, MinFrequency: 3}, "ab ab ab cd cd"); tok.NumMerges() != 1 {
		t.Errorf("%d merges of frequency 3, want that of ab", tok.NumMerges())
	}
	if tok = train(TrainConfig{Vocab: 5000}); tok.VocabSize() != 257 {
		t.Errorf("no documents give %d ids", tok.VocabSize())
	}
	if tok = train(TrainConfig{Vocab: 5000}, "", "\n"); tok.VocabSize() != 257 {
		t.Errorf("nothing to merge gives %d ids", tok.VocabSize())
	}
	// A long run is cut: no token is longer than the limit.
	tok = train(TrainConfig{Vocab: 400, MaxPieceBytes: 16}, strings.Repeat("a", 1<<20), strings.Repeat("\u4e2d", 1<<18))
	longest := 0
	for _, k := range tok.ordinary() {
		longest = max(longest, len(k.bytes))
	}
	if longest > 16 || longest < 15 {
		t.Errorf("the longest token has %d bytes", longest)
	}
	if _, ok := tok.find([]byte("\u4e2d\u4e2d\u4e2d\u4e2d\u4e2d")); !ok {
		t.Error("a run of characters was cut inside them")
	}
}

func TestTrainProgress(t *testing.T) {
	var calls [][2]int
	tok, err := Train(t.Context(), TrainConfig{Vocab: 600, Progress: func(done, total int) { calls = append(calls, [2]int{done, total}) }}, linesOf(corpusText(t, "go")))
	if err != nil {
		t.Fatal(err)
	}
	if len(calls) < 3 || calls[len(calls)-1] != [2]int{tok.VocabSize(), 600} {
		t.Errorf("progress %v", calls)
	}
	if !slices.IsSortedFunc(calls, func(a, b [2]int) int { return a[0] - b[0] }) {
		t.Errorf("progress goes back: %v", calls)
	}
}

func TestTrainErrors(t *testing.T) {
	for name, c := range map[string]struct {
		cfg  TrainConfig
		want string
	}{
		"no vocab":       {TrainConfig{}, "vocab 0"},
		"small":          {TrainConfig{Vocab: 256}, "between 257"},
		"large":          {TrainConfig{Vocab: maxVocab + 1}, "1048576"},
		"family":         {TrainConfig{Vocab: 300, Family: "gpt9"}, "gpt9"},
		"special twice":  {TrainConfig{Vocab: 300, Specials: []string{"<a>", "<a>"}}, "twice"},
		"empty special":  {TrainConfig{Vocab: 300, Specials: []string{""}}, "empty"},
		"special byte":   {TrainConfig{Vocab: 300, Specials: []string{"a"}}, "single byte"},
		"special word":   {TrainConfig{Vocab: 300, Specials: []string{"abra"}}, "<|name|>"},
		"broken special": {TrainConfig{Vocab: 300, Specials: []string{"\xff"}}, "UTF-8"},
		"piece":          {TrainConfig{Vocab: 300, MaxPieceBytes: 2000}, "2000"},
		"workers":        {TrainConfig{Vocab: 300, Workers: -1}, "negative"},
	} {
		_, err := Train(t.Context(), c.cfg, docsOf("abra abra cadabra abra"))
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: error %v, want one with %q", name, err, c.want)
		}
	}
	_, err := Train(t.Context(), TrainConfig{Vocab: 300}, func(yield func([]byte, error) bool) {
		_ = yield([]byte("fine"), nil) && yield(nil, errDisk)
	})
	if !errors.Is(err, errDisk) || !strings.Contains(err.Error(), "document 1") {
		t.Errorf("a failing source gives %v", err)
	}
}

// endless yields documents for ever and cancels after some.
func endless(cancel func()) iter.Seq2[[]byte, error] {
	return func(yield func([]byte, error) bool) {
		doc := bytes.Repeat([]byte("all work and no play "), 1000)
		for n := 0; yield(doc, nil); n++ {
			if n == 100 {
				cancel()
			}
		}
	}
}

// TestTrainCancel stops both while documents come and while merges are found; goleak
// checks that no worker stays behind.
func TestTrainCancel(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	if _, err := Train(ctx, TrainConfig{Vocab: 300, Workers: 3}, endless(func() { cancel(errDisk) })); !errors.Is(err, errDisk) {
		t.Errorf("cancelled while counting: %v", err)
	}
	ctx, cancel = context.WithCancelCause(t.Context())
	cfg := TrainConfig{Vocab: 2000, Progress: func(done, total int) { cancel(errDisk) }}
	if _, err := Train(ctx, cfg, linesOf(corpusText(t, "mixed"))); !errors.Is(err, errDisk) {
		t.Errorf("cancelled while merging: %v", err)
	}
}

// TestLargeCounts gives pieces counts beyond 32 bits; they still come first.
func TestLargeCounts(t *testing.T) {
	c := newPieceCounter()
	c.add([]byte("xy"), 1<<33)
	c.add([]byte("ab"), 1<<31+5)
	c.add([]byte("abc"), 7)
	cfg := TrainConfig{Vocab: 260, Specials: []string{}}
	if _, err := cfg.fill(); err != nil {
		t.Fatal(err)
	}
	tr, err := newTrainer(cfg, c)
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.run(t.Context(), cfg); err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, k := range tr.tokens[256:] {
		got = append(got, string(k))
	}
	if !slices.Equal(got, []string{"xy", "ab", "abc"}) {
		t.Errorf("merged %q", got)
	}
}

// TestTrainMemory bounds what a text without places to split takes.
func TestTrainMemory(t *testing.T) {
	rng := rand.New(rand.NewPCG(15, 16))
	text := make([]byte, 0, 1<<20)
	for len(text) < 1<<20 {
		text = fmt.Appendf(text, "%c", 0x4e00+rng.IntN(3000))
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	if _, err := Train(t.Context(), TrainConfig{Vocab: 300, Workers: 1}, docsOf(string(text))); err != nil {
		t.Fatal(err)
	}
	runtime.ReadMemStats(&after)
	if got := after.TotalAlloc - before.TotalAlloc; got > 60*uint64(len(text)) {
		t.Errorf("%d MB allocated for %d MB of text", got>>20, len(text)>>20)
	}
}
