package tokenize

import "unicode/utf8"

// matcher finds added tokens in text: leftmost first, longest at one place. Nodes
// form a trie whose edges are sorted lists; added tokens are few and mostly share
// their first bytes.
type matcher struct {
	first [256]bool
	nodes []trieNode
	list  []AddedToken
}

type trieNode struct {
	token int // index into list, -1 inside a token only
	edges []trieEdge
}

type trieEdge struct {
	c    byte
	node int
}

// newMatcher takes the tokens of one pass; nil without any.
func newMatcher(added []AddedToken, normalized bool) *matcher {
	m := &matcher{nodes: []trieNode{{token: -1}}}
	for _, a := range added {
		if a.Normalized != normalized {
			continue
		}
		m.list = append(m.list, a)
		m.first[a.Content[0]] = true
		n := 0
		for i := range len(a.Content) {
			next := m.child(n, a.Content[i])
			if next < 0 {
				next = len(m.nodes)
				m.nodes = append(m.nodes, trieNode{token: -1})
				m.nodes[n].edges = append(m.nodes[n].edges, trieEdge{a.Content[i], next})
			}
			n = next
		}
		m.nodes[n].token = len(m.list) - 1
	}
	if len(m.list) == 0 {
		return nil
	}
	return m
}

func (m *matcher) child(n int, c byte) int {
	for _, e := range m.nodes[n].edges {
		if e.c == c {
			return e.node
		}
	}
	return -1
}

// find returns the first match at or after from: the token, its start and its end.
func (m *matcher) find(text []byte, from int) (a *AddedToken, start, end int) {
	for i := from; i < len(text); i++ {
		if !m.first[text[i]] {
			continue
		}
		best := -1
		n := 0
		for j := i; j < len(text); j++ {
			if n = m.child(n, text[j]); n < 0 {
				break
			}
			if k := m.nodes[n].token; k >= 0 {
				best, end = k, j+1
			}
		}
		if best >= 0 {
			return &m.list[best], i, end
		}
	}
	return nil, 0, 0
}

// match is an accepted occurrence of an added token. With lstrip or rstrip its
// text [start, end) is longer than the token; the search goes on from resume.
type match struct {
	token              *AddedToken // nil at the end of the text
	start, end, resume int
}

// next returns the first accepted match of the search from resume on. A match that
// is refused, because special tokens are off or because it touches a word, is
// passed over as a whole: a shorter token inside it gets no second chance. taken is
// where the text of the match before ended; white space before it is gone.
func (m *matcher) next(text []byte, taken, resume int, special bool) match {
	for {
		a, start, end := m.find(text, resume)
		if a == nil {
			return match{nil, len(text), len(text), len(text)}
		}
		resume = end
		if a.Special && !special || a.SingleWord && touchesWord(text, start, end) {
			continue
		}
		if a.LStrip {
			start = spaceBefore(text, start)
		}
		if a.RStrip {
			end, _, _ = spaceRun(text, end)
		}
		return match{a, max(start, taken), end, resume}
	}
}

func touchesWord(text []byte, start, end int) bool {
	if start > 0 {
		r, _ := utf8.DecodeLastRune(text[:start])
		if runeClass(r)&flagWord != 0 {
			return true
		}
	}
	if end < len(text) {
		e, _ := entryAt(text, end)
		return e&flagWord != 0
	}
	return false
}

// spaceBefore is the start of the run of white space that ends at end.
func spaceBefore(text []byte, end int) int {
	for end > 0 {
		r, width := utf8.DecodeLastRune(text[:end])
		if !isSpace(runeClass(r) & classMask) {
			break
		}
		end -= width
	}
	return end
}
