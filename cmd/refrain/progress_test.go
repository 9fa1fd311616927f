package main

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"
)

// TestVerifyingSpeaksWhenItIsSlow: a start that waits for the check of its stores
// says so after a while, then now and then, and never with --quiet.
func TestVerifyingSpeaksWhenItIsSlow(t *testing.T) {
	for _, c := range []struct {
		quiet bool
		want  string
	}{
		{false, "note  data.store is compared with its checksums before the start: 20 % of 4 GiB\n" +
			"note  data.val is compared with its checksums before the start: 50 % of 2 GiB\n"},
		{true, ""},
	} {
		synctest.Test(t, func(t *testing.T) {
			var b bytes.Buffer
			told := (&app{err: &b, quiet: c.quiet}).verifying()
			for i := range int64(10) {
				time.Sleep(time.Second)
				told("data.store", (i+1)<<32/10, 1<<32)
			}
			for i := range int64(4) {
				time.Sleep(time.Second)
				told("data.val", (i+1)<<29, 1<<31)
			}
			if b.String() != c.want {
				t.Errorf("printed %q, want %q", b.String(), c.want)
			}
		})
	}
}

// TestETA: what was done before the start does not count as speed.
func TestETA(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := (&app{err: &bytes.Buffer{}}).progress("sweep", 100)
		p.beginsAt(80)
		p.done = 80
		time.Sleep(10 * time.Second)
		if got := p.eta(); got != "" {
			t.Errorf("before anything was done: %q", got)
		}
		p.done = 90
		if got := p.eta(); got != "  eta 10s" {
			t.Errorf("half of what was left took 10 s: %q", got)
		}
	})
}
