package main

import "syscall"

// Windows cannot halt a process by a signal; the tests that do are skipped there.
const (
	stopSignal     = syscall.SIGKILL
	continueSignal = syscall.SIGKILL
)
