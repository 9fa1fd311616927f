package bench

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"refrain/tokenize"
)

// fakePeers makes a folder of peers whose Python is a shell, so that peer.py is a shell
// script.
func fakePeers(t *testing.T, python, script string) string {
	t.Helper()
	if runtime.GOOS == "windows" {
		t.Skip("the fake Python is a shell script")
	}
	dir := t.TempDir()
	bin := filepath.Join(dir, ".env", "bin")
	if err := os.MkdirAll(bin, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(bin, "python"), []byte(python), 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "peer.py"), []byte(script), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir
}

const shell = "#!/bin/sh\nexec /bin/sh \"$@\"\n"

// TestBrokenPeers: whatever is wrong with a peer, the error is one line that says it.
func TestBrokenPeers(t *testing.T) {
	for name, c := range map[string]struct {
		python, script string
		says           []string
		starts         bool // and breaks when it is asked
	}{
		"a module that is not there": {shell, "echo Traceback >&2; echo \"ModuleNotFoundError: No module named 'torch'\" >&2; exit 1\n",
			[]string{"peer.py: it ended without an answer (exit status 1)", "No module named 'torch'"}, false},
		"killed while it starts":         {shell, "kill -9 $$\n", []string{"signal: killed"}, false},
		"an answer of another kind":      {shell, "echo hello; read x\n", []string{`it answered "hello"`}, false},
		"a Python of a system that went": {"#!/nowhere/python3\n", "", []string{"peer.py: fork/exec", "no such file"}, false},
		"breaks when it is asked":        {shell, "echo '{\"ready\": 1}'; read x; echo MemoryError >&2; exit 3\n", []string{"it ended without an answer (exit status 3): MemoryError"}, true},
		"ends before it is asked":        {shell, "echo '{\"ready\": 1}'\n", []string{"it ended"}, true},
	} {
		t.Run(name, func(t *testing.T) {
			p, err := StartPeer(t.Context(), fakePeers(t, c.python, c.script), "peer.py")
			if (err == nil) != c.starts {
				t.Fatalf("start: %v", err)
			}
			if err == nil {
				var v any
				err = p.Ask(map[string]int{}, &v)
				if err := p.Close(); err != nil {
					t.Errorf("closed once more: %v", err)
				}
			}
			for _, s := range c.says {
				if err == nil || !strings.Contains(err.Error(), s) || strings.Contains(err.Error(), "\n") {
					t.Errorf("%v, want one line with %q", err, s)
				}
			}
		})
	}
	if _, err := StartPeer(t.Context(), t.TempDir(), "peer.py"); err == nil || !strings.Contains(err.Error(), "not installed") || !strings.Contains(err.Error(), "install.sh") {
		t.Errorf("nothing installed: %v", err)
	}
}

// TestPeerAnswers: a peer that is not broken answers, and its notes do no harm.
func TestPeerAnswers(t *testing.T) {
	dir := fakePeers(t, shell, "echo warning >&2; echo '{\"about\": 7}'; while read x; do echo '{\"n\": 5}'; done\n")
	p, err := StartPeer(t.Context(), dir, "peer.py")
	if err != nil {
		t.Fatal(err)
	}
	for range 3 {
		var v struct{ N int }
		if err := p.Ask(map[string]int{}, &v); err != nil || v.N != 5 {
			t.Fatalf("%+v, %v", v, err)
		}
	}
	if err := p.Close(); err != nil || string(p.About) != `{"about": 7}` {
		t.Errorf("about %s, %v", p.About, err)
	}
}

// TestLostPeers: a peer that breaks between two rounds loses its row and nothing else.
func TestLostPeers(t *testing.T) {
	broken := errors.New("broken")
	docs := tokenizerDocs()
	tok, err := tokenize.Train(t.Context(), tokenize.TrainConfig{Vocab: 280, Family: "r50k", Workers: 1}, docSeq(docs))
	if err != nil {
		t.Fatal(err)
	}
	for name, measure := range map[string]func(ctx context.Context, lost Lost, emit func(Line)) error{
		"tokenizer": func(ctx context.Context, lost Lost, emit func(Line)) error {
			asked := 0
			return Tokenizer(ctx, TokenizerConfig{Tokenizer: tok, Name: "v", Docs: docs, Rounds: 3, Lost: lost,
				Peers: []TokenizerPeer{{"p", func(context.Context) (Encoded, error) {
					if asked++; asked == 2 {
						return Encoded{}, broken
					}
					return Encoded{1, 1, 1, ""}, nil
				}}}}, emit)
		},
		"train": func(ctx context.Context, lost Lost, emit func(Line)) error {
			return TrainTokenizer(ctx, TrainTokenizerConfig{Vocab: 280, Family: "r50k", Docs: docs, Workers: 1, Rounds: 2, Lost: lost,
				Peer: func(context.Context) (Trained, error) { return Trained{}, broken }}, emit)
		},
	} {
		t.Run(name, func(t *testing.T) {
			var lines, why []string
			emit := func(l Line) {
				lines = append(lines, l.String())
			}
			if err := measure(t.Context(), func(peer string, err error) { why = append(why, fmt.Sprint(peer, ": ", err)) }, emit); err != nil {
				t.Fatal(err)
			}
			if len(why) != 1 || !strings.HasSuffix(why[0], ": broken") || len(lines) == 0 || strings.Contains(strings.Join(lines, "\n"), "peer") {
				t.Errorf("reasons %q, lines %q", why, lines)
			}
			if err := measure(t.Context(), nil, emit); !errors.Is(err, broken) {
				t.Errorf("with nobody to tell: %v", err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			cancel()
			if err := measure(ctx, func(string, error) { t.Error("the end of the command was taken for a broken peer") }, emit); !errors.Is(err, context.Canceled) {
				t.Errorf("cancelled: %v", err)
			}
		})
	}
}
