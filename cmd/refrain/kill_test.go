package main

import (
	"bytes"
	"flag"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"refrain/internal/num"
	"refrain/internal/run"
	"refrain/stages/evals"
	"refrain/stages/saves"
	"refrain/train/ckpt"
)

var (
	kills    = flag.Int("kills", 40, "how many SIGKILLs TestKill deals out; -short makes it 10 at most")
	killSeed = flag.Uint64("kill-seed", 1, "seed of the times and places of TestKill")
)

// notes prints what a held child has to say where the program prints it.
type notes struct{}

func (notes) Step(run.StepInfo) {}
func (notes) Eval(evals.Result) {}
func (notes) Save(saves.Result) {}
func (notes) Note(text string)  { fmt.Fprintln(os.Stderr, "note "+text) }

// holds are the places in loading, saving and deleting where a child is held
// and killed: after the n-th call of that kind on such a name.
var holds = []struct {
	what, op, glob string
	most           int // the n-th such call, n drawn from 1 to most
	// The pattern LAST stands for the checkpoint of the last step.
}{
	{"in a load, before the tensors of the optimiser", "read", "optimizer.safetensors", 1},
	{"in a load, within a file", "read", "model.safetensors", 2},
	{"temporary folder made", "mkdir", ".tmp-step-*", 3},
	{"weights half written", "write", "model.safetensors", 20},
	{"optimiser written, not synced", "write", "optimizer.safetensors", 20},
	{"a file synced, the others missing", "sync", "model.safetensors", 4},
	{"manifest written, not synced", "write", "manifest.json", 4},
	{"complete under the temporary name", "syncdir", ".tmp-step-*", 4},
	{"renamed, parent not synced", "rename", "step-*", 4},
	{"hint half updated", "write", ".tmp-latest", 4},
	{"old checkpoint renamed for deletion", "rename", ".trash-*", 3},
	{"old checkpoint half deleted", "remove", "model.safetensors", 3},
	{"old checkpoint deleted", "remove", ".trash-*", 3},
	{"last checkpoint renamed", "rename", "LAST", 1},
}

var resumeNote = regexp.MustCompile(`resuming at step ([0-9]+),`)

// killer is the state of one TestKill.
type killer struct {
	conf    string
	draw    func(n uint64) uint64
	span    time.Duration // of the run that nobody kills, from start to exit
	epoch   int64         // steps of an epoch
	ledger  []stepLine
	tensors []byte
	val     stepLine       // the last evaluation
	done    int            // kills so far
	by      map[string]int // kills by kind
	missed  int            // children that ended before their kill
	held    int            // children started to be held at a place
}

// TestKill trains one small model many times, kills it with SIGKILL at random
// times and at chosen places, restarts it on other devices and threads until it
// is done, and compares: final weights, optimiser state, the hash chain and
// every line of the ledger must be those of the run that nobody killed.
func TestKill(t *testing.T) {
	want := *kills
	if testing.Short() {
		want = min(want, 10)
	}
	s := num.NewStream("kills", *killSeed)
	drawn := uint64(0)
	k := &killer{conf: tiny(t), by: map[string]int{}}
	k.draw = func(n uint64) uint64 { drawn++; return s.Uintn(drawn, n) }

	base := filepath.Join(t.TempDir(), "base")
	begin := time.Now()
	p := start(t, nil, asProgram, "train", k.conf, "--out", base)
	if c := p.code(t); c != run.ExitDone {
		t.Fatalf("exit code %d\n%s%s", c, p.out, p.err)
	}
	k.span = time.Since(begin)
	k.ledger, k.tensors = readLedger(t, base), tensors(t, newest(base))
	k.val = lastEval(t, base)
	for _, l := range k.ledger {
		if l.Window*3 < int64(len(k.ledger))*8 { // an epoch is a third of the run
			k.epoch = l.Step
		}
	}
	if len(k.ledger) < 20 || k.epoch < 5 {
		t.Fatalf("the run has %d steps, %d an epoch: too short to be worth killing", len(k.ledger), k.epoch)
	}

	begin = time.Now()
	runs := 0
	for k.done < want && !t.Failed() {
		k.one(t, filepath.Join(t.TempDir(), fmt.Sprintf("run-%d", runs)), int(min(uint64(want-k.done), 2+k.draw(7))))
		runs++
		if k.missed > 4*want+20 {
			t.Fatalf("%d children ended before they could be killed, %d were killed", k.missed, k.done)
		}
	}
	t.Logf("%d kills in %d runs of %d steps in %v; %d more children ended first; by kind %v; seed %d",
		k.done, runs, len(k.ledger), time.Since(begin).Round(time.Second), k.missed, k.by, *killSeed)
}

// one kills a run that many times, unless it is done before, then lets it end.
func (k *killer) one(t *testing.T, out string, n int) {
	t.Helper()
	last := int64(0) // step of the newest resume
	for range n {
		p := k.shoot(t, out)
		last = k.follow(t, p, out, last)
		if c := p.cmd.ProcessState.ExitCode(); c == run.ExitDone {
			k.missed++
			break
		} else if c != -1 {
			t.Fatalf("exit code %d instead of a kill\n%s%s", c, p.out, p.err)
		}
		k.done++
	}
	args, env := k.vary()
	p := start(t, env, append([]string{asProgram, "train", k.conf, "--out", out, "--resume", "auto"}, args...)...)
	if c := p.code(t); c != run.ExitDone {
		t.Fatalf("after %d kills the run ends with code %d\n%s%s", k.done, c, p.out, p.err)
	}
	k.follow(t, p, out, last)
	if e := readExit(t, out); e.Status != "done" || e.Step != int64(len(k.ledger)) {
		t.Errorf("exit.json says %+v", e)
	}
	if got := readLedger(t, out); !slices.Equal(got, k.ledger) {
		t.Errorf("the ledger has %d steps, the run that nobody killed %d; or they differ", len(got), len(k.ledger))
	}
	if !bytes.Equal(tensors(t, newest(out)), k.tensors) {
		t.Error("final weights or moments differ from those of the run that nobody killed")
	}
	if got := lastEval(t, out); got != k.val {
		t.Errorf("the last evaluation is %+v, of the run that nobody killed %+v", got, k.val)
	}
	if bad, _ := filepath.Glob(filepath.Join(out, run.CkptDir, "*.bad*")); len(bad) > 0 {
		t.Errorf("a kill left a published checkpoint that is damaged: %v", bad)
	}
}

// vary chooses devices and threads, none of which may change a bit.
func (k *killer) vary() (args, env []string) {
	return []string{
		fmt.Sprintf("train.devices=%d", 1<<k.draw(3)), fmt.Sprintf("train.threads=%d", 1+k.draw(2)),
	}, []string{fmt.Sprintf("GOMAXPROCS=%d", 1+k.draw(3))}
}

// shoot starts the run and kills it somewhere. The child may end before.
func (k *killer) shoot(t *testing.T, out string) *process {
	t.Helper()
	args, env := k.vary()
	train := append([]string{asProgram, "train", k.conf, "--out", out, "--resume", "auto"}, args...)
	kind := ""
	var p *process
	switch k.draw(8) {
	case 0, 1, 2:
		kind = "any time"
		p = start(t, env, train...)
		select {
		case <-p.done:
		case <-time.After(time.Duration(k.draw(uint64(k.span)))):
		}
	case 3:
		// Every fifth step is evaluated, and the next thing that happens is that.
		kind = "evaluation"
		p = start(t, env, train...)
		after := lastStep(out) + 1 + int64(k.draw(20))
		p.until(t, "an evaluation", func() bool { n := lastStep(out); return n >= after && n%5 == 0 })
	case 4:
		kind = "epoch change"
		p = start(t, env, train...)
		next := (lastStep(out)/k.epoch + 1) * k.epoch
		p.until(t, "the end of an epoch", func() bool { return lastStep(out) >= next })
	default:
		h := holds[k.held%len(holds)] // each has its turn
		k.held++
		kind = h.what
		nth := 1 + k.draw(uint64(h.most))
		glob := h.glob
		if glob == "LAST" {
			glob = ckpt.NameOf(int64(len(k.ledger)))
		}
		p = start(t, env, append([]string{asHeld, h.op, glob, strconv.FormatUint(nth, 10), k.conf, out}, args...)...)
		p.until(t, h.what, func() bool { return strings.Contains(p.out.String(), "held") })
	}
	p.kill()
	if p.cmd.ProcessState.ExitCode() == -1 {
		k.by[kind]++
	}
	return p
}

// follow checks where a child resumed: never before an earlier resume, because
// a good checkpoint stays until two newer ones are good.
func (k *killer) follow(t *testing.T, p *process, out string, last int64) int64 {
	t.Helper()
	if strings.Contains(p.err.String(), "no checkpoint yet") && last > 0 {
		t.Errorf("%s: starts from the beginning after it resumed at step %d", out, last)
	}
	m := resumeNote.FindStringSubmatch(p.err.String())
	if m == nil {
		return last
	}
	step, err := strconv.ParseInt(m[1], 10, 64)
	if err != nil || step > math.MaxInt32 {
		t.Fatalf("resumes at %q: %v", m[1], err)
	}
	if step < last {
		t.Errorf("%s: resumes at step %d after it resumed at step %d", out, step, last)
	}
	return step
}
