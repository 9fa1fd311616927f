package run

import (
	"errors"
	"fmt"
	"strings"

	"refrain/internal/run/config"
	"refrain/store"
	"refrain/train"
)

// regularize fills in what a step does at random.
func regularize(o *train.Options, c *config.Regularize, m *store.Manifest) error {
	o.Dropout = c.Dropout
	if c.MaskedWeight == 0 {
		return nil
	}
	o.Masked = train.Masked{Weight: c.MaskedWeight, From: c.MaskedFrom, To: c.MaskedTo, ID: -1, Vocab: m.Vocab}
	if c.MaskedID == "eos" {
		if m.Boundary.EOS == nil {
			return errors.New("regularize.masked_id = eos, but no id ends the documents of data.store; use random")
		}
		o.Masked.ID = int(*m.Boundary.EOS)
	}
	return nil
}

// noiseText words what a step does at random; "" for nothing.
func noiseText(o *train.Options) string {
	var parts []string
	if o.Dropout > 0 {
		parts = append(parts, fmt.Sprintf("dropout %g", o.Dropout))
	}
	if m := o.Masked; m.Weight > 0 {
		becomes := "any id"
		if m.ID >= 0 {
			becomes = fmt.Sprintf("id %d", m.ID)
		}
		parts = append(parts, fmt.Sprintf("second loss times %g on rows with %g to %g of the inputs replaced by %s", m.Weight, m.From, m.To, becomes))
	}
	return strings.Join(parts, "  ")
}
