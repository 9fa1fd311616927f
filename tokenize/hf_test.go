package tokenize

import (
	"bytes"
	"encoding/json"
	"fmt"
	"slices"
	"testing"
)

// hfRun is one training run of Hugging Face tokenizers 0.22.2.
type hfRun struct {
	Family       string
	Corpus       string
	Vocab        int
	Specials     []string
	MinFrequency int64 `json:"min_frequency"`
	FullAlphabet bool  `json:"full_alphabet"`
	Size         int
	Merges       [][2]string
	IDs          [][]uint32
}

func (r hfRun) config() TrainConfig {
	return TrainConfig{Vocab: r.Vocab, Family: r.Family, Specials: r.Specials, MinFrequency: r.MinFrequency, AlphabetFromData: !r.FullAlphabet}
}

func hfRuns(t testing.TB) []hfRun {
	var runs []hfRun
	readFixture(t, "hf_train.json.gz", &runs)
	for i := range runs {
		if runs[i].Specials == nil {
			runs[i].Specials = []string{}
		}
	}
	return runs
}

// TestTrainEqualsHuggingFace compares merge lists line by line, for several numbers
// of workers, and then the ids of the edge strings.
func TestTrainEqualsHuggingFace(t *testing.T) {
	edge := edgeStrings(t)
	for _, run := range hfRuns(t) {
		t.Run(fmt.Sprintf("%s-%s-%d", run.Family, run.Corpus, run.Vocab), func(t *testing.T) {
			var first *Tokenizer
			for _, workers := range []int{1, 2, 8} {
				cfg := run.config()
				cfg.Workers = workers
				tok, err := Train(t.Context(), cfg, linesOf(corpusText(t, run.Corpus)))
				if err != nil {
					t.Fatal(err)
				}
				if first == nil {
					first = tok
				} else if tok.Hash() != first.Hash() {
					t.Fatalf("%d workers give another vocabulary than 1", workers)
				}
			}
			compareMerges(t, first, run)
			e := first.NewEncoder(0)
			for i, s := range edge {
				equalIDs(t, fmt.Sprintf("%q", s), e.AppendSpecial(nil, []byte(s)), run.IDs[i])
			}
		})
	}
}

func compareMerges(t *testing.T, tok *Tokenizer, run hfRun) {
	t.Helper()
	if tok.VocabSize() != run.Size {
		t.Errorf("size %d, want %d", tok.VocabSize(), run.Size)
	}
	for i := range max(len(tok.merges), len(run.Merges)) {
		if i >= len(tok.merges) || i >= len(run.Merges) {
			t.Fatalf("%d merges, want %d", len(tok.merges), len(run.Merges))
		}
		m := tok.merges[i]
		if got := [2]string{byteName(tok.bytesOf(m.left)), byteName(tok.bytesOf(m.right))}; got != run.Merges[i] {
			t.Fatalf("merge %d is %q, want %q", i, got, run.Merges[i])
		}
	}
}

// TestPiecesEqualHuggingFace checks the scanners by themselves, without a vocabulary.
func TestPiecesEqualHuggingFace(t *testing.T) {
	edge := edgeStrings(t)
	var want map[string][][]int
	readFixture(t, "hf_pieces.json.gz", &want)
	for _, name := range []string{"r50k", "cl100k", "o200k"} {
		fam, err := familyByName(name)
		if err != nil {
			t.Fatal(err)
		}
		if len(want[name]) != len(edge) {
			t.Fatalf("%s: %d answers", name, len(want[name]))
		}
		for k, s := range edge {
			got := []int{}
			for i := 0; i < len(s); {
				j := fam.next([]byte(s), i)
				got = append(got, j-i)
				i = j
			}
			if !slices.Equal(got, want[name][k]) {
				t.Errorf("%s %q: pieces of %v bytes, want %v", name, s, got, want[name][k])
			}
		}
	}
}

// TestAddedTokensEqualHuggingFace runs every flag of added tokens, with special
// tokens found and not.
func TestAddedTokensEqualHuggingFace(t *testing.T) {
	var cases []struct {
		Tokenizer json.RawMessage
		Inputs    []string
		Special   [][]uint32
		Plain     [][]uint32
	}
	readFixture(t, "hf_added.json.gz", &cases)
	for k, c := range cases {
		tok, err := Load(bytes.NewReader(c.Tokenizer))
		if err != nil {
			t.Fatalf("case %d: %v", k, err)
		}
		e := tok.NewEncoder(0)
		flags := fmt.Sprintf("%+v", tok.added)
		for i, s := range c.Inputs {
			equalIDs(t, fmt.Sprintf("case %d AppendSpecial %q with %s", k, s, flags), e.AppendSpecial(nil, []byte(s)), c.Special[i])
			equalIDs(t, fmt.Sprintf("case %d Append %q with %s", k, s, flags), e.Append(nil, []byte(s)), c.Plain[i])
		}
	}
	if len(cases) != 12 {
		t.Errorf("%d cases, want 12", len(cases))
	}
}
