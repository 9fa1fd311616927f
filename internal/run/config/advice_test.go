package config

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// TestAdviceCanBeFollowed: errors of the readers tell the user to set keys of
// the section data, and docs/formats/inputs.md lists them. Each must exist.
func TestAdviceCanBeFollowed(t *testing.T) {
	var known []string
	for _, f := range table().leaves {
		known = append(known, f.path)
	}
	files, err := filepath.Glob("../../../stages/shards/*.go")
	if err != nil || len(files) == 0 {
		t.Fatalf("%d files of stages/shards: %v", len(files), err)
	}
	named := 0
	for _, path := range append(files, "../../../docs/formats/inputs.md") {
		b, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		for _, key := range regexp.MustCompile(`\bdata\.[a-z][a-z0-9_]+`).FindAllString(string(b), -1) {
			named++
			if !slices.Contains(known, key) {
				t.Errorf("%s names the setting %s, which does not exist", filepath.Base(path), key)
			}
		}
	}
	if named < 20 {
		t.Errorf("only %d settings are named; is this still the right test?", named)
	}
}
