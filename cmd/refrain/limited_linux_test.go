package main

import (
	"fmt"
	"os"
	"strconv"
	"syscall"
)

// limited runs the program where no file may grow beyond args[0] bytes: the
// kernel then cuts a write short and fails the next, as a full disk does.
func limited(args []string) int {
	n, err := strconv.ParseUint(args[0], 10, 64)
	if err != nil {
		panic(err)
	}
	if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: n, Max: n}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return execute(args[1:], os.Stdin, os.Stdout, os.Stderr)
}
