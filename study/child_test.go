package study

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
)

// child runs a sweep in a process of its own, which is killed without warning when ctx
// ends.
func child(ctx context.Context, path string) error {
	self, err := os.Executable()
	if err != nil {
		return err
	}
	c := exec.CommandContext(ctx, self, asSweep, path)
	var out bytes.Buffer
	c.Stdout, c.Stderr = &out, &out
	if err := c.Run(); err != nil {
		return fmt.Errorf("%w\n%s", err, out.String())
	}
	return nil
}
