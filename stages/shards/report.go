package shards

import (
	"errors"
	"fmt"
	"sort"
	"strings"
)

// Reason says why a record or a file was not used as it is.
type Reason string

// The reasons of records, then those of whole files.
const (
	InvalidUTF8 Reason = "invalid_utf8"
	Replaced    Reason = "replaced" // invalid UTF-8 that was mended and kept
	BadLine     Reason = "bad_line"
	Truncated   Reason = "truncated"
	TooLong     Reason = "too_long"
	Empty       Reason = "empty"
	Duplicate   Reason = "duplicate"

	HiddenFile   Reason = "hidden_file"
	BinaryFile   Reason = "binary_file"
	NotUTF8File  Reason = "not_utf8_file"
	SpecialFile  Reason = "special_file"   // device, socket, pipe met in a folder
	LinkedFolder Reason = "linked_folder"  // symbolic link to a folder: never walked
	Unselected   Reason = "unselected"     // left out by Include or Exclude
	Companion    Reason = "companion_file" // README, dataset_info.json and the like beside shards

	Schema  Reason = "schema"  // a sound shard without the text column asked for; never skipped
	Changed Reason = "changed" // since it was fingerprinted; never skipped
	damaged Reason = "damaged" // never skipped
)

// Error is a record or shard that stopped the reading. Its text names the
// shard, the place, the reason and the fix.
type Error struct {
	Path   string // as the user named it
	Place  string // "line 3, byte 120", "row 7", "row group 2", or empty
	Reason Reason
	Detail string
	Fix    string
	Err    error // underlying cause, may be nil
}

func (e *Error) Error() string {
	var b strings.Builder
	b.WriteString(e.Path)
	if e.Place != "" {
		b.WriteString(": " + e.Place)
	}
	fmt.Fprintf(&b, ": %s", strings.ReplaceAll(string(e.Reason), "_", " "))
	if e.Detail != "" {
		b.WriteString(": " + e.Detail)
	}
	if e.Err != nil {
		fmt.Fprintf(&b, ": %v", e.Err)
	}
	if e.Fix != "" {
		b.WriteString("; " + e.Fix)
	}
	return b.String()
}

func (e *Error) Unwrap() error { return e.Err }

// BudgetError says that more was skipped than SkipBudget allows.
type BudgetError struct {
	Skipped, Records int64
	Budget           float64
	Report           Report
}

func (e *BudgetError) Error() string {
	var parts []string
	for _, c := range e.Report.Skipped {
		if c.Reason.budgeted() {
			parts = append(parts, fmt.Sprintf("%d %s (first: %s)", c.Count, c.Reason, c.Places[0]))
		}
	}
	return fmt.Sprintf("skipped %d of %d documents, over the budget of %g: %s; mend the input or raise data.skip_budget",
		e.Skipped, e.Records, e.Budget, strings.Join(parts, ", "))
}

// budgeted says whether skipping for r counts against SkipBudget.
func (r Reason) budgeted() bool {
	switch r {
	case InvalidUTF8, BadLine, Truncated, TooLong:
		return true
	}
	return false
}

// Count is how often one reason applied, with the first few places.
type Count struct {
	Reason Reason
	Count  int64
	Places []string // at most 8, in input order
}

// Report says what a source read and what it left out. Equal inputs and options
// give equal reports.
type Report struct {
	Files      int64    // opened and read to the end
	Records    int64    // documents met, used or not; Doc.ID counts these
	Docs       int64    // documents sent
	Bytes      int64    // text sent
	BlankLines int64    // JSONL lines with nothing on them; not documents
	Notes      []string // remarks that concern the whole reading, such as a limit this system lacks
	Skipped    []Count  // sorted by reason; a record has one reason; also holds replaced ones, which were sent
}

// Of returns the count of one reason.
func (r Report) Of(reason Reason) int64 {
	for _, c := range r.Skipped {
		if c.Reason == reason {
			return c.Count
		}
	}
	return 0
}

// String is one line for people.
func (r Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d files, %d documents, %d bytes", r.Files, r.Docs, r.Bytes)
	for _, c := range r.Skipped {
		fmt.Fprintf(&b, ", %d %s", c.Count, strings.ReplaceAll(string(c.Reason), "_", " "))
	}
	if r.BlankLines > 0 {
		fmt.Fprintf(&b, ", %d blank lines", r.BlankLines)
	}
	return b.String()
}

// count adds one to a reason. Skipped stays sorted, so that reports compare.
func (r *Report) count(reason Reason, place string) {
	i := sort.Search(len(r.Skipped), func(i int) bool { return r.Skipped[i].Reason >= reason })
	if i == len(r.Skipped) || r.Skipped[i].Reason != reason {
		r.Skipped = append(r.Skipped, Count{})
		copy(r.Skipped[i+1:], r.Skipped[i:])
		r.Skipped[i] = Count{Reason: reason}
	}
	c := &r.Skipped[i]
	c.Count++
	if len(c.Places) < maxKindPlaces {
		c.Places = append(c.Places, place)
	}
}

// clone returns a copy that shares nothing with r.
func (r Report) clone() Report {
	s := make([]Count, len(r.Skipped))
	for i, c := range r.Skipped {
		s[i] = c
		s[i].Places = append([]string(nil), c.Places...)
	}
	r.Skipped = s
	r.Notes = append([]string(nil), r.Notes...)
	return r
}

// skipped is the number of records that count against the budget.
func (r *Report) skipped() int64 {
	var n int64
	for _, c := range r.Skipped {
		if c.Reason.budgeted() {
			n += c.Count
		}
	}
	return n
}

// errTooLarge marks output over a decompression limit.
var errTooLarge = errors.New("output over the limit")
