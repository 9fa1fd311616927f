package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strings"
	"testing"

	"refrain/internal/run"
	"refrain/kernels/asm"
)

var kernelsLine = regexp.MustCompile(`(?m)^machine .*  kernels (\S+)  `)

// TestKernelSets moves a run between processors, which GODEBUG plays: one with
// everything, one whose AVX-512 the hypervisor masks, one without AVX2. Between the
// first two a run that is stopped and resumed has the bits of one that never was, in
// both precisions; on the last it goes on, and says that the bits are others.
func TestKernelSets(t *testing.T) {
	if runtime.GOARCH != "amd64" || asm.Kernels() == "purego" {
		t.Skip("only the assembly of amd64 has sets to choose from")
	}
	if strings.Contains(os.Getenv("GODEBUG"), "cpu.") {
		t.Skip("GODEBUG switches instructions off already")
	}
	const masked, old = "GODEBUG=cpu.avx512f=off", "GODEBUG=cpu.avx2=off"
	conf := tiny(t)
	train := func(t *testing.T, env, set, out string, code int, args ...string) *process {
		t.Helper()
		p := start(t, []string{env}, append([]string{asProgram, "train", conf, "--out", out}, args...)...)
		if c := p.code(t); c != code {
			t.Fatalf("%s: exit code %d\n%s%s", env, c, p.out, p.err)
		}
		if m := kernelsLine.FindStringSubmatch(p.out.String()); m == nil || m[1] != set {
			t.Fatalf("%s: kernels %q, expected %s\n%s", env, m, set, p.out)
		}
		return p
	}
	for env, reason := range map[string]string{masked: "avx512: ", old: "avx2: AVX2 is switched off for this process"} {
		p := start(t, []string{env}, asProgram, "doctor", "--quick", "--dir", t.TempDir())
		if p.code(t); !strings.Contains(p.out.String(), "; not "+reason) {
			t.Errorf("doctor does not name what %s takes away:\n%s", env, p.out)
		}
	}
	for _, precision := range []string{"f32", "bf16"} {
		t.Run(precision, func(t *testing.T) {
			dir, prec := t.TempDir(), "train.precision="+precision
			best := asm.Kernels()
			whole := filepath.Join(dir, "whole")
			train(t, "GODEBUG=", best, whole, run.ExitDone, prec)
			want, ledger := tensors(t, newest(whole)), readLedger(t, whole)
			for i, env := range [][2]string{{"GODEBUG=", masked}, {masked, "GODEBUG="}} {
				sets := map[string]string{"GODEBUG=": best, masked: "avx2"}
				out := filepath.Join(dir, "moved", string(rune('a'+i)))
				train(t, env[0], sets[env[0]], out, run.ExitResumable, prec, "--stop-after", "7")
				p := train(t, env[1], sets[env[1]], out, run.ExitDone, prec, "--resume", "auto")
				if !bytes.Equal(tensors(t, newest(out)), want) || !slices.Equal(readLedger(t, out), ledger) {
					t.Errorf("7 steps on %s and the rest on %s: other weights, moments or losses", sets[env[0]], sets[env[1]])
				}
				if strings.Contains(p.err.String(), "within rounding") {
					t.Errorf("a warning about equal bits:\n%s", p.err)
				}
			}
			out := filepath.Join(dir, "old")
			train(t, "GODEBUG=", best, out, run.ExitResumable, prec, "--stop-after", "7")
			p := train(t, old, "purego", out, run.ExitDone, prec, "--resume", "auto")
			if !strings.Contains(p.err.String(), "by assembly kernels, those to come by purego") {
				t.Errorf("moved to plain Go without a word:\n%s", p.err)
			}
			got := readLedger(t, out)
			last := len(ledger) - 1
			if len(got) != len(ledger) || got[6] != ledger[6] || got[last].Loss-ledger[last].Loss > 0.01 || ledger[last].Loss-got[last].Loss > 0.01 {
				t.Errorf("%d steps, the last with a loss of %v; on the processor with everything %d and %v", len(got), got[last].Loss, len(ledger), ledger[last].Loss)
			}
		})
	}
}
