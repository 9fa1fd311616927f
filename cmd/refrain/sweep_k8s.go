package main

import (
	"errors"
	"fmt"
	"path"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"refrain/internal/run"
	"refrain/study"
)

// k8sOptions are the flags of --backend k8s-render.
type k8sOptions struct {
	image, claim, mount, namespace, name string
	cpus                                 int
}

func (o *k8sOptions) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&o.image, "k8s-image", "", "with --backend k8s-render: image that has refrain in its PATH")
	f.StringVar(&o.claim, "k8s-claim", "", "with --backend k8s-render: volume claim with sweep file, stores and registry, which several pods may write")
	f.StringVar(&o.mount, "k8s-mount", "/data", "with --backend k8s-render: where the claim is mounted, the working directory of the pods")
	f.StringVar(&o.namespace, "k8s-namespace", "", "with --backend k8s-render: namespace of the job")
	f.StringVar(&o.name, "k8s-name", "", "with --backend k8s-render: name of the job; empty is refrain- and that of the file")
	f.IntVar(&o.cpus, "k8s-cpus", 1, "with --backend k8s-render: CPUs of a pod")
}

// given is the first of the flags that was set, or "".
func (o *k8sOptions) given(c *cobra.Command) string {
	for _, name := range []string{"k8s-image", "k8s-claim", "k8s-mount", "k8s-namespace", "k8s-name", "k8s-cpus"} {
		if c.Flags().Changed(name) {
			return name
		}
	}
	return ""
}

// sweepK8s prints the Job that trains what is not done. It makes nothing and takes no lock.
func (a *app) sweepK8s(c *cobra.Command, spec *study.Spec, o sweepOptions) error {
	if spec.Descend != nil {
		return &run.Error{Code: run.ExitUsage, Err: errors.New("a descent decides from its results what to train next, and a job is rendered once: use --backend local")}
	}
	for _, need := range []struct{ flag, value string }{{"k8s-image", o.k8s.image}, {"k8s-claim", o.k8s.claim}} {
		if need.value == "" {
			return bad(c, "--backend k8s-render needs --%s", need.flag)
		}
	}
	records, err := study.ReadRegistry(spec.Out)
	if err != nil {
		return err
	}
	cells, _, _, err := sweepCells(spec, records)
	if err != nil {
		return err
	}
	if err := portable(spec, cells); err != nil {
		return err
	}
	t, err := todo(spec, cells, records)
	if err != nil {
		return err
	}
	switch {
	case len(t.numbers) == 0 && t.left > 0:
		return study.ErrBudget
	case len(t.numbers) == 0:
		return &run.Error{Code: run.ExitUsage, Err: fmt.Errorf("there is nothing to render: all %d cells are done", len(cells))}
	case t.left > 0:
		a.notef("the budget leaves %d cells out", t.left)
	}
	j := study.IndexedJob{
		Name: o.k8s.name, Namespace: o.k8s.namespace, Image: o.k8s.image, Claim: o.k8s.claim, Mount: path.Clean(o.k8s.mount),
		Spec: filepath.ToSlash(spec.Path), Cells: ranges(t.numbers), Number: len(t.numbers), Parallel: o.parallel,
		CPUs: o.k8s.cpus, Memory: withSystem(t.memory),
	}
	if o.budgetText != "" {
		j.Args = []string{"--budget", o.budgetText}
	}
	if j.Name == "" {
		j.Name = study.NameOfJob(spec.Path)
	}
	text, err := j.YAML()
	if err != nil {
		return err
	}
	_, err = a.out.Write(text)
	return err
}

// portable refuses names of files that mean something on this machine only: the pods see
// the claim, whose root is their working directory.
func portable(spec *study.Spec, cells []*study.Cell) error {
	var wrong []string
	for _, f := range spec.Files(cells) {
		if !filepath.IsLocal(f) {
			wrong = append(wrong, f)
		}
	}
	if len(wrong) > 0 {
		return &run.Error{Code: run.ExitUsage, Err: fmt.Errorf("%s: a pod works in the root of the claim and finds nothing outside of it: run this where the claim's files are, with names relative to its root", strings.Join(wrong, ", "))}
	}
	return nil
}

// parseRanges reads what ranges writes.
func parseRanges(text string) (numbers []int, err error) {
	for _, part := range strings.Split(text, ",") {
		a, b, many := strings.Cut(part, "-")
		if !many {
			b = a
		}
		from, err1 := strconv.Atoi(a)
		to, err2 := strconv.Atoi(b)
		if err1 != nil || err2 != nil || from < 1 || to < from || to > study.MaxCells {
			return nil, fmt.Errorf("%q: want numbers from 1 such as 1,3-4", text)
		}
		for n := from; n <= to; n++ {
			numbers = append(numbers, n)
		}
	}
	return numbers, nil
}
