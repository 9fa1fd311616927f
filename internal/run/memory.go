package run

import (
	"errors"
	"fmt"
	"math"
	"runtime/debug"
	"strings"

	"refrain/gpu/host"
	"refrain/internal/fsx"
	"refrain/stages/item"
	"refrain/store"
	"refrain/train"
	"refrain/train/eval"
)

// ringSize is the number of batches in pinned memory, evalSnaps that of copies of the
// weights for evaluations: one is being evaluated, one waits, one is being taken.
const (
	ringSize  = 4
	evalSnaps = 3
)

// Memory is what a run takes while it trains, by what it is for, over all its devices.
// On the CPU all of it is this machine's.
type Memory struct {
	Uses []train.Use
	Heap int64 // of Total, what lies in Go's heap on every system
	// Passing goes through Go's heap at the start and is given back, beside Total at no
	// time; a limit on the address space counts it for ever.
	Passing int64
}

// Total adds up the uses.
func (m *Memory) Total() (n int64) {
	for _, u := range m.Uses {
		n += u.Bytes
	}
	return n
}

// programBytes is what the program itself takes, with the heap of a small run: 50 to
// 70 MB were measured on Linux.
const programBytes = 64 << 20

// packBytes is what kernels pack operands into, a thread: 3.5 MB were measured, and
// 2 MB more a device.
const packBytes = 4 << 20

// passingBytes are what Go reserves beside: spans of its heap that are half empty, and
// stacks of threads.
const passingBytes = 128 << 20

// against is what counts against a limit.
func (m *Memory) against(l host.MemoryLimit) int64 {
	if l.Own {
		return m.Total() + m.Passing
	}
	return m.Total()
}

// room is the most that the run may take under a limit: others may give back what they
// use, but this process cannot have more than it is left.
func room(l host.MemoryLimit) int64 {
	if l.Own {
		return l.Free
	}
	return l.Bytes
}

// NeedMemory says what a run of s takes with these options and that many rows in an
// evaluation. It is a sum of allocations, and not a guess, but for the last two.
func (s *Setup) NeedMemory(o *train.Options, evalRows int) (*Memory, error) {
	fp, err := train.Footprint(o)
	if err != nil {
		return nil, err
	}
	m := &Memory{}
	for _, u := range fp.Memory {
		m.Uses = append(m.Uses, train.Use{Label: u.Label, Bytes: u.Bytes * int64(o.Devices)})
	}
	weights := int64(o.Model.Layout().Total) * 4
	ring := item.Layout{N: o.Batch, T: o.T}.Bytes() * ringSize
	m.Uses = append(m.Uses, train.Use{Label: "batches being read", Bytes: ring}, train.Use{Label: "checkpoint copy", Bytes: 3 * weights})
	index := 20 * int64(s.Train.NumDocs())
	if s.Val != nil {
		index += 20 * int64(s.Val.NumDocs())
	}
	orders := 3 * 8 * (int64(s.Corpus.NumDocs()) + s.Stream.WindowsPerEpoch())
	if s.Mix != nil {
		docs := int64(s.Synth.NumDocs())
		index += 20 * docs
		orders += 3 * 8 * (docs + s.Mix.Synthetic().WindowsPerEpoch())
	}
	if s.Set != nil {
		dev, pinned, err := eval.Footprint(s.evalConfig(o, evalRows))
		if err != nil {
			return nil, usage(err) // eval.batch is too large
		}
		m.Uses = append(m.Uses, train.Use{Label: "evaluation", Bytes: dev + pinned}, train.Use{Label: "evaluation copies", Bytes: evalSnaps * weights})
		orders += 8 * (int64(s.Set.NumDocs()) + s.Set.Rows())
	}
	threads := max(numThreads(), o.Devices)
	if n := s.Config.Train.Threads; n > 0 {
		threads = n * o.Devices
	}
	m.Uses = append(m.Uses, train.Use{Label: "documents and their order", Bytes: index + orders},
		train.Use{Label: "packed operands", Bytes: packBytes * int64(threads)}, train.Use{Label: "program", Bytes: programBytes})
	m.Passing = 6*weights + passingBytes
	m.Heap = index + orders + programBytes/2
	return m, nil
}

// openStore maps the store in dir, which costs no memory that the system cannot take
// back. The memory of the machine decides whether its rows are fetched ahead.
func openStore(dir string) (*store.Store, error) {
	m, err := store.ReadManifest(fsx.OS{}, dir)
	if err != nil {
		return store.Open(dir, store.OpenOptions{}) // which says what is wrong in full
	}
	size := int64(0)
	for _, sh := range m.Shards {
		size += sh.Bytes
	}
	return store.Open(dir, store.OpenOptions{ReadAhead: TooLargeForMemory(size, host.MemoryLimits())})
}

// TooLargeForMemory tells whether a store of that many bytes will not stay in the page
// cache beside a run: it takes more than half of the memory, be it the machine's or a
// control group's. Rows at random places then come from disk, in every epoch again.
func TooLargeForMemory(size int64, limits []host.MemoryLimit) bool {
	for _, l := range limits {
		if !l.Own && size > l.Bytes/2 {
			return true
		}
	}
	return false
}

// evalConfig is how a run with these options evaluates.
func (s *Setup) evalConfig(o *train.Options, rows int) eval.Config {
	return eval.Config{Model: o.Model, B: rows, T: o.T, DocMask: o.DocMask, ResetPositions: o.ResetPositions, Policy: o.Policy}
}

// checkMemory is CheckMemory with the limits of this process.
func (s *Setup) checkMemory() (notes []string, err error) {
	goLimit := debug.SetMemoryLimit(-1)
	if goLimit == host.TotalMemory()/2 { // the program's own choice, for an ingest
		goLimit = math.MaxInt64
	}
	return s.CheckMemory(host.MemoryLimits(), goLimit)
}

// CheckMemory compares what the run needs with what there is, before anything starts.
// A limit that is too small for the run is an error of the configuration: it lists the
// needs by label, the limit, and the setting that would make the run fit. Memory that
// others use at the moment is worth a note only, since they may be gone soon; so is
// Go's own limit, which it obeys by collecting garbage more often.
func (s *Setup) CheckMemory(limits []host.MemoryLimit, goLimit int64) (notes []string, err error) {
	m, err := s.NeedMemory(&s.Options, s.Config.Eval.Batch)
	if err != nil {
		return nil, err
	}
	var tight *host.MemoryLimit
	for _, l := range limits {
		need := m.against(l)
		switch {
		case need > room(l):
			if tight == nil || need-room(l) > m.against(*tight)-room(*tight) {
				tight = &l
			}
		case need > l.Free:
			notes = append(notes, fmt.Sprintf("the run needs %s of memory, and of the %s that %s has, %s are free: unless others give some back, it may be killed; %s",
				BytesText(need), BytesText(l.Bytes), l.What, BytesText(l.Free), s.lessMemory(l, l.Free)))
		}
	}
	if m.Heap > goLimit {
		notes = append(notes, fmt.Sprintf("GOMEMLIMIT is %s, and the Go heap of this run needs about %s: garbage will be collected all the time; raise it", BytesText(goLimit), BytesText(m.Heap)))
	}
	if tight == nil {
		return notes, nil
	}
	var b strings.Builder
	fmt.Fprintf(&b, "the run needs %s of memory, and %s allows %s", BytesText(m.against(*tight)), tight.What, BytesText(tight.Bytes))
	if tight.Own {
		fmt.Fprintf(&b, ", of which %s are left", BytesText(tight.Free))
	}
	for _, u := range m.Uses {
		fmt.Fprintf(&b, "\n  %10s  %s", BytesText(u.Bytes), u.Label)
	}
	if tight.Own {
		fmt.Fprintf(&b, "\n  %10s  reserved by the start", BytesText(m.Passing))
	}
	fmt.Fprintf(&b, "\n%s, or raise the limit", s.lessMemory(*tight, room(*tight)))
	return notes, usage(errors.New(b.String()))
}

// BytesText prints a size in binary units.
func BytesText(n int64) string {
	x, unit := float64(n), "B"
	for _, u := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if x < 1024 {
			break
		}
		x, unit = x/1024, u
	}
	return fmt.Sprintf("%.4g %s", x, unit)
}

// lessMemory names the settings with which the run takes no more than most of l. They
// are tried from the one that costs least; none of the first changes a weight.
func (s *Setup) lessMemory(l host.MemoryLimit, most int64) string {
	rows := s.Options.Batch / s.Options.Devices
	least := int64(0)
	for _, devices := range []int{s.Options.Devices, 1} {
		for micro := s.Options.Micro; micro <= s.Options.Batch/devices; micro *= 2 {
			o := s.Options
			o.Devices, o.Micro = devices, micro
			rows = o.Batch / devices / micro
			evalRows := min(s.Config.Eval.Batch, rows)
			need, err := s.NeedMemory(&o, evalRows)
			if err != nil {
				continue // not every number of rows divides the shards
			}
			least = need.against(l)
			if least > most {
				continue
			}
			set := fmt.Sprintf("set train.micro_batch=%d", rows)
			if evalRows != s.Config.Eval.Batch {
				set += fmt.Sprintf(" eval.batch=%d", evalRows)
			}
			if devices != s.Options.Devices {
				set += fmt.Sprintf(" train.devices=%d", devices)
			}
			return fmt.Sprintf("%s, which needs %s and gives the same weights", set, BytesText(least))
		}
	}
	if least == 0 {
		return "choose a smaller model or data.seq"
	}
	return fmt.Sprintf("even with train.devices=1, train.micro_batch=%d and eval.batch=%d it would need %s: choose a smaller model or data.seq", rows, min(s.Config.Eval.Batch, rows), BytesText(least))
}
