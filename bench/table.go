package bench

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"refrain/internal/fsx"
	"refrain/internal/run"
)

// figure is a row of the table of docs/performance.md.
type figure struct {
	what    string
	pattern string // of the name of its lines; the newest record that has one counts
	unit    string
	scale   float64 // of the figure, 0 for 1
	form    string  // of a number
	after   string  // what follows it
	bar     string
	command string // what makes it
}

// figures is the table of docs/performance.md in its order.
func figures() []figure {
	return slices.Concat(stepFigures(), scaleFigures(), precisionFigures(), productFigures(), kernelFigures(), tokenizerFigures(), loaderFigures(), ingestFigures(), stateFigures())
}

func stepFigures() (out []figure) {
	add := func(f figure) { out = append(out, f) }
	for _, prec := range []string{"f32", "bf16"} {
		for i, m := range []string{"1M", "3M", "11M"} {
			bar := map[string][]string{"f32": {"1.2", "1.4", "1.3"}, "bf16": {"1.4", "1.4", "1.3"}}[prec][i]
			cmd, also := "bench step --preset micro-"+m+" --compare peers", "" // the name had no precision before there were two
			if prec == "bf16" {
				cmd += " --precision bf16"
			} else {
				also = "?"
			}
			name := "Step/preset=" + m + "(/precision=" + prec + ")" + also
			add(figure{what: "step " + m + ", " + prec + ", against torch.compile " + prec, pattern: name, unit: "x-peer", form: "%.2f", bar: bar, command: cmd})
			add(figure{what: "step " + m + ", " + prec + ", thousand tokens a second", pattern: name, unit: "tok/s", scale: 1e-3, form: "%.1f", command: cmd})
			add(figure{what: "step " + m + ", " + prec + ": device wait", pattern: name, unit: "wait%", form: "%.3f", after: " %", bar: "0.1 %", command: cmd})
		}
	}
	return out
}

// scaleFigures are of steps that differ in one thing.
func scaleFigures() (out []figure) {
	add := func(f figure) { out = append(out, f) }
	for _, prec := range []string{"f32", "bf16"} {
		for _, m := range []string{"1M", "3M", "11M"} {
			add(figure{what: "step " + m + ", " + prec + ": two threads against one", pattern: "StepScale/by=threads/preset=" + m + "/precision=" + prec + "/threads=2",
				unit: "x-first", form: "%.2f", bar: "1.8", command: precise("bench step --scale threads --preset micro-"+m, prec)})
		}
	}
	for _, m := range []string{"1M", "3M", "11M"} {
		for _, n := range []string{"2", "4"} {
			add(figure{what: "step " + m + ", f32: " + n + " logical devices against 1, same batch and cores", pattern: "StepScale/by=devices/preset=" + m + "/precision=f32/devices=" + n,
				unit: "x-first", form: "%.3f", bar: "0.97", command: "bench step --scale devices --preset micro-" + m})
		}
	}
	for _, prec := range []string{"f32", "bf16"} {
		size, cmd := "StepScale/by=size/", precise("bench step --scale size", prec)
		all := size + "all=0.3M..30M/precision=" + prec
		add(figure{what: "growth, " + prec + ": tokens a second x (6P + 7LTD), 0.3M to 30M: farthest from the mean", pattern: all, unit: "off%", form: "%.0f", after: " %", bar: "25 %", command: cmd})
		add(figure{what: "growth, " + prec + ": the same, fastest over slowest less 1", pattern: all, unit: "spread%", form: "%.0f", after: " %", command: cmd})
	}
	for _, m := range [][2]string{{"1M", "0.38"}, {"11M", "0.45"}} {
		add(figure{what: "step " + m[0] + ", f32: 6P + 7LTD operations a token, of the multiply-add peak", pattern: "StepScale/by=size/preset=" + m[0] + "/precision=f32",
			unit: "of-peak", form: "%.2f", bar: m[1], command: "bench step --scale size"})
	}
	return out
}

// precisionFigures are of what runs in both precisions learn.
func precisionFigures() (out []figure) {
	for _, f := range []figure{
		{what: "held-out loss, bf16 less f32, mean over pairs of runs, nats", unit: "nats-diff", form: "%.4f", bar: "0.03"},
		{what: "held-out loss, bf16 less f32: standard error of that mean, nats", unit: "nats-diff-se", form: "%.4f"},
		{what: "held-out loss, f32: standard deviation from seed to seed, nats", unit: "nats-spread", form: "%.4f"},
		{what: "held-out loss: mean difference over that deviation", unit: "diff/spread", form: "%.2f", bar: "1"},
	} {
		f.pattern, f.command = "Precision/.*/all", "bench precision"
		out = append(out, f)
	}
	return out
}

// precise is a command at a precision; f32 is what it takes without the flag.
func precise(command, precision string) string {
	if precision == "f32" {
		return command
	}
	return command + " --precision " + precision
}

// productFigures are of matrix products.
func productFigures() (out []figure) {
	add := func(f figure) { out = append(out, f) }
	const gemm = "bench gemm --compare peers"
	for _, t := range []string{"1", "2"} {
		add(figure{what: "GEMM f32, 27 shapes, " + t + " thread(s): of the multiply-add peak", pattern: "GEMM/geomean/threads=" + t, unit: "of-peak", form: "%.2f", command: gemm})
		add(figure{what: "GEMM f32, 27 shapes, " + t + " thread(s): against OpenBLAS", pattern: "GEMM/geomean/threads=" + t, unit: "x-peer", form: "%.2f", bar: map[string]string{"1": "1.03", "2": "1.15"}[t], command: gemm})
	}
	for _, k := range []struct{ operands, what, peer, bar string }{
		{"bf16", "stored as bf16", "torch.mm bf16", "0.95"}, {"f32", "stored as f32", "torch.mm bf16 with conversion", "1.1"},
	} {
		for _, t := range []string{"1", "2"} {
			name := "GEMM/geomean/precision=bf16/operands=" + k.operands + "/threads=" + t
			what := "GEMM bf16, " + k.what + ", 27 shapes, " + t + " thread(s): "
			add(figure{what: what + "of the peak of the instructions in use", pattern: name, unit: "of-peak", form: "%.2f", command: precise(gemm, "bf16")})
			add(figure{what: what + "against " + k.peer, pattern: name, unit: "x-peer", form: "%.2f", bar: k.bar, command: precise(gemm, "bf16")})
		}
	}
	return out
}

// kernelFigures are of innermost loops alone.
func kernelFigures() []figure {
	out := []figure{
		{what: "f32 micro-kernel, of the multiply-add peak", pattern: "Kernels/tile=[^/]*/precision=f32/best", unit: "of-peak", form: "%.3f", bar: "0.85"},
		{what: "bf16 micro-kernel of VDPBF16PS, of that instruction's peak", pattern: "Kernels/tile=avx512bf16_[^/]*/precision=bf16(/best)?", unit: "of-peak", form: "%.3f", bar: "0.95"},
	}
	for _, op := range [][3]string{{"adamw", "0.95", "1.0"}, {"rmsnorm", "0.5", "0.5"}, {"swiglu", "0.5", "0.5"}} {
		for i, t := range []string{"1", "2"} {
			out = append(out, figure{what: op[0] + " on arrays of 64 MiB, " + t + " thread(s): bytes a second of a copy's", pattern: "Kernels/op=" + op[0] + "/threads=" + t,
				unit: "of-copy", form: "%.2f", bar: op[1+i]})
		}
	}
	out = append(out,
		figure{what: "exponential, against the standard library's in a loop", pattern: "Kernels/exp", unit: "x-math.Exp", form: "%.0f", bar: "20"},
		figure{what: "empty parallel region of 2 threads, microseconds", pattern: "Kernels/region/threads=2", unit: "us", form: "%.2f", bar: "2"})
	for i := range out {
		out[i].command = "bench kernels"
	}
	return out
}

func tokenizerFigures() (out []figure) {
	add := func(f figure) { out = append(out, f) }
	for _, p := range []string{"cold", "warm"} {
		add(figure{what: "encoder, one thread, " + p + ", against Hugging Face tokenizers", pattern: "Tokenizer/.*" + p + "(/peer=tokenizers)?", unit: "x-peer", form: "%.0f", bar: "20", command: "bench tokenizer --compare peers"})
		add(figure{what: "encoder, one thread, " + p + ", against tiktoken", pattern: "Tokenizer/.*" + p + "/peer=tiktoken", unit: "x-peer", form: "%.0f", bar: "20", command: "bench tokenizer --compare peers"})
		add(figure{what: "encoder, one thread, " + p + ", against gigatoken", pattern: "Tokenizer/.*" + p + "/peer=gigatoken", unit: "x-peer", form: "%.2f", bar: map[string]string{"cold": "0.9", "warm": "1.0"}[p], command: "bench tokenizer --compare peers --bytes 200000000"})
	}
	add(figure{what: "training of a vocabulary against Hugging Face tokenizers, CPU time", pattern: "TrainTokenizer/.*", unit: "x-peer", form: "%.1f", bar: "6", command: "bench train-tokenizer --compare peers"})
	return out
}

func loaderFigures() (out []figure) {
	add := func(f figure) { out = append(out, f) }
	for _, T := range []string{"512", "4096"} {
		cmd := "bench loader --tiers T0 --seq " + T
		for _, m := range []string{"fixed", "repack"} {
			bar := ""
			if T == "4096" {
				bar = "0.8"
			}
			add(figure{what: "rows of " + T + ", " + m + ", of a widening copy", pattern: "Loader/" + m + "/T=" + T, unit: "of-limit", form: "%.2f", bar: bar, command: cmd})
		}
		add(figure{what: "rows of " + T + ", repack against fixed", pattern: "Loader/repack/T=" + T, unit: "of-fixed", form: "%.2f", bar: "0.9", command: cmd})
	}
	cmd := "bench loader --tiers T1 --compare peers"
	add(figure{what: "whole batches, fixed, million tokens a CPU-second: gathered by the consumer", pattern: "Loader/tier=T1/mode=fixed/loader=refrain/set=gather/.*", unit: "tok/cpu-s", scale: 1e-6, form: "%.0f", command: cmd})
	add(figure{what: "whole batches, fixed, million tokens a CPU-second: through the chain of a run", pattern: "Loader/tier=T1/mode=fixed/loader=refrain/set=chain/.*", unit: "tok/cpu-s", scale: 1e-6, form: "%.0f", command: cmd})
	add(figure{what: "the chain of a run, of the rows gathered by the consumer", pattern: "Loader/tier=T1/mode=fixed/loader=refrain/set=chain/.*", unit: "of-gathered", form: "%.2f", command: cmd})
	add(figure{what: "its limit: buffers written by one goroutine and read by another, million tokens a CPU-second", pattern: "Loader/tier=T1/mode=fixed/loader=limit/set=hand-over/.*", unit: "tok/cpu-s", scale: 1e-6, form: "%.0f", command: cmd})
	add(figure{what: "limit of any loader: writing the ring with one row, million tokens a CPU-second", pattern: "Loader/tier=T1/mode=fixed/loader=limit/set=write/.*", unit: "tok/cpu-s", scale: 1e-6, form: "%.0f", command: cmd})
	add(figure{what: "that limit against torch, fixed, a CPU-second", pattern: "Loader/tier=T1/mode=fixed/loader=torch/.*", unit: "limit-x", form: "%.3g", command: cmd})
	for _, p := range RowPeers() {
		bar := "20"
		switch p.Name {
		case "numpy":
			bar = "1.2"
		case "llmc":
			bar = ""
		}
		add(figure{what: "ours (gathered) against " + p.Name + ", fixed, a CPU-second", pattern: "Loader/tier=T1/mode=fixed/loader=" + p.Name + "/.*", unit: "ours-x", form: "%.3g", bar: bar, command: cmd})
	}
	add(figure{what: "ours (gathered) against Grain, repack, a CPU-second", pattern: "Loader/tier=T2/mode=repack/loader=grain/.*", unit: "ours-x", form: "%.3g", bar: "20", command: "bench loader --tiers T2 --compare peers"})
	for _, p := range []string{"2ms", "5ms", "20ms"} {
		add(figure{what: "steps of " + p + " that found a batch", pattern: "Loader/tier=T4/mode=fixed/loader=refrain/.*/pace=" + p, unit: "found%", form: "%.0f", after: " %", bar: "100 %", command: "bench loader --tiers T4"})
	}
	return out
}

func ingestFigures() (out []figure) {
	add := func(f figure) { out = append(out, f) }
	add(figure{what: "ingest, of the encoder alone, wall time", pattern: "Ingest/.*/prepare", unit: "of-encoder", form: "%.2f", bar: "0.6", command: "bench ingest"})
	add(figure{what: "ingest after its files were found, of the encoder alone", pattern: "Ingest/.*/prepare", unit: "store-of-encoder", form: "%.2f", bar: "0.8", command: "bench ingest"})
	for _, p := range IngestPeers() {
		add(figure{what: "ingest against " + p.Name, pattern: "Ingest/.*/peer=" + p.Name, unit: "ours-x", form: "%.3g", bar: "15", command: "bench ingest --compare peers"})
	}
	return out
}

// stateFigures are of plans and checkpoints.
func stateFigures() (out []figure) {
	add := func(f figure) { out = append(out, f) }
	for _, p := range [][2]string{{"100000", "10 ms"}, {"1000000", "300 ms"}, {"10000000", "4000 ms"}} {
		add(figure{what: "epoch plan of " + p[0] + " documents, ms", pattern: "Plan/docs=" + p[0], unit: "ms", form: "%.1f", bar: p[1], command: "bench plan"})
		add(figure{what: "epoch plan of " + p[0] + " documents, bytes a document", pattern: "Plan/docs=" + p[0], unit: "B/doc", form: "%.1f", bar: "16", command: "bench plan"})
	}
	for _, p := range []string{"save", "load"} {
		add(figure{what: "checkpoint " + p + ", of a plain copy of the same bytes", pattern: "Ckpt/.*/" + p, unit: "of-copy", form: "%.2f", command: "bench ckpt"})
	}
	return out
}

// marks stand around the generated part of docs/performance.md.
const (
	beginMark = "<!-- results: written by refrain bench table, do not edit -->"
	endMark   = "<!-- results: end -->"
)

// Table returns the markdown table of the newest figures in dir. A figure that was
// never recorded has no row.
func Table(dir string) (string, error) {
	all, err := ReadRecords(dir)
	if err != nil {
		return "", err
	}
	var b strings.Builder
	b.WriteString("| figure | measured (quartiles) | bar | command: `refrain ...` | record |\n|---|---|---|---|---|\n")
	forced, dirty := false, false
	for _, f := range figures() {
		value, r, ok, err := f.newest(all)
		if err != nil {
			return "", err
		}
		if !ok {
			continue
		}
		mark := ""
		if r.Forced {
			mark, forced = " (f)", true
		}
		if strings.HasSuffix(r.Code, run.DirtyMark) {
			mark, dirty = mark+" (d)", true
		}
		fmt.Fprintf(&b, "| %s | %s | %s | `%s` | %s %.7s, %d cores, %s%s |\n", f.what, value, f.bar, f.command, r.Date[:10], r.Code, r.Cores, r.Kernels, mark)
	}
	if forced {
		b.WriteString("\n(f): recorded by force while others used the machine; ratios inside a round hold better than absolute figures.\n")
	}
	if dirty {
		b.WriteString("\n(d): the source differed from that revision.\n")
	}
	return b.String(), nil
}

// newest is the figure of the newest record that has it.
func (f figure) newest(all []Record) (value string, from Record, ok bool, err error) {
	re, err := regexp.Compile("^(" + f.pattern + ")$")
	if err != nil {
		return "", from, false, fmt.Errorf("pattern of %q: %w", f.what, err)
	}
	scale := f.scale
	if scale == 0 {
		scale = 1
	}
	for i := len(all) - 1; i >= 0; i-- {
		one, v := f.pick(all[i].Lines, re)
		if len(v) == 0 {
			continue
		}
		for k := range v {
			v[k] *= scale
		}
		lo, mid, hi := Quartiles(v)
		q1, has1 := one.Get(f.unit + "-q1")
		q3, has3 := one.Get(f.unit + "-q3")
		if len(v) == 1 && has1 && has3 {
			lo, hi = scale*q1, scale*q3
		}
		value = fmt.Sprintf(f.form, mid)
		if len(v) > 1 || has1 && has3 {
			value += fmt.Sprintf(" ("+f.form+"-"+f.form+")", lo, hi)
		}
		return value + f.after, all[i], true, nil
	}
	return "", from, false, nil
}

// pick returns the last line of the figure and its values, one for each line of that
// name. A loader may have two lines, for the settings that were best by wall and by CPU
// time: of ratios to it the smaller counts, of other figures the first line.
func (f figure) pick(lines []Line, re *regexp.Regexp) (one Line, v []float64) {
	for _, l := range lines {
		x, ok := l.Get(f.unit)
		switch {
		case !ok || !re.MatchString(l.Name):
		case len(v) > 0 && l.Name == one.Name:
			one, v = l, append(v, x)
		case len(v) == 0 || f.unit == "ours-x" && x < v[0]:
			one, v = l, []float64{x}
		}
	}
	return one, v
}

// Splice returns the page with the table between its marks.
func Splice(page []byte, table string) ([]byte, error) {
	before, rest, ok := bytes.Cut(page, []byte(beginMark))
	_, after, ok2 := bytes.Cut(rest, []byte(endMark))
	if !ok || !ok2 {
		return nil, errors.New("the page has no place for the table: " + beginMark + " and " + endMark)
	}
	return fmt.Appendf(nil, "%s%s\n%s%s%s", before, beginMark, table, endMark, after), nil
}

// WriteTable brings the table in page up to date with the records in dir.
func WriteTable(page, dir string) error {
	table, err := Table(dir)
	if err != nil {
		return err
	}
	old, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	text, err := Splice(old, table)
	if err != nil {
		return fmt.Errorf("%s: %w", page, err)
	}
	return fsx.WriteFileAtomic(fsx.OS{}, page, text)
}
