package bench

import (
	"bytes"
	"context"
	"fmt"
	"runtime"
	"time"

	"refrain/tokenize"
)

// TokenizerConfig measures encoding of documents on one thread.
type TokenizerConfig struct {
	Tokenizer *tokenize.Tokenizer
	Name      string // of the vocabulary, for the line
	Docs      [][]byte
	Rounds    int
	Cache     int // bytes of the word cache
	// Peer, when not nil, encodes the same documents between our rounds and
	// returns its CPU time for a first and for a second pass.
	Peer func(ctx context.Context) (cold, warm time.Duration, err error)
}

// CutDocs splits text into documents of about size bytes, at line ends.
func CutDocs(text []byte, size int) (docs [][]byte) {
	for len(text) > 0 {
		n := min(size, len(text))
		if i := bytes.IndexByte(text[n:], '\n'); n < len(text) && i >= 0 && i < size {
			n += i + 1
		}
		docs, text = append(docs, text[:n]), text[n:]
	}
	return docs
}

// Tokenizer returns a line for the first pass of a fresh encoder (cold) and
// one for the second (warm): medians over rounds.
func Tokenizer(ctx context.Context, c TokenizerConfig, emit func(Line)) error {
	var size int
	for _, d := range c.Docs {
		size += len(d)
	}
	var cold, warm, peerCold, peerWarm []time.Duration
	var ratioCold, ratioWarm []float64
	tokens := 0
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	buf := make([]uint32, 0, 1<<20)
	for range c.Rounds {
		if err := ctx.Err(); err != nil {
			return context.Cause(ctx)
		}
		enc := c.Tokenizer.NewEncoder(c.Cache)
		pass := func() time.Duration {
			tokens = 0
			t0 := threadTime()
			for _, d := range c.Docs {
				buf = enc.Append(buf[:0], d)
				tokens += len(buf)
			}
			return threadTime() - t0
		}
		a, b := pass(), pass()
		cold, warm = append(cold, a), append(warm, b)
		if c.Peer != nil {
			pc, pw, err := c.Peer(ctx)
			if err != nil {
				return err
			}
			peerCold, peerWarm = append(peerCold, pc), append(peerWarm, pw)
			ratioCold, ratioWarm = append(ratioCold, pc.Seconds()/a.Seconds()), append(ratioWarm, pw.Seconds()/b.Seconds())
		}
	}
	for _, p := range []struct {
		name       string
		ours, peer []time.Duration
		ratio      []float64
	}{{"cold", cold, peerCold, ratioCold}, {"warm", warm, peerWarm, ratioWarm}} {
		m := median(p.ours)
		l := Line{Name: fmt.Sprintf("Tokenizer/vocab=%s/%s", c.Name, p.name), Threads: 1, N: c.Rounds, PerOp: m,
			Metrics: []Metric{{float64(size) / m.Seconds() / 1e6, "MB/s"}, {float64(tokens) / m.Seconds() / 1e6, "Mtok/s"}, {float64(size) / float64(tokens), "B/tok"}}}
		if c.Peer != nil {
			lo, mid, hi := Quartiles(p.ratio)
			l.Metrics = append(l.Metrics, Metric{float64(size) / median(p.peer).Seconds() / 1e6, "peer-MB/s"},
				Metric{mid, "x-peer"}, Metric{lo, "x-peer-q1"}, Metric{hi, "x-peer-q3"})
		}
		emit(l)
	}
	return nil
}
