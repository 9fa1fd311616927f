package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strconv"

	"github.com/spf13/cobra"

	"refrain/internal/fsx"
	"refrain/internal/run"
	"refrain/tokenize"
)

func writeTokenizer(path string, t *tokenize.Tokenizer) error {
	var b bytes.Buffer
	if err := t.WriteJSON(&b); err != nil {
		return err
	}
	return fsx.WriteFileAtomic(fsx.OS{}, path, b.Bytes())
}

// loadTokenizer reads the tokenizer that -t names.
func loadTokenizer(c *cobra.Command, path string) (*tokenize.Tokenizer, error) {
	if path == "" {
		return nil, bad(c, "name a tokenizer.json with -t FILE")
	}
	if fi, err := os.Stat(path); err == nil && fi.IsDir() {
		return nil, bad(c, "%s is a folder; name the file, for example %s", path, filepath.Join(path, "tokenizer.json"))
	}
	f, err := os.Open(path)
	if err != nil {
		return nil, &run.Error{Code: run.ExitUsage, Err: fmt.Errorf("tokenizer: %w", err)}
	}
	defer f.Close()
	t, err := tokenize.Load(f)
	if err != nil {
		return nil, &run.Error{Code: run.ExitUsage, Err: fmt.Errorf("tokenizer %s: %w", path, err)}
	}
	return t, nil
}

// maxStdin is the most text that encode and decode take at once.
const maxStdin = 1 << 30

func (a *app) readAll() ([]byte, error) {
	b, err := io.ReadAll(io.LimitReader(a.stdin, maxStdin+1))
	if err == nil && len(b) > maxStdin {
		err = &run.Error{Code: run.ExitData, Err: fmt.Errorf("standard input has more than %d bytes; prepare a store instead", maxStdin)}
	}
	return b, err
}

func (a *app) tokenizerEncodeCommand() *cobra.Command {
	var path string
	var asJSON, special bool
	c := &cobra.Command{
		Use:   "encode",
		Short: "Print the ids of the text on standard input",
		Long: `Encode reads the whole of standard input as one text and prints its ids, one a
line; with --json as one list. Text that looks like a special token is text,
unless --special is given.`,
		Example: `  refrain tokenizer encode -t store/tokenizer.json --json < README.md`,
		Args:    args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			t, err := loadTokenizer(c, path)
			if err != nil {
				return err
			}
			text, err := a.readAll()
			if err != nil {
				return err
			}
			e := t.NewEncoder(0)
			var ids []uint32
			if special {
				ids = e.AppendSpecial(ids, text)
			} else {
				ids = e.Append(ids, text)
			}
			w := bufio.NewWriter(a.out)
			if asJSON {
				if ids == nil {
					ids = []uint32{}
				}
				if err := json.NewEncoder(w).Encode(ids); err != nil {
					return err
				}
				return w.Flush()
			}
			var buf []byte
			for _, id := range ids {
				buf = append(strconv.AppendUint(buf[:0], uint64(id), 10), '\n')
				if _, err := w.Write(buf); err != nil {
					return err
				}
			}
			return w.Flush()
		},
	}
	c.Flags().StringVarP(&path, "tokenizer", "t", "", "tokenizer.json")
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON list")
	c.Flags().BoolVar(&special, "special", false, "recognise special tokens in the text")
	return c
}

func (a *app) tokenizerDecodeCommand() *cobra.Command {
	var path string
	c := &cobra.Command{
		Use:     "decode",
		Short:   "Print the text of the ids on standard input",
		Long:    `Decode reads ids, as numbers between white space or as JSON lists, and prints their text.`,
		Example: `  refrain tokenizer encode -t tokenizer.json < a.txt | refrain tokenizer decode -t tokenizer.json`,
		Args:    args(cobra.NoArgs),
		RunE: func(c *cobra.Command, _ []string) error {
			t, err := loadTokenizer(c, path)
			if err != nil {
				return err
			}
			b, err := a.readAll()
			if err != nil {
				return err
			}
			ids, err := parseIDs(b)
			if err != nil {
				return &run.Error{Code: run.ExitData, Err: fmt.Errorf("standard input: %w", err)}
			}
			text, err := t.Decode(nil, ids)
			if err != nil {
				return &run.Error{Code: run.ExitData, Err: fmt.Errorf("standard input: %w", err)}
			}
			_, err = a.out.Write(text)
			return err
		},
	}
	c.Flags().StringVarP(&path, "tokenizer", "t", "", "tokenizer.json")
	return c
}

// parseIDs reads decimal ids between white space, commas and brackets, which
// covers plain numbers and JSON lists.
func parseIDs(b []byte) ([]uint32, error) {
	var ids []uint32
	for word := range bytes.FieldsFuncSeq(b, func(r rune) bool {
		return r == ' ' || r == '\n' || r == '\r' || r == '\t' || r == ',' || r == '[' || r == ']'
	}) {
		n, err := strconv.ParseUint(string(word), 10, 32)
		if err != nil {
			return nil, fmt.Errorf("number %d: %.40q is not an id", len(ids)+1, word)
		}
		ids = append(ids, uint32(n))
	}
	return ids, nil
}

// tokenizerSummary is what inspect prints.
type tokenizerSummary struct {
	File        string  `json:"file"`
	Vocab       int     `json:"vocab"`
	Family      string  `json:"family"`
	Merges      int     `json:"merges"`
	Hash        string  `json:"hash"`
	BOS         *uint32 `json:"bos"`
	EOS         *uint32 `json:"eos"`
	Unreachable int     `json:"unreachable"`
	Added       []added `json:"added"`
	Longest     []added `json:"longest"`
}

type added struct {
	ID      uint32 `json:"id"`
	Content string `json:"content"`
	Special bool   `json:"special,omitempty"`
}

func (a *app) tokenizerInspectCommand() *cobra.Command {
	var asJSON bool
	c := &cobra.Command{
		Use:     "inspect FILE",
		Short:   "Print what a tokenizer.json holds",
		Example: `  refrain tokenizer inspect store/tokenizer.json`,
		Args:    args(cobra.ExactArgs(1)),
		RunE: func(c *cobra.Command, list []string) error {
			t, err := loadTokenizer(c, list[0])
			if err != nil {
				return err
			}
			s := summarizeTokenizer(list[0], t)
			if asJSON {
				return a.json(s)
			}
			a.printf("%s: %d ids, %d merges, family %s\n  hash %s\n", s.File, s.Vocab, s.Merges, s.Family, s.Hash)
			for _, x := range s.Added {
				kind := "added"
				if x.Special {
					kind = "special"
				}
				a.printf("  %s %d %q\n", kind, x.ID, x.Content)
			}
			if s.EOS == nil {
				a.printf("  no end-of-text token: documents cannot be told apart in a store\n")
			}
			if s.Unreachable > 0 {
				a.printf("  %d tokens are never produced by merging\n", s.Unreachable)
			}
			a.printf("  longest tokens:")
			for _, x := range s.Longest {
				a.printf(" %d %q", x.ID, x.Content)
			}
			a.printf("\n")
			return nil
		},
	}
	c.Flags().BoolVar(&asJSON, "json", false, "print one JSON object")
	return c
}

// numLongest is how many of the longest tokens are shown.
const numLongest = 5

func summarizeTokenizer(path string, t *tokenize.Tokenizer) tokenizerSummary {
	s := tokenizerSummary{
		File: path, Vocab: t.VocabSize(), Family: t.Family(), Merges: t.NumMerges(), Hash: fmt.Sprintf("%x", t.Hash()),
		Unreachable: t.Unreachable(),
	}
	if id, ok := t.BOS(); ok {
		s.BOS = &id
	}
	if id, ok := t.EOS(); ok {
		s.EOS = &id
	}
	isAdded := map[uint32]bool{}
	for _, x := range t.Added() {
		s.Added = append(s.Added, added{x.ID, x.Content, x.Special})
		isAdded[x.ID] = true
	}
	// The few longest by insertion: the list stays sorted, of equals the first id wins.
	for id := range uint32(t.VocabSize()) {
		b, ok := t.TokenBytes(id)
		if !ok || isAdded[id] {
			continue
		}
		i := len(s.Longest)
		for i > 0 && len(s.Longest[i-1].Content) < len(b) {
			i--
		}
		if i < numLongest {
			s.Longest = append(s.Longest[:i], append([]added{{ID: id, Content: string(b)}}, s.Longest[i:]...)...)
			s.Longest = s.Longest[:min(len(s.Longest), numLongest)]
		}
	}
	return s
}
