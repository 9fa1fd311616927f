package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"refrain/bench"
	"refrain/internal/run"
)

// recording keeps what a bench command prints, for its record.
type recording struct {
	dir   string
	force bool
	rec   *bench.Record
	text  bytes.Buffer
}

// recordFlags adds --record to the commands below c. The record is written when a
// command has ended without an error.
func (a *app) recordFlags(c *cobra.Command, f *benchFlags) {
	var r recording
	c.PersistentFlags().StringVar(&r.dir, "record", "", "folder to write a dated JSON record to, such as bench/results")
	c.PersistentFlags().BoolVar(&r.force, "force", false, "record under CPU pressure too; the record says so")
	c.PersistentPreRunE = func(c *cobra.Command, _ []string) (err error) {
		if r.dir == "" {
			return nil
		}
		if c.Annotations["records"] == "no" {
			return bad(c, "--record: this command measures nothing")
		}
		if s, err := os.Stat(r.dir); err != nil || !s.IsDir() {
			return bad(c, "--record: there is no folder %s; make it first", r.dir)
		}
		if r.rec, err = bench.NewRecord(append([]string{"refrain"}, a.args...), r.force); err != nil {
			return &run.Error{Code: run.ExitFailed, Err: err}
		}
		a.out = io.MultiWriter(a.out, &r.text)
		return nil
	}
	c.PersistentPostRunE = func(c *cobra.Command, _ []string) error {
		if r.rec == nil {
			return nil
		}
		if f.compare != "" {
			r.rec.Versions = bench.PeerVersions(f.peers)
		}
		if err := r.rec.Finish(r.text.String()); err != nil {
			return err
		}
		path, err := r.rec.Save(r.dir, c.Name())
		if err != nil {
			return &run.Error{Code: run.ExitDisk, Err: fmt.Errorf("record: %w", err)}
		}
		if !a.quiet {
			fmt.Fprintf(a.err, "recorded in %s\n", filepath.ToSlash(path))
		}
		return nil
	}
}

func (a *app) benchTable() *cobra.Command {
	var dir, page string
	c := &cobra.Command{
		Use:   "table",
		Short: "The newest recorded figures as a markdown table",
		Example: `  refrain bench table
  refrain bench table --write docs/performance.md`,
		Args:        args(cobra.NoArgs),
		Annotations: map[string]string{"records": "no"},
		RunE: func(*cobra.Command, []string) error {
			if page != "" {
				return bench.WriteTable(page, dir)
			}
			t, err := bench.Table(dir)
			if err != nil {
				return err
			}
			a.printf("%s", t)
			return nil
		},
	}
	c.Flags().StringVar(&dir, "results", filepath.Join("bench", "results"), "folder of the records")
	c.Flags().StringVar(&page, "write", "", "page to write the table into, between its marks")
	return c
}

func (a *app) benchReport() *cobra.Command {
	var dir, out string
	c := &cobra.Command{
		Use:         "report",
		Short:       "An HTML page of all recorded results, with plots",
		Example:     `  refrain bench report -o bench.html`,
		Args:        args(cobra.NoArgs),
		Annotations: map[string]string{"records": "no"},
		RunE: func(c *cobra.Command, _ []string) error {
			if err := folderOf(c, out); err != nil {
				return err
			}
			if err := bench.Report(dir, out); err != nil {
				return err
			}
			a.printf("wrote %s\n", out)
			return nil
		},
	}
	c.Flags().StringVar(&dir, "results", filepath.Join("bench", "results"), "folder of the records")
	c.Flags().StringVarP(&out, "output", "o", "bench.html", "file to write")
	return c
}
