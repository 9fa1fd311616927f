package repack

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"io"
)

// State is the whole resume state of a stream: less than 200 bytes of JSON, made
// in constant time. G is the next window to be consumed; the epoch and every
// order follow from it and are never stored beside it.
type State struct {
	Version     int    `json:"v"`
	Fingerprint string `json:"fp"` // of the corpus, unpadded base64url
	Seed        uint64 `json:"seed"`
	Mode        string `json:"mode"` // "repack", "block:512"
	T           int    `json:"T"`
	Tail        string `json:"tail"`
	Targets     string `json:"targets"` // "next", which a configuration calls "all", or "inside"
	G           int64  `json:"g"`
}

// State returns the state in which g is the next window.
func (s *Stream) State(g int64) State {
	fp := s.corpus.Fingerprint()
	return State{
		Version: Version, Fingerprint: base64.RawURLEncoding.EncodeToString(fp[:]), Seed: s.cfg.Seed,
		Mode: s.cfg.modeText(), T: s.cfg.T, Tail: s.cfg.Tail.String(), Targets: s.cfg.targetsText(), G: g,
	}
}

// ParseState reads the JSON form strictly: an unknown or misspelled field, a missing
// field or bytes after the object are errors.
func ParseState(b []byte) (State, error) {
	var st State
	var seen map[string]json.RawMessage
	d := json.NewDecoder(bytes.NewReader(b))
	d.DisallowUnknownFields()
	if err := d.Decode(&st); err != nil {
		return State{}, fmt.Errorf("stream state: %w", err)
	}
	if _, err := d.Token(); err != io.EOF {
		return State{}, fmt.Errorf("stream state: bytes after the object")
	}
	if err := json.Unmarshal(b, &seen); err != nil {
		return State{}, fmt.Errorf("stream state: %w", err)
	}
	for _, k := range []string{"v", "fp", "seed", "mode", "T", "tail", "targets", "g"} {
		if _, ok := seen[k]; !ok {
			return State{}, fmt.Errorf("stream state: field %q is missing", k)
		}
		delete(seen, k)
	}
	if len(seen) > 0 { // encoding/json takes "G" for "g" too
		return State{}, fmt.Errorf("stream state: %d fields are not spelled exactly as they should be", len(seen))
	}
	return st, nil
}

// Resume checks that st belongs to this stream and returns the next window. A
// state that cannot be honoured is refused with the field that differs: resuming
// on other data or in another order would repeat some tokens and lose others.
func (s *Stream) Resume(st State) (g int64, err error) {
	return resume(st, s.State(st.G), s.maxWindow())
}

func resume(st, want State, last int64) (g int64, err error) {
	diff := func(field string, have, want any) (int64, error) {
		return 0, fmt.Errorf("stream: cannot resume: the state was saved with %s = %v and this run has %v; "+
			"restore that setting or start a new run", field, have, want)
	}
	switch {
	case st.Version != want.Version:
		return diff("contract version", st.Version, want.Version)
	case st.Fingerprint != want.Fingerprint:
		return diff("data fingerprint", st.Fingerprint, want.Fingerprint)
	case st.Seed != want.Seed:
		return diff("seed", st.Seed, want.Seed)
	case st.Mode != want.Mode:
		return diff("mode", st.Mode, want.Mode)
	case st.T != want.T:
		return diff("T", st.T, want.T)
	case st.Tail != want.Tail:
		return diff("tail", st.Tail, want.Tail)
	case st.Targets != want.Targets:
		return diff("targets", st.Targets, want.Targets)
	case st.G < 0 || st.G > last:
		return 0, fmt.Errorf("stream: cannot resume: window %d is outside 0..%d", st.G, last)
	}
	return st.G, nil
}
