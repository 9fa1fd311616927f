package report

import (
	"bufio"
	_ "embed"
	"encoding/base64"
	"encoding/json"
	"flag"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// keepDir is where pages and pictures of them stay, to be looked at.
var keepDir = flag.String("keep", "", "leave pages and pictures of them in this folder")

// givenPages are pages to look at.
var givenPages = flag.String("pages", "", "also look at these pages, separated by commas")

//go:embed testdata/layout.js
var layoutJS string

// browser is a headless Chromium, spoken to over two pipes.
type browser struct {
	t        *testing.T
	to       *os.File
	from     *bufio.Reader
	id       int
	session  string
	requests []string // URLs that pages asked for, since the last visit
	loaded   bool
}

// openBrowser starts one that ends with the test, or skips the test.
func openBrowser(t *testing.T) *browser {
	t.Helper()
	if *keepDir != "" {
		if err := os.MkdirAll(*keepDir, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	names := []string{"chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome", "chrome-headless-shell", "headless_shell"}
	path := ""
	for _, n := range names {
		if p, err := exec.LookPath(n); err == nil {
			path = p
			break
		}
	}
	if path == "" {
		t.Skipf("no headless browser on the PATH (looked for %s): what the page looks like is not checked", strings.Join(names, ", "))
	}
	// The browser reads its descriptor 3 and writes its descriptor 4.
	in, to, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	from, out, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	c := exec.Command(path, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--no-first-run", "--disable-background-networking",
		"--disable-component-update", "--disable-sync", "--remote-debugging-pipe", "--user-data-dir="+t.TempDir(), "about:blank")
	c.ExtraFiles = []*os.File{in, out}
	if err := c.Start(); err != nil {
		t.Skipf("%s does not start (%v): what the page looks like is not checked", path, err)
	}
	in.Close()
	out.Close()
	b := &browser{t: t, to: to, from: bufio.NewReaderSize(from, 1<<20)}
	if err := from.SetReadDeadline(time.Now().Add(2 * time.Minute)); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.id++
		fmt.Fprintf(to, `{"id":%d,"method":"Browser.close"}`+"\x00", b.id)
		to.Close()
		_ = c.Wait() // it may end with any code: its work is done
		from.Close()
	})
	var target struct{ TargetID string }
	b.call("Target.createTarget", map[string]any{"url": "about:blank"}, &target)
	var session struct{ SessionID string }
	b.call("Target.attachToTarget", map[string]any{"targetId": target.TargetID, "flatten": true}, &session)
	b.session = session.SessionID
	b.call("Page.enable", nil, nil)
	b.call("Network.enable", nil, nil)
	return b
}

// call asks the browser for something and waits for the answer. Events on the way are kept.
func (b *browser) call(method string, params any, answer any) {
	b.t.Helper()
	b.id++
	m := map[string]any{"id": b.id, "method": method}
	if params != nil {
		m["params"] = params
	}
	if b.session != "" {
		m["sessionId"] = b.session
	}
	text, err := json.Marshal(m)
	if err != nil {
		b.t.Fatal(err)
	}
	if _, err := b.to.Write(append(text, 0)); err != nil {
		b.t.Fatalf("%s: %v", method, err)
	}
	for {
		r := b.read(method)
		if r.ID != b.id {
			continue
		}
		if r.Error != nil {
			b.t.Fatalf("%s: %s", method, r.Error)
		}
		if answer != nil {
			if err := json.Unmarshal(r.Result, answer); err != nil {
				b.t.Fatalf("%s: %v", method, err)
			}
		}
		return
	}
}

type message struct {
	ID            int
	Method        string
	Result, Error json.RawMessage
	Params        struct{ Request struct{ URL string } }
}

// read takes one message.
func (b *browser) read(waitingFor string) message {
	b.t.Helper()
	text, err := b.from.ReadBytes(0)
	if err != nil {
		b.t.Fatalf("waiting for %s: %v", waitingFor, err)
	}
	var m message
	if err := json.Unmarshal(text[:len(text)-1], &m); err != nil {
		b.t.Fatalf("waiting for %s: %v", waitingFor, err)
	}
	switch m.Method {
	case "Network.requestWillBeSent":
		b.requests = append(b.requests, m.Params.Request.URL)
	case "Page.loadEventFired":
		b.loaded = true
	}
	return m
}

// visit opens a page in a window that wide, light or dark, and returns what is wrong with
// its layout and the URLs that it asked for.
func (b *browser) visit(path string, width int, scheme string) (problems, requests []string) {
	b.t.Helper()
	b.requests, b.loaded = nil, false
	b.call("Emulation.setDeviceMetricsOverride", map[string]any{"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": false}, nil)
	b.call("Emulation.setEmulatedMedia", map[string]any{"features": []map[string]string{{"name": "prefers-color-scheme", "value": scheme}}}, nil)
	u := url.URL{Scheme: "file", Path: filepath.ToSlash(path)}
	b.call("Page.navigate", map[string]any{"url": u.String()}, nil)
	for !b.loaded {
		b.read("the page")
	}
	var got struct {
		Result           struct{ Value []string }
		ExceptionDetails json.RawMessage
	}
	b.call("Runtime.evaluate", map[string]any{"expression": layoutJS, "returnByValue": true}, &got)
	if got.ExceptionDetails != nil {
		b.t.Fatalf("checking the layout: %s", got.ExceptionDetails)
	}
	if *keepDir != "" {
		var shot struct{ Data string }
		b.call("Page.captureScreenshot", map[string]any{"captureBeyondViewport": true}, &shot)
		png, err := base64.StdEncoding.DecodeString(shot.Data)
		if err != nil {
			b.t.Fatal(err)
		}
		name := fmt.Sprintf("%s-%d-%s.png", strings.TrimSuffix(filepath.Base(path), ".html"), width, scheme)
		if err := os.WriteFile(filepath.Join(*keepDir, name), png, 0o644); err != nil {
			b.t.Fatal(err)
		}
	}
	for _, r := range b.requests {
		if r != u.String() && !strings.HasPrefix(r, "data:") {
			requests = append(requests, r)
		}
	}
	return got.Result.Value, requests
}

// looksRight checks a page on a phone and on a screen, light and dark.
func (b *browser) looksRight(path string) {
	b.t.Helper()
	for _, width := range []int{360, 1200} {
		for _, scheme := range []string{"light", "dark"} {
			problems, requests := b.visit(path, width, scheme)
			for _, p := range problems {
				b.t.Errorf("%d pixels, %s: %s", width, scheme, p)
			}
			for _, r := range requests {
				b.t.Errorf("%d pixels, %s: the page asks for %s", width, scheme, r)
			}
		}
	}
}

// TestLayoutCheckFinds: the check of the layout finds what it is there to find.
func TestLayoutCheckFinds(t *testing.T) {
	b := openBrowser(t)
	path := filepath.Join(t.TempDir(), "bad.html")
	bad := `<!doctype html><html><body style="background: #fff; color: #ccc">
<p style="position: absolute; top: 50px; left: 10px; color: #000">one text</p><p style="position: absolute; top: 52px; left: 14px; color: #000">on another</p>
<svg width="100" height="50" viewBox="0 0 100 50" style="position: absolute; top: 150px"><text x="60" y="20" font-size="12" fill="#000">cut at the edge</text><text x="0" y="40" font-size="3" fill="#000">tiny</text></svg>
<p style="position: absolute; top: 250px; width: 900px">a line that is far wider than any phone, so that a reader has to push the whole page to the side</p>
<div style="position: absolute; top: 350px; width: 60px; overflow: hidden; white-space: nowrap; color: #000">hidden beyond its box</div>
<img src="http://127.0.0.1:9/picture.png"></body></html>`
	if err := os.WriteFile(path, []byte(bad), 0o644); err != nil {
		t.Fatal(err)
	}
	problems, requests := b.visit(path, 360, "light")
	all := strings.Join(problems, "\n")
	for _, want := range []string{`overlap: "one text" and "on another"`, `cut: "cut at the edge"`, `small: "tiny"`, "wider than the window", `contrast: "a line`, `cut: "hidden beyond`} {
		if !strings.Contains(all, want) {
			t.Errorf("%q is not among what was found:\n%s", want, all)
		}
	}
	if len(requests) != 1 || requests[0] != "http://127.0.0.1:9/picture.png" {
		t.Errorf("requests %q", requests)
	}
}
