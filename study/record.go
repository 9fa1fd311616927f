package study

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"time"

	"refrain/internal/run"
	"refrain/train"
)

// Status is how a cell ended.
type Status string

// The statuses. The first three are final: the same settings come to the same end again.
// A failed cell is tried again when the sweep is started again.
const (
	Done     Status = "done"
	NaN      Status = "nan"      // a loss or norm was not finite
	Diverged Status = "diverged" // the training loss ended above where it began and above that of a uniform guess
	Failed   Status = "failed"
)

// Record is one finished cell, as its file in the registry has it.
type Record struct {
	Version  int               `json:"version"` // 1
	Identity string            `json:"identity"`
	Settings map[string]string `json:"settings"`
	Label    string            `json:"label"` // the settings in the order of the sweep
	Seed     uint64            `json:"seed"`
	Provenance

	Status Status `json:"status"`
	Reason string `json:"reason,omitempty"` // for all but done
	Exit   int    `json:"exit,omitempty"`   // exit code of a run that ended so

	Run    string   `json:"run"`    // folder, inside that of the registry
	RunID  string   `json:"run_id"` //
	Steps  int64    `json:"steps"`  // done
	Loss   *float64 `json:"loss"`   // of the last step, nats; null when there is none that is finite
	Val    *float64 `json:"val"`    // on the whole validation set after the last step, nats
	Tokens int64    `json:"val_tokens"`
	Chain  string   `json:"chain,omitempty"` // hash of everything that was computed
	Params int      `json:"params"`

	Cost        Cost      `json:"cost"`         // as estimated before
	Seconds     float64   `json:"seconds"`      // of training and evaluation
	CoreSeconds float64   `json:"core_seconds"` // times the threads it had
	Threads     int       `json:"threads"`
	Finished    time.Time `json:"finished"`
}

// Final says that training the cell again would come to the same end.
func (r *Record) Final() bool { return r.Status != Failed }

// recordVersion is written and understood.
const recordVersion = 1

// check looks whether a record is whole and what its name says.
func (r *Record) check(name string) error {
	switch {
	case r.Version != recordVersion:
		return fmt.Errorf("version %d; this program reads %d", r.Version, recordVersion)
	case r.Identity != r.Provenance.Identity():
		return errors.New("identity and hashes do not belong together; it was changed by hand or damaged: delete it, and the run is looked at again")
	case r.Name() != name:
		return fmt.Errorf("it is the record of %s", r.Name())
	case r.Status == Done && r.Loss == nil:
		return errors.New("done without a loss")
	}
	return nil
}

func decodeRecord(b []byte) (*Record, error) {
	r := &Record{}
	if err := json.Unmarshal(b, r); err != nil {
		return nil, err
	}
	return r, nil
}

// newRecord begins the record of a cell.
func newRecord(c *Cell, dir string) *Record {
	r := &Record{
		Version: recordVersion, Identity: c.Identity(), Settings: map[string]string{}, Label: c.Label(), Seed: c.Seed,
		Provenance: c.Provenance, Run: dir, Cost: c.Cost,
	}
	for _, s := range c.Settings {
		r.Settings[s.Key] = s.Value
	}
	return r
}

// ended fills in how the run ended. err is that of run.Train.
func (r *Record) ended(s *run.Setup, rec *run.Record, err error) {
	r.Status = Done
	r.Params = s.Options.Model.Layout().Total
	if rec != nil {
		r.RunID, r.Steps, r.Chain = rec.Info.ID, rec.Last.Step, rec.Last.Chain
		// With AnyCode a run may have begun under another revision.
		r.Code = rec.Info.Code
		r.Identity = r.Provenance.Identity()
		if rec.Last.Step > 0 {
			r.Loss = finite(rec.Last.Loss)
		}
		if n := len(rec.Val); n > 0 && rec.Val[n-1].Step == s.Options.Steps && err == nil {
			r.Val, r.Tokens = finite(rec.Val[n-1].Loss), rec.Val[n-1].Tokens
		}
	}
	switch {
	case errors.Is(err, train.ErrNotFinite):
		r.Status, r.Reason, r.Exit = NaN, err.Error(), run.ExitCode(err)
	case err != nil:
		r.Status, r.Reason, r.Exit = Failed, err.Error(), run.ExitCode(err)
	case r.Loss == nil:
		r.Status, r.Reason = Failed, "the run is done, but its metrics.jsonl has no last step"
	case s.Set != nil && r.Val == nil:
		r.Status, r.Reason = Failed, "the run is done, but its metrics.jsonl has no last evaluation"
	default:
		uniform := math.Log(float64(s.Options.Model.Vocab))
		if last, first := rec.Last.Loss, rec.First.Loss; last > first && last > uniform {
			r.Status = Diverged
			r.Reason = fmt.Sprintf("the training loss began at %.4f and ended at %.4f, above the %.4f of a uniform guess", first, last, uniform)
		}
	}
}

func finite(x float64) *float64 {
	if math.IsNaN(x) || math.IsInf(x, 0) {
		return nil
	}
	return &x
}

// Result is the loss that cells are compared by: on the validation set, or that of the
// last step where there is none. NaN for a cell that is not done.
func (r *Record) Result() float64 {
	switch {
	case r.Status != Done:
		return math.NaN()
	case r.Val != nil:
		return *r.Val
	}
	return *r.Loss
}

// Comparable refuses records that must not stand in one fit or table: from other
// documents, another tokenizer, other validation rows or, unless policy is AnyCode, other
// code. The error names two records that differ, and in what. Data of several sizes are
// compared on purpose by data laws: sizes says so, and then only the rest must agree.
func Comparable(records []*Record, policy CodePolicy, sizes bool) error {
	for _, r := range records[min(1, len(records)):] {
		a := records[0]
		for _, f := range []struct {
			what, a, b string
			skip       bool
		}{
			{"training documents (data_hash)", a.DataHash, r.DataHash, sizes},
			{"tokenizer", a.TokenizerHash, r.TokenizerHash, false},
			{"validation documents (val_hash)", a.ValHash, r.ValHash, false},
			{"validation rows", fmt.Sprint(a.ValRows), fmt.Sprint(r.ValRows), false},
			{"code", a.Code, r.Code, policy == AnyCode},
		} {
			if !f.skip && f.a != f.b {
				return fmt.Errorf("records of different %s: %s has %.12s, %s has %.12s; losses of the two do not compare", f.what, a.Run, f.a, r.Run, f.b)
			}
		}
	}
	return nil
}
