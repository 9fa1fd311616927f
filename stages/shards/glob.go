package shards

import (
	"path"
	"sort"
	"strings"
)

// hasMeta reports whether s holds a pattern character of path.Match.
func hasMeta(s string) bool { return strings.ContainsAny(s, `*?[`) }

// checkPattern reports whether a pattern can be matched at all.
func checkPattern(p string) error {
	if p == "" {
		return path.ErrBadPattern
	}
	for _, e := range strings.Split(p, "/") {
		if _, err := path.Match(e, ""); err != nil {
			return err
		}
	}
	return nil
}

// match reports whether pattern p selects the slash path rel. A pattern without
// a slash looks at the base name only; otherwise elements are matched one by
// one, "**" standing for any number of them, also none.
func match(p, rel string) bool {
	if !strings.Contains(p, "/") && p != "**" {
		ok, err := path.Match(p, path.Base(rel))
		return err == nil && ok
	}
	return matchParts(strings.Split(p, "/"), strings.Split(rel, "/"))
}

// matchParts keeps the last "**" as the only point to come back to, like the
// usual wildcard matcher, so its time is at most len(p) * len(s).
func matchParts(p, s []string) bool {
	pi, si, star, mark := 0, 0, -1, 0
	for si < len(s) {
		if pi < len(p) && p[pi] == "**" {
			star, mark = pi, si
			pi++
			continue
		}
		if pi < len(p) {
			if ok, err := path.Match(p[pi], s[si]); err == nil && ok {
				pi++
				si++
				continue
			}
		}
		if star < 0 {
			return false
		}
		mark++
		pi, si = star+1, mark
	}
	for pi < len(p) && p[pi] == "**" {
		pi++
	}
	return pi == len(p)
}

// nearest returns up to three of names that look like want, best first.
func nearest(want string, names []string) []string {
	type cand struct {
		name string
		d    int
	}
	var cs []cand
	lw := strings.ToLower(want)
	for _, n := range names {
		ln := strings.ToLower(n)
		d := distance(lw, ln)
		if strings.Contains(ln, lw) || (ln != "" && strings.Contains(lw, ln)) {
			d = min(d, 2)
		}
		if d <= max(2, len(want)/3) {
			cs = append(cs, cand{n, d})
		}
	}
	sort.Slice(cs, func(i, j int) bool {
		if cs[i].d != cs[j].d {
			return cs[i].d < cs[j].d
		}
		return cs[i].name < cs[j].name
	})
	var out []string
	for _, c := range cs[:min(3, len(cs))] {
		out = append(out, string(clip([]byte(c.name))))
	}
	return out
}

// distance is the Levenshtein distance in bytes, of at most 128 of each.
func distance(a, b string) int {
	a, b = a[:min(len(a), 128)], b[:min(len(b), 128)]
	row := make([]int, len(b)+1)
	for j := range row {
		row[j] = j
	}
	for i := 1; i <= len(a); i++ {
		diag := row[0]
		row[0] = i
		for j := 1; j <= len(b); j++ {
			up := row[j]
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(up+1, row[j-1]+1, diag+cost)
			diag = up
		}
	}
	return row[len(b)]
}

// hint is a clause such as `did you mean "a" or "b"?`, or empty.
func hint(names []string) string {
	if len(names) == 0 {
		return ""
	}
	return `did you mean "` + strings.Join(names, `" or "`) + `"?`
}
