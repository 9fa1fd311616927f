package config

import (
	"fmt"
	"slices"
	"strings"
)

// Problem is one complaint about a configuration.
type Problem struct {
	Where string // "c.yaml:14:3", `override 2 "data.seq=x"` or "c.yaml"
	Text  string // what is wrong and how to mend it

	group, line, col int // sorting: file lines, then overrides, then the rest
}

func (p Problem) String() string { return p.Where + ": " + p.Text }

// Problems is the error of Load: everything that is wrong, in the order of the
// file, then of the overrides, then what concerns neither.
type Problems struct{ List []Problem }

// Error prints one problem a line and a last line with their number.
func (p *Problems) Error() string {
	var b strings.Builder
	for _, x := range p.List {
		b.WriteString(x.String())
		b.WriteByte('\n')
	}
	word := "problems"
	if len(p.List) == 1 {
		word = "problem"
	}
	fmt.Fprintf(&b, "%d %s; nothing was started.", len(p.List), word)
	return b.String()
}

// ExitCode is the exit status for a bad configuration.
func (p *Problems) ExitCode() int { return 2 }

func (p *Problems) sort() {
	slices.SortStableFunc(p.List, func(a, b Problem) int {
		for _, d := range []int{a.group - b.group, a.line - b.line, a.col - b.col} {
			if d != 0 {
				return d
			}
		}
		return 0
	})
}

// nearest returns the candidate that is closest to word when it is close
// enough to be a slip of the keyboard, else "". Of equally close ones the
// first wins.
func nearest(word string, candidates []string) string {
	best, bestD := "", max(1, min(3, len(word)/3))+1
	lower := strings.ToLower(word)
	for _, c := range candidates {
		if d := distance(lower, c, bestD); d < bestD {
			best, bestD = c, d
		}
	}
	if best != "" || len(word) > 40 {
		return best
	}
	for _, c := range candidates { // seqlen for seq, decay for weight_decay
		if len(c) >= 3 && strings.HasPrefix(lower, c) || len(word) >= 3 && strings.Contains(c, lower) {
			return c
		}
	}
	return ""
}

// distance is the optimal string alignment distance (insertions, deletions,
// substitutions and swaps of neighbours). Words whose lengths differ by limit
// or more cannot be closer than that and are not compared, so that a long
// wrong key costs nothing.
func distance(a, b string, limit int) int {
	if d := len(a) - len(b); d >= limit || -d >= limit {
		return limit
	}
	prev2 := make([]int, len(b)+1)
	prev := make([]int, len(b)+1)
	cur := make([]int, len(b)+1)
	for j := range prev {
		prev[j] = j
	}
	for i := 1; i <= len(a); i++ {
		cur[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			cur[j] = min(prev[j]+1, cur[j-1]+1, prev[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				cur[j] = min(cur[j], prev2[j-2]+1)
			}
		}
		prev2, prev, cur = prev, cur, prev2
	}
	return prev[len(b)]
}

// unknownKey words the complaint about key in section f and names the key that
// was probably meant, or "". Keys of other sections are offered when this one
// has nothing close.
func unknownKey(key string, f *field) (msg, meant string) {
	var names []string
	for _, c := range f.children {
		names = append(names, c.name)
	}
	in := "at the top level"
	if f.path != "" {
		in = "in " + f.path
	}
	msg = fmt.Sprintf("unknown key %s %s", clip(key), in)
	for _, l := range table().leaves {
		if l.name == key {
			return fmt.Sprintf("%s - did you mean %q?", msg, l.path), l.path
		}
	}
	if n := nearest(key, names); n != "" {
		return fmt.Sprintf("%s - did you mean %q?", msg, n), f.child(n).path
	}
	return msg + " - legal here: " + strings.Join(names, ", "), ""
}

// clip quotes text for a message and shortens it: a megabyte of nonsense in a
// file must not become a megabyte on the terminal.
func clip(s string) string {
	const most = 60
	if len(s) > most {
		s = strings.ToValidUTF8(s[:most], "") + "..."
	}
	return fmt.Sprintf("%q", s)
}
