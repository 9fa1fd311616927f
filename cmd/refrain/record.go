package main

import (
	"bytes"
	"encoding/json"
	"fmt"

	"refrain/internal/run"
)

// recordVersion is that of the envelope; docs/formats/records.md describes it.
const recordVersion = 1

// record prints v, a struct or map, as one JSON object that begins with what it is and
// where it comes from, so that `refrain report` can read it from a file.
func (a *app) record(kind string, v any) error {
	text, err := a.recordText(kind, v)
	if err != nil {
		return err
	}
	_, err = a.out.Write(text)
	return err
}

// recordText is what record prints.
func (a *app) recordText(kind string, v any) ([]byte, error) {
	head, err := json.Marshal(struct {
		Kind    string   `json:"kind"`
		Version int      `json:"version"`
		Code    string   `json:"code"`
		Command []string `json:"command"`
	}{kind, recordVersion, run.CodeVersion(), append([]string{"refrain"}, a.args...)})
	if err != nil {
		return nil, err
	}
	body, err := json.Marshal(v)
	if err != nil {
		return nil, err
	}
	if len(body) < 2 || body[0] != '{' {
		return nil, fmt.Errorf("record %s: %.40s is no JSON object", kind, body)
	}
	all := head
	if len(body) > 2 {
		all = append(append(head[:len(head)-1], ','), body[1:]...)
	}
	var out bytes.Buffer
	if err := json.Indent(&out, all, "", "  "); err != nil {
		return nil, err
	}
	out.WriteByte('\n')
	return out.Bytes(), nil
}
