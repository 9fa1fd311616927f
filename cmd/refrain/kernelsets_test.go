package main

import (
	"bytes"
	"os"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"testing"

	"refrain/internal/run"
	"refrain/kernels/asm"
)

var kernelsLine = regexp.MustCompile(`(?m)^machine .*  kernels (\S+)  `)

// TestKernelSets moves a run between processors, which GODEBUG plays: one with
// everything, one whose AVX-512 the hypervisor masks, one without AVX2, where plain Go
// computes. A run that is stopped and resumed on one after another has the bits of one
// that never was, in both precisions, and says nothing about its processor.
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
			route := []string{"GODEBUG=", masked, old}
			sets := map[string]string{"GODEBUG=": best, masked: "avx2", old: "purego"}
			if best == "avx512bf16" {
				route = append(route, "GODEBUG=cpu.avx512bf16=off")
				sets[route[3]] = "avx512"
			}
			for _, way := range []string{"there", "back"} {
				out, said := filepath.Join(dir, way), ""
				for i, env := range route {
					code, args := run.ExitResumable, []string{prec, "--stop-after", strconv.Itoa(5 * (i + 1))}
					if i > 0 {
						args = append(args, "--resume", "auto")
					}
					if i == len(route)-1 {
						code, args = run.ExitDone, []string{prec, "--resume", "auto"}
					}
					said += train(t, env, sets[env], out, code, args...).err.String()
				}
				if !bytes.Equal(tensors(t, newest(out)), want) || !slices.Equal(readLedger(t, out), ledger) {
					t.Errorf("five steps on each processor of %q and the rest on the last: other weights, moments or losses than on %s alone", route, best)
				}
				if strings.Contains(said, "within rounding") {
					t.Errorf("a warning about equal bits:\n%s", said)
				}
				slices.Reverse(route)
			}
		})
	}
}
