package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/spf13/cobra"

	"refrain/internal/fsx"
	"refrain/internal/run"
	"refrain/study/choices"
	"refrain/study/ensemble"
)

// evalChoices is refrain eval --choices: list has runs and key=value overrides.
func (a *app) evalChoices(c *cobra.Command, list, files []string, asJSON bool) error {
	var r ensemble.Request
	for _, arg := range list {
		if _, err := os.Stat(arg); err != nil && strings.Contains(arg, "=") {
			r.Overrides = append(r.Overrides, arg)
		} else {
			r.Members = append(r.Members, arg)
		}
	}
	if len(r.Members) == 0 {
		return bad(c, "no run was named")
	}
	rep, err := ensemble.MeasureChoices(c.Context(), r, files)
	if err != nil {
		return err
	}
	if _, statErr := os.Stat(filepath.Join(r.Members[0], run.RunFile)); statErr == nil && len(r.Members) == 1 && len(r.Overrides) == 0 {
		if err := keepChoices(r.Members[0], rep); err != nil {
			return err
		}
	}
	if asJSON {
		return a.record("choices", rep)
	}
	a.showChoices(rep)
	return nil
}

// keepChoices leaves the result of every file in the run folder.
func keepChoices(dir string, rep *ensemble.ChoiceReport) error {
	to := filepath.Join(dir, run.EvalDir)
	err := os.MkdirAll(to, 0o755)
	for _, f := range rep.Files {
		b, jsonErr := json.MarshalIndent(map[string]any{"member": rep.Members[0], "start": rep.Start, "limit": rep.Limit, "file": f}, "", "  ")
		name := fmt.Sprintf("step-%09d-choices-%s.json", rep.Members[0].Step, strings.TrimSuffix(f.File, filepath.Ext(f.File)))
		if err = errors.Join(err, jsonErr); err == nil {
			err = fsx.WriteFileAtomic(fsx.OS{}, filepath.Join(to, name), append(b, '\n'))
		}
	}
	if err != nil {
		return &run.Error{Code: run.ExitDisk, Err: err}
	}
	return nil
}

// showChoices prints a table for every file.
func (a *app) showChoices(rep *ensemble.ChoiceReport) {
	line := func(r *choices.Result, name string) {
		a.printf("  %-17s %-17s %-17s %s\n", accText(r.Acc), accText(r.Norm), accText(r.Bytes), name)
	}
	for _, f := range rep.Files {
		a.printf("%s: %d questions with %d choices\n  %-17s %-17s %-17s\n", f.File, f.Items, f.Rows, "acc", "acc_norm", "acc_bytes")
		for k := range f.Members {
			line(&f.Members[k], rep.Members[k].Path)
		}
		if f.Logit != nil {
			line(f.Logit, fmt.Sprintf("mean logits of %d", len(f.Members)))
			line(f.Prob, fmt.Sprintf("mean probabilities of %d", len(f.Members)))
		}
	}
	if len(rep.Files) > 1 {
		a.printf("mean of %d files\n", len(rep.Files))
		mean := func(m *choices.Means, name string) {
			a.printf("  %-17.4f %-17.4f %-17.4f %s\n", m.Acc, m.Norm, m.Bytes, name)
		}
		for k := range rep.Means {
			mean(&rep.Means[k], rep.Members[k].Path)
		}
		if rep.Logit != nil {
			mean(rep.Logit, fmt.Sprintf("mean logits of %d", len(rep.Means)))
			mean(rep.Prob, fmt.Sprintf("mean probabilities of %d", len(rep.Means)))
		}
	}
	for _, w := range rep.Warnings {
		a.notef("%s", w)
	}
}

func accText(x choices.Accuracy) string {
	if x.StdErr == nil {
		return fmt.Sprintf("%.4f", x.Acc)
	}
	return fmt.Sprintf("%.4f +- %.4f", x.Acc, *x.StdErr)
}
