package choices

import (
	"fmt"
	"slices"
	"unicode"
	"unicode/utf8"
)

// Start is the token that a text begins with, as documents did in training.
type Start struct {
	ID uint32
	// Before says that it stands before the text and is no part of it: the end of the
	// document before, which a model with a document mask does not see.
	Before bool
}

// Rows are all choices of all items as rows of a model.
type Rows struct {
	Cut     int // choices whose context was cut on the left to fit
	of      []Item
	list    []row
	buckets []Bucket
}

// row is one choice: inputs, and the targets of the last ones.
type row struct {
	tokens []uint32 // inputs, and one more: the last target
	scored int      // targets, the last ones
	before bool     // the text begins at position 1
}

// Bucket are the rows of one length, for eval.Set.
type Bucket struct {
	T     int
	rows  *Rows
	which []int // indices in the list
}

// leastT is the length of the shortest bucket; others are doubles of it.
const leastT = 16

// Encode splits items into tokens with encode, whose result is read before the next call.
// No row is longer than limit: the beginning of a context is cut off instead. A choice
// that does not fit by itself is an error that names its line.
//
// As in lm-evaluation-harness, white space at the end of a context goes to the choice, and
// a choice has those tokens of the whole text that come after as many as the context
// alone has.
func Encode(name string, items []Item, encode func(text []byte) []uint32, start Start, limit int) (*Rows, error) {
	s := &Rows{of: items}
	byT := map[int]int{}
	for _, it := range items {
		context := []byte(it.Context)
		for len(context) > 0 {
			r, n := utf8.DecodeLastRune(context)
			if !unicode.IsSpace(r) {
				break
			}
			context = context[:len(context)-n]
		}
		alone := 0
		if len(context) > 0 {
			alone = len(encode(context))
		}
		for i, c := range it.Choices {
			whole := encode([]byte(it.Context + it.Delimiter + c))
			scored := len(whole) - alone
			switch {
			case scored < 1:
				return nil, fmt.Errorf("%s:%d: choice %d adds no token to its context", name, it.Line, i)
			case scored > limit:
				return nil, fmt.Errorf("%s:%d: choice %d has %d tokens; the model covers %d positions", name, it.Line, i, scored, limit)
			}
			r := row{tokens: append([]uint32{start.ID}, whole...), scored: scored, before: start.Before}
			if over := len(r.tokens) - (limit + 1); over > 0 {
				r.tokens = r.tokens[over:]
				r.before = false
				s.Cut++
			}
			t := leastT
			for t < len(r.tokens)-1 {
				t *= 2
			}
			t = min(t, limit)
			b, there := byT[t]
			if !there {
				b = len(s.buckets)
				byT[t] = b
				s.buckets = append(s.buckets, Bucket{T: t, rows: s})
			}
			s.buckets[b].which = append(s.buckets[b].which, len(s.list))
			s.list = append(s.list, r)
		}
	}
	slices.SortFunc(s.buckets, func(a, b Bucket) int { return a.T - b.T })
	return s, nil
}

// Buckets are the rows by length, shortest first.
func (s *Rows) Buckets() []Bucket { return s.buckets }

// Len is the number of rows.
func (s *Rows) Len() int { return len(s.list) }

// Rows implements eval.Set.
func (b Bucket) Rows() int64 { return int64(len(b.which)) }

// Index is the place of row g of the bucket among all rows: choices of an item follow each
// other, and items their file.
func (b Bucket) Index(g int64) int { return b.which[g] }

// ReadRow implements eval.Set.
func (b Bucket) ReadRow(g int64, tokens, targets []int32, starts []byte) (scored int, err error) {
	r := &b.rows.list[b.which[g]]
	n := len(r.tokens) - 1
	clear(starts)
	starts[0] = 1
	if r.before && len(tokens) > 1 {
		starts[0] = 3
	}
	for i := range tokens {
		tokens[i], targets[i] = 0, -1
		if i < n {
			tokens[i] = int32(r.tokens[i])
			if i >= n-r.scored {
				targets[i] = int32(r.tokens[i+1])
			}
		}
	}
	return r.scored, nil
}
