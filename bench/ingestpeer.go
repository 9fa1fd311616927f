package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"time"

	"refrain/internal/run"
	"refrain/stages/shards"
	"refrain/store"
)

// IngestPeer is a program of others that turns text into ids on disk.
type IngestPeer struct {
	Name string
	Env  string // of bench/peers/install.sh
}

// IngestPeers returns what bench/peers can make a corpus of ids with.
func IngestPeers() []IngestPeer {
	return []IngestPeer{{"datasets", "loaders"}, {"datatrove", "loaders"}}
}

// IngestPeersConfig compares data prepare with the ingests of others: documents in
// JSON lines to ids on disk, with the same vocabulary.
type IngestPeersConfig struct {
	Docs    [][]byte // distinct valid UTF-8
	File    string   // tokenizer.json
	Name    string   // of the vocabulary, for the lines
	Workers int
	Rounds  int
	Dir     string // an empty folder
	Peers   string // folder of the peers
}

// ingested is what came of one ingest.
type ingested struct {
	Wall   float64 `json:"wall_s"`
	CPU    float64 `json:"cpu_s"`  // 0: not known
	Tokens int64   `json:"tokens"` // without boundaries
	Sum    uint64  `json:"sum"`    // of all ids, mod 2^63
	Error  string  `json:"error"`
}

// IngestCompare returns a line for our ingest and one for each peer, each with the
// best of one worker and all, medians of wall time over rounds in which all take
// turns; ours-x is how many times as fast ours was inside a round. A peer whose ids
// are not ours has that as a note instead of a line.
func IngestCompare(ctx context.Context, c IngestPeersConfig, emit func(Line), note func(string)) error {
	inputs, size, err := c.write()
	if err != nil {
		return err
	}
	type side struct {
		name    string
		p       *Peer
		workers int
		wall    []float64
		cpu     []float64
		ratio   []float64
	}
	var sides []*side
	for _, p := range IngestPeers() {
		peer, err := StartPeerIn(ctx, c.Peers, p.Env, "peer_ingest.py", p.Name, c.File)
		if err == nil {
			defer peer.Close()
			var about struct{ Error string }
			if err = json.Unmarshal(peer.About, &about); err == nil && about.Error != "" {
				err = errors.New(about.Error)
			}
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if err != nil {
			note(fmt.Sprintf("peer=%s: %v", p.Name, err))
			continue
		}
		note(fmt.Sprintf("peer %s: %s", p.Name, peer.About))
		sides = append(sides, &side{name: p.Name, p: peer})
	}
	var wall, cpu []float64
	for round := range c.Rounds {
		own, err := c.own(ctx, inputs, round)
		if err != nil {
			return err
		}
		wall, cpu = append(wall, own.Wall), append(cpu, own.CPU)
		for i := 0; i < len(sides); i++ {
			s := sides[i]
			got, err := c.ask(ctx, s.p, inputs, s.workers, own)
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			if err != nil {
				note(fmt.Sprintf("peer=%s: %v", s.name, err))
				sides = append(sides[:i], sides[i+1:]...)
				i--
				continue
			}
			s.workers = got.workers
			s.wall, s.cpu, s.ratio = append(s.wall, got.Wall), append(s.cpu, got.CPU), append(s.ratio, got.Wall/own.Wall)
		}
	}
	line := func(part string, n int, wall, cpu []float64, more ...Metric) {
		_, w, _ := Quartiles(wall)
		_, p, _ := Quartiles(cpu)
		l := Line{Name: fmt.Sprintf("Ingest/vocab=%s/%s", c.Name, part), Threads: n, N: len(wall), PerOp: seconds(w),
			Metrics: append([]Metric{{float64(size) / w / 1e6, "MB/s"}}, more...)}
		if p > 0 {
			l.Metrics = append(l.Metrics, Metric{float64(size) / p / 1e6, "MB/CPU-s"})
		}
		emit(l)
	}
	line("jsonl", c.Workers, wall, cpu)
	for _, s := range sides {
		lo, mid, hi := Quartiles(s.ratio)
		line("peer="+s.name, s.workers, s.wall, s.cpu, Metric{mid, "ours-x"}, Metric{lo, "ours-x-q1"}, Metric{hi, "ours-x-q3"})
	}
	return nil
}

// write makes two files of JSON lines, so that two workers of any program have one
// each.
func (c *IngestPeersConfig) write() (paths []string, size int64, err error) {
	in := filepath.Join(c.Dir, "text")
	if err := os.Mkdir(in, 0o755); err != nil {
		return nil, 0, err
	}
	for k := range 2 {
		path := filepath.Join(in, fmt.Sprintf("%d.jsonl", k))
		f, err := os.Create(path)
		if err != nil {
			return nil, 0, err
		}
		enc := json.NewEncoder(f)
		for i := k * len(c.Docs) / 2; i < (k+1)*len(c.Docs)/2; i++ {
			size += int64(len(c.Docs[i]))
			if err := enc.Encode(map[string]string{"text": string(c.Docs[i])}); err != nil {
				return nil, 0, errors.Join(err, f.Close())
			}
		}
		if err := f.Close(); err != nil {
			return nil, 0, err
		}
		paths = append(paths, path)
	}
	return paths, size, nil
}

// own is our ingest.
func (c *IngestPeersConfig) own(ctx context.Context, inputs []string, round int) (r ingested, err error) {
	out := filepath.Join(c.Dir, fmt.Sprint("store-", round))
	defer os.RemoveAll(out)
	runtime.GC()
	cpu, t0 := processTime(), time.Now()
	got, err := run.Ingest(ctx, run.IngestConfig{
		Inputs: inputs, Options: shards.Options{Field: "text"}, Out: out, Tokenizer: c.File, Workers: c.Workers,
	})
	r.Wall, r.CPU = time.Since(t0).Seconds(), (processTime() - cpu).Seconds()
	if err != nil {
		return r, err
	}
	if n := got.Train.Documents; n != int64(len(c.Docs)) {
		return r, fmt.Errorf("bench: the store has %d documents of %d; they must be distinct and not empty", n, len(c.Docs))
	}
	s, err := store.Open(got.Dir, store.OpenOptions{})
	if err != nil {
		return r, err
	}
	defer s.Close()
	ids := make([]int32, 0)
	for d := range s.NumDocs() {
		n := int(s.Lengths()[d]) - 1 // the boundary is last
		ids = append(ids[:0], make([]int32, n)...)
		s.Copy(d, 0, n, ids)
		for _, id := range ids {
			r.Sum += uint64(id)
		}
		r.Tokens += int64(n)
	}
	return r, nil
}

// asked is an answer with the workers that gave it.
type asked struct {
	ingested
	workers int
}

// ask lets a peer ingest with its workers, or, at first, with one and with all, and
// returns the faster.
func (c *IngestPeersConfig) ask(ctx context.Context, p *Peer, inputs []string, workers int, own ingested) (best asked, err error) {
	try := []int{workers}
	if workers == 0 {
		try = []int{1, 2}
	}
	for _, w := range try {
		out := filepath.Join(c.Dir, "peer")
		var a ingested
		err := p.Ask(map[string]any{"inputs": inputs, "out": out, "workers": w}, &a)
		if rerr := os.RemoveAll(out); err == nil {
			err = rerr
		}
		if err == nil && a.Error != "" {
			err = errors.New(a.Error)
		}
		if err == nil && (a.Tokens != own.Tokens || a.Sum != own.Sum) {
			err = fmt.Errorf("wrong ids: %d that add up to %d, where ours are %d that add up to %d", a.Tokens, a.Sum, own.Tokens, own.Sum)
		}
		if err != nil {
			return best, err
		}
		if best.workers == 0 || a.Wall < best.Wall {
			best = asked{a, w}
		}
	}
	return best, ctx.Err()
}
