package micro

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// batchPoints are the trials of a batch size with the middle model.
func (s scope) batchPoints(b batchTable) []Point {
	list := s.points(s.middle().name, b.tune)
	for i := range list {
		list[i].Batch = b.batch
	}
	return list
}

func (s scope) tunedAt(b batchTable) (Point, bool) { return s.best(s.batchPoints(b)) }

func (s scope) wantBatches(d *demand) {
	for _, b := range s.t.batches {
		s.try(d, s.batchPoints(b))
		if p, ok := s.tunedAt(b); ok {
			s.confirm(d, p)
		}
	}
}

// answerBatches: (f). The best batch is chosen by the mean loss on the split for choices.
func (s scope) answerBatches(a *Answer) {
	single, ok := s.tuned(s.middle())
	if !ok {
		a.fail("the recipe of the usual batch is not known")
		return
	}
	list := []Point{single}
	for _, b := range s.t.batches {
		points := s.batchPoints(b)
		a.Tables = append(a.Tables, s.triedTable(fmt.Sprintf("Tried at a batch of %d", b.batch), points))
		p, ok := s.tunedAt(b)
		if !ok {
			a.fail("no recipe of a batch of %d was trained well", b.batch)
			return
		}
		if at := edges(p, points); at != "" {
			a.note("batch %d: %s", b.batch, at)
		}
		list = append(list, p)
	}
	slices.SortFunc(list, func(x, y Point) int { return cmp.Compare(x.Batch, y.Batch) })
	t := recipeTable("Batch, each tuned", "", "batch")
	best, least := 0, math.Inf(1)
	for i, p := range list {
		t.recipe(s, fmt.Sprint(p.Batch), p)
		if val := meanOf(s.models(p), valOf); val < least {
			best, least = i, val
		}
	}
	a.Tables = append(a.Tables, t)
	s.overRecipes(a, "Batch, each tuned", "rows a step", list, func(p Point) float64 { return float64(p.Batch) })
	var first, last Effect
	for i, p := range list {
		if i == best {
			continue
		}
		e, ok := s.contrast(a, fmt.Sprintf("batch %d minus %d", p.Batch, list[best].Batch), s.sides(p), s.sides(list[best]))
		if !ok {
			return
		}
		if i == 0 {
			first = e
		}
		last = e
	}
	s.bestByPool(a, list)
	if best == 0 || best == len(list)-1 {
		other := last
		if best > 0 {
			other = first
		}
		a.say(NotShown, "a batch of %d is best, an end of the %d sizes compared; the other end costs %v nats", list[best].Batch, len(list), other)
		return
	}
	a.say(all(judge(first, 1), judge(last, 1)), "a batch of %d is best; %d costs %v and %d costs %v nats", list[best].Batch, list[0].Batch, first, list[len(list)-1].Batch, last)
}

// bestByPool says which batch is best on each pool, and how its training loss stands.
func (s scope) bestByPool(a *Answer, list []Point) {
	for _, pool := range s.pools() {
		best, least := Point{}, math.Inf(1)
		lowest, at := Point{}, math.Inf(1)
		for _, p := range list {
			mean, _ := s.r.mean(s.corpus, s.r.sides(p, []int{pool}, s.t.seeds))
			if mean < least {
				best, least = p, mean
			}
			var models []*Model
			for _, m := range s.models(p) {
				if m.Pool == pool {
					models = append(models, m)
				}
			}
			if train := meanOf(models, trainOf); train < at {
				lowest, at = p, train
			}
		}
		a.note("pool %d: the lowest test loss is %.4f at a batch of %d, the lowest training loss %.4f at one of %d", pool, least, best.Batch, at, lowest.Batch)
	}
}
