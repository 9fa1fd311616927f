package study

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"refrain/internal/run"
)

// recordsOnly writes records without run folders, as where only the records were kept.
func recordsOnly(t *testing.T, records ...Record) string {
	t.Helper()
	dir := t.TempDir()
	reg, err := OpenRegistry(dir, nil)
	if err != nil {
		t.Fatal(err)
	}
	for i := range records {
		if err := reg.Put(&records[i]); err != nil {
			t.Fatal(err)
		}
	}
	if err := reg.Close(); err != nil {
		t.Fatal(err)
	}
	return dir
}

// doneRecord is a finished cell: n tells seeds and settings apart.
func doneRecord(batch int, seed uint64, val float64, change func(r *Record)) Record {
	r := Record{
		Version: 1, Label: fmt.Sprintf("train.batch=%d", batch), Seed: seed, Settings: map[string]string{"train.batch": fmt.Sprint(batch)},
		Provenance: Provenance{ConfigHash: fmt.Sprintf("config %d %d", batch, seed), DataHash: "data", TokenizerHash: "tok", ValHash: "val", ValRows: 9, Code: "abc"},
		Status:     Done, RunID: fmt.Sprintf("id %d %d", batch, seed), Steps: 100, Loss: &val, Val: &val, Tokens: 500, Params: 1000,
	}
	if change != nil {
		change(&r)
	}
	r.Identity = r.Provenance.Identity()
	r.Run = "runs/" + r.Name()
	return r
}

// TestRow32Records (E row 32): seeds become one point with mean and spread, records that
// are not done are left out with the reason, and the batch may come from the cost.
func TestRow32Records(t *testing.T) {
	dir := recordsOnly(t,
		doneRecord(8, 0, 3.25, nil), doneRecord(8, 1, 3.75, nil), doneRecord(16, 0, 3, nil),
		doneRecord(32, 0, 3, func(r *Record) { r.Status, r.Reason = NaN, "step 3" }),
		doneRecord(64, 0, 3, func(r *Record) { r.Val = nil }),
		doneRecord(128, 0, 2, func(r *Record) { r.Settings, r.Cost.Batch = nil, 128 }),
	)
	rec, err := ReadEndpoints([]string{dir, dir}, EndpointOptions{}) // named twice counts once
	if err != nil {
		t.Fatal(err)
	}
	if len(rec.Runs) != 3 || len(rec.Left) != 2+6 {
		t.Fatalf("%+v, left out %+v", rec.Runs, rec.Left)
	}
	if r := rec.Runs[0]; r.Batch != 8 || r.Seeds != 2 || r.Loss != 3.5 || r.SD < 0.35 || r.SD > 0.36 || len(r.From) != 2 || r.Name != "train.batch=8" {
		t.Errorf("%+v", r)
	}
	if r := rec.Runs[2]; r.Batch != 128 || r.Seeds != 1 || r.SD != 0 {
		t.Errorf("%+v", r)
	}
	if s := rec.Source; s.DataHash != "data" || s.ValTokens != 500 || s.Code != "abc" {
		t.Errorf("%+v", s)
	}
	if rec.TimesTrouble == "" || rec.Times.Known() {
		t.Errorf("times %+v", rec.Times)
	}
	why := fmt.Sprint(rec.Left)
	if !strings.Contains(why, "nan (step 3)") || !strings.Contains(why, "no validation loss") || !strings.Contains(why, "read before") {
		t.Errorf("%s", why)
	}
}

// TestRow32MixedRecords (E row 32): runs that do not compare are refused, and the error
// names both; other code can be let in.
func TestRow32MixedRecords(t *testing.T) {
	a := recordsOnly(t, doneRecord(8, 0, 3, nil))
	for want, change := range map[string]func(r *Record){
		"training documents": func(r *Record) { r.DataHash = "other" },
		"tokenizers":         func(r *Record) { r.TokenizerHash = "other" },
		"validation docu":    func(r *Record) { r.ValHash = "other" },
		"validation rows":    func(r *Record) { r.Tokens = 7 },
		"different code":     func(r *Record) { r.Code = "def" },
	} {
		other := doneRecord(16, 0, 3, change)
		b := recordsOnly(t, other)
		_, err := ReadEndpoints([]string{a, b}, EndpointOptions{})
		if err == nil || !strings.Contains(err.Error(), want) || !strings.Contains(err.Error(), a) || !strings.Contains(err.Error(), filepath.Join(b, other.Run)) || run.ExitCode(err) != run.ExitUsage {
			t.Errorf("%s: %v", want, err)
		}
		if rec, err := ReadEndpoints([]string{a, b}, EndpointOptions{AnyCode: true}); (err == nil) != (want == "different code") {
			t.Errorf("any code, %s: %+v, %v", want, rec, err)
		}
	}
}

// TestReadRefuses: places without runs, and records that do not say enough.
func TestReadRefuses(t *testing.T) {
	empty := t.TempDir()
	lost := recordsOnly(t, doneRecord(8, 0, 3, func(r *Record) { r.Settings = nil }))
	failed := recordsOnly(t, doneRecord(8, 0, 3, func(r *Record) { r.Status, r.Reason = Failed, "disk full" }))
	for path, want := range map[string]string{
		filepath.Join(empty, "gone"): "name a registry",
		empty:                        "neither a registry",
		lost:                         "does not say its batch",
		failed:                       "disk full",
	} {
		if _, err := ReadEndpoints([]string{path}, EndpointOptions{}); err == nil || !strings.Contains(err.Error(), want) || run.ExitCode(err) != run.ExitUsage {
			t.Errorf("%s: %v, want %q", path, err, want)
		}
	}
	// A record that was changed by hand is the registry's to refuse, with its path.
	files, err := filepath.Glob(filepath.Join(failed, "cells", "*.json"))
	if err != nil || len(files) != 1 {
		t.Fatal(files, err)
	}
	if err := os.WriteFile(files[0], []byte(`{"version": 1}`), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := ReadEndpoints([]string{failed}, EndpointOptions{}); err == nil || !strings.Contains(err.Error(), files[0]) {
		t.Errorf("%v", err)
	}
}
