// Package chain trains an ensemble whose members teach each other in a row: the first
// learns from the tokens alone, every other one also from the predictions of the member
// before it (the chain of the public slowrun records, where eight members of loss 3.308
// came to 3.126 together). A chain is a folder of run folders; there is no other state,
// so the same call goes on after any stop.
package chain

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"

	"refrain/internal/run"
	"refrain/internal/run/config"
)

// Request says what is trained.
type Request struct {
	Config    string   // file
	Overrides []string // key=value; none of distill, which the chain fills in
	Out       string   // folder of the run folders
	Members   int
	Seed      *uint64 // of the first member, each next one has the next; nil: that of the configuration
	Vary      string  // what the seeds are for: both, init or order

	Weight      float64 // share of the teacher in the loss, above 0 and at most 1
	Temperature float64
	TopK        int // likeliest tokens of the teacher; 0 for all

	Args []string        // command line, for run.json
	Stop <-chan struct{} // closed: save, and end with run.ErrStopped
	// Attend, when not nil, is called before a member is trained, to add to its job, and
	// end, when not nil, when its run has ended.
	Attend func(number int, job *run.Job) (end func(*run.Result, error), err error)
}

// Member is one run of a chain.
type Member struct {
	Run     string   `json:"run"`
	Teacher string   `json:"teacher,omitempty"` // run of the member before
	Seed    uint64   `json:"seed"`
	Steps   int64    `json:"steps"`
	Loss    float64  `json:"loss"` // of the last step, with the teacher's term
	Val     *float64 `json:"val"`  // on the validation set after it; null without one
}

// Dir is the run folder of a member, counted from 1.
func (r *Request) Dir(number int) string {
	return filepath.Join(r.Out, fmt.Sprintf("member-%d", number))
}

// check reports what is wrong before anything starts.
func (r *Request) check() error {
	var errs []error
	bad := func(format string, args ...any) {
		errs = append(errs, &run.Error{Code: run.ExitUsage, Err: fmt.Errorf(format, args...)})
	}
	if r.Members < 2 {
		bad("a chain of %d members; it needs 2 or more", r.Members)
	}
	if !(r.Weight > 0 && r.Weight <= 1) {
		bad("the weight of the teacher is %g; it must be above 0 and at most 1", r.Weight)
	}
	if !(r.Temperature > 0 && r.Temperature <= 100) {
		bad("the temperature is %g; it must be above 0 and at most 100", r.Temperature)
	}
	if r.TopK < 0 {
		bad("the %d likeliest tokens; use 0 for all, or more", r.TopK)
	}
	if r.Out == "" {
		bad("there is no folder to write the members to")
	}
	switch r.Vary {
	case "both", "init", "order":
	default:
		bad("vary %q; use both, init or order", r.Vary)
	}
	for _, o := range r.Overrides {
		if strings.HasPrefix(o, "distill.") || strings.HasPrefix(o, "train.seed=") || strings.HasPrefix(o, "data.seed=") {
			bad("%s: the chain sets this itself for every member", o)
		}
	}
	return errors.Join(errs...)
}

// resolve returns the configuration of a member.
func (r *Request) resolve(number int, base *config.Resolved) (*config.Resolved, uint64, error) {
	first := base.Config.Train.Seed
	if r.Seed != nil {
		first = *r.Seed
	}
	seed := first + uint64(number-1)
	train, data := seed, seed
	switch r.Vary {
	case "init":
		data = *base.Config.Data.Seed
	case "order":
		train = base.Config.Train.Seed
	}
	overrides := append(append([]string{}, r.Overrides...), fmt.Sprintf("train.seed=%d", train), fmt.Sprintf("data.seed=%d", data))
	if number > 1 {
		overrides = append(overrides, fmt.Sprintf("distill.teachers=[%q]", r.Dir(number-1)), fmt.Sprintf("distill.weight=%g", r.Weight),
			fmt.Sprintf("distill.temperature=%g", r.Temperature), fmt.Sprintf("distill.top_k=%d", r.TopK))
	}
	c, err := config.Load(r.Config, overrides)
	if err != nil {
		return nil, 0, err
	}
	return run.Kept(c, r.Dir(number)), seed, nil
}

// Check resolves the first two members, so that what is wrong with a request is said before
// anything is trained. It returns the configuration of the first.
func (r *Request) Check() (*config.Resolved, error) {
	if err := r.check(); err != nil {
		return nil, err
	}
	base, err := config.Load(r.Config, r.Overrides)
	if err != nil {
		return nil, err
	}
	if len(base.Config.Distill.Teachers) > 0 {
		return nil, &run.Error{Code: run.ExitUsage, Err: fmt.Errorf("%s: distill.teachers is set; the chain sets it itself for every member", r.Config)}
	}
	if _, _, err := r.resolve(2, base); err != nil {
		return nil, err
	}
	c, _, err := r.resolve(1, base)
	return c, err
}

// Train brings every member to its end, one after the other, from wherever an earlier call
// left them, and returns them. On an error, be it run.ErrStopped, those that are done are
// returned with it. A member that was trained with other settings, or whose teacher is not
// the one it began with, is refused as a resume of it would be.
func Train(ctx context.Context, r Request) ([]Member, error) {
	if _, err := r.Check(); err != nil {
		return nil, err
	}
	base, err := config.Load(r.Config, r.Overrides)
	if err != nil {
		return nil, err
	}
	var done []Member
	for number := 1; number <= r.Members; number++ {
		m, err := r.train(ctx, number, base)
		if err != nil {
			return done, fmt.Errorf("member %d: %w", number, err)
		}
		done = append(done, *m)
	}
	return done, nil
}

func (r *Request) train(ctx context.Context, number int, base *config.Resolved) (m *Member, err error) {
	c, seed, err := r.resolve(number, base)
	if err != nil {
		return nil, err
	}
	s, err := run.NewSetup(&c.Config, c)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, s.Close()) }()
	job := run.Job{Setup: s, Out: r.Dir(number), Resume: run.ResumeAuto, Args: r.Args, Stop: r.Stop}
	end := func(*run.Result, error) {}
	if r.Attend != nil {
		f, err := r.Attend(number, &job)
		if err != nil {
			return nil, err
		}
		if f != nil {
			end = f
		}
	}
	res, err := run.Train(ctx, job)
	end(res, err)
	if err != nil {
		return nil, err
	}
	m = &Member{Run: job.Out, Seed: seed, Steps: res.Step, Loss: res.Loss}
	if number > 1 {
		m.Teacher = r.Dir(number - 1)
	}
	if res.Val != nil {
		loss := res.Val.Loss
		m.Val = &loss
	}
	return m, nil
}
