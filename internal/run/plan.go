package run

import (
	"encoding/json"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"refrain/gpu"
	"refrain/gpu/host"
	"refrain/internal/fsx"
	"refrain/internal/par"
	"refrain/kernels/asm"
	"refrain/model"
	"refrain/train"
)

// Plan is what a configuration will do, known without doing it.
type Plan struct {
	Params       int             `json:"params"`
	BodyParams   int             `json:"params_without_embeddings"`
	Steps        int64           `json:"steps"`
	Epochs       float64         `json:"epochs"`
	Tokens       int64           `json:"tokens"`
	StepTokens   int64           `json:"tokens_per_step"`
	EpochWindows int64           `json:"windows_per_epoch"`
	UniqueTokens int64           `json:"unique_tokens"`
	Documents    int             `json:"documents"`
	Shards       int             `json:"logical_shards"`
	MicroRows    int             `json:"micro_batch_rows"`
	Devices      int             `json:"devices"`
	TokenFLOPs   float64         `json:"flops_per_token"`
	TotalFLOPs   float64         `json:"flops_total"`
	Memory       []train.Use     `json:"memory_per_device"`
	MemoryBytes  int64           `json:"memory_per_device_bytes"`
	Run          []train.Use     `json:"memory"` // of everything, over all devices
	RunBytes     int64           `json:"memory_bytes"`
	Limits       []Limit         `json:"memory_limits"`
	Notes        []string        `json:"memory_notes,omitempty"`
	PeakFLOPs    float64         `json:"peak_flops_measured"` // of all threads, FLOP/s
	Share        float64         `json:"share_of_peak_assumed"`
	Seconds      float64         `json:"seconds"`
	Precision    string          `json:"precision"`
	DataHash     string          `json:"data_hash"`
	ConfigHash   string          `json:"config_hash"`
	Decay        []train.DecayOf `json:"decay"`

	// TooLittle is why the run cannot start here: a limit on memory below what it needs.
	TooLittle error `json:"-"`
}

// Limit is a bound on the memory of this process.
type Limit struct {
	What  string `json:"what"`
	Bytes int64  `json:"bytes"`
	Free  int64  `json:"free_bytes"`
}

// assumedShare is the share of the measured peak that a step is expected to
// reach; docs/performance.md has what steps of the micro models reached.
const assumedShare = 0.5

// NewPlan computes the plan of s. It measures the peak of the machine, which
// takes about a tenth of a second, and starts nothing.
func NewPlan(s *Setup) (*Plan, error) {
	o := &s.Options
	fp, err := train.Footprint(o)
	if err != nil {
		return nil, err
	}
	l := o.Model.Layout()
	p := &Plan{
		Params: l.Total, BodyParams: l.BodyParams(), Steps: o.Steps, StepTokens: int64(o.Batch) * int64(o.T),
		EpochWindows: s.Stream.WindowsPerEpoch(), UniqueTokens: s.Stream.NumTokens(), Documents: s.Corpus.NumDocs(),
		Shards: o.Shards, MicroRows: o.Batch / o.Devices / o.Micro, Devices: o.Devices,
		Memory: fp.Memory, Precision: s.Config.Train.Precision, DataHash: s.DataHash, ConfigHash: s.ConfigHash(),
		Share: assumedShare, Decay: train.DecayTable(o),
	}
	p.Tokens = p.Steps * p.StepTokens
	p.Epochs = s.Feed.Epochs(p.Steps * int64(o.Batch))
	for _, u := range p.Memory {
		p.MemoryBytes += u.Bytes
	}
	need, err := s.NeedMemory(o, s.Config.Eval.Batch)
	if err != nil {
		return nil, err
	}
	p.Run, p.RunBytes = need.Uses, need.Total()
	for _, l := range host.MemoryLimits() {
		p.Limits = append(p.Limits, Limit{l.What, l.Bytes, l.Free})
	}
	p.Notes, p.TooLittle = s.checkMemory()
	if text := s.mixtureText(); text != "" {
		p.Notes = append(p.Notes, text)
	}
	if s.Train.ReadsAhead() {
		p.Notes = append(p.Notes, "the store takes more than half of the memory: its rows come from disk in every epoch, fetched a few batches ahead; data.subset.tokens=N reads a part of it")
	}
	p.TokenFLOPs = fp.Cost.FLOPs * float64(o.Devices) / float64(p.StepTokens)
	p.TotalFLOPs = p.TokenFLOPs * float64(p.Tokens)
	threads := s.Config.Train.Threads * o.Devices
	p.PeakFLOPs = MeasurePeak(threads, o.Policy)
	if p.PeakFLOPs > 0 {
		p.Seconds = p.TotalFLOPs / (p.PeakFLOPs * p.Share)
	}
	return p, nil
}

// WritePlan leaves plan.json in the run folder out, unless it is there: what was
// expected before the first step, to be held against what came.
func WritePlan(s *Setup, out string) error {
	path := filepath.Join(out, PlanFile)
	if there, err := fsx.Exists(fsx.OS{}, path); there || err != nil {
		return err
	}
	p, err := NewPlan(s)
	if err != nil {
		return err
	}
	b, err := json.MarshalIndent(p, "", "  ")
	if err != nil {
		return err
	}
	return fsx.WriteFileAtomic(fsx.OS{}, path, append(b, '\n'))
}

// MeasurePeak times register-only multiply-adds of the operands of pol on that many
// threads (0: all) for about 50 ms and returns FLOP/s: the ceiling of any product
// here, now.
func MeasurePeak(threads int, pol model.Policy) float64 {
	round, n := asm.FMAPeak, 100_000 // about 0.4 ms
	if pol.Act == gpu.BF16 {
		round, n = asm.PeakBF16, 50_000
	}
	if threads <= 0 {
		threads = numThreads()
	}
	pool := par.New(threads)
	defer pool.Close()
	flops := make([]int, threads*16) // one cache line a thread
	best := 0.0
	for range 5 {
		t0 := time.Now()
		pool.Run(func(w int) {
			sum := 0
			for range 25 {
				sum += round(n)
			}
			flops[w*16] = sum
		})
		total := 0
		for w := range threads {
			total += flops[w*16]
		}
		best = max(best, float64(total)/time.Since(t0).Seconds())
	}
	return best
}

// Header returns the lines that a run begins with. peak is the measured peak
// of all threads in FLOP/s.
func Header(s *Setup, out string, peak float64) []string {
	o, l := &s.Options, s.Options.Model.Layout()
	m := o.Model
	tie := "untied"
	if m.Tie {
		tie = "tied"
	}
	val := "no validation store"
	if s.Set != nil {
		val = fmt.Sprintf("validation %d rows", s.Set.Rows())
	}
	weights := "init " + string(m.Init)
	if s.Base != nil {
		weights = fmt.Sprintf("from %s (%.8s)", s.Base.Dir, s.Base.Hash)
	}
	origin := "built in memory"
	if s.Resolved != nil {
		origin = s.Resolved.Path
	}
	d := &s.Config.Data
	mixed := ""
	if s.Mix != nil {
		mixed = fmt.Sprintf("  %g %% of the rows from %s, in blocks of %d", 100*d.Synthetic.Fraction, d.Synthetic.Store, s.Mix.Block())
	}
	lines := []string{
		fmt.Sprintf("config  %s  hash %.8s  out %s", origin, s.ConfigHash(), out),
		fmt.Sprintf("data    %s  %d docs  %s tok  epoch = %d rows x %d  %s  seed %d  %s%s", d.Store, s.Corpus.NumDocs(), count(s.Stream.NumTokens()), s.Stream.WindowsPerEpoch(), o.T, d.Mode, *d.Seed, val, mixed),
		fmt.Sprintf("model   llama L%d d%d h%d kv%d f%d V%d %s  %s params (%s without embeddings)  %s", m.Layers, m.Dim, m.Heads, m.KVHeads, m.FFN, m.Vocab, tie, count(int64(l.Total)), count(int64(l.BodyParams())), weights),
		fmt.Sprintf("optim   adamw lr %g  betas %g %g  clip %g  warm-up %d  decay %s", o.Optim.LR, o.Optim.Beta1, o.Optim.Beta2, o.Optim.Clip, o.Optim.Warmup, decayText(o)),
		fmt.Sprintf("budget  %.4g epochs = %s tok = %d steps x %d  %d shards on %d device(s)  %s", s.Feed.Epochs(o.Steps*int64(o.Batch)), count(o.Steps*int64(o.Batch)*int64(o.T)), o.Steps, o.Batch*o.T, o.Shards, o.Devices, s.Config.Train.Precision),
	}
	if n := noiseText(o); n != "" {
		lines = append(lines, "noise   "+n)
	}
	if text := s.teachersText(); text != "" {
		lines = append(lines, text)
	}
	lines = append(lines,
		fmt.Sprintf("machine %s  kernels %s  %s peak %.0f GFLOP/s", CPUName(), asm.Kernels(), o.Policy, peak/1e9),
	)
	return lines
}

func decayText(o *train.Options) string {
	var parts []string
	for _, d := range train.DecayTable(o) {
		parts = append(parts, fmt.Sprintf("%s %g", d.Role, d.Decay))
	}
	return strings.Join(parts, ", ")
}

// count prints a number with a unit and three significant digits.
func count(n int64) string {
	x := float64(n)
	switch {
	case n >= 1e9:
		return fmt.Sprintf("%.3g G", x/1e9)
	case n >= 1e6:
		return fmt.Sprintf("%.3g M", x/1e6)
	case n >= 1e4:
		return fmt.Sprintf("%.3g k", x/1e3)
	}
	return fmt.Sprint(n)
}
