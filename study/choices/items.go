// Package choices measures how often a model finds the right answer among several: the
// answer whose text, after the context, has the highest probability. Prompts, splitting of
// text into tokens and measures are those of lm-evaluation-harness.
package choices

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"refrain/internal/run/config"
)

// Item is one question. What is scored is Context + Delimiter + choice, and of that the
// part after Context.
type Item struct {
	Context   string
	Choices   []string
	Label     int // index of the right choice
	Delimiter string
	Line      int // of the file
}

// Limits on a file of items.
const (
	maxLine    = 16 << 20
	maxChoices = 1000
)

// keys are those of a line.
var keys = [...]string{"context", "choices", "label", "delimiter", "id"}

// Read reads items, one JSON object a line, see docs/formats/choices.md. name stands for
// the file in errors, which name the line; up to ten of them are reported at once.
func Read(r io.Reader, name string) ([]Item, error) {
	sc := bufio.NewScanner(r)
	sc.Buffer(nil, maxLine)
	var items []Item
	var errs []error
	const most = 10
	for line := 1; sc.Scan(); line++ {
		if strings.TrimSpace(sc.Text()) == "" {
			continue
		}
		it, err := parse(sc.Bytes())
		if err != nil {
			if errs = append(errs, fmt.Errorf("%s:%d: %w", name, line, err)); len(errs) == most {
				errs = append(errs, errors.New("and perhaps more"))
				break
			}
			continue
		}
		it.Line = line
		items = append(items, it)
	}
	switch err := sc.Err(); {
	case errors.Is(err, bufio.ErrTooLong):
		errs = append(errs, fmt.Errorf("%s: a line has more than %d bytes", name, maxLine))
	case err != nil:
		errs = append(errs, fmt.Errorf("%s: %w", name, err))
	}
	if len(errs) == 0 && len(items) == 0 {
		errs = append(errs, fmt.Errorf("%s: there are no items", name))
	}
	return items, errors.Join(errs...)
}

func parse(line []byte) (Item, error) {
	if !utf8.Valid(line) {
		return Item{}, errors.New("the line is not UTF-8")
	}
	var raw map[string]json.RawMessage
	if err := json.Unmarshal(line, &raw); err != nil {
		return Item{}, fmt.Errorf("no JSON object: %w", err)
	}
	it := Item{Delimiter: " "}
	into := map[string]any{"context": &it.Context, "choices": &it.Choices, "label": &it.Label, "delimiter": &it.Delimiter, "id": new(any)}
	// In the order of the keys, so that one mistake always has one message.
	for _, k := range keys {
		v, there := raw[k]
		switch {
		case !there && (k == "context" || k == "choices" || k == "label"):
			return it, fmt.Errorf("%s is missing; a line has context, choices and label", k)
		case !there:
		case string(v) == "null" && k != "id":
			return it, fmt.Errorf("%s is null", k)
		default:
			if err := json.Unmarshal(v, into[k]); err != nil {
				return it, fmt.Errorf("%s: %w", k, err)
			}
		}
		delete(raw, k)
	}
	for _, k := range slices.Sorted(maps.Keys(raw)) {
		if near := config.Nearest(k, keys[:]); near != "" {
			return it, fmt.Errorf("unknown key %q - did you mean %q?", k, near)
		}
		return it, fmt.Errorf("unknown key %q; a line has %s", k, strings.Join(keys[:], ", "))
	}
	switch n := len(it.Choices); {
	case n < 2 || n > maxChoices:
		return it, fmt.Errorf("%d choices; 2 to %d are read", n, maxChoices)
	case it.Label < 0 || it.Label >= n:
		return it, fmt.Errorf("label %d; it counts the %d choices from 0", it.Label, n)
	}
	for i, c := range it.Choices {
		if c == "" {
			return it, fmt.Errorf("choice %d is empty", i)
		}
	}
	return it, nil
}
