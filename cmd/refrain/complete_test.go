package main

import (
	"strings"
	"testing"
)

func TestFlagsWithFewValuesComplete(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"config init --preset micro-1", "micro-1M"},
		{"bench step --preset micro-3", "micro-3M"},
		{"bench loader --compare ''", "peers"},
		{"data epochs store --mode re", "reshuffle"},
		{"data epochs store --tail c", "carry"},
		{"train run.yaml --resume a", "auto"},
		{"data prepare docs --bad-line s", "skip"},
	} {
		// The shell keeps those that begin with what was typed.
		code, out, _ := cli("", append([]string{"__complete"}, words(c.line)...)...)
		if code != 0 || !strings.Contains("\n"+out, "\n"+c.want+"\n") {
			t.Errorf("%s: exit %d, %q; want %s among them", c.line, code, out, c.want)
		}
	}
}
