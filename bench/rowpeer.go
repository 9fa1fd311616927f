package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"refrain/stages/repack"
)

// RowPeer is a loader of others that can be measured on rows.
type RowPeer struct {
	Name string
	Env  string // of bench/peers/install.sh
}

// RowPeers returns the loaders that bench/peers knows.
func RowPeers() []RowPeer {
	return []RowPeer{
		{"numpy", ""}, {"torch", ""}, {"datasets", "loaders"}, {"grain", "loaders"}, {"litdata", "loaders"},
		{"webdataset", "loaders"}, {"streaming", "mosaic"}, {"megatron", "megatron"}, {"olmo", "olmo"}, {"llmc", "llmc"},
	}
}

// peerRows is a running RowPeer.
type peerRows struct {
	p        *Peer
	c        *RowCorpus
	Versions map[string]string `json:"versions"`
	Sets     []string          `json:"settings"`
	Modes    []string          `json:"modes"`
	Error    string            `json:"error"`
}

// StartRowPeer starts a peer of dir on the corpus and waits until it has written
// what it reads. The error says why there is none: not installed, or what failed.
func StartRowPeer(ctx context.Context, dir string, r RowPeer, c *RowCorpus) (l Loads, versions map[string]string, done func() error, err error) {
	work := filepath.Join(c.Dir, r.Name)
	if err := os.MkdirAll(work, 0o755); err != nil {
		return nil, nil, nil, err
	}
	spec, err := json.Marshal(map[string]any{
		"dir": work, "stream": c.Stream, "rows": c.Rows, "docs": c.Docs, "lengths": c.Lengths, "T": c.T, "B": c.B, "W": c.W,
	})
	if err != nil {
		return nil, nil, nil, err
	}
	var p *Peer
	if r.Env == "llmc" { // a program of its own
		loader := filepath.Join(peerFolder(dir, r.Env), "loader")
		if _, err := os.Stat(loader); err != nil {
			return nil, nil, nil, notInstalled(dir, r.Env, loader)
		}
		p, err = startProgram(ctx, dir, r.Name, loader, c.Stream, work, fmt.Sprint(c.B), fmt.Sprint(c.T), fmt.Sprint(c.W))
	} else {
		p, err = StartPeerIn(ctx, dir, r.Env, "peer_rows.py", r.Name, string(spec))
	}
	if err != nil {
		return nil, nil, nil, err
	}
	l2 := &peerRows{p: p, c: c}
	if err := json.Unmarshal(p.About, l2); err != nil {
		return nil, nil, nil, errors.Join(fmt.Errorf("peer %s: %w", r.Name, err), p.Close())
	}
	if l2.Error != "" {
		p.Close()
		return nil, nil, nil, errors.New(l2.Error)
	}
	if len(l2.Sets) == 0 {
		p.Close()
		return nil, nil, nil, fmt.Errorf("peer %s names no setting", r.Name)
	}
	return l2, l2.Versions, p.Close, nil
}

// errMode marks a mode that a loader does not have.
var errMode = errors.New("this loader has no such mode")

func (l *peerRows) Settings() []string { return l.Sets }

func (l *peerRows) ask(ctx context.Context, mode repack.Mode, q map[string]any, v any) error {
	if !slices.Contains(l.Modes, mode.String()) {
		return errMode
	}
	if err := ctx.Err(); err != nil {
		return context.Cause(ctx)
	}
	q["mode"] = mode.String()
	var raw json.RawMessage
	if err := l.p.Ask(q, &raw); err != nil {
		return err
	}
	var failed struct{ Error string }
	if err := json.Unmarshal(raw, &failed); err != nil {
		return err
	}
	if failed.Error != "" {
		return errors.New(failed.Error)
	}
	return json.Unmarshal(raw, v)
}

func (l *peerRows) Deliver(ctx context.Context, setting string, mode repack.Mode, epoch int, limit, pace time.Duration) (d Delivery, err error) {
	var a struct {
		Tokens int64   `json:"tokens"`
		Wall   float64 `json:"wall_s"`
		CPU    float64 `json:"cpu_s"`
		First  float64 `json:"first_s"`
		P50    float64 `json:"p50_s"`
		P99    float64 `json:"p99_s"`
		Most   float64 `json:"max_s"`
		Found  float64 `json:"found"`
	}
	err = l.ask(ctx, mode, map[string]any{"setting": setting, "epoch": epoch, "limit": limit.Seconds(), "pace": pace.Seconds()}, &a)
	if err != nil {
		return d, err
	}
	if a.Tokens == 0 || a.Wall <= 0 {
		return d, fmt.Errorf("no second batch within %v", limit)
	}
	d = Delivery{Tokens: a.Tokens, Wall: seconds(a.Wall), CPU: seconds(a.CPU), First: seconds(a.First), Found: a.Found}
	d.Wait.P50, d.Wait.P99, d.Wait.Most = seconds(a.P50), seconds(a.P99), seconds(a.Most)
	return d, nil
}

func (l *peerRows) Epoch(ctx context.Context, setting string, mode repack.Mode, epoch int) (rows, docs Digest, err error) {
	path := filepath.Join(l.c.Dir, "dump.i32")
	defer os.Remove(path)
	var a struct {
		Rows int64 `json:"rows"`
	}
	if err := l.ask(ctx, mode, map[string]any{"setting": setting, "epoch": epoch, "dump": path}, &a); err != nil {
		return rows, docs, err
	}
	if mode == repack.Repack {
		return l.c.partsFile(path)
	}
	rows, err = digestFile(path, l.c.T)
	return rows, docs, err
}
