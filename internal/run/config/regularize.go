package config

import "fmt"

// Regularize is what a step does at random against learning the data by heart. All of it
// is off unless it is set, and evaluation knows none of it. What is drawn depends on
// train.seed, the step and the place in the batch alone.
type Regularize struct {
	Dropout      float64 `yaml:"dropout" default:"0" min:"0" max:"0.99" hash:"changed" doc:"share dropped from the embeddings and from what each attention and MLP adds; 0 = off"`
	MaskedWeight float64 `yaml:"masked_weight" default:"0" min:"0" max:"100" hash:"changed" doc:"weight of a second next-token loss, on the same rows with some input tokens replaced, beside the first; doubles the cost of a step; 0 = off"`
	MaskedFrom   float64 `yaml:"masked_from" default:"0" min:"0" max:"1" hash:"changed" doc:"least share of its tokens that a masked row loses"`
	MaskedTo     float64 `yaml:"masked_to" default:"0.5" min:"0" max:"1" hash:"changed" doc:"largest; the share of a row is drawn uniformly between the two"`
	MaskedID     string  `yaml:"masked_id" default:"random" enum:"random|eos" hash:"changed" doc:"what a lost token becomes: any id of the store, or the one that ends its documents"`
}

func regularizeRules() []rule {
	return []rule{
		{[]string{"regularize.masked_from", "regularize.masked_to"}, func(c *Config) string {
			if r := c.Regularize; r.MaskedFrom > r.MaskedTo {
				return fmt.Sprintf("regularize.masked_from = %v is more than regularize.masked_to = %v", r.MaskedFrom, r.MaskedTo)
			}
			return ""
		}},
		{[]string{"regularize.masked_weight", "regularize.masked_to"}, func(c *Config) string {
			if r := c.Regularize; r.MaskedWeight > 0 && r.MaskedTo == 0 {
				return "regularize.masked_to = 0 masks nothing, so the second loss would be the first again; raise it, or set regularize.masked_weight = 0"
			}
			return ""
		}},
	}
}
