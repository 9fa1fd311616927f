package run

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/netip"
	"runtime/pprof"
	"runtime/trace"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"refrain/internal/run/config"
	"refrain/pipeline"
	"refrain/stages/evals"
	"refrain/stages/saves"
)

// Endpoints are the HTTP servers of a run, each only when the configuration
// gives it a loopback address: metrics for Prometheus, and profiles for pprof.
// It is a Watcher, and must be one of the run's for the gauges to move. Nothing
// that a client does can change the run.
type Endpoints struct {
	next    Watcher
	reg     *prometheus.Registry
	g       gauges
	servers []*http.Server
	addrs   []string
	wait    sync.WaitGroup
	profile sync.Mutex // one profile or trace at a time

	mu      sync.Mutex
	running *Running
}

// gauges are the values that steps, evaluations and saves set.
type gauges struct {
	step, epoch, loss, norm, lr, speed, wait, last prometheus.Gauge
	valLoss, valStep                               prometheus.Gauge
	tokens                                         prometheus.Counter
	saves                                          *prometheus.CounterVec
}

// OpenEndpoints binds the addresses of c and begins to serve; it returns nil
// when c asks for none. An address that cannot be bound is an error now, not
// during the run. Calls of the Watcher are passed on to next. Close it.
func OpenEndpoints(c *config.Config, next Watcher) (*Endpoints, error) {
	if c.Metrics.Addr == "" && c.Pprof.Addr == "" {
		return nil, nil
	}
	if next == nil {
		next = silent{}
	}
	e := &Endpoints{next: next, reg: prometheus.NewRegistry()}
	e.register()
	for _, s := range []struct {
		key, addr string
		mux       *http.ServeMux
	}{{"metrics.addr", c.Metrics.Addr, e.metricsMux()}, {"pprof.addr", c.Pprof.Addr, e.pprofMux()}} {
		if s.addr == "" {
			continue
		}
		if err := e.serve(s.key, s.addr, s.mux); err != nil {
			return nil, errors.Join(err, e.Close())
		}
	}
	return e, nil
}

// Addrs are the addresses in use, in the order metrics, pprof, as URLs.
func (e *Endpoints) Addrs() []string { return e.addrs }

func (e *Endpoints) serve(key, addr string, mux *http.ServeMux) error {
	l, err := net.Listen("tcp", addr)
	if err != nil {
		return usage(fmt.Errorf("%s: %w; choose another port, or leave it empty", key, err))
	}
	s := &http.Server{
		Handler:           loopbackOnly(mux),
		ReadHeaderTimeout: 5 * time.Second,
		ReadTimeout:       10 * time.Second,
		WriteTimeout:      60 * time.Second, // a profile takes up to maxProfile
		IdleTimeout:       60 * time.Second,
		MaxHeaderBytes:    16 << 10,
	}
	e.servers = append(e.servers, s)
	path := "/metrics"
	if key == "pprof.addr" {
		path = "/debug/pprof/"
	}
	e.addrs = append(e.addrs, "http://"+l.Addr().String()+path)
	e.wait.Add(1)
	go func() {
		defer e.wait.Done()
		_ = s.Serve(l) // ends with ErrServerClosed, by Close
	}()
	return nil
}

// Close ends the servers and waits for their goroutines. A client that is still
// reading gets a second.
func (e *Endpoints) Close() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	var errs []error
	for _, s := range e.servers {
		if err := s.Shutdown(ctx); err != nil {
			errs = append(errs, s.Close())
		}
	}
	e.wait.Wait()
	return errors.Join(errs...)
}

// loopbackOnly refuses requests whose Host is not a loopback name, so that a
// page from elsewhere cannot reach the server by giving its own name a loopback
// address, and methods that are not reads.
func loopbackOnly(h http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		host := r.Host
		if h, _, err := net.SplitHostPort(host); err == nil {
			host = h
		}
		ip, err := netip.ParseAddr(host)
		if host != "localhost" && (err != nil || !ip.IsLoopback()) {
			http.Error(w, "the Host of the request is not a loopback address", http.StatusForbidden)
			return
		}
		if r.Method != http.MethodGet && r.Method != http.MethodHead {
			http.Error(w, "only GET is served", http.StatusMethodNotAllowed)
			return
		}
		w.Header().Set("X-Content-Type-Options", "nosniff")
		w.Header().Set("Content-Security-Policy", "default-src 'none'")
		h.ServeHTTP(w, r)
	})
}

// Started gives the endpoints the run that has begun; it is for Job.OnStart.
func (e *Endpoints) Started(r *Running) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.running = r
}

func (e *Endpoints) register() {
	gauge := func(name, help string) prometheus.Gauge {
		g := prometheus.NewGauge(prometheus.GaugeOpts{Name: "refrain_" + name, Help: help})
		e.reg.MustRegister(g)
		return g
	}
	e.g = gauges{
		step: gauge("step", "Optimiser steps done."), epoch: gauge("epoch", "Passes over the training data."),
		loss: gauge("loss_nats", "Training loss of the last step."), norm: gauge("grad_norm", "Gradient norm of the last step, before clipping."),
		lr: gauge("learning_rate", "Learning rate of the last step."), speed: gauge("tokens_per_second", "Input tokens a second, since the last logged step."),
		wait: gauge("device_wait_ratio", "Share of the time in which the device had nothing to do, since the last logged step."),
		last: gauge("last_step_timestamp_seconds", "When the last step was reported; stands still when the run hangs."),

		valLoss: gauge("val_loss_nats", "Last validation loss."), valStep: gauge("val_step", "Step of the last validation."),
		tokens: prometheus.NewCounter(prometheus.CounterOpts{Name: "refrain_scored_tokens_total", Help: "Scored targets since this process started."}),
		saves:  prometheus.NewCounterVec(prometheus.CounterOpts{Name: "refrain_saves_total", Help: "Checkpoints by result."}, []string{"result"}),
	}
	e.reg.MustRegister(e.g.tokens, e.g.saves, stageCollector{e})
}

func (e *Endpoints) metricsMux() *http.ServeMux {
	m := http.NewServeMux()
	m.Handle("/metrics", promhttp.HandlerFor(e.reg, promhttp.HandlerOpts{MaxRequestsInFlight: 2, Timeout: 10 * time.Second}))
	return m
}

// Step implements Watcher.
func (e *Endpoints) Step(i StepInfo) {
	e.g.step.Set(float64(i.Step))
	e.g.epoch.Set(i.Epoch)
	e.g.loss.Set(i.Loss)
	e.g.norm.Set(i.Norm)
	e.g.lr.Set(i.LR)
	e.g.tokens.Add(float64(i.Tokens))
	e.g.last.SetToCurrentTime()
	if i.TokensSec > 0 {
		e.g.speed.Set(i.TokensSec)
		e.g.wait.Set(i.Wait)
	}
	e.next.Step(i)
}

// Eval implements Watcher.
func (e *Endpoints) Eval(r evals.Result) {
	e.g.valLoss.Set(r.Loss)
	e.g.valStep.Set(float64(r.Step))
	e.next.Eval(r)
}

// Save implements Watcher.
func (e *Endpoints) Save(r saves.Result) {
	result := "ok"
	if r.Err != nil && r.Path == "" {
		result = "failed"
	}
	e.g.saves.WithLabelValues(result).Inc()
	e.next.Save(r)
}

// Note implements Watcher.
func (e *Endpoints) Note(text string) { e.next.Note(text) }

// stageCollector reads the statistics of the stages when they are asked for.
type stageCollector struct{ e *Endpoints }

var stageMetrics = [...]struct {
	name, help string
	kind       prometheus.ValueType
	of         func(s *pipeline.StageStats) float64
}{
	{"refrain_stage_items_total", "Items a stage has sent, or received at the end of the chain.", prometheus.CounterValue, func(s *pipeline.StageStats) float64 { return float64(s.Items) }},
	{"refrain_stage_bytes_total", "Bytes of these items.", prometheus.CounterValue, func(s *pipeline.StageStats) float64 { return float64(s.Bytes) }},
	{"refrain_stage_busy_seconds_total", "Time a stage has worked.", prometheus.CounterValue, func(s *pipeline.StageStats) float64 { return s.Busy.Seconds() }},
	{"refrain_stage_starved_seconds_total", "Time a stage has waited for input.", prometheus.CounterValue, func(s *pipeline.StageStats) float64 { return s.Starved.Seconds() }},
	{"refrain_stage_blocked_seconds_total", "Time a stage has waited for room.", prometheus.CounterValue, func(s *pipeline.StageStats) float64 { return s.Blocked.Seconds() }},
	{"refrain_stage_queue_items", "Items waiting behind a stage.", prometheus.GaugeValue, func(s *pipeline.StageStats) float64 { return float64(s.QueueLen) }},
}

// Describe implements prometheus.Collector: what is there depends on the run,
// so nothing is promised.
func (stageCollector) Describe(chan<- *prometheus.Desc) {}

// Collect implements prometheus.Collector.
func (c stageCollector) Collect(ch chan<- prometheus.Metric) {
	c.e.mu.Lock()
	r := c.e.running
	c.e.mu.Unlock()
	if r == nil {
		return
	}
	rows := r.Pipeline.Stats()
	for _, m := range stageMetrics {
		d := prometheus.NewDesc(m.name, m.help, []string{"stage"}, nil)
		for i := range rows {
			ch <- prometheus.MustNewConstMetric(d, m.kind, m.of(&rows[i]), rows[i].Name)
		}
	}
}

// maxProfile bounds a CPU profile or an execution trace.
const maxProfile = 30 * time.Second

// pprofMux serves what go tool pprof and go tool trace ask for. It is written
// on runtime/pprof, because the package net/http/pprof puts its handlers into
// the server of whoever links it.
func (e *Endpoints) pprofMux() *http.ServeMux {
	m := http.NewServeMux()
	m.HandleFunc("/debug/pprof/{$}", func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		fmt.Fprintf(w, "profile?seconds=10\ntrace?seconds=5\n")
		for _, p := range pprof.Profiles() {
			fmt.Fprintln(w, p.Name())
		}
	})
	m.HandleFunc("/debug/pprof/{name}", func(w http.ResponseWriter, r *http.Request) {
		name := r.PathValue("name")
		switch name {
		case "profile":
			e.record(w, r, 10*time.Second, pprof.StartCPUProfile, pprof.StopCPUProfile)
			return
		case "trace":
			e.record(w, r, time.Second, trace.Start, trace.Stop)
			return
		}
		p := pprof.Lookup(name)
		if p == nil {
			http.NotFound(w, r)
			return
		}
		debug, err := strconv.Atoi(r.FormValue("debug"))
		if err != nil || debug < 0 || debug > 2 {
			debug = 0
		}
		w.Header().Set("Content-Type", "application/octet-stream")
		if debug > 0 {
			w.Header().Set("Content-Type", "text/plain; charset=utf-8")
		}
		_ = p.WriteTo(w, debug) // the client is gone
	})
	return m
}

// record runs a profiler for the time asked for.
func (e *Endpoints) record(w http.ResponseWriter, r *http.Request, d time.Duration, start func(io.Writer) error, stop func()) {
	if text := r.FormValue("seconds"); text != "" {
		s, err := strconv.ParseFloat(text, 64)
		if err != nil || !(s > 0) || s > maxProfile.Seconds() {
			http.Error(w, fmt.Sprintf("seconds must be above 0 and at most %g", maxProfile.Seconds()), http.StatusBadRequest)
			return
		}
		d = time.Duration(s * float64(time.Second))
	}
	if !e.profile.TryLock() {
		http.Error(w, "a profile is being taken; one at a time", http.StatusConflict)
		return
	}
	defer e.profile.Unlock()
	w.Header().Set("Content-Type", "application/octet-stream")
	if err := start(w); err != nil {
		http.Error(w, err.Error(), http.StatusInternalServerError)
		return
	}
	defer stop()
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-r.Context().Done():
	}
}
