package bench

import (
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime/debug"
	"strings"

	"refrain/internal/run"
)

// How a program came to be, in Record.Built.
const (
	builtByBuild = "go build"
	builtByRun   = "go run" // or go test
)

// stamp says which code this program is and how it was built. go build keeps the
// revision; go run does not, so then git is asked, if the program runs in a source
// tree of its own. Otherwise the code is "unknown".
func stamp() (code, built string) {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown", "unknown"
	}
	exe, err := os.Executable()
	if err != nil {
		exe = ""
	}
	return stampOf(info, exe, gitRevision)
}

// stampOf is stamp of what it looks at.
func stampOf(info *debug.BuildInfo, exe string, git func() (string, bool)) (code, built string) {
	rev := run.Revision(info)
	switch {
	case rev != "":
		return rev, builtByBuild
	case ofGoRun(exe):
		if rev, ok := git(); ok {
			return rev, builtByRun
		}
		return "unknown", builtByRun
	case info.Main.Version != "" && info.Main.Version != "(devel)":
		return info.Main.Version, builtByBuild // installed as a module
	}
	return "unknown", builtByBuild
}

// cached is the name of a folder of the build cache that holds a program.
var cached = regexp.MustCompile(`^[0-9a-f]{64}-d$`)

// ofGoRun tells whether a program lies where go run puts it: in a temporary folder
// go-build..., or in the build cache.
func ofGoRun(exe string) bool {
	for part := range strings.SplitSeq(filepath.ToSlash(filepath.Dir(exe)), "/") {
		if strings.HasPrefix(part, "go-build") || cached.MatchString(part) {
			return true
		}
	}
	return false
}

// gitRevision asks git for the revision of the source tree of this program around the
// working directory. Records and documents are no source.
func gitRevision() (string, bool) {
	root, err := exec.Command("git", "rev-parse", "--show-toplevel").Output()
	if err != nil {
		return "", false
	}
	top := strings.TrimSpace(string(root))
	if mod, err := os.ReadFile(filepath.Join(top, "go.mod")); err != nil || !strings.HasPrefix(string(mod), "module refrain\n") {
		return "", false
	}
	rev, err := exec.Command("git", "rev-parse", "HEAD").Output()
	if err != nil {
		return "", false
	}
	code := strings.TrimSpace(string(rev))
	changed, err := exec.Command("git", "-C", top, "status", "--porcelain", "--", ".", ":(exclude)bench/results", ":(exclude)docs").Output()
	if err != nil || len(changed) > 0 {
		code += run.DirtyMark
	}
	return code, true
}
