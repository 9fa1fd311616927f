package generate

import (
	"strings"
	"testing"

	"refrain/gpu"
	"refrain/gpu/host"
	"refrain/internal/run"
	"refrain/model"
)

// TestMemory: what does not fit is refused before it is allocated, with a number of documents
// that does fit.
func TestMemory(t *testing.T) {
	m := model.Config{Vocab: 4096, Layers: 8, Dim: 512, Heads: 8, KVHeads: 8, FFN: 2048, MaxT: 4096, RopeTheta: 10000, NormEps: 1e-5, Init: model.InitPapers}
	c := Config{
		Teachers: []Teacher{{Model: m}, {Model: m}}, Mode: Average, Rule: Rule{MaxLength: 4096}, Temperature: 1,
		Documents: 1, Slots: 64, Devices: make([]gpu.Device, 1),
	}
	need := func(slots int) int64 {
		t.Helper()
		d := c
		d.Slots = slots
		n, err := Footprint(d)
		if err != nil {
			t.Fatal(err)
		}
		return n + 8*int64(m.Layout().Total) + programBytes
	}
	if caches := int64(2 * 64 * 2 * 8 * 4096 * 512 * 4); need(64) < caches || need(64) > 2*caches {
		t.Errorf("%d bytes for caches of %d", need(64), caches)
	}
	limit := func(n int64) []host.MemoryLimit {
		return []host.MemoryLimit{{What: "the shed", Bytes: n, Free: n / 2}}
	}
	if err := checkMemory(c, limit(need(64))); err != nil {
		t.Error(err)
	}
	for _, v := range []struct {
		room int64
		want string
	}{{need(64) - 1, "use --batch 63"}, {need(10), "use --batch 10"}, {need(1), "use --batch 1,"}, {need(1) - 1, "use a smaller --max-length, or fewer runs"}} {
		err := checkMemory(c, limit(v.room))
		if err == nil || !strings.Contains(err.Error(), "the shed allows") || !strings.Contains(err.Error(), v.want) || run.ExitCode(err) != run.ExitUsage {
			t.Errorf("%d bytes: %v, want %q", v.room, err, v.want)
		}
	}
	own := []host.MemoryLimit{{What: "ulimit -v", Bytes: 2 * need(64), Free: need(20), Own: true}}
	if err := checkMemory(c, own); err == nil || !strings.Contains(err.Error(), "use --batch 20") {
		t.Errorf("an own limit: %v", err)
	}
}
