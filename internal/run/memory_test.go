package run_test

import (
	"math"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"refrain/gpu/host"
	"refrain/internal/run"
)

// mib is what sizes below are given in.
const mib = 1 << 20

// TestNeedMemory holds the forecast against what the devices of a run hand out.
func TestNeedMemory(t *testing.T) {
	dir := makeStore(t, 64)
	for _, devices := range []string{"1", "2"} {
		s := setup(t, dir, "train.devices="+devices, "train.steps=2", "train.epochs=null", "eval.batch=3")
		need, err := s.NeedMemory(&s.Options, s.Config.Eval.Batch)
		if err != nil {
			t.Fatal(err)
		}
		want, packed := int64(0), int64(0)
		for _, u := range need.Uses {
			switch u.Label {
			case "batches being read", "checkpoint copy", "evaluation copies", "documents and their order", "program":
			case "packed operands":
				packed = u.Bytes
			default:
				want += u.Bytes
			}
		}
		got, scratch := int64(0), int64(0)
		job := run.Job{Setup: s, Out: filepath.Join(t.TempDir(), "run"), OnStart: func(r *run.Running) {
			for _, d := range r.Devices {
				for _, u := range d.Memory() {
					if u.Label == "scratch" {
						scratch += u.Bytes
						continue
					}
					got += u.Bytes
				}
			}
		}}
		if _, err := run.Train(t.Context(), job); err != nil {
			t.Fatal(err)
		}
		// The pinned part of an evaluation is no device's: a batch of 3 rows and its losses.
		if pinned := want - got; pinned <= 0 || pinned > 3*16*16 {
			t.Errorf("%s devices hand out %d bytes, %d were forecast", devices, got, want)
		}
		if scratch == 0 || scratch > 2*packed || packed > 2*scratch {
			t.Errorf("%s devices pack operands into %d bytes, %d were forecast", devices, scratch, packed)
		}
	}
}

var settings = regexp.MustCompile(`set ((?:[a-z_.]+=[0-9]+ ?)+), which needs`)

// TestCheckMemory makes up machines. What a run lacks is named before it starts, and
// the settings that the message proposes do make it fit.
func TestCheckMemory(t *testing.T) {
	dir := makeStore(t, 64)
	// Large rows, so that activations weigh: about 40 MB of them.
	big := []string{"train.batch=32", "data.seq=64", "eval.batch=8", "model.dim=64", "model.ffn=512"}
	s := setup(t, dir, big...)
	m, err := s.NeedMemory(&s.Options, 8)
	if err != nil {
		t.Fatal(err)
	}
	need := m.Total()
	if need < 80*mib || need > 400*mib {
		t.Fatalf("the run needs %d bytes; the cases below are made for about 100 MB", need)
	}
	machine := host.MemoryLimit{What: "the machine", Bytes: 1 << 40, Free: 1 << 40}
	group := func(bytes, free int64) host.MemoryLimit {
		return host.MemoryLimit{What: "the control group /x", Bytes: bytes, Free: free}
	}
	own := func(free int64) host.MemoryLimit {
		return host.MemoryLimit{What: "ulimit -v", Bytes: 1 << 40, Free: free, Own: true}
	}
	for name, c := range map[string]struct {
		limits  []host.MemoryLimit
		goLimit int64
		refused string // a part of the error
		noted   string // a part of the only note
		mends   bool   // the message has settings that help
	}{
		"plenty":                   {limits: []host.MemoryLimit{machine, group(need, need)}},
		"nothing known":            {},
		"a byte too little":        {limits: []host.MemoryLimit{machine, group(need-1, need-1)}, refused: "the control group /x allows", mends: true},
		"the machine is too small": {limits: []host.MemoryLimit{{What: "the machine", Bytes: need - 2*mib, Free: need - 2*mib}}, refused: "the machine allows", mends: true},
		"the tightest is named":    {limits: []host.MemoryLimit{group(need-1, 0), own(10 * mib)}, refused: "ulimit -v allows 1 TiB, of which 10 MiB are left"},
		"others use it":            {limits: []host.MemoryLimit{group(2*need, need-mib)}, noted: "unless others give some back", mends: true},
		"the address space has room for the run but not for its start": {limits: []host.MemoryLimit{own(need + mib)}, refused: "reserved by the start"},
		"nothing helps":             {limits: []host.MemoryLimit{group(mib, mib)}, refused: "choose a smaller model or data.seq"},
		"Go's limit below the heap": {limits: []host.MemoryLimit{machine}, goLimit: mib, noted: "GOMEMLIMIT is 1 MiB"},
	} {
		t.Run(name, func(t *testing.T) {
			if c.goLimit == 0 {
				c.goLimit = math.MaxInt64
			}
			notes, err := s.CheckMemory(c.limits, c.goLimit)
			said := strings.Join(notes, "\n")
			if (len(notes) > 0) != (c.noted != "") || !strings.Contains(said, c.noted) {
				t.Errorf("notes %q, want one with %q", notes, c.noted)
			}
			if (err != nil) != (c.refused != "") {
				t.Fatalf("%v, want %q", err, c.refused)
			}
			if err != nil {
				if said = err.Error(); run.ExitCode(err) != run.ExitUsage || !strings.Contains(said, c.refused) {
					t.Errorf("exit code %d, %q; want %q", run.ExitCode(err), said, c.refused)
				}
				for _, label := range []string{"activations", "moments", "checkpoint copy", "evaluation"} {
					if !strings.Contains(said, "  "+label) {
						t.Errorf("%q does not list %s", said, label)
					}
				}
			}
			if !c.mends {
				return
			}
			set := settings.FindStringSubmatch(said)
			if set == nil {
				t.Fatalf("%q proposes nothing", said)
			}
			less := setup(t, dir, append(big, strings.Fields(set[1])...)...)
			if notes, err := less.CheckMemory(c.limits, c.goLimit); err != nil || len(notes) > 0 {
				t.Errorf("with %s: %q, %v", set[1], notes, err)
			}
		})
	}
}

// TestTooLargeForMemory makes up machines for a store of 10 GiB.
func TestTooLargeForMemory(t *testing.T) {
	const size = 10 << 30
	for name, c := range map[string]struct {
		limits []host.MemoryLimit
		want   bool
	}{
		"unknown":                      {nil, false},
		"a large machine":              {[]host.MemoryLimit{{What: "the machine", Bytes: 64 << 30}}, false},
		"just enough":                  {[]host.MemoryLimit{{What: "the machine", Bytes: 2 * size}}, false},
		"a byte less":                  {[]host.MemoryLimit{{What: "the machine", Bytes: 2*size - 2}}, true},
		"a small container in it":      {[]host.MemoryLimit{{What: "the machine", Bytes: 64 << 30}, {What: "the control group /x", Bytes: 8 << 30}}, true},
		"address space, which is none": {[]host.MemoryLimit{{What: "the machine", Bytes: 64 << 30}, {What: "ulimit -v", Bytes: 12 << 30, Own: true}}, false},
	} {
		if got := run.TooLargeForMemory(size, c.limits); got != c.want {
			t.Errorf("%s: %t", name, got)
		}
	}
}
