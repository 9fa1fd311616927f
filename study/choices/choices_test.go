package choices

import (
	"math"
	"reflect"
	"strings"
	"testing"
)

// bytesOf is a tokenizer: every byte is a token, and ab and " c" are one each.
func bytesOf(text []byte) (ids []uint32) {
	for i := 0; i < len(text); i++ {
		switch {
		case i+1 < len(text) && string(text[i:i+2]) == "ab":
			ids = append(ids, 300)
			i++
		case i+1 < len(text) && string(text[i:i+2]) == " c":
			ids = append(ids, 301)
			i++
		default:
			ids = append(ids, uint32(text[i]))
		}
	}
	return ids
}

func item(context string, label int, list ...string) Item {
	return Item{Context: context, Choices: list, Label: label, Delimiter: " ", Line: 1}
}

// readAll reads row i from its bucket.
func readAll(t *testing.T, s *Rows) (rows [][2][]int32, starts []byte) {
	t.Helper()
	rows, starts = make([][2][]int32, s.Len()), make([]byte, s.Len())
	for _, b := range s.Buckets() {
		for g := range b.Rows() {
			tokens, targets, st := make([]int32, b.T), make([]int32, b.T), make([]byte, (b.T+7)/8)
			n, err := b.ReadRow(g, tokens, targets, st)
			if err != nil {
				t.Fatal(err)
			}
			for _, x := range targets {
				if x >= 0 {
					n--
				}
			}
			if n != 0 {
				t.Errorf("row %d says %d targets too many", b.Index(g), n)
			}
			rows[b.Index(g)], starts[b.Index(g)] = [2][]int32{tokens, targets}, st[0]
		}
	}
	return rows, starts
}

// TestRow29Splitting (E row 29): which tokens are scored, after which inputs: white space at
// the end of a context goes to the choice, a token that joins the two ends belongs to
// whom the lengths say, and a context too long is cut on the left.
func TestRow29Splitting(t *testing.T) {
	start := Start{ID: 256, Before: true}
	encode := func(limit int, list ...Item) *Rows {
		s, err := Encode("x", list, bytesOf, start, limit)
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	x := item("Q ", 0, "ab", "c")
	x.Delimiter = ""
	s := encode(64, item("xy", 0, "ab", "c"), x, item("", 1, "q", "ab"))
	rows, starts := readAll(t, s)
	for i, want := range []struct{ tokens, targets []int32 }{
		{[]int32{256, 'x', 'y', ' '}, []int32{-1, -1, ' ', 300}},
		{[]int32{256, 'x', 'y'}, []int32{-1, -1, 301}},
		{[]int32{256, 'Q', ' '}, []int32{-1, ' ', 300}},
		{[]int32{256, 'Q'}, []int32{-1, 301}},
		{[]int32{256, ' '}, []int32{' ', 'q'}},
		{[]int32{256, ' '}, []int32{' ', 300}},
	} {
		n := len(want.tokens)
		if len(rows[i][0]) != leastT || !reflect.DeepEqual(rows[i][0][:n], want.tokens) || !reflect.DeepEqual(rows[i][1][:n], want.targets) {
			t.Errorf("row %d: %v %v instead of %v", i, rows[i][0][:n], rows[i][1][:n], want)
		}
		for _, x := range rows[i][1][n:] {
			if x != -1 {
				t.Errorf("row %d: a target behind its end", i)
			}
		}
		if starts[i] != 3 { // the end of the document before, then the text
			t.Errorf("row %d: starts %b", i, starts[i])
		}
	}
	start.Before = false
	if _, starts := readAll(t, encode(64, item("xy", 0, "ab", "c"))); starts[0] != 1 {
		t.Errorf("starts %b with a token that begins the text", starts[0])
	}
	s = encode(5, item(strings.Repeat("z", 40)+"w", 0, "ab", "cdefg"))
	rows, starts = readAll(t, s)
	if s.Cut != 2 || starts[1] != 1 || !reflect.DeepEqual(rows[0], [2][]int32{{'z', 'z', 'z', 'w', ' '}, {-1, -1, -1, ' ', 300}}) ||
		!reflect.DeepEqual(rows[1], [2][]int32{{'w', 301, 'd', 'e', 'f'}, {301, 'd', 'e', 'f', 'g'}}) {
		t.Errorf("%d cut, %v", s.Cut, rows)
	}
	// Rows of very different lengths do not share a bucket.
	if b := encode(100, item("a", 0, "b", strings.Repeat("d", 70))).Buckets(); len(b) != 2 || b[0].T != 16 || b[1].T != 100 {
		t.Errorf("%d buckets", len(b))
	}
	if _, err := Encode("file", []Item{{Context: "a", Choices: []string{"b", "cdefgh"}, Delimiter: " ", Line: 7}}, bytesOf, start, 5); err == nil || !strings.Contains(err.Error(), "file:7: choice 1 has 6 tokens") {
		t.Errorf("%v", err)
	}
}

// TestRow29Measures (E row 29): known log probabilities give known answers, which differ
// between the three measures; of equal ones the first counts; errors are those of a
// sample.
func TestRow29Measures(t *testing.T) {
	s := &Rows{of: []Item{
		item("", 0, "aa", "aaaa"),          // acc 0; by length 1: -3/2 < -4/4
		item("", 1, "aa", "aaaa"),          // the same the other way round
		item("", 1, "\u00e9\u00e9", "abc"), // characters 2 and 3, bytes 4 and 3
		item("", 0, "same", "same"),
	}}
	logp := []float64{-3, -4, -3, -4, -2.4, -3.3, -5, -5}
	// acc:   0 right, 0 wrong, 0 wrong (-2.4), first right        -> 2 of 4
	// norm:  1 wrong, 1 right, -1.2 < -1.1: 1 right, first right  -> 3 of 4
	// bytes: 1 wrong, 1 right, -0.6 > -1.1: 0 wrong, first right  -> 2 of 4
	r := s.Score(logp)
	if r.Acc.Acc != 0.5 || r.Norm.Acc != 0.75 || r.Bytes.Acc != 0.5 {
		t.Errorf("%+v", r)
	}
	if want := math.Sqrt(0.5 * 0.5 / 3); math.Abs(*r.Acc.StdErr-want) > 1e-15 {
		t.Errorf("error %v instead of %v", *r.Acc.StdErr, want)
	}
	if one := (&Rows{of: s.of[:1]}).Score(logp); one.Acc.StdErr != nil || one.Acc.Acc != 1 {
		t.Errorf("%+v", one)
	}
}

// TestRow29File (E row 29): what a file may hold, and what is refused with its line.
func TestRow29File(t *testing.T) {
	items, err := Read(strings.NewReader("{\"context\": \"Q\", \"choices\": [\"a\", \"b\"], \"label\": 1, \"id\": 7}\n\n{\"context\":\"\",\"choices\":[\"a\",\"b\"],\"label\":0,\"delimiter\":\"\"}"), "f")
	if err != nil || len(items) != 2 || items[0].Delimiter != " " || items[1].Delimiter != "" || items[1].Line != 3 || items[0].Label != 1 {
		t.Errorf("%+v, %v", items, err)
	}
	good := `{"context": "Q", "choices": ["a", "b"], "label": 1}` + "\n"
	for text, want := range map[string]string{
		"":    "f: there are no items",
		"[1]": "f:1: no JSON object",
		good + `{"context": "Q", "choices": ["a", "b"]}`:                               "f:2: label is missing",
		`{"choices": ["a", "b"], "label": 1}`:                                          "f:1: context is missing",
		`{"context": "Q", "choices": ["a"], "label": 0}`:                               "1 choices; 2 to",
		`{"context": "Q", "choices": ["a", "b"], "label": 2}`:                          "label 2; it counts the 2 choices from 0",
		`{"context": "Q", "choices": ["a", "b"], "label": -1}`:                         "label -1",
		`{"context": "Q", "choices": ["a", ""], "label": 0}`:                           "choice 1 is empty",
		`{"context": "Q", "choices": ["a", "b"], "label": "B"}`:                        "label: json",
		`{"context": null, "choices": ["a", "b"], "label": 0}`:                         "context is null",
		`{"context": "Q", "choices": ["a", "b"], "label": 0, "delimeter": ""}`:         `unknown key "delimeter" - did you mean "delimiter"?`,
		`{"context": "Q", "choices": ["a", "b"], "label": 0, "zzz": 1, "yyyyyyy": ""}`: `unknown key "yyyyyyy"`,
		"{\"context\": \"\xff\", \"choices\": [\"a\", \"b\"], \"label\": 0}":           "not UTF-8",
	} {
		if _, err := Read(strings.NewReader(text), "f"); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
	_, err = Read(strings.NewReader(strings.Repeat("x\n", 50)), "f")
	if err == nil || strings.Count(err.Error(), "\n") != 10 {
		t.Errorf("%v", err)
	}
}
