// Command vulndb makes the advisory check work without a vulnerability server:
// it lays the data of the module golang.org/x/vulndb out as the file database
// that govulncheck reads, and judges govulncheck's answer.
//
//	go run .ci/vulndb/main.go build MODULE_DIR DATABASE_DIR
//	govulncheck -db file://DATABASE_DIR -format json ./... | go run .ci/vulndb/main.go judge
//	govulncheck ... control | go run .ci/vulndb/main.go expect GO-2026-6865
//
// judge exits 1 when a vulnerable function of a dependency can be reached.
// Advisories of the standard library are listed only: a newer toolchain mends
// them, and which one runs is the user's choice. expect exits 1 unless the
// given advisory was found reachable: without such a control, an empty database
// looks like a clean bill.
package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// leastEntries is far below the size of the real data (over 5,000 in 2026): a
// smaller index means that something went wrong while building it.
const leastEntries = 4000

func main() {
	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "vulndb:", err)
		os.Exit(1)
	}
}

func run(args []string) error {
	switch {
	case len(args) == 3 && args[0] == "build":
		return build(args[1], args[2])
	case len(args) == 1 && args[0] == "judge":
		return judge(os.Stdin)
	case len(args) == 2 && args[0] == "expect":
		return expect(os.Stdin, args[1])
	}
	return errors.New("usage: build MODULE_DIR DATABASE_DIR | judge | expect ID")
}

// entry is what the index needs of an OSV record.
type entry struct {
	ID       string   `json:"id"`
	Modified string   `json:"modified"`
	Aliases  []string `json:"aliases,omitempty"`
	Affected []struct {
		Package struct {
			Name string `json:"name"`
		} `json:"package"`
		Ranges []struct {
			Events []struct {
				Fixed string `json:"fixed"`
			} `json:"events"`
		} `json:"ranges"`
	} `json:"affected"`
}

type moduleVuln struct {
	ID       string `json:"id"`
	Modified string `json:"modified"`
	Fixed    string `json:"fixed,omitempty"`
}

type moduleMeta struct {
	Path  string       `json:"path"`
	Vulns []moduleVuln `json:"vulns"`
}

type vulnMeta struct {
	ID       string   `json:"id"`
	Modified string   `json:"modified"`
	Aliases  []string `json:"aliases,omitempty"`
}

// build writes ID/*.json and the three index files.
func build(src, dst string) error {
	paths, err := filepath.Glob(filepath.Join(src, "data", "osv", "*.json"))
	if err != nil {
		return err
	}
	for _, dir := range []string{"ID", "index"} {
		if err := os.MkdirAll(filepath.Join(dst, dir), 0o777); err != nil {
			return err
		}
	}
	modules := map[string]*moduleMeta{}
	var vulns []vulnMeta
	modified := ""
	for _, p := range paths {
		text, err := os.ReadFile(p)
		if err != nil {
			return err
		}
		var e entry
		if err := json.Unmarshal(text, &e); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		if err := os.WriteFile(filepath.Join(dst, "ID", e.ID+".json"), text, 0o666); err != nil {
			return err
		}
		vulns = append(vulns, vulnMeta{e.ID, e.Modified, e.Aliases})
		modified = max(modified, e.Modified) // RFC 3339 in UTC sorts as text
		for _, a := range e.Affected {
			m := modules[a.Package.Name]
			if m == nil {
				m = &moduleMeta{Path: a.Package.Name}
				modules[a.Package.Name] = m
			}
			v := moduleVuln{ID: e.ID, Modified: e.Modified}
			for _, r := range a.Ranges {
				for _, ev := range r.Events {
					if ev.Fixed != "" {
						v.Fixed = ev.Fixed
					}
				}
			}
			if !slices.ContainsFunc(m.Vulns, func(o moduleVuln) bool { return o.ID == v.ID }) {
				m.Vulns = append(m.Vulns, v)
			}
		}
	}
	if len(vulns) < leastEntries {
		return fmt.Errorf("only %d advisories in %s, expected over %d; has the layout of the module changed?", len(vulns), src, leastEntries)
	}
	var list []*moduleMeta
	for _, m := range modules {
		list = append(list, m)
	}
	slices.SortFunc(list, func(a, b *moduleMeta) int { return strings.Compare(a.Path, b.Path) })
	for name, v := range map[string]any{"db": map[string]string{"modified": modified}, "modules": list, "vulns": vulns} {
		text, err := json.Marshal(v)
		if err != nil {
			return err
		}
		if err := os.WriteFile(filepath.Join(dst, "index", name+".json"), text, 0o666); err != nil {
			return err
		}
	}
	fmt.Printf("advisory database: %d entries over %d modules\n", len(vulns), len(list))
	return nil
}

// finding is one message of govulncheck -format json.
type finding struct {
	OSV          string `json:"osv"`
	FixedVersion string `json:"fixed_version"`
	Trace        []struct {
		Module   string `json:"module"`
		Version  string `json:"version"`
		Package  string `json:"package"`
		Function string `json:"function"`
	} `json:"trace"`
}

// reachable reads the findings that name a function, which is govulncheck's
// way to say that it can be called. scanned tells whether a scan took place.
func reachable(r io.Reader) (found []finding, scanned bool, err error) {
	dec := json.NewDecoder(r)
	for {
		var msg struct {
			Config  *struct{}       `json:"config"`
			SBOM    json.RawMessage `json:"SBOM"`
			Finding *finding        `json:"finding"`
		}
		if err := dec.Decode(&msg); errors.Is(err, io.EOF) {
			return found, scanned, nil
		} else if err != nil {
			return nil, false, fmt.Errorf("reading govulncheck's answer: %w", err)
		}
		scanned = scanned || msg.SBOM != nil
		if f := msg.Finding; f != nil && len(f.Trace) > 0 && f.Trace[0].Function != "" {
			found = append(found, *f)
		}
	}
}

func judge(r io.Reader) error {
	found, scanned, err := reachable(r)
	if err != nil {
		return err
	}
	if !scanned {
		return errors.New("govulncheck scanned nothing")
	}
	seen := map[string]bool{}
	bad := 0
	for _, f := range found {
		t := f.Trace[0]
		key := f.OSV + t.Module
		if seen[key] {
			continue
		}
		seen[key] = true
		line := fmt.Sprintf("%s %s@%s, fixed in %s, through %s.%s", f.OSV, t.Module, t.Version, f.FixedVersion, t.Package, t.Function)
		if t.Module == "stdlib" {
			fmt.Println("listed  ", line, "(a newer Go mends it)")
			continue
		}
		bad++
		fmt.Println("REACHED ", line)
	}
	if bad > 0 {
		return fmt.Errorf("%d advisories of dependencies can be reached; raise their versions in go.mod", bad)
	}
	fmt.Printf("no reachable advisory in dependencies (%d of the standard library listed)\n", len(seen))
	return nil
}

func expect(r io.Reader, id string) error {
	found, _, err := reachable(r)
	if err != nil {
		return err
	}
	for _, f := range found {
		if f.OSV == id {
			fmt.Printf("control: %s found in %s@%s, as it must be\n", id, f.Trace[0].Module, f.Trace[0].Version)
			return nil
		}
	}
	return fmt.Errorf("the control module has the vulnerable function of %s, and it was not found: the check is blind", id)
}
