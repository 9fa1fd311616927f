package config

import (
	"fmt"
	"math/big"
	"net"
	"net/netip"
	"strconv"
	"strings"

	"refrain/model"
)

// rule is a complaint about several keys together. It is silent when one of
// them already has a problem of its own.
type rule struct {
	keys  []string // the first one that a person wrote is where the problem points
	check func(c *Config) string
}

// check runs the rules that need more than one key. The defaults and presets
// stand by now.
func (l *loader) check() {
	l.checkLength()
	l.checkWarmup()
	l.checkCycles()
	for _, r := range rules() {
		silent := false
		for _, k := range r.keys {
			silent = silent || l.bad[k]
		}
		// Without the preset nothing can be said about what it would have filled.
		if l.bad["model.preset"] && strings.HasPrefix(r.keys[0], "model.") {
			silent = true
		}
		if silent {
			continue
		}
		if msg := r.check(&l.cfg); msg != "" {
			l.at(l.blame(r.keys), "%s", msg)
		}
	}
}

// blame returns the origin of the key a rule points at. Overrides are newer
// than the file, so they are the likelier culprits.
func (l *loader) blame(keys []string) Origin {
	for _, kind := range []OriginKind{FromOverride, FromFile} {
		for _, k := range keys {
			if o := l.origins[k]; o.Kind == kind {
				return o
			}
		}
	}
	return Origin{}
}

// checkLength holds the rule that exactly one of three keys gives the length.
func (l *loader) checkLength() {
	keys := []string{"train.epochs", "train.tokens", "train.steps"}
	var set, places []string
	for _, k := range keys {
		if l.bad[k] {
			return
		}
		if table().byPath[k].number(&l.cfg) > 0 {
			set = append(set, k)
			places = append(places, fmt.Sprintf("%s (%v)", k, l.origins[k]))
		}
	}
	switch {
	case len(set) == 0:
		l.at(l.blame(keys), "the length of the run is not set; give exactly one of %s", strings.Join(keys, ", "))
	case len(set) > 1:
		l.at(l.blame(set), "the length of the run is given %d times: %s; keep one (an override such as %q takes another back)",
			len(set), strings.Join(places, ", "), set[0]+"=null")
	}
}

// checkWarmup refuses two lengths of the warm-up.
func (l *loader) checkWarmup() {
	frac, steps := l.origins["optim.warmup_frac"], l.origins["optim.warmup_steps"]
	if frac.explicit() && steps.explicit() {
		l.at(l.blame([]string{"optim.warmup_steps"}),
			"the warm-up is given twice: optim.warmup_frac (%v), optim.warmup_steps (%v); keep one", frac, steps)
	}
}

// checkCycles refuses settings of a schedule that the run does not have.
func (l *loader) checkCycles() {
	if l.bad["optim.schedule"] || l.cfg.Optim.Schedule == "cyclic" {
		return
	}
	for _, k := range []string{"optim.cycles", "optim.cycle_decay_from", "optim.cycle_decay_to"} {
		if o := l.origins[k]; o.explicit() && !l.bad[k] && !table().byPath[k].isDefault(&l.cfg) {
			l.at(o, "%s is set, but optim.schedule is %s; set optim.schedule = cyclic, or leave it out", k, l.cfg.Optim.Schedule)
		}
	}
}

// rules lists the checks over several keys.
func rules() []rule {
	var r []rule
	r = append(r, shapeRules()...)
	r = append(r, dataRules()...)
	r = append(r, trainRules()...)
	r = append(r, regularizeRules()...)
	return append(r, addressRules()...)
}

func shapeRules() []rule {
	shape := []string{"model.layers", "model.dim", "model.heads", "model.ffn"}
	return []rule{
		{shape, func(c *Config) string {
			var missing []string
			for _, k := range shape {
				if table().byPath[k].number(c) == 0 {
					missing = append(missing, k)
				}
			}
			if len(missing) == 0 {
				return ""
			}
			return fmt.Sprintf("not set: %s; give a model.preset (%s) or the whole shape",
				strings.Join(missing, ", "), strings.Join(PresetNames(), ", "))
		}},
		{[]string{"model.heads", "model.dim"}, func(c *Config) string {
			m := c.Model
			if m.Heads < 1 || m.Dim < 1 {
				return ""
			}
			if m.Dim%m.Heads != 0 {
				return fmt.Sprintf("model.heads = %d does not divide model.dim = %d; the size of a head must be whole", m.Heads, m.Dim)
			}
			if size := m.Dim / m.Heads; size%2 != 0 {
				return fmt.Sprintf("model.dim / model.heads = %d is odd; rotary positions turn pairs, so the size of a head must be even", size)
			}
			return ""
		}},
		{[]string{"model.kv_heads", "model.heads"}, func(c *Config) string {
			m := c.Model
			if m.KVHeads > 0 && m.Heads > 0 && m.Heads%m.KVHeads != 0 {
				return fmt.Sprintf("model.kv_heads = %d does not divide model.heads = %d; every key head serves the same number of query heads", m.KVHeads, m.Heads)
			}
			return ""
		}},
		{[]string{"model.rope_scaling"}, func(c *Config) string {
			if _, err := model.ParseRopeScaling(c.Model.RopeScaling); err != nil {
				return "model." + err.Error()
			}
			return ""
		}},
		{[]string{"data.seq", "model.max_t"}, func(c *Config) string {
			if c.Model.MaxT > 0 && c.Data.Seq > c.Model.MaxT {
				return fmt.Sprintf("data.seq = %d is longer than model.max_t = %d", c.Data.Seq, c.Model.MaxT)
			}
			return ""
		}},
	}
}

func dataRules() []rule {
	return []rule{
		{[]string{"data.store", "data.inputs"}, func(c *Config) string {
			if c.Data.Store == "" && len(c.Data.Inputs) == 0 {
				return "data.store is not set; name a token store made by `refrain data prepare`, or give data.inputs"
			}
			return ""
		}},
		{[]string{"data.inputs", "data.tokenizer"}, func(c *Config) string {
			if len(c.Data.Inputs) > 0 && c.Data.Tokenizer == "" {
				return "data.inputs needs data.tokenizer: a tokenizer file, or train:V to train one of V entries"
			}
			for i, in := range c.Data.Inputs {
				if in == "" {
					return fmt.Sprintf("data.inputs: entry %d is empty", i+1)
				}
			}
			return ""
		}},
		{[]string{"data.tokenizer"}, func(c *Config) string {
			v, ok := strings.CutPrefix(c.Data.Tokenizer, "train:")
			if !ok {
				return ""
			}
			// 256 bytes and one boundary token are the least.
			if n, err := strconv.Atoi(v); err != nil || n < 257 || n > 1<<20 {
				return fmt.Sprintf("data.tokenizer: %s: want train:V with V from 257 to 1048576", clip(c.Data.Tokenizer))
			}
			return ""
		}},
		{[]string{"data.val_docs"}, func(c *Config) string {
			if _, _, err := c.Data.Validation(); err != nil {
				return "data.val_docs: " + err.Error()
			}
			return ""
		}},
		{[]string{"data.pool"}, func(c *Config) string {
			if _, _, err := c.Data.PoolOf(); err != nil {
				return "data.pool: " + err.Error()
			}
			return ""
		}},
		{[]string{"data.subset.tokens", "data.subset.docs"}, func(c *Config) string {
			if c.Data.Subset.Tokens > 0 && c.Data.Subset.Docs > 0 {
				return "data.subset.tokens and data.subset.docs are both set; keep one"
			}
			return ""
		}},
		{[]string{"data.val", "data.store"}, func(c *Config) string {
			if c.Data.Val != "" && c.Data.Val == c.Data.Store {
				return "data.val is data.store itself; training and validation must not share documents"
			}
			return ""
		}},
		{[]string{"data.synthetic.fraction", "data.synthetic.store"}, func(c *Config) string {
			m := &c.Data.Synthetic
			switch _, _, ok := m.Share(); {
			case m.Store != "" && m.Fraction == 0:
				return "data.synthetic.store is set, and data.synthetic.fraction is 0; say which share of the rows it gives, such as 0.75"
			case m.Store == "" && m.Fraction > 0:
				return "data.synthetic.fraction is set without data.synthetic.store; name the store"
			case !ok:
				return fmt.Sprintf("data.synthetic.fraction = %v has more than six decimals; rows are counted in millionths", m.Fraction)
			}
			return ""
		}},
		{[]string{"distill.weight", "distill.temperature", "distill.top_k", "distill.teachers"}, func(c *Config) string {
			for i, t := range c.Distill.Teachers {
				if t == "" {
					return fmt.Sprintf("distill.teachers: entry %d is empty", i+1)
				}
			}
			for _, k := range []string{"distill.weight", "distill.temperature", "distill.top_k"} {
				if f := table().byPath[k]; len(c.Distill.Teachers) == 0 && !f.isDefault(c) {
					return k + " is set without distill.teachers; name the runs to learn from"
				}
			}
			return ""
		}},
		{[]string{"data.field"}, func(c *Config) string {
			if c.Data.Field == "" {
				return "data.field is empty; name the text column"
			}
			return ""
		}},
	}
}

func trainRules() []rule {
	return []rule{
		{[]string{"train.shards", "train.batch"}, func(c *Config) string {
			if t := c.Train; t.Shards > 0 && t.Batch%t.Shards != 0 {
				return fmt.Sprintf("train.shards = %d does not divide train.batch = %d", t.Shards, t.Batch)
			}
			return ""
		}},
		{[]string{"train.devices", "train.shards", "train.batch"}, func(c *Config) string {
			t := c.Train
			switch {
			case !powerOfTwo(t.Devices):
				return fmt.Sprintf("train.devices = %d is not a power of two; gradients are added in a binary tree over devices", t.Devices)
			case t.Batch%t.Devices != 0:
				return fmt.Sprintf("train.devices = %d does not divide train.batch = %d; every device takes the same number of rows", t.Devices, t.Batch)
			case t.Shards%t.Devices != 0:
				return fmt.Sprintf("train.devices = %d does not divide train.shards = %d", t.Devices, t.Shards)
			}
			return ""
		}},
		{[]string{"train.micro_batch", "train.devices", "train.shards", "train.batch"}, microBatch},
		{[]string{"train.tokens", "train.batch", "data.seq"}, func(c *Config) string {
			step := int64(c.Train.Batch) * int64(c.Data.Seq)
			if c.Train.Tokens > 0 && c.Train.Tokens < step {
				return fmt.Sprintf("train.tokens = %d is less than one step (train.batch * data.seq = %d)", c.Train.Tokens, step)
			}
			return ""
		}},
		{[]string{"optim.warmup_steps", "train.steps"}, func(c *Config) string {
			w := c.Optim.WarmupSteps
			if w != nil && c.Train.Steps > 0 && *w > c.Train.Steps {
				return fmt.Sprintf("optim.warmup_steps = %d is more than train.steps = %d", *w, c.Train.Steps)
			}
			return ""
		}},
	}
}

func powerOfTwo(n int) bool { return n > 0 && n&(n-1) == 0 }

// microBatch checks that the rows of a device split into a power of two of
// equal micro-steps, each of whole shards. A bad number of devices has a rule
// of its own.
func microBatch(c *Config) string {
	t := c.Train
	if t.MicroBatch == 0 || t.Devices < 1 || t.Batch%t.Devices != 0 {
		return ""
	}
	rows := t.Batch / t.Devices
	switch {
	case rows%t.MicroBatch != 0:
		return fmt.Sprintf("train.micro_batch = %d does not divide the %d rows of a device (train.batch / train.devices)", t.MicroBatch, rows)
	case !powerOfTwo(rows / t.MicroBatch):
		return fmt.Sprintf("train.micro_batch = %d makes %d micro-steps of the %d rows of a device; their number must be a power of two", t.MicroBatch, rows/t.MicroBatch, rows)
	case t.Shards > 0 && t.Shards%(t.Devices*(rows/t.MicroBatch)) != 0:
		return fmt.Sprintf("train.micro_batch = %d cuts through shards: %d devices with %d micro-steps do not divide train.shards = %d",
			t.MicroBatch, t.Devices, rows/t.MicroBatch, t.Shards)
	}
	return ""
}

func addressRules() []rule {
	return []rule{
		{[]string{"metrics.addr"}, func(c *Config) string { return loopback("metrics.addr", c.Metrics.Addr) }},
		{[]string{"pprof.addr"}, func(c *Config) string { return loopback("pprof.addr", c.Pprof.Addr) }},
		{[]string{"pprof.addr", "metrics.addr"}, func(c *Config) string {
			a := c.Pprof.Addr
			if a != "" && a == c.Metrics.Addr && !strings.HasSuffix(a, ":0") {
				return fmt.Sprintf("pprof.addr and metrics.addr are both %s; give them different ports", clip(a))
			}
			return ""
		}},
	}
}

// loopback complains unless addr is empty or host:port on this machine alone.
// Profiles and metrics tell much about a machine, so they are not served to a
// network; a tunnel brings them elsewhere.
func loopback(key, addr string) string {
	if addr == "" {
		return ""
	}
	host, port, err := net.SplitHostPort(addr)
	if err != nil {
		return fmt.Sprintf("%s: %s: want host:port such as 127.0.0.1:9090", key, clip(addr))
	}
	if n, err := strconv.Atoi(port); err != nil || n < 0 || n > 65535 {
		return fmt.Sprintf("%s: %s: the port must be a number from 0 to 65535", key, clip(addr))
	}
	if ip, err := netip.ParseAddr(host); host == "localhost" || err == nil && ip.IsLoopback() {
		return ""
	}
	return fmt.Sprintf("%s: %s is not a loopback address; use 127.0.0.1 and an SSH tunnel to read it from elsewhere", key, clip(addr))
}

// Validation splits val_docs into a share of the documents (0 < share < 1) or a
// count; the other one is zero. Both are zero when nothing is kept.
func (d *Data) Validation() (share float64, docs int64, err error) {
	if p, ok := strings.CutSuffix(d.ValDocs, "%"); ok {
		v, err := strconv.ParseFloat(strings.TrimSpace(p), 64)
		if err != nil || !(v > 0 && v < 100) {
			return 0, 0, fmt.Errorf("%s: a share must be above 0%% and below 100%%", clip(d.ValDocs))
		}
		return v / 100, 0, nil
	}
	n, err := strconv.ParseInt(d.ValDocs, 10, 64)
	if err != nil || n < 0 {
		return 0, 0, fmt.Errorf("%s: want a share such as 1%% or a number of documents", clip(d.ValDocs))
	}
	return 0, n, nil
}

// PoolOf splits pool into k of n, 1 <= k <= n; 1 of 1 when it is empty.
func (d *Data) PoolOf() (k, n int, err error) {
	if d.Pool == "" {
		return 1, 1, nil
	}
	a, b, ok := strings.Cut(d.Pool, "/")
	k, err1 := strconv.Atoi(a)
	n, err2 := strconv.Atoi(b)
	if !ok || err1 != nil || err2 != nil || k < 1 || k > n || n > 10000 {
		return 0, 0, fmt.Errorf("%s: want k/n with 1 <= k <= n <= 10000, for example 1/4", clip(d.Pool))
	}
	return k, n, nil
}

// derive fills what was left open and follows from other keys.
func (l *loader) derive() {
	c := &l.cfg
	rule := func(key, text string) { l.origins[key] = Origin{Kind: FromRule, Text: text} }
	if c.Model.KVHeads == 0 {
		c.Model.KVHeads = c.Model.Heads
		rule("model.kv_heads", "model.heads")
	}
	if c.Model.MaxT == 0 {
		c.Model.MaxT = c.Data.Seq
		rule("model.max_t", "data.seq")
	}
	if c.Data.Seed == nil {
		seed := c.Train.Seed
		c.Data.Seed = &seed
		rule("data.seed", "train.seed")
	}
	if c.Data.Val == "" && c.Data.Store != "" {
		c.Data.Val = strings.TrimRight(c.Data.Store, "/") + "/val"
		rule("data.val", "inside data.store")
	}
	if c.Optim.HeadDecay == nil {
		d := c.Optim.WeightDecay
		c.Optim.HeadDecay = &d
		rule("optim.head_decay", "optim.weight_decay")
	}
	if c.Eval.Batch == 0 {
		c.Eval.Batch = c.Train.Batch
		rule("eval.batch", "train.batch")
	}
	if c.Train.Precision == "auto" {
		c.Train.Precision = model.AutoPolicy().String()
		rule("train.precision", "train.precision = auto")
	}
}

// Horizon returns the optimiser steps of the run over a corpus of that many windows an
// epoch, those of a synthetic store not counted. Part of a step is left out. The error is
// a *Problems.
func (c *Config) Horizon(windowsPerEpoch int64) (steps int64, err error) {
	refuse := func(format string, args ...any) error {
		return &Problems{[]Problem{{Where: "data", Text: fmt.Sprintf(format, args...)}}}
	}
	b, seq := int64(c.Train.Batch), int64(c.Data.Seq)
	num, den, ok := c.Data.Synthetic.Share()
	if !ok || num >= den {
		return 0, refuse("data.synthetic.fraction = %v is no share of rows below 1", c.Data.Synthetic.Fraction)
	}
	// Of den windows, den-num are real.
	all, mixed := windowsPerEpoch, ""
	if num > 0 && windowsPerEpoch >= 1 && windowsPerEpoch <= 1<<40 {
		all, mixed = windowsPerEpoch*den/(den-num), " with the synthetic ones"
	}
	switch {
	case windowsPerEpoch < 1:
		return 0, refuse("data.seq = %d is longer than the corpus: there is no full row in an epoch", seq)
	case windowsPerEpoch > 1<<40:
		return 0, refuse("%d rows in an epoch; the limit is %d", windowsPerEpoch, int64(1)<<40)
	case b > all:
		return 0, refuse("train.batch = %d is more than an epoch (%d rows%s of %d tokens); lower train.batch or data.seq", b, all, mixed, seq)
	case c.Train.Steps > 0:
		return c.Train.Steps, nil
	case c.Train.Tokens > 0:
		return max(1, c.Train.Tokens/(b*seq)), nil
	}
	// A whole number of epochs is counted in integers: a float64 would be off
	// by a step above 2^53 rows.
	if e := int64(c.Train.Epochs); float64(e) == c.Train.Epochs {
		over := new(big.Int).Mul(big.NewInt(e), big.NewInt(windowsPerEpoch))
		over.Mul(over, big.NewInt(den)).Quo(over, big.NewInt(b*(den-num)))
		if !over.IsInt64() {
			return 0, refuse("train.epochs = %v of %d rows are more steps than there are numbers for", c.Train.Epochs, all)
		}
		steps = over.Int64()
	} else {
		steps = int64(c.Train.Epochs * float64(windowsPerEpoch) / float64(b) * float64(den) / float64(den-num))
	}
	if steps < 1 {
		return 0, refuse("train.epochs = %v is less than one step (an epoch has %d rows%s, train.batch = %d)", c.Train.Epochs, all, mixed, b)
	}
	return steps, nil
}
