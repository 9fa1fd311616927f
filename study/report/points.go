package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"

	"gonum.org/v1/gonum/stat"

	"refrain/internal/run/config"
	"refrain/study"
)

// point is one run with what it was trained with and what came of it, from whatever record
// there is of it.
type point struct {
	ref        int // row of the provenance
	name       string
	folder     string
	settings   map[string]string // that differ among the points it stands with
	conf       *config.Config    // nil where the folder or its config.yaml is not there
	seed       uint64
	status     string
	reason     string
	train, val float64 // NaN: none
	epochs     float64 // 0: not known, as in what follows
	batch      float64
	decay      float64 // NaN: not known, since 0 is a value
	params     float64
	tokens     float64 // unique ones
	data       string  // hash
	ground     string  // what losses that compare have in common
	run        *Run
}

// Keys that a figure has for its axis, or that follow from others.
const (
	keyDecay = "optim.weight_decay"
	keyBatch = "train.batch"
	keyData  = "data" // the hash of the documents, where no setting tells them apart
)

var (
	lengthKeys = []string{"train.epochs", "train.steps", "train.tokens"}
	sizeKeys   = []string{"model.preset", "model.layers", "model.dim", "model.heads", "model.kv_heads", "model.ffn", "model.max_t"}
	dataKeys   = []string{"data.subset.tokens", "data.subset.docs", keyData}
	poolKeys   = []string{"data.pool", "data.subset.seed"}
	seedKeys   = []string{"train.seed", "data.seed"}
)

// pointOf is the point of a run folder.
func pointOf(r *Run, s *Sources) *point {
	p := &point{name: r.Name, folder: r.Folder, data: r.Info.DataHash, run: r, status: "unfinished", val: math.NaN(), train: math.NaN(), decay: math.NaN()}
	if r.Exit != nil {
		p.status, p.reason = r.Exit.Status, r.Exit.Reason
	}
	if v, ok := r.FinalVal(); ok {
		p.val = v
		p.ground = fmt.Sprintf("%s/%d", r.Info.TokenizerHash, r.Evals[len(r.Evals)-1].Tokens)
	}
	seed := ""
	p.fromRun(r)
	if p.conf != nil {
		p.seed, seed = p.conf.Train.Seed, seedText(p.conf)
	}
	p.ref = s.Add(r.key(), Source{What: "run " + r.Name, Seed: seed, Config: r.Info.ConfigHash, Data: r.Info.DataHash, Tokenizer: r.Info.TokenizerHash, Code: r.Info.Code, Where: r.Folder})
	return p
}

// fromRun fills in what only a run folder says.
func (p *point) fromRun(r *Run) {
	if v, ok := r.FinalTrain(); ok {
		p.train = v
	}
	if n := len(r.Steps); n > 0 {
		// A run ends with the last whole step of its last epoch.
		p.epochs = significant(r.Steps[n-1].Epoch, 4)
	}
	p.params, p.tokens = float64(r.Plan.Params), float64(r.Plan.UniqueTokens)
	if r.Config == "" {
		return
	}
	c, err := config.Parse(r.Folder, []byte(r.Config), nil)
	if err != nil {
		return // of another program; what the record says is all that is known
	}
	p.conf = &c.Config
	p.batch, p.decay = float64(p.conf.Train.Batch), p.conf.Optim.WeightDecay
	if e := p.conf.Train.Epochs; e > 0 {
		p.epochs = e
	}
}

// pointOfCell is the point of a registry's record.
func pointOfCell(c *cellRecord, s *Sources) *point {
	p := &point{
		name: fmt.Sprintf("%s seed %d", c.Label, c.Seed), folder: c.folder(), seed: c.Seed, status: string(c.Status), reason: c.Reason,
		data: c.DataHash, run: c.run, val: math.NaN(), train: math.NaN(), decay: math.NaN(), settings: c.Settings,
		ground: fmt.Sprintf("%s/%d/%s", c.TokenizerHash, c.Tokens, c.ValHash),
	}
	if c.run != nil {
		p.fromRun(c.run)
	}
	if c.Status == study.Done {
		p.val = c.Result()
		if math.IsNaN(p.train) {
			p.train = *c.Loss
		}
	}
	if c.Params > 0 {
		p.params = float64(c.Params)
	}
	for key, to := range map[string]*float64{"train.epochs": &p.epochs, keyBatch: &p.batch, keyDecay: &p.decay, "data.subset.tokens": &p.tokens} {
		if x, err := strconv.ParseFloat(c.Settings[key], 64); err == nil {
			*to = x
		}
	}
	if p.tokens == 0 && p.epochs > 0 {
		p.tokens = math.Round(float64(c.Cost.Tokens) / c.passes(p.epochs))
	}
	p.ref = s.Add("run "+p.folder, Source{
		What: c.Label, Seed: fmt.Sprint(c.Seed), Config: c.ConfigHash, Data: c.DataHash, Tokenizer: c.TokenizerHash, Code: c.Code, Where: p.folder,
	})
	return p
}

// passes are the epochs that a cell really made, where its run folder says them: runs end with
// a whole step, so that those of one epoch and of four on the same documents, divided by the
// epochs that were asked for, would seem to have other numbers of unique tokens.
func (c *cellRecord) passes(asked float64) float64 {
	if c.Status == study.Done && c.run != nil && len(c.run.Steps) > 0 {
		if e := c.run.Steps[len(c.run.Steps)-1].Epoch; e > 0 {
			return e
		}
	}
	return asked
}

// grounds splits points into those whose losses compare: on the same validation documents,
// with the same tokenizer. Sets are in the order of their first point.
func grounds(points []*point) (out [][]*point) {
	at := map[string]int{}
	for _, p := range points {
		i, ok := at[p.ground]
		if !ok {
			i = len(out)
			at[p.ground] = i
			out = append(out, nil)
		}
		out[i] = append(out[i], p)
	}
	return out
}

// settle gives the points of one ground settings that tell them apart: from their
// configurations where all have one, or else those that their sweeps wrote down.
func settle(points []*point) {
	if !slices.ContainsFunc(points, func(p *point) bool { return p.conf == nil }) {
		first := points[0].conf
		keys := map[string]string{} // of everything that differs, with the value of the first
		diffs := make([][]config.Change, len(points))
		for i, p := range points {
			for _, d := range config.Diff(first, p.conf) {
				if d.Weights && !slices.Contains(seedKeys, d.Key) {
					keys[d.Key] = d.A
					diffs[i] = append(diffs[i], d)
				}
			}
		}
		for i, p := range points {
			p.settings = map[string]string{}
			for k, v := range keys {
				p.settings[k] = v
			}
			for _, d := range diffs[i] {
				p.settings[d.Key] = d.B
			}
		}
	}
	// Stores are no setting that can change a weight: what is in them is.
	byLabel := map[string]string{}
	stores := false
	for _, p := range points {
		l := labelOf(p.settings)
		if d, ok := byLabel[l]; ok && d != p.data {
			stores = true
		}
		byLabel[l] = p.data
	}
	if stores {
		for _, p := range points {
			s := map[string]string{keyData: short(p.data)}
			for k, v := range p.settings {
				s[k] = v
			}
			p.settings = s
		}
	}
	trim(points)
}

// trim leaves out of the settings what is the same everywhere, and what follows from
// another setting.
func trim(points []*point) {
	values := map[string]string{}
	differs := map[string]bool{}
	headFollows := true // the decay of the head is that of hidden matrices unless it is set
	for i, p := range points {
		for k, v := range p.settings {
			if old, ok := values[k]; i > 0 && (!ok || old != v) {
				differs[k] = true
			}
			values[k] = v
		}
		for k := range values {
			if _, ok := p.settings[k]; !ok {
				differs[k] = true
			}
		}
		headFollows = headFollows && p.settings["optim.head_decay"] == p.settings[keyDecay]
	}
	for _, p := range points {
		s := map[string]string{}
		for k, v := range p.settings {
			if differs[k] && !(headFollows && k == "optim.head_decay") {
				s[k] = v
			}
		}
		p.settings = s
	}
}

// keysOf are the keys of all settings, in order.
func keysOf(points []*point) (keys []string) {
	for _, p := range points {
		for k := range p.settings {
			if !slices.Contains(keys, k) {
				keys = append(keys, k)
			}
		}
	}
	slices.Sort(keys)
	return keys
}

// shortNames call keys by their last word, where no other key has it.
func shortNames(keys []string) map[string]string {
	last := func(k string) string { return k[strings.LastIndexByte(k, '.')+1:] }
	count := map[string]int{}
	for _, k := range keys {
		count[last(k)]++
	}
	out := map[string]string{}
	for _, k := range keys {
		out[k] = k
		if count[last(k)] == 1 {
			out[k] = last(k)
		}
	}
	return out
}

// only are the settings with these keys.
func only(settings map[string]string, keys []string) map[string]string {
	out := map[string]string{}
	for _, k := range keys {
		if v, ok := settings[k]; ok {
			out[k] = v
		}
	}
	return out
}

// labelOf words settings in the order of their keys, without those left out.
func labelOf(settings map[string]string, without ...string) string {
	var keys []string
	for k := range settings {
		if !slices.Contains(without, k) {
			keys = append(keys, k)
		}
	}
	slices.Sort(keys)
	var parts []string
	for _, k := range keys {
		parts = append(parts, k+"="+settings[k])
	}
	return strings.Join(parts, " ")
}

// group is the points that differ in their seeds only.
type group struct {
	points    []*point // done, by seed
	first     *point
	label     string
	mean, sd  float64 // of the losses; NaN without one, and with fewer than two
	trainMean float64
	trouble   bool // a seed did not end well
}

// groups joins the points of one ground over seeds, in the order of their first.
func groups(points []*point) (out []*group) {
	at := map[string]*group{}
	for _, p := range points {
		l := labelOf(p.settings)
		g := at[l]
		if g == nil {
			g = &group{first: p, label: l}
			at[l] = g
			out = append(out, g)
		}
		if math.IsNaN(p.val) || p.status != "done" {
			g.trouble = true
			continue
		}
		g.points = append(g.points, p)
	}
	for _, g := range out {
		slices.SortStableFunc(g.points, func(a, b *point) int { return cmp.Compare(a.seed, b.seed) })
		g.finish()
	}
	return out
}

func (g *group) finish() {
	var vals, trains []float64
	for _, p := range g.points {
		vals, trains = append(vals, p.val), append(trains, p.train)
	}
	g.mean, g.sd, g.trainMean = math.NaN(), math.NaN(), math.NaN()
	if len(vals) > 0 {
		g.mean, g.trainMean = stat.Mean(vals, nil), stat.Mean(trains, nil)
	}
	if len(vals) > 1 {
		_, g.sd = stat.MeanStdDev(vals, nil)
	}
}

func (g *group) ref() string {
	var rows []int
	for _, p := range g.points {
		rows = append(rows, p.ref)
	}
	return Ref(rows...)
}

// withSpread words the loss.
func (g *group) withSpread() string {
	if math.IsNaN(g.sd) {
		return fmt.Sprintf("%.4f nats a token (one seed)", g.mean)
	}
	return fmt.Sprintf("%.4f nats a token (%d seeds, standard deviation %.4f)", g.mean, len(g.points), g.sd)
}

// bestOf is the group with the lowest mean among those without trouble, or nil.
func bestOf(list []*group) *group {
	var best *group
	for _, g := range list {
		if !math.IsNaN(g.mean) && !g.trouble && (best == nil || g.mean < best.mean) {
			best = g
		}
	}
	return best
}
