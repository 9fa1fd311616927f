package train_test

import (
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"math"
	"slices"
	"strings"
	"testing"

	"refrain/gpu"
	"refrain/gpu/host"
	"refrain/model"
	"refrain/train"
)

// noisyOptions are tinyOptions with dropout and a loss on masked rows.
func noisyOptions(devices int) train.Options {
	o := tinyOptions(devices)
	o.Dropout = 0.2
	o.Masked = train.Masked{Weight: 0.4, To: 0.5, ID: -1, Vocab: o.Model.Vocab}
	return o
}

// TestNoiseBitsDoNotDependOnDevicesOrThreads is DESIGN D6 for masks: devices, threads and
// micro-steps all see the same ones.
func TestNoiseBitsDoNotDependOnDevicesOrThreads(t *testing.T) { sameBits(t, noisyOptions) }

// TestNoiseRestoreEqualsNeverStopped: a step's masks follow from its number, so a
// checkpoint need not hold any state of a generator.
func TestNoiseRestoreEqualsNeverStopped(t *testing.T) { restoreEquals(t, noisyOptions) }

// TestNoiseInHalf: the same in mixed precision, with each kind alone.
func TestNoiseInHalf(t *testing.T) {
	for _, name := range []string{"dropout", "masked"} {
		options := func(devices, micro int) train.Options {
			o := noisyOptions(devices)
			o.Policy, o.Micro = model.Policy{Act: gpu.BF16}, micro
			if name == "dropout" {
				o.Masked = train.Masked{}
			} else {
				o.Dropout = 0
			}
			return o
		}
		a, b := newRig(t, options(1, 1), host.Config{Threads: 1}), newRig(t, options(2, 2), host.Config{Threads: 2})
		x, y := a.run(4), b.run(4)
		if !slices.Equal(x, y) || !slices.Equal(bits(a.snapshot(false).Weights), bits(b.snapshot(false).Weights)) {
			t.Errorf("%s: two devices with two micro-steps differ from one with one", name)
		}
	}
}

// TestPlainBitsStay: a run without noise has the weights it had before there was any,
// with every set of kernels.
func TestPlainBitsStay(t *testing.T) {
	r := newRig(t, tinyOptions(2), host.Config{Threads: 2})
	res := r.run(6)
	h := sha256.New()
	if err := binary.Write(h, binary.LittleEndian, bits(r.snapshot(false).Weights)); err != nil {
		t.Fatal(err)
	}
	if got, loss := hex.EncodeToString(h.Sum(nil))[:16], math.Float64bits(res[5].Loss); got != "728297c6edf5c517" || loss != 4616443375460024320 {
		t.Errorf("weights have the hash %s and the loss the bits %d; a plain step computes something else now", got, loss)
	}
	if res[5].Masked != 0 {
		t.Errorf("a masked loss of %v without masked rows", res[5].Masked)
	}
}

// TestNoiseTrains: with noise the loss falls, masks change from step to step and with the
// seed, and the masked rows are harder than the clean ones.
func TestNoiseTrains(t *testing.T) {
	o := noisyOptions(1)
	o.Steps = 60
	res := newRig(t, o, host.Config{Threads: 2}).run(60)
	if first, last := res[0], res[59]; last.Loss > first.Loss-0.3 || last.Masked > first.Masked-0.1 || last.Masked < last.Loss {
		t.Errorf("losses went from %.3f, masked %.3f, to %.3f, masked %.3f", first.Loss, first.Masked, last.Loss, last.Masked)
	}
	norms := func(o train.Options) (n [2]float64) {
		r := newRig(t, o, host.Config{Threads: 1})
		// The same windows twice, at a learning rate that changes next to nothing.
		fill := r.fill
		r.fill = func(g int64, vocab int, tokens, targets []int32, starts []byte) int {
			return fill(g%int64(o.Batch), vocab, tokens, targets, starts)
		}
		for i, s := range r.run(2) {
			n[i] = s.Norm
		}
		return n
	}
	o = tinyOptions(1)
	o.Optim.LR, o.Dropout = 1e-12, 0.2
	a := norms(o)
	o.Dropout = 0
	if plain := norms(o); math.Abs(plain[0]-plain[1]) > 1e-6 || math.Abs(a[0]-a[1]) < 1e-3 {
		t.Errorf("norms of one batch twice: %v, with dropout %v; the masks of two steps must differ", plain, a)
	}
}

// TestNoiseFootprint: dropout stores no masks: it costs one gradient of a branch; a
// second loss doubles what the rows take.
func TestNoiseFootprint(t *testing.T) {
	arena := func(change func(o *train.Options)) int64 {
		o := tinyOptions(1)
		o.Batch, o.Model.Layers = 64, 6
		change(&o)
		n, err := train.Footprint(&o)
		if err != nil {
			t.Fatal(err)
		}
		for _, u := range n.Memory {
			if u.Label == "activations" {
				return u.Bytes
			}
		}
		t.Fatal("no activations")
		return 0
	}
	plain := arena(func(*train.Options) {})
	row := int64(64*16*32) * 4 // a residual stream
	if d := arena(func(o *train.Options) { o.Dropout = 0.1 }) - plain; d < 0 || d > row {
		t.Errorf("dropout takes %d bytes more, at most %d are needed", d, row)
	}
	if d := float64(arena(func(o *train.Options) { o.Masked = noisyOptions(1).Masked })) / float64(plain); d < 1.7 || d > 2.2 {
		t.Errorf("masked rows take %.2f times the memory, want about 2", d)
	}
}

func TestNoiseOptions(t *testing.T) {
	for want, change := range map[string]func(o *train.Options){
		"dropout is 1; it must be in [0, 0.99]":     func(o *train.Options) { o.Dropout = 1 },
		"dropout is NaN":                            func(o *train.Options) { o.Dropout = math.NaN() },
		"the weight of the masked loss is -1":       func(o *train.Options) { o.Masked.Weight = -1 },
		"masked inputs: a share from 0.6 to 0.5":    func(o *train.Options) { o.Masked.From = 0.6 },
		"masked inputs: 62 ids to draw from":        func(o *train.Options) { o.Masked.Vocab = 62 },
		"masked inputs: the id 61 is outside [0, 6": func(o *train.Options) { o.Masked.ID = 61 },
	} {
		o := noisyOptions(1)
		change(&o)
		if err := o.Validate(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q", err, want)
		}
	}
}
