package generate

import (
	"fmt"
	"sort"

	"refrain/gpu/host"
	"refrain/internal/run"
	"refrain/train/eval"
)

// programBytes is what the program itself takes beside what it is asked for.
const programBytes = 64 << 20

// Footprint returns the bytes that generation takes on all devices together: weights, caches
// for all positions of all slots, activations.
func Footprint(c Config) (bytes int64, err error) {
	if err := c.check(); err != nil {
		return 0, fmt.Errorf("generate: %w", err)
	}
	if c.Slots == 0 {
		c.Slots = DefaultSlots
	}
	for _, u := range newBatch(c, nil).units {
		n, err := eval.DecoderFootprint(u.conf)
		if err != nil {
			return 0, fmt.Errorf("generate: %w", err)
		}
		bytes += n
	}
	return bytes, nil
}

// checkMemory compares what the devices take, all of which is this machine's on the CPU, with
// what there is, before anything is allocated. Weights go through the heap and pinned memory
// on their way, one model at a time.
func checkMemory(c Config, limits []host.MemoryLimit) error {
	passing := int64(0)
	for _, t := range c.Teachers {
		passing = max(passing, 2*4*int64(t.Model.Layout().Total))
	}
	need := func(slots int) (int64, error) {
		c.Slots = slots
		n, err := Footprint(c)
		return n + passing + programBytes, err
	}
	slots := c.Slots
	all, err := need(slots)
	if err != nil {
		return err
	}
	for _, l := range limits {
		room := l.Bytes
		if l.Own {
			room = l.Free
		}
		if all <= room {
			continue
		}
		// The first number of documents that is too many, of those up to slots.
		fits := sort.Search(slots-1, func(i int) bool { n, err := need(i + 1); return err != nil || n > room })
		way := fmt.Sprintf("use --batch %d", fits)
		if fits == 0 {
			one, err := need(1)
			if err != nil {
				return err
			}
			way = fmt.Sprintf("one document at a time needs %s; use a smaller --max-length, or fewer runs", run.BytesText(one))
		}
		return &run.Error{Code: run.ExitUsage, Err: fmt.Errorf("%d documents of up to %d tokens at a time from %d models need %s of memory, and %s allows %s: %s, or raise the limit",
			slots, c.Rule.MaxLength, len(c.Teachers), run.BytesText(all), l.What, run.BytesText(room), way)}
	}
	return nil
}
