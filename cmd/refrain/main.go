// Command refrain pretrains language models when unique data is finite:
// prepare a token store, train, stop and resume to the bit, evaluate, sample.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"refrain/internal/run"
	"refrain/stages/shards"
)

func main() {
	// A Parquet file is decoded by a child process of this binary, under limits.
	if shards.IsChild(os.Args) {
		os.Exit(shards.ChildMain(os.Args, os.Stdin, os.Stdout))
	}
	setCollector()
	os.Exit(execute(os.Args[1:], os.Stdin, os.Stdout, os.Stderr))
}

// execute runs one command line and returns the exit code of its class.
func execute(args []string, stdin io.Reader, stdout, stderr io.Writer) int {
	ctx, sig, cancel := withSignals(context.Background(), stderr)
	defer cancel()
	a := &app{stdin: stdin, out: stdout, err: stderr, signals: sig, args: args, bars: terminal(stderr)}
	a.color = terminal(stdout) && os.Getenv("NO_COLOR") == "" && os.Getenv("TERM") != "dumb"
	root := a.root()
	root.SetArgs(args)
	err := root.ExecuteContext(ctx)
	switch {
	case err == nil, errors.Is(err, errReported):
	case ctx.Err() != nil && errors.Is(err, context.Canceled):
		fmt.Fprintln(stderr, "refrain: interrupted")
	default:
		fmt.Fprintln(stderr, "refrain: "+err.Error())
	}
	if errors.Is(err, errUsage) {
		return run.ExitUsage
	}
	return run.ExitCode(err)
}
