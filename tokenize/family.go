package tokenize

import (
	"fmt"
	"strings"
)

// family is one split pattern and the scanner that implements it.
type family struct {
	name    string
	pattern string // as tokenizer.json spells it; "" for the pattern built into ByteLevel
	next    func(b []byte, i int) int
	masks   func(m *maskScratch, win []byte, n int) []uint32 // ends of all pieces of a window
	cased   bool                                             // masks needs the case of letters
}

const (
	patternR50k   = `'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+`
	patternCL100k = `(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+`
	patternO200k  = `[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+`
)

// familyByName accepts the names of the encodings and of the models that use them.
func familyByName(name string) (*family, error) {
	switch name {
	case "r50k", "gpt2", "p50k":
		return &family{name: "r50k", next: nextR50k, masks: maskR50k}, nil
	case "cl100k", "llama3":
		return &family{name: "cl100k", pattern: patternCL100k, next: nextCL100k, masks: maskCL100k}, nil
	case "o200k":
		return &family{name: "o200k", pattern: patternO200k, next: nextO200k, masks: maskO200k, cased: true}, nil
	}
	return nil, fmt.Errorf("tokenize: unknown family %q; use r50k (or gpt2), cl100k (or llama3) or o200k", name)
}

// SplitPattern is the regular expression by which a family (r50k, cl100k or o200k)
// splits text, as tokenizer.json spells it.
func SplitPattern(name string) (string, error) {
	fam, err := familyByName(name)
	switch {
	case err != nil:
		return "", err
	case fam.pattern == "":
		return patternR50k, nil
	}
	return fam.pattern, nil
}

// familyByPattern finds the family of a split pattern read from a file. Only exact
// spellings are known: a pattern that is almost one of these splits differently.
func familyByPattern(pattern string) (*family, error) {
	switch pattern {
	case patternR50k:
		return familyByName("r50k")
	case patternCL100k:
		return familyByName("cl100k")
	case patternO200k:
		return familyByName("o200k")
	}
	return nil, fmt.Errorf("split pattern %s is not supported; supported are the patterns of r50k, cl100k and o200k",
		strings.ToValidUTF8(fmt.Sprintf("%.300q", pattern), "?"))
}
