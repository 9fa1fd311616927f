package main

import "github.com/spf13/cobra"

// studyCommand holds the studies: commands that train many runs through a registry and
// answer one question about them.
func (a *app) studyCommand() *cobra.Command {
	c := &cobra.Command{
		Use:   "study",
		Short: "Studies: many runs through a registry that answer one question",
		Long: `A study is a sweep with a question: it trains cells through a registry, as refrain
sweep does, goes on after any stop when the same command is given again, and ends
with differences and their errors instead of a list of losses.`,
	}
	return group(c, a.ablationCommand(), a.batchCommand(), a.chainCommand(), a.microCommand())
}
