package bench

import (
	"refrain/internal/run"
	"runtime/debug"
	"strings"
	"testing"
)

func TestStamp(t *testing.T) {
	asked := 0
	git := func() (string, bool) { asked++; return "abc+dirty", true }
	none := func() (string, bool) { asked++; return "", false }
	vcs := []debug.BuildSetting{{Key: "vcs.revision", Value: "123"}, {Key: "vcs.modified", Value: "false"}}
	hash := strings.Repeat("0f", 32)
	for _, k := range []struct {
		settings     []debug.BuildSetting
		version, exe string
		git          func() (string, bool)
		code, built  string
		mayAsk       bool
	}{
		{vcs, "v0.0.0-1", "bin/refrain", git, "123", "go build", false},
		{[]debug.BuildSetting{vcs[0], {Key: "vcs.modified", Value: "true"}}, "", "bin/refrain", git, "123+dirty", "go build", false},
		{nil, "(devel)", "x/go-build12/b001/exe/refrain", git, "abc+dirty", "go run", true},
		{nil, "(devel)", "cache/0f/" + hash + "-d/refrain", git, "abc+dirty", "go run", true},
		{nil, "(devel)", "x/go-build12/b001/exe/refrain", none, "unknown", "go run", true},
		{nil, "(devel)", "bin/refrain", git, "unknown", "go build", false}, // the tree around it may be another
		{nil, "v1.2.3", "bin/refrain", git, "v1.2.3", "go build", false},
	} {
		asked = 0
		info := &debug.BuildInfo{Main: debug.Module{Version: k.version}, Settings: k.settings}
		if code, built := stampOf(info, k.exe, k.git); code != k.code || built != k.built || (asked > 0) != k.mayAsk {
			t.Errorf("%+v: %s, %s, git asked %d times", k, code, built, asked)
		}
	}
	if rev, ok := gitRevision(); ok && len(strings.TrimSuffix(rev, run.DirtyMark)) < 40 {
		t.Errorf("git says %q", rev)
	}
	t.Chdir(t.TempDir())
	if rev, ok := gitRevision(); ok {
		t.Errorf("a folder that is no source tree has revision %q", rev)
	}
}
