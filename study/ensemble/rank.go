package ensemble

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"refrain/study/fit"
)

// Curve is the losses of ensembles of one recipe over the number of members.
type Curve struct {
	Name   string
	Points []fit.Point // x is the number of members
}

// Ranked is a recipe with its places.
type Ranked struct {
	Name string `json:"name"`
	// Rank is the place by the asymptote, from 1; 0 where the law is broken, since its
	// asymptote means nothing.
	Rank int     `json:"rank"`
	E    float64 `json:"E"`
	// SingleRank is the place by the loss of one member, from 1: how the recipe would
	// look to who tunes single models.
	SingleRank int        `json:"single_rank"`
	Single     float64    `json:"single"`
	Last       float64    `json:"last"` // the loss of the most members
	Members    int        `json:"members"`
	Law        fit.Result `json:"law"`
}

// Rank orders recipes by where the losses of their ensembles would end with ever more
// members, which is how hyperparameters of ensembles are chosen (Kim et al. 2025, section
// 4): the best single model and the best member of an ensemble are trained differently. Every
// curve needs the loss of one member and three points. Recipes whose law is broken come
// last. Equal values keep the order of curves.
func Rank(curves []Curve, o fit.Options) ([]Ranked, error) {
	o.Start = fit.Ensemble
	var ranked []Ranked
	for _, c := range curves {
		r := Ranked{Name: c.Name, Single: math.NaN()}
		for _, p := range c.Points {
			if p.X == 1 {
				r.Single = p.Loss
			}
			if int(p.X) > r.Members {
				r.Members, r.Last = int(p.X), p.Loss
			}
		}
		if math.IsNaN(r.Single) {
			return nil, fmt.Errorf("ensemble: %s has no loss of one member", c.Name)
		}
		var err error
		if r.Law, err = fit.Fit(c.Points, o); err != nil {
			return nil, fmt.Errorf("ensemble: %s: %w", c.Name, err)
		}
		r.E = r.Law.E
		ranked = append(ranked, r)
	}
	order := make([]int, len(ranked))
	for i := range order {
		order[i] = i
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(ranked[a].Single, ranked[b].Single) })
	for place, i := range order {
		ranked[i].SingleRank = place + 1
	}
	slices.SortStableFunc(ranked, func(a, b Ranked) int {
		if a.Law.Broken != b.Law.Broken {
			if a.Law.Broken {
				return 1
			}
			return -1
		}
		return cmp.Compare(a.E, b.E)
	})
	for i := range ranked {
		if !ranked[i].Law.Broken {
			ranked[i].Rank = i + 1
		}
	}
	return ranked, nil
}
