package report

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"
)

// mostCurves is how many runs have curves of their own on a page; more cannot be told
// apart.
const mostCurves = 8

// builder makes a page from records, section by section.
type builder struct {
	r      *Records
	page   *Page
	points []*point
	// sets are the points whose losses compare, each with its groups over seeds.
	sets []pointSet
}

type pointSet struct {
	name   string // empty when there is one set only
	points []*point
	groups []*group
	keys   []string          // of settings that differ
	names  map[string]string // of keys, short
}

// label words settings as readers see them.
func (s *pointSet) label(settings map[string]string, without ...string) string {
	var parts []string
	for _, k := range s.keys {
		if v, ok := settings[k]; ok && !slices.Contains(without, k) {
			parts = append(parts, s.names[k]+"="+v)
		}
	}
	return strings.Join(parts, " ")
}

// stratum is the groups with models of one size and one choice of documents: recipes are
// chosen within it.
type stratum struct {
	name   string // empty when there is one only
	groups []*group
}

// fixedKeys are those that recipes are chosen within.
func fixedKeys() []string { return slices.Concat(sizeKeys, dataKeys, poolKeys) }

// strata splits the groups, the one with the lowest loss first; free are keys that do not
// split.
func (s *pointSet) strata(free []string) (out []stratum) {
	var fixed []string
	for _, k := range fixedKeys() {
		if !slices.Contains(free, k) {
			fixed = append(fixed, k)
		}
	}
	at := map[string]int{}
	for _, g := range s.groups {
		settings := only(g.first.settings, fixed)
		key := labelOf(settings)
		i, ok := at[key]
		if !ok {
			i = len(out)
			at[key] = i
			out = append(out, stratum{name: s.label(settings)})
		}
		out[i].groups = append(out[i].groups, g)
	}
	if len(out) == 1 {
		out[0].name = ""
	}
	lowest := func(x stratum) float64 {
		if g := bestOf(x.groups); g != nil {
			return g.mean
		}
		return math.Inf(1)
	}
	slices.SortStableFunc(out, func(a, b stratum) int { return cmp.Compare(lowest(a), lowest(b)) })
	return out
}

// From makes the page of records: the sections for which there are records. Equal records
// give equal pages, to the byte.
func From(r *Records, title string) *Page {
	b := &builder{r: r, page: &Page{Title: title}}
	b.gather()
	b.curves()
	for i := range b.sets {
		b.recipes(&b.sets[i])
	}
	b.sweeps()
	b.memory()
	for i := range b.sets {
		b.grids(&b.sets[i])
		b.laws(&b.sets[i])
		b.effects(&b.sets[i])
	}
	b.ablations()
	b.batches()
	b.fits()
	b.ensembles()
	b.chains()
	b.students()
	b.written()
	b.frontiers()
	b.plans()
	b.choices()
	b.micros()
	b.speed()
	b.codes()
	b.commands()
	return b.page
}

// gather makes points of runs and cells, and sets of points.
func (b *builder) gather() {
	// A run counts once, whether its folder was named beside its registry or two sweeps
	// trained it: equal hashes, equal run.
	folders, runs := map[string]bool{}, map[string]*point{}
	add := func(p *point, identity, folder string) {
		first := runs[identity]
		switch {
		case folders[folder]:
			return
		case first != nil && p.status == first.status:
			b.page.Sources.at["run "+folder] = first.ref
			return
		}
		folders[folder], runs[identity] = true, p
		b.points = append(b.points, p)
	}
	for _, c := range b.r.cells {
		// The same settings were trained where the identity is the same.
		if first := runs[c.Identity]; first != nil {
			add(first, c.Identity, c.folder())
			continue
		}
		add(pointOfCell(c, &b.page.Sources), c.Identity, c.folder())
	}
	for _, r := range b.r.runs {
		if !folders[r.Folder] {
			add(pointOf(r, &b.page.Sources), "folder "+r.Folder, r.Folder)
		}
	}
	var with, without []*point
	for _, p := range b.points {
		if p.ground == "" || math.IsNaN(p.val) {
			without = append(without, p)
			continue
		}
		with = append(with, p)
	}
	for _, list := range grounds(with) {
		b.sets = append(b.sets, pointSet{points: list})
	}
	b.strangers(without)
	for i := range b.sets {
		s := &b.sets[i]
		settle(s.points)
		s.groups = groups(s.points)
		s.keys = keysOf(s.points)
		s.names = shortNames(s.keys)
		for _, p := range s.points {
			if p.run != nil && len(s.keys) > 0 && slices.ContainsFunc(b.r.cells, func(c *cellRecord) bool { return c.run == p.run }) {
				p.name = fmt.Sprintf("%s seed %d", s.label(p.settings), p.seed)
				p.run.Name = p.name
			}
		}
		if len(b.sets) > 1 {
			s.name = fmt.Sprintf(" (validation set %d)", i+1)
		}
	}
	if len(b.sets) > 1 {
		b.warn("", "the runs have %d validation sets or tokenizers, whose losses do not compare; each has its own sections. Run folders do not say by a hash which documents they were measured on, and so stand apart from the runs of a registry", len(b.sets))
	}
}

// strangers are points without a loss. They count as trouble of the set of their registry,
// which is that with the same documents; where there is none they are only told of.
func (b *builder) strangers(list []*point) {
	for _, p := range list {
		why := p.status
		if p.reason != "" {
			why += ": " + p.reason
		}
		b.warn(Ref(p.ref), "%s has no validation loss (%s)", p.name, why)
		for i := range b.sets {
			s := &b.sets[i]
			if s.points[0].data == p.data && len(p.settings) == len(s.points[0].settings) && p.conf != nil == (s.points[0].conf != nil) {
				s.points = append(s.points, p)
				break
			}
		}
	}
}

// codes warns of records of several revisions.
func (b *builder) codes() {
	byCode := map[string][]int{}
	var order []string
	for _, s := range b.page.Sources.list {
		if s.Code == "" {
			continue // a member, whose checkpoint does not say it
		}
		if byCode[s.Code] == nil {
			order = append(order, s.Code)
		}
		byCode[s.Code] = append(byCode[s.Code], s.No)
	}
	if len(order) < 2 {
		return
	}
	for _, c := range order {
		b.warn(Ref(byCode[c]...), "not all runs and records are of one revision of the program; these are of %s", short(c))
	}
}

func (b *builder) warn(ref, format string, args ...any) {
	w := Statement{fmt.Sprintf(format, args...), ref}
	if !slices.Contains(b.page.Warnings, w) {
		b.page.Warnings = append(b.page.Warnings, w)
	}
}

// says adds a sentence to the result.
func (b *builder) says(ref, format string, args ...any) {
	b.page.Result = append(b.page.Result, Statement{fmt.Sprintf(format, args...), ref})
}

func (b *builder) section(s Section) { b.page.Sections = append(b.page.Sections, s) }

// curves chooses the runs that have curves of their own: all, or from the best to the
// worst in equal steps, one seed each.
func (b *builder) curves() {
	var withRun []*point
	for _, p := range b.points {
		if p.run != nil {
			withRun = append(withRun, p)
		}
	}
	if len(withRun) > mostCurves {
		b.page.Notes = append(b.page.Notes, fmt.Sprintf("%d of the %d runs have curves: the first seeds of recipes from the best to the worst, in equal steps.", mostCurves, len(withRun)))
		withRun = spreadOut(b.sets, mostCurves)
	}
	for _, p := range withRun {
		b.page.Runs = append(b.page.Runs, p.run)
	}
}

// spreadOut takes the first runs of that many groups, by their losses.
func spreadOut(sets []pointSet, most int) (out []*point) {
	var all []*group
	for _, s := range sets {
		for _, g := range s.groups {
			if len(g.points) > 0 && g.points[0].run != nil {
				all = append(all, g)
			}
		}
	}
	slices.SortStableFunc(all, func(a, b *group) int { return cmp.Compare(a.mean, b.mean) })
	n := min(most, len(all))
	for k := range n {
		i := k
		if n > 1 {
			i = k * (len(all) - 1) / (n - 1)
		}
		out = append(out, all[i].points[0])
	}
	return out
}

// mostRecipes is the length of a table that is still read.
const mostRecipes = 40

// recipes is the table of what was trained, best first, and the first sentences of the result.
func (b *builder) recipes(s *pointSet) {
	list := slices.Clone(s.groups)
	slices.SortStableFunc(list, func(x, y *group) int {
		switch xn, yn := math.IsNaN(x.mean), math.IsNaN(y.mean); {
		case xn && yn:
			return 0
		case xn:
			return 1
		case yn:
			return -1
		}
		return cmp.Compare(x.mean, y.mean)
	})
	best := bestOf(s.groups)
	if best != nil {
		what := "the settings of all runs"
		if best.label != "" {
			what = s.label(best.first.settings)
		}
		if len(list) > 1 {
			b.says(best.ref(), "The lowest validation loss of %d recipes%s is %s, with %s.", len(list), s.name, best.withSpread(), what)
		} else {
			b.says(best.ref(), "The validation loss%s is %s after %s epochs.", s.name, best.withSpread(), number(best.first.epochs))
		}
	}
	var single []int
	for _, g := range list {
		for _, p := range g.points {
			if len(g.points) == 1 && len(list) > 1 {
				single = append(single, p.ref)
			}
		}
	}
	if len(single) > 0 {
		b.warn(Ref(single...), "%d recipe(s)%s have one seed: what another seed would change is not known", len(single), s.name)
	}
	if len(list) < 2 {
		return
	}
	t := Table{Head: []string{"val loss", "spread", "seeds", "train loss", "val - train"},
		Caption: "Means over seeds, in nats a token, on the same validation documents; the spread is the standard deviation over seeds. Train loss is the mean over the last epoch."}
	columns := s.keys
	if len(columns) > mostColumns {
		columns = nil
	}
	t.Head = slices.Concat(s.columns(columns), t.Head)
	anyTrouble := slices.ContainsFunc(list, func(g *group) bool { return g.trouble })
	if anyTrouble {
		t.Head = append(t.Head, "trouble")
	}
	for i, g := range list {
		if i == mostRecipes {
			t.Caption += fmt.Sprintf(" The best %d of %d.", mostRecipes, len(list))
			break
		}
		trouble := ""
		for _, p := range s.points {
			if labelOf(p.settings) == g.label && (math.IsNaN(p.val) || p.status != "done") {
				trouble += fmt.Sprintf("seed %d %s ", p.seed, p.status)
			}
		}
		gap := math.NaN()
		if !math.IsNaN(g.mean) && !math.IsNaN(g.trainMean) {
			gap = g.mean - g.trainMean
		}
		row := []string{}
		for _, k := range columns {
			row = append(row, g.first.settings[k])
		}
		if columns == nil {
			row = append(row, nameOf(s.label(g.first.settings)))
		}
		row = append(row, loss4(g.mean), loss4(g.sd), fmt.Sprint(len(g.points)), loss4(g.trainMean), loss4(gap))
		if anyTrouble {
			row = append(row, strings.TrimSpace(trouble))
		}
		t.add(g.ref(), row...)
	}
	b.section(Section{Title: "Recipes" + s.name, Tables: []Table{t}})
}

// mostColumns is how many settings have columns of their own in the table of recipes.
const mostColumns = 7

// columns are the heads of settings.
func (s *pointSet) columns(keys []string) (head []string) {
	for _, k := range keys {
		head = append(head, s.names[k])
	}
	if keys == nil {
		head = []string{"recipe"}
	}
	return head
}

// nameOf is a label, or words for an empty one.
func nameOf(label string) string {
	if label == "" {
		return "all else equal"
	}
	return label
}

// loss4 is a loss, or nothing.
func loss4(x float64) string {
	if math.IsNaN(x) {
		return ""
	}
	return fmt.Sprintf("%.4f", x)
}

// commands lists what made the records, and what runs share.
func (b *builder) commands() {
	var runs []*Run
	for _, p := range b.points {
		if p.run != nil {
			runs = append(runs, p.run)
		}
	}
	b.page.Facts, b.page.Commands = Provenance(runs)
	for _, f := range b.r.files {
		if c := commandLine(f.head.Command); c != "" && !slices.Contains(b.page.Commands, c) {
			b.page.Commands = append(b.page.Commands, c)
		}
	}
}
