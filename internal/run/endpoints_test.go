package run_test

import (
	"io"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"refrain/internal/run"
)

// get asks url with a Host header and returns status and body.
func get(t *testing.T, method, url, host string) (int, string) {
	t.Helper()
	req, err := http.NewRequestWithContext(t.Context(), method, url, nil)
	if err != nil {
		t.Fatal(err)
	}
	if host != "" {
		req.Host = host
	}
	c := http.Client{Transport: &http.Transport{DisableKeepAlives: true}}
	res, err := c.Do(req)
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	b, err := io.ReadAll(res.Body)
	if err != nil {
		t.Fatal(err)
	}
	return res.StatusCode, string(b)
}

// during calls f once, at the first step of a run that goes on until f is done.
type during struct {
	run.Watcher
	f func()
}

func (d *during) Step(i run.StepInfo) {
	d.Watcher.Step(i)
	if d.f != nil {
		d.f()
		d.f = nil
	}
}

func TestEndpoints(t *testing.T) {
	s := setup(t, makeStore(t, 64), "metrics.addr=127.0.0.1:0", "pprof.addr=localhost:0")
	e, err := run.OpenEndpoints(s.Config, nil)
	if err != nil {
		t.Fatal(err)
	}
	addrs := e.Addrs()
	if len(addrs) != 2 {
		t.Fatalf("serving %v, want two addresses", addrs)
	}
	look := func() {
		status, body := get(t, "GET", addrs[0], "")
		for _, want := range []string{"refrain_step 1\n", "refrain_loss_nats ", "refrain_last_step_timestamp_seconds ",
			`refrain_stage_items_total{stage="batch"} `, `refrain_stage_busy_seconds_total{stage="step"} `} {
			if status != 200 || !strings.Contains(body, want) {
				t.Errorf("metrics: status %d, without %q:\n%s", status, want, body)
			}
		}
		for _, c := range []struct {
			method, url, host string
			want              int
		}{
			{"GET", addrs[0], "evil.example", 403},
			{"GET", addrs[0], "10.0.0.1:80", 403},
			{"GET", addrs[0], "localhost:9090", 200},
			{"POST", addrs[0], "", 405},
			{"GET", addrs[0] + "/../debug/pprof/", "", 404}, // profiles are on the other server only
			{"GET", addrs[1], "", 200},
			{"GET", addrs[1] + "heap", "", 200},
			{"GET", addrs[1] + "goroutine?debug=1", "", 200},
			{"GET", addrs[1] + "nothing", "", 404},
			{"GET", addrs[1] + "profile?seconds=31", "", 400},
			{"GET", addrs[1] + "profile?seconds=-1", "", 400},
			{"GET", addrs[1] + "profile?seconds=0.05", "", 200},
			{"GET", addrs[1] + "heap", "evil.example", 403},
			{"POST", addrs[1] + "heap", "", 405},
		} {
			if got, body := get(t, c.method, c.url, c.host); got != c.want {
				t.Errorf("%s %s with host %q: status %d, want %d: %s", c.method, c.url, c.host, got, c.want, body)
			}
		}
	}
	job := run.Job{Setup: s, Out: filepath.Join(t.TempDir(), "run"), Watch: &during{e, look}, OnStart: e.Started}
	if _, err := run.Train(t.Context(), job); err != nil {
		t.Error(err)
	}
	if _, body := get(t, "GET", addrs[0], ""); !strings.Contains(body, `refrain_saves_total{result="ok"}`) || !strings.Contains(body, "refrain_val_loss_nats ") {
		t.Errorf("after the run the metrics are\n%s", body)
	}
	// A port that is taken is found out before anything starts.
	taken := strings.TrimSuffix(strings.TrimPrefix(addrs[0], "http://"), "/metrics")
	if _, err := run.OpenEndpoints(setup(t, s.Config.Data.Store, "metrics.addr="+taken).Config, nil); run.ExitCode(err) != run.ExitUsage {
		t.Errorf("a taken port gives %v", err)
	}
	if err := e.Close(); err != nil {
		t.Error(err)
	}
	if e, err := run.OpenEndpoints(setup(t, s.Config.Data.Store).Config, nil); e != nil || err != nil {
		t.Errorf("without addresses there are endpoints %v, %v", e, err)
	}
}

func TestLog(t *testing.T) {
	s := setup(t, makeStore(t, 64), "train.epochs=", "train.steps=9", "save.every=4")
	out := filepath.Join(t.TempDir(), "run")
	log := run.NewLog(out, nil, nil)
	res, err := run.Train(t.Context(), run.Job{Setup: s, Out: out, Watch: log, OnStart: func(r *run.Running) { log.Started(s, r) }})
	if err := log.End(res, err); err != nil {
		t.Fatal(err)
	}
	b, err := os.ReadFile(filepath.Join(out, run.LogFile))
	if err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSpace(string(b)), "\n")
	if first, last := lines[0], lines[len(lines)-1]; !strings.Contains(first, `"msg":"started"`) || !strings.Contains(last, `"msg":"done"`) {
		t.Errorf("log.jsonl begins with %s and ends with %s", first, last)
	}
	if !strings.Contains(string(b), `"msg":"checkpoint saved"`) || !strings.Contains(string(b), `"msg":"evaluated"`) {
		t.Errorf("log.jsonl is\n%s", b)
	}
	// A run that is refused leaves no log.
	other := filepath.Join(t.TempDir(), "run")
	log = run.NewLog(other, nil, nil)
	res, err = run.Train(t.Context(), run.Job{Setup: s, Out: other, Resume: run.ResumeMust, Watch: log})
	if err == nil || log.End(res, err) != nil {
		t.Errorf("a refused run ended with %v", err)
	}
	if _, err := os.Stat(filepath.Join(other, run.LogFile)); err == nil {
		t.Error("a refused run has a log")
	}
}
