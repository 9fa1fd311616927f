package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/spf13/cobra"

	"refrain/internal/fsx"
	"refrain/internal/run"
	"refrain/study"
)

// sweepCell trains one cell of a sweep, as a task of an array job does. Others may train
// other cells of the same registry meanwhile.
func (a *app) sweepCell(ctx context.Context, c *cobra.Command, spec *study.Spec, o sweepOptions) error {
	j, err := openSweep(spec, study.JoinRegistry)
	if err != nil {
		return err
	}
	defer j.reg.Close()
	if o.cell > len(j.cells) {
		return bad(c, "--cell %d: the sweep has %d cells; --dry-run numbers them", o.cell, len(j.cells))
	}
	return a.sweepThese(ctx, j, j.cells[o.cell-1:o.cell], o)
}

// slurmScript is the array job: one task a cell, each the same command with its number.
// A task that is stopped early (75) asks to be queued again and goes on from its save.
const slurmScript = `#!/bin/sh
#SBATCH --job-name=refrain-sweep
#SBATCH --array=%s
#SBATCH --cpus-per-task=1
#SBATCH --mem=%dM
#SBATCH --signal=TERM@60
#SBATCH --requeue
#SBATCH --open-mode=append
#SBATCH --output=%s
cd %s || exit 1
%s --cell "$SLURM_ARRAY_TASK_ID" &
task=$!
stopped=
trap 'stopped=1; kill -TERM $task' TERM
wait $task
code=$?
if [ "$stopped" ]; then
	wait $task # the trap ended the first wait
	code=$?
fi
if [ $code -eq 75 ]; then
	scontrol requeue "${SLURM_ARRAY_JOB_ID}_${SLURM_ARRAY_TASK_ID}"
fi
exit $code
`

// sweepSlurm writes the array job of the cells that are not done into the registry, and
// submits it.
func (a *app) sweepSlurm(ctx context.Context, spec *study.Spec, o sweepOptions) error {
	if spec.Descend != nil {
		return &run.Error{Code: run.ExitUsage, Err: errors.New("a descent decides from its results what to train next, and an array job is submitted once: use --backend local")}
	}
	// Held while the job is written, so that it is not submitted beside a sweep that goes on.
	j, err := openSweep(spec, lockRegistry)
	if err != nil {
		return err
	}
	defer j.reg.Close()
	t, err := todo(spec, j.cells, j.reg.Records())
	if err != nil {
		return err
	}
	if len(t.numbers) == 0 {
		if t.left > 0 {
			return study.ErrBudget
		}
		a.printf("nothing to submit: all %d cells are done\n", len(j.cells))
		return nil
	}
	script, err := a.writeSlurm(spec, t.numbers, t.memory, o)
	if err != nil {
		return err
	}
	a.notef("%d cells in %s", len(t.numbers), script)
	cmd := exec.CommandContext(ctx, "sbatch", append(append([]string{"--parsable"}, o.sbatch...), script)...)
	var out, errOut bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errOut
	if err := cmd.Run(); err != nil {
		if errors.Is(err, exec.ErrNotFound) {
			return &run.Error{Code: run.ExitUsage, Err: fmt.Errorf("there is no sbatch on this machine; where there is one, submit it with: sbatch %s", shellWords([]string{script}))}
		}
		return fmt.Errorf("sbatch: %w\n%s", err, errOut.String())
	}
	id := strings.TrimSpace(out.String())
	if t.left > 0 {
		a.notef("the budget leaves %d cells out", t.left)
	}
	a.printf("submitted  %s  %d cells; --dry-run shows how far they are, and the same command without --backend the result\n", id, len(t.numbers))
	return nil
}

// writeSlurm writes the script and returns its path. The memory of a task is that of the
// largest cell.
func (a *app) writeSlurm(spec *study.Spec, numbers []int, memory int64, o sweepOptions) (string, error) {
	self, err := os.Executable()
	if err != nil {
		return "", err
	}
	wd, err := os.Getwd()
	if err != nil {
		return "", err
	}
	out, err := filepath.Abs(spec.Out)
	if err != nil {
		return "", err
	}
	words := []string{self, "sweep", spec.Path}
	if o.budgetText != "" {
		words = append(words, "--budget", o.budgetText)
	}
	array := ranges(numbers)
	if o.parallel > 0 {
		array += "%" + strconv.Itoa(o.parallel)
	}
	text := fmt.Sprintf(slurmScript, array, withSystem(memory)>>20+1, filepath.Join(out, "slurm-%A_%a.log"), shellWords([]string{wd}), shellWords(words))
	path := filepath.Join(out, "slurm.sh")
	if err := fsx.WriteFileAtomic(fsx.OS{}, path, []byte(text)); err != nil {
		return "", &run.Error{Code: run.ExitDisk, Err: err}
	}
	return path, nil
}

// ranges writes increasing numbers as 1-3,5,8-9.
func ranges(numbers []int) string {
	var parts []string
	for i := 0; i < len(numbers); {
		j := i
		for j+1 < len(numbers) && numbers[j+1] == numbers[j]+1 {
			j++
		}
		if i == j {
			parts = append(parts, strconv.Itoa(numbers[i]))
		} else {
			parts = append(parts, fmt.Sprintf("%d-%d", numbers[i], numbers[j]))
		}
		i = j + 1
	}
	return strings.Join(parts, ",")
}
