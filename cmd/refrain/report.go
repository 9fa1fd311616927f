package main

import (
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"refrain/internal/fsx"
	"refrain/internal/run"
	"refrain/study/report"
)

func (a *app) reportCommand() *cobra.Command {
	var out, title string
	c := &cobra.Command{
		Use:   "report PATH...",
		Short: "Write one self-contained HTML page about runs, sweeps and saved records",
		Long: `Report makes one page of what lies on the disk: result, curves, losses over epochs, batch,
parameters, unique tokens and members with their laws, effects of settings, ablations,
ensembles and students, frontiers with projections apart, throughput, warnings, and for
every number the runs behind it with seeds and hashes.

A PATH is a run folder, a folder of run folders, the registry of a sweep, or a file with
what fit, ensemble, sweep, distill, frontier, generate, eval --choices, plan --records or
a study printed with --json. Sections appear when there are records for them. Nothing is
trained or measured; the same records give the same bytes. The page asks for nothing from
elsewhere, and every figure holds its data.`,
		Example: `  refrain report runs/a runs/b -o report.html
  refrain sweep decay.yaml --json > decay.json
  refrain ensemble runs/s* --json > ensemble.json
  refrain frontier sweeps/decay --latency 0.1,0.02 --json > frontier.json
  refrain report runs decay.json ensemble.json frontier.json students/pool/distill.json -o report.html`,
		Args: args(cobra.MinimumNArgs(1)),
		RunE: func(c *cobra.Command, list []string) error {
			if out == "" {
				if st, err := os.Stat(list[0]); err == nil && !st.IsDir() {
					return bad(c, "%s is a file, so there is no folder for the page; name it with -o", list[0])
				}
				out = filepath.Join(list[0], run.ReportFile)
			} else if err := folderOf(c, out); err != nil {
				return err
			}
			r, err := report.Read(list)
			if err != nil {
				return err
			}
			page, err := report.From(r, title).HTML()
			if err != nil {
				return &run.Error{Code: run.ExitData, Err: fmt.Errorf("report: %w", err)}
			}
			if err := fsx.WriteFileAtomic(fsx.OS{}, out, page); err != nil {
				return &run.Error{Code: run.ExitDisk, Err: err}
			}
			a.printf("%s\n", out)
			return nil
		},
	}
	c.Flags().StringVarP(&out, "output", "o", "", "file to write (default PATH/report.html of the first path)")
	c.Flags().StringVar(&title, "title", "Training runs", "heading of the page")
	return c
}
