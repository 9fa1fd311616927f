package main

import (
	"fmt"
	"os"
	"strconv"
	"strings"
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

// small runs the program with room for args[0] MiB beyond what the process has mapped
// already, which under the race detector is a lot.
func small(args []string) int {
	more, err := strconv.ParseUint(args[0], 10, 64)
	if err != nil {
		panic(err)
	}
	b, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		panic(err)
	}
	pages, err := strconv.ParseUint(strings.Fields(string(b))[0], 10, 64)
	if err != nil {
		panic(err)
	}
	n := pages*uint64(os.Getpagesize()) + more<<20
	if err := syscall.Setrlimit(syscall.RLIMIT_AS, &syscall.Rlimit{Cur: n, Max: n}); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return execute(args[1:], os.Stdin, os.Stdout, os.Stderr)
}
