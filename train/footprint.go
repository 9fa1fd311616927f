package train

import (
	"refrain/gpu"
	"refrain/model"
)

// Use is memory by what it is for.
type Use struct {
	Label string `json:"label"`
	Bytes int64  `json:"bytes"`
}

// Needs is what a step takes on one device.
type Needs struct {
	Memory []Use    // largest part first is not promised; the order is fixed
	Cost   gpu.Cost // of one step
}

// Footprint records the step of o without a device and reports what it needs.
func Footprint(o *Options) (*Needs, error) {
	if err := o.Validate(); err != nil {
		return nil, err
	}
	l := o.Model.Layout()
	p, err := stepProgram(o, l)
	if err != nil {
		return nil, err
	}
	total := int64(l.Total) * 4
	table := int64(o.T) * int64(o.Model.C()/2) * 4
	n := &Needs{
		Cost: p.Cost(),
		Memory: []Use{
			{"params", total}, {"moments", 2 * total}, {"grads", total + 4*int64(o.sums())}, {"activations", p.ArenaBytes()},
			{"batches", int64(o.Slots) * o.deviceLayout().Bytes()}, {"tables and scalars", 2*table + hyperLen*4 + resultLen*4 + 4},
		},
	}
	if o.Distill != nil {
		u := Use{Label: "teachers"}
		for _, e := range o.teacherExterns() {
			u.Bytes += e.bytes
		}
		n.Memory = append(n.Memory, u)
	}
	return n, nil
}

// DecayOf is the treatment of one parameter role.
type DecayOf struct {
	Role   string  `json:"role"`
	Params int     `json:"params"`
	Decay  float64 `json:"decay"`
	LRMul  float64 `json:"lr_mul"`
}

// DecayTable lists weight decay and learning-rate multiplier of every role
// that the model has.
func DecayTable(o *Options) []DecayOf {
	var rows []DecayOf
	for r, rg := range o.Model.Layout().Roles {
		if rg.Len() > 0 {
			rows = append(rows, DecayOf{model.Role(r).String(), rg.Len(), o.Optim.Decay[r], o.Optim.LRMul[r]})
		}
	}
	return rows
}
