package generate

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"time"

	"refrain/gpu"
	"refrain/gpu/host"
	"refrain/internal/fsx"
	"refrain/internal/run"
	"refrain/stages/tokens"
	"refrain/store"
	"refrain/tokenize"
	"refrain/train/eval"
)

// Request is a store to be written by models on the disk.
type Request struct {
	Runs        []string // run folders, of which the newest good checkpoint counts, or checkpoints
	Overrides   []string // key=value, over the configurations of all runs
	Out         string   // folder of the new store
	Mode        Mode     // "" is Single, and an error for more than one run
	Tokens      int64    // as in Config
	Documents   int64    // as in Config
	Temperature float64
	Seed        uint64
	MaxLength   int // tokens of a document, boundary ids included; 0 is a row of the run with the shortest
	Slots       int // as in Config
	Devices     int // 0 is 1
	Threads     int // 0 is one a processor
	// Reuse takes the store at Out as the result when it was made by the same teachers in the
	// same way; without it, and for any other store, Out may not exist.
	Reuse bool
	// Compare measures the rate of one document at a time as well, for up to 64 tokens.
	Compare bool
	// Progress, when not nil, is told after each document how many documents and tokens there are.
	Progress func(documents, tokens int64)
}

// Result describes the store that was written.
type Result struct {
	Store       string           `json:"store"`
	Fingerprint string           `json:"fingerprint"`
	Documents   int64            `json:"documents"`
	Tokens      int64            `json:"tokens"`
	Generated   *store.Generated `json:"generated"`
	Cached      bool             `json:"cached"` // it was there already
	Slots       int              `json:"at_a_time"`
	DeviceBytes int64            `json:"device_bytes"` // of weights, caches and activations, all devices together
	// The rates are of this run and 0 for a store that was there already. Filled is the share
	// of slots that had a document.
	Seconds    float64  `json:"seconds"`
	Rate       float64  `json:"tokens_per_second"`
	Filled     float64  `json:"filled"`
	OneAtATime float64  `json:"tokens_per_second_one_at_a_time,omitempty"` // with Request.Compare
	Notes      []string `json:"notes,omitempty"`
}

// Run generates the store of r. It opens devices for itself and blocks until the store is
// durable and every byte has been read back. Out appears whole or not at all. Errors have
// the exit code of their class.
func Run(ctx context.Context, r Request) (*Result, error) {
	res, err := r.run(ctx)
	var path *fs.PathError
	switch {
	case err == nil:
	case errors.Is(err, fs.ErrExist):
		err = &run.Error{Code: run.ExitUsage, Err: err}
	case errors.As(err, &path) && !errors.Is(err, fs.ErrNotExist) && run.ExitCode(err) == run.ExitFailed:
		err = &run.Error{Code: run.ExitDisk, Err: err}
	}
	return res, err
}

func (r *Request) run(ctx context.Context) (*Result, error) {
	if r.Out == "" {
		return nil, errors.New("generate: no store was named")
	}
	there, err := fsx.Exists(fsx.OS{}, r.Out)
	if err != nil {
		return nil, err
	}
	if there && !r.Reuse {
		return nil, fmt.Errorf("store %s: %w: remove it or choose another folder, or ask to reuse it (--reuse)", r.Out, fs.ErrExist)
	}
	j, err := r.plan(ctx)
	if err != nil {
		return nil, err
	}
	if there {
		return j.reuse(r.Out)
	}
	return j.write(ctx, r)
}

// job is a request that has been checked.
type job struct {
	c    Config
	meta store.Meta
	tok  *tokenize.Tokenizer // nil when the teachers have none
	res  Result
}

// plan opens the teachers and settles what is left to them.
func (r *Request) plan(ctx context.Context) (*job, error) {
	list, notes, err := openAll(ctx, r.Runs, r.Overrides)
	if err != nil {
		return nil, err
	}
	first, mode, most := list[0], r.Mode, r.MaxLength
	if mode == "" {
		mode = Single
	}
	if mode == Single && len(list) > 1 {
		return nil, &run.Error{Code: run.ExitUsage, Err: fmt.Errorf("%d runs were named: say average, to draw every token from the mean of their logits, or pool, to let each write its share", len(list))}
	}
	vocab := first.vocab
	for _, o := range list {
		vocab = min(vocab, o.vocab)
		if r.MaxLength == 0 && (most == 0 || o.longest() < most) {
			most = o.longest()
		}
	}
	if first.boundary == nil {
		return nil, dataError("%s: what it was trained on cannot be read, and it has no tokenizer with an end-of-text token, so nothing begins or ends a document; put its store back at the place in its config.yaml, or say data.store=STORE", first.path)
	}
	rule, err := RuleOf(*first.boundary, first.docMask(), most)
	if err != nil {
		return nil, dataError("%s: %w", first.path, err)
	}
	j := &job{tok: first.m.Tokenizer, res: Result{Store: r.Out, Notes: notes, Slots: r.Slots}}
	if j.res.Slots == 0 {
		j.res.Slots = DefaultSlots
	}
	g := &store.Generated{Mode: string(mode), Temperature: r.Temperature, Seed: r.Seed, MaxLength: most, Precision: gpu.F32.String()}
	j.c = Config{
		Mode: mode, Rule: rule, Vocab: vocab, Temperature: r.Temperature, Seed: r.Seed,
		Tokens: r.Tokens, Documents: r.Documents, Slots: j.res.Slots,
	}
	for _, o := range list {
		j.c.Teachers = append(j.c.Teachers, o.Teacher)
		g.Teachers = append(g.Teachers, store.Teacher{
			Run: o.Name, RunID: o.m.Manifest.RunID, Checkpoint: filepath.Base(filepath.Clean(o.m.Path)), Step: o.m.Step, Weights: o.m.Manifest.WeightsHash(),
		})
	}
	j.meta = store.Meta{Vocab: vocab, TokenizerHash: first.m.Manifest.TokenizerHash, Boundary: *first.boundary, Generated: g}
	if j.meta.Key, err = j.key(); err != nil {
		return nil, err
	}
	return j, j.c.checkRequest()
}

// checkRequest finds what is wrong before devices are opened.
func (c *Config) checkRequest() error {
	probe := *c
	probe.Devices = make([]gpu.Device, 1)
	err := probe.check()
	if err == nil && !(c.Temperature > 0) {
		err = fmt.Errorf("a temperature of %g; use a number above 0", c.Temperature)
	}
	if err != nil {
		return &run.Error{Code: run.ExitUsage, Err: fmt.Errorf("generate: %w", err)}
	}
	return nil
}

// key is a digest of all that decides the documents.
func (j *job) key() (string, error) {
	b, err := json.Marshal(struct {
		Version           int
		Generated         *store.Generated
		Rule              Rule
		Vocab             int
		Tokens, Documents int64
		Tokenizer         string
		Boundary          store.Boundary
	}{1, j.meta.Generated, j.c.Rule, j.c.Vocab, j.c.Tokens, j.c.Documents, j.meta.TokenizerHash, j.meta.Boundary})
	sum := sha256.Sum256(b)
	return hex.EncodeToString(sum[:]), err
}

// reuse is the result when the store is there.
func (j *job) reuse(dir string) (*Result, error) {
	m, err := store.ReadManifest(fsx.OS{}, dir)
	if err != nil {
		return nil, dataError("%s is in the way: %w", dir, err)
	}
	if m.Key != j.meta.Key {
		return nil, fmt.Errorf("store %s: %w, and was not made by these models in this way: remove it or choose another folder", dir, fs.ErrExist)
	}
	j.res.Cached = true
	return j.finish(m)
}

func (j *job) finish(m *store.Manifest) (*Result, error) {
	print, err := m.Fingerprint()
	j.res.Fingerprint = hex.EncodeToString(print[:])
	j.res.Documents, j.res.Tokens, j.res.Generated = m.Documents, m.Tokens, m.Generated
	return &j.res, err
}

// write generates the store beside its name and moves it there.
func (j *job) write(ctx context.Context, r *Request) (_ *Result, err error) {
	tmp, lock, err := store.Partial(fsx.OS{}, filepath.Clean(r.Out))
	if err != nil {
		return nil, err
	}
	m, err := j.fill(ctx, tmp, r)
	if err != nil {
		return nil, errors.Join(err, store.AbandonPartial(fsx.OS{}, tmp, lock))
	}
	if err := store.CommitPartial(fsx.OS{}, tmp, filepath.Clean(r.Out), lock); err != nil {
		return nil, err
	}
	if err := store.Verify(ctx, r.Out, nil); err != nil {
		return nil, dataError("what was written cannot be read back: %w", err)
	}
	return j.finish(m)
}

// fill writes everything into the folder tmp, the manifest last.
func (j *job) fill(ctx context.Context, tmp string, r *Request) (_ *store.Manifest, err error) {
	devs, err := run.OpenDevices(max(1, r.Devices), r.Threads, false)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, devs.Close()) }()
	j.c.Devices = devs
	if j.res.DeviceBytes, err = Footprint(j.c); err != nil {
		return nil, err
	}
	if err := checkMemory(j.c, host.MemoryLimits()); err != nil {
		return nil, err
	}
	if r.Compare {
		if j.res.OneAtATime, err = rateOfOne(ctx, j.c); err != nil {
			return nil, err
		}
	}
	w, err := store.NewWriter(fsx.OS{}, tmp, j.meta)
	if err != nil {
		return nil, err
	}
	defer w.Abort() // closes an open shard; the folder is the caller's
	sources := j.sources()
	stats, err := Documents(ctx, j.c, func(d Document) error {
		if err := w.Append(uint64(d.Number), sources(d.Teacher), d.IDs); err != nil {
			return err
		}
		w.Meta().TextBytes += j.textBytes(d.IDs)
		if r.Progress != nil {
			r.Progress(w.Documents(), w.Tokens())
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	g := w.Meta().Generated
	g.Cut, g.Empty = stats.Cut, stats.Empty
	for i, s := range stats.ByTeacher {
		g.Teachers[i].Documents, g.Teachers[i].Tokens = s.Documents, s.Tokens
	}
	j.res.Seconds = stats.Working.Seconds()
	j.res.Rate = float64(stats.Tokens) / max(j.res.Seconds, 1e-9)
	j.res.Filled = float64(stats.Drawn) / float64(stats.Slots)
	if j.tok != nil {
		var b bytes.Buffer
		if err := j.tok.WriteJSON(&b); err != nil {
			return nil, err
		}
		if err := fsx.WriteFile(fsx.OS{}, filepath.Join(tmp, tokens.TokenizerName), b.Bytes()); err != nil {
			return nil, err
		}
	}
	return w.Close(ctx)
}

// sources names who wrote a document.
func (j *job) sources() func(teacher int) string {
	return func(teacher int) string {
		if teacher < 0 {
			return fmt.Sprintf("mean of %d", len(j.c.Teachers))
		}
		return j.c.Teachers[teacher].Name
	}
}

// textBytes is the length of the text behind ids: boundary ids have none.
func (j *job) textBytes(ids []uint32) (n int64) {
	if j.tok == nil {
		return 0
	}
	for _, id := range ids {
		if b := j.meta.Boundary; b.BOS != nil && id == *b.BOS || b.EOS != nil && id == *b.EOS {
			continue
		}
		b, _ := j.tok.TokenBytes(id)
		n += int64(len(b))
	}
	return n
}

// rateOfOne is how many tokens a second one document at a time gives, on the first device.
func rateOfOne(ctx context.Context, c Config) (rate float64, err error) {
	const most = 64
	c.Slots, c.Devices = 1, c.Devices[:1]
	u := newBatch(c, nil).units[0]
	u.conf.MaxT = min(u.conf.MaxT, most)
	b := &batch{c: c, units: []*unit{u}}
	defer func() { err = errors.Join(err, u.close()) }()
	if err := b.open(ctx); err != nil {
		return 0, err
	}
	start, slot := time.Now(), []eval.Slot{{Token: c.Rule.Start, Uniform: 0.5}}
	n := 0
	for ; n < u.conf.MaxT; n++ {
		slot[0].Pos = n
		if err := u.dec.Start(ctx, slot); err != nil {
			return 0, err
		}
		ids, err := u.dec.Wait(ctx)
		if err != nil {
			return 0, err
		}
		slot[0].Token = uint32(max(0, ids[0]))
	}
	return float64(n) / max(time.Since(start).Seconds(), 1e-9), nil
}
