//go:build !linux

package main

// What follows is measured on Linux only; doctor leaves the lines out or says so.

func hugePages() (string, bool)          { return "", false }
func memlock() (string, bool)            { return "", false }
func loadAverage() (float64, bool)       { return 0, false }
func freeBytes(dir string) (int64, bool) { return 0, false }
