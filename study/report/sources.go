package report

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Source is a row of the provenance: a run, or a record of something else.
type Source struct {
	No                            int // from 1
	What                          string
	Seed                          string
	Config, Data, Tokenizer, Code string // hashes, hexadecimal, and the revision
	Where                         string // folder or file
}

// Sources are the rows of a page's provenance, numbered in the order in which they were
// first asked for.
type Sources struct {
	list []Source
	at   map[string]int
}

// Add returns the number of the row with this key, and makes it from s when it is new.
func (s *Sources) Add(key string, row Source) int {
	if n, ok := s.at[key]; ok {
		return n
	}
	if s.at == nil {
		s.at = map[string]int{}
	}
	row.No = len(s.list) + 1
	s.list = append(s.list, row)
	s.at[key] = row.No
	return row.No
}

// Ref writes numbers of rows: 3, 5-7.
func Ref(rows ...int) string {
	rows = slices.Clone(rows)
	slices.Sort(rows)
	rows = slices.Compact(rows)
	var parts []string
	for i := 0; i < len(rows); {
		j := i
		for j+1 < len(rows) && rows[j+1] == rows[j]+1 {
			j++
		}
		switch {
		case j == i:
			parts = append(parts, strconv.Itoa(rows[i]))
		case j == i+1:
			parts = append(parts, strconv.Itoa(rows[i]), strconv.Itoa(rows[j]))
		default:
			parts = append(parts, fmt.Sprintf("%d-%d", rows[i], rows[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, ", ")
}

func (s *Sources) csv() string {
	rows := [][]string{{"no", "what", "seed", "config_hash", "data_hash", "tokenizer_hash", "code", "where"}}
	for _, r := range s.list {
		rows = append(rows, []string{strconv.Itoa(r.No), r.What, r.Seed, r.Config, r.Data, r.Tokenizer, r.Code, r.Where})
	}
	return csvText(rows)
}
