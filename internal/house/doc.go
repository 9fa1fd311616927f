// Package house holds the rules of this repository as tests: which room may
// import which, where goroutines and clocks may live, how long files and
// functions may be, what must be documented. It has no code of its own; run
//
//	go test ./internal/house
//
// Every failure names the place and the fix. Exceptions are lists in the test
// files, each with its reason.
package house
