package bench

import (
	"context"
	"strings"
	"testing"

	"refrain/tokenize"
)

func tokenizerDocs() [][]byte {
	return CutDocs([]byte(strings.Repeat("some words and 123 numbers, other words\n", 400)), 1<<10)
}

// TestTokenizer: every pass has a line and one for each peer, and a peer with other ids
// is told from one with ours.
func TestTokenizer(t *testing.T) {
	docs := tokenizerDocs()
	tok, err := tokenize.Train(t.Context(), tokenize.TrainConfig{Vocab: 300, Workers: 1}, docSeq(docs))
	if err != nil {
		t.Fatal(err)
	}
	cfg := TokenizerConfig{Tokenizer: tok, Name: "v", Docs: docs, Rounds: 2}
	n, digest := idsOf(cfg)
	if n == 0 {
		t.Fatal("no ids")
	}
	peer := func(name string, e Encoded) TokenizerPeer {
		return TokenizerPeer{name, func(context.Context) (Encoded, error) { return e, nil }}
	}
	cfg.Peers = []TokenizerPeer{peer("same", Encoded{1e6, 1e6, n, digest}), peer("other", Encoded{1e6, 1e6, n, digest[1:] + "0"})}
	var got []string
	if err := Tokenizer(t.Context(), cfg, func(l Line) {
		got = append(got, l.Name)
		same, ok := float64(-1), false
		for _, m := range l.Metrics {
			if m.Unit == "same-ids" {
				same, ok = m.Value, true
			}
			if m.Unit == "x-peer" && m.Value < 1000 {
				t.Errorf("%s: a peer of 11 days is %v times slower", l.Name, m.Value)
			}
		}
		if peer := strings.Contains(l.Name, "/peer="); peer != ok || ok && (same == 1) != strings.HasSuffix(l.Name, "=same") {
			t.Errorf("%s: same-ids %v", l.Name, same)
		}
	}); err != nil {
		t.Fatal(err)
	}
	want := "Tokenizer/vocab=v/pass=cold|Tokenizer/vocab=v/pass=cold/peer=same|Tokenizer/vocab=v/pass=cold/peer=other|" +
		"Tokenizer/vocab=v/pass=warm|Tokenizer/vocab=v/pass=warm/peer=same|Tokenizer/vocab=v/pass=warm/peer=other"
	if strings.Join(got, "|") != want {
		t.Errorf("lines %q", got)
	}
}

// TestTrainTokenizer: merges are compared, not taken on trust.
func TestTrainTokenizer(t *testing.T) {
	docs := tokenizerDocs()
	tok, err := tokenize.Train(t.Context(), tokenize.TrainConfig{Vocab: 280, Family: "r50k", Workers: 1}, docSeq(docs))
	if err != nil {
		t.Fatal(err)
	}
	digest, err := mergeDigest(tok)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range []struct {
		digest string
		want   float64
	}{{digest, 1}, {digest[1:] + "0", 0}} {
		cfg := TrainTokenizerConfig{Vocab: 280, Family: "r50k", Docs: docs, Workers: 1, Rounds: 1,
			Peer: func(context.Context) (Trained, error) { return Trained{1e6, tok.NumMerges(), c.digest}, nil }}
		if err := TrainTokenizer(t.Context(), cfg, func(l Line) {
			if last := l.Metrics[len(l.Metrics)-1]; last != (Metric{c.want, "same-merges"}) {
				t.Errorf("%s: %v, want same-merges %v", l.Name, last, c.want)
			}
		}); err != nil {
			t.Fatal(err)
		}
	}
}
