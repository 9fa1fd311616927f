package train_test

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"refrain/gpu"
	"refrain/gpu/host"
	"refrain/train"
	"refrain/train/ckpt"
	"refrain/train/eval"
)

// TestSnapshotIsOfItsStep (incidents I-12 to I-15): a snapshot is what the model
// was after the step that is named in it, weights, moments and count alike,
// however many steps follow before anyone looks; and no two are the same.
func TestSnapshotIsOfItsStep(t *testing.T) {
	o := tinyOptions(2)
	r := newRig(t, o, host.Config{Threads: 2})
	pool, err := r.tr.NewSnapshotPool(3, true)
	if err != nil {
		t.Fatal(err)
	}
	var taken []*train.Snapshot
	for _, k := range []int64{2, 3, 7} {
		for r.tr.Steps() < k {
			if _, _, err := r.tr.Step(t.Context(), r.batch(r.tr.Steps())); err != nil {
				t.Fatal(err)
			}
		}
		s, err := r.tr.TrySnapshot(pool)
		if err != nil || s == nil {
			t.Fatalf("step %d: snapshot %v, %v", k, s, err)
		}
		taken = append(taken, s)
	}
	if s, err := r.tr.TrySnapshot(pool); s != nil || err != nil {
		t.Errorf("a fourth snapshot of three: %v, %v", s, err)
	}
	r.run(o.Steps)
	seen := map[string]bool{}
	for i, k := range []int64{2, 3, 7} {
		s := taken[i]
		if err := s.Wait(t.Context()); err != nil {
			t.Fatal(err)
		}
		if s.Step != k {
			t.Errorf("snapshot of step %d says %d", k, s.Step)
		}
		q := newRig(t, o, host.Config{Threads: 2})
		q.run(k)
		want := q.snapshot(true)
		if !slices.Equal(bits(s.Weights), bits(want.Weights)) || !slices.Equal(bits(s.M), bits(want.M)) || !slices.Equal(bits(s.V), bits(want.V)) {
			t.Errorf("the snapshot of step %d is not the model after step %d", k, k)
		}
		key := fmt.Sprint(bits(s.Weights))
		if seen[key] {
			t.Errorf("the snapshot of step %d holds the weights of an older one", k)
		}
		seen[key] = true
		s.Release()
	}
	if err := pool.Close(); err != nil {
		t.Error(err)
	}
}

// TestRestoreIsExact (incident I-22): before the first step after a restore
// every device holds the bits that were given, also where the trainer had others.
func TestRestoreIsExact(t *testing.T) {
	r := newRig(t, tinyOptions(2), host.Config{Threads: 2})
	r.run(4)
	s := r.snapshot(true)
	w, m, v := slices.Clone(s.Weights), slices.Clone(s.M), slices.Clone(s.V)
	r.run(9)
	if slices.Equal(bits(r.memory(0, "params")), bits(w)) {
		t.Fatal("five steps change nothing")
	}
	if err := r.tr.Restore(t.Context(), 4, w, m, v); err != nil {
		t.Fatal(err)
	}
	for d := range 2 {
		for name, want := range map[string][]float32{"params": w, "m": m, "v": v} {
			if !slices.Equal(bits(r.memory(d, name)), bits(want)) {
				t.Errorf("device %d: %s are not those that were restored", d, name)
			}
		}
	}
	if r.tr.Steps() != 4 {
		t.Errorf("the trainer counts %d steps", r.tr.Steps())
	}
	for _, bad := range [][]float32{w[1:], nil} {
		if err := r.tr.Restore(t.Context(), 4, bad, m, v); err == nil {
			t.Errorf("%d weights of %d are accepted", len(bad), len(w))
		}
	}
}

// TestEvaluationLeavesTrainingAlone (N16; incident I-26): evaluations on the
// trainer's own device, between and during steps, change no bit of training,
// and there is no mode that could stay switched.
func TestEvaluationLeavesTrainingAlone(t *testing.T) {
	o := tinyOptions(1)
	quiet := newRig(t, o, host.Config{Threads: 2})
	want := quiet.run(o.Steps)

	r := newRig(t, o, host.Config{Threads: 2})
	e, err := eval.New(t.Context(), r.devs[0], eval.Config{Model: o.Model, B: 3, T: o.T, DocMask: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := e.Close(); err != nil {
			t.Error(err)
		}
	}()
	held := rowsOf{r, 1000, 7}
	var got []train.StepResult
	var losses []float64
	for r.tr.Steps() < o.Steps {
		res, ok, err := r.tr.Step(t.Context(), r.batch(r.tr.Steps()))
		if err != nil {
			t.Fatal(err)
		}
		if ok {
			got = append(got, res)
		}
		w := r.snapshot(false).Weights
		if err := e.Load(t.Context(), w); err != nil {
			t.Fatal(err)
		}
		a, err := e.Run(t.Context(), held, nil)
		if err != nil {
			t.Fatal(err)
		}
		if b, err := e.Run(t.Context(), held, nil); err != nil || a != b {
			t.Errorf("two evaluations of one model: %+v and %+v, %v", a, b, err)
		}
		losses = append(losses, a.Loss)
	}
	last, _, err := r.tr.Flush(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if got = append(got, last); !slices.Equal(got, want) {
		t.Errorf("results with evaluations\n%v\nwithout\n%v", got, want)
	}
	if !slices.Equal(bits(r.memory(0, "params")), bits(quiet.memory(0, "params"))) {
		t.Error("the weights depend on evaluations")
	}
	if losses[0] == losses[len(losses)-1] {
		t.Error("the evaluations do not see the training")
	}
}

// TestTiedMatrixIsStoredOnce (incident I-23): the tensors of a tied model have no
// head; a file that holds one beside it is refused by name, and so is a file
// without one for a model that needs it.
func TestTiedMatrixIsStoredOnce(t *testing.T) {
	infos := func(tie bool) (list []ckpt.TensorInfo, bytes int64) {
		c := tinyModel()
		c.Tie = tie
		for _, p := range c.Layout().Params {
			list = append(list, ckpt.TensorInfo{Name: p.Name, DType: "F32", Shape: p.Shape, Off: int64(p.Off) * 4, Len: int64(p.Len) * 4})
			bytes += int64(p.Len) * 4
		}
		return list, bytes
	}
	for _, memoryTied := range []bool{false, true} {
		want, n := infos(memoryTied)
		file, m := infos(!memoryTied)
		tensors, err := ckpt.Slice(file, make([]byte, m))
		if err != nil {
			t.Fatal(err)
		}
		if err := ckpt.Gather(want, make([]byte, n), tensors); err == nil || !strings.Contains(err.Error(), "lm_head.weight") {
			t.Errorf("tied in memory %v, not so in the file: %v", memoryTied, err)
		}
	}
}

// TestChainSeesEverything: any difference in data, loss, norm or order of any
// step shows in every later value of the chain, and its text form comes back.
func TestChainSeesEverything(t *testing.T) {
	r := newRig(t, tinyOptions(1), host.Config{Threads: 1})
	steps := r.run(3)
	value := func(s []train.StepResult) train.Chain {
		var c train.Chain
		for i := range s {
			c = c.Next(&s[i])
		}
		return c
	}
	want := value(steps)
	for name, change := range map[string]func(s []train.StepResult){
		"loss":   func(s []train.StepResult) { s[0].Loss += 1e-15 },
		"norm":   func(s []train.StepResult) { s[1].Norm = -s[1].Norm },
		"window": func(s []train.StepResult) { s[0].Cursor.Window++ },
		"rows":   func(s []train.StepResult) { s[0].Rows++ },
		"data":   func(s []train.StepResult) { s[0].CRC++ },
		"step":   func(s []train.StepResult) { s[2].Step++ },
		"order":  func(s []train.StepResult) { s[0], s[1] = s[1], s[0] },
	} {
		s := slices.Clone(steps)
		change(s)
		if value(s) == want {
			t.Errorf("the chain does not see another %s", name)
		}
	}
	if back, err := train.ParseChain(want.String()); err != nil || back != want {
		t.Errorf("%v came back as %v, %v", want, back, err)
	}
	for _, bad := range []string{"", "00", want.String() + "00", strings.Repeat("g", 32)} {
		if _, err := train.ParseChain(bad); err == nil {
			t.Errorf("%q is a chain", bad)
		}
	}
}

// TestFootprint: what plan prints is what the trainer allocates. The scratch of
// the CPU driver's kernels is the driver's own and in no Program.
func TestFootprint(t *testing.T) {
	for _, devices := range []int{1, 2} {
		o := tinyOptions(devices)
		n, err := train.Footprint(&o)
		if err != nil {
			t.Fatal(err)
		}
		r := newRig(t, o, host.Config{Threads: 2})
		if got := r.tr.Cost(); got != n.Cost {
			t.Errorf("%d devices: cost %v, planned %v", devices, got, n.Cost)
		}
		var planned, real int64
		for _, u := range n.Memory {
			planned += u.Bytes
		}
		for _, u := range r.devs[0].Memory() {
			if u.Label != "scratch" {
				real += u.Bytes
			}
		}
		if real > planned || real < planned*9/10 {
			t.Errorf("%d devices: %d bytes are allocated, %d planned: %v", devices, real, planned, memoryOf(r.devs[0]))
		}
	}
}

func memoryOf(d gpu.Device) (s []string) {
	for _, u := range d.Memory() {
		s = append(s, fmt.Sprintf("%s %d", u.Label, u.Bytes))
	}
	return s
}

// TestOptionsRefuse: every impossible value is named, all at once.
func TestOptionsRefuse(t *testing.T) {
	for _, c := range []struct {
		change func(o *train.Options)
		want   []string
	}{
		{func(o *train.Options) { o.Steps, o.Slots = 0, 1 }, []string{"steps is 0", "1 device slots"}},
		{func(o *train.Options) { o.Batch = 6 }, []string{"batch (6) does not divide into 4"}},
		{func(o *train.Options) { o.Policy.Act = gpu.I32 }, []string{"i32", "f32 or bf16"}},
		{func(o *train.Options) { o.Devices = 3 }, []string{"3 devices"}},
		{func(o *train.Options) { o.Devices, o.Micro = 4, 2 }, []string{"2 micro-steps"}},
		{func(o *train.Options) { o.Micro = 3 }, []string{"3 micro-steps"}},
		{func(o *train.Options) { o.T = 64 }, []string{"seq (64) is longer"}},
		{func(o *train.Options) { o.Optim.LR, o.Optim.Beta2, o.Optim.Eps = 0, 1, 0 }, []string{"lr is 0", "beta2 is 1", "eps is 0"}},
		{func(o *train.Options) { o.Optim.LR = 10.5 }, []string{"lr is 10.5"}},
		{func(o *train.Options) { o.Optim.Warmup, o.Optim.MinRatio, o.Optim.Clip = 0, 2, -1 }, []string{"warmup is 0", "min_lr_ratio is 2", "clip is -1"}},
		{func(o *train.Options) { o.Optim.Decay[0], o.Optim.LRMul[4] = -1, -2 }, []string{"decay of embedding", "multiplier of norm"}},
		{func(o *train.Options) { o.Model.KVHeads = 3 }, []string{"kv_heads"}},
	} {
		o := tinyOptions(1)
		c.change(&o)
		err := o.Validate()
		for _, w := range c.want {
			if err == nil || !strings.Contains(err.Error(), w) {
				t.Errorf("error %v, want one that says %q", err, w)
			}
		}
		if _, err := train.New(t.Context(), o, nil); err == nil {
			t.Errorf("a trainer of impossible options: %v", c.want)
		}
	}
	if _, err := train.New(t.Context(), tinyOptions(2), nil); err == nil || !strings.Contains(err.Error(), "0 devices given, 2 configured") {
		t.Errorf("no devices: %v", err)
	}
}

// TestCloseRightAfterNew: a trainer that never takes a step leaves no goroutine
// behind (goleak looks at the end of all tests), however early it is closed.
func TestCloseRightAfterNew(t *testing.T) {
	drv := host.New(host.Config{Devices: 2, Threads: 2})
	var devs []gpu.Device
	for i := range 2 {
		d, err := drv.Open(i)
		if err != nil {
			t.Fatal(err)
		}
		devs = append(devs, d)
	}
	for range 50 {
		tr, err := train.New(t.Context(), tinyOptions(2), devs)
		if err != nil {
			t.Fatal(err)
		}
		if err := tr.Close(); err != nil {
			t.Fatal(err)
		}
	}
	for _, d := range devs {
		if err := d.Close(); err != nil {
			t.Error(err)
		}
	}
}
