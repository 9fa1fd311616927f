package main

import (
	"encoding/json"
	"testing"
)

// TestFitJSON: the keys that scripts read, and null where an efficiency is undefined.
func TestFitJSON(t *testing.T) {
	read := func(args ...string) map[string]any {
		t.Helper()
		code, out, errOut := cli("", append([]string{"fit", "--json", "--xy", "0.2:3.75,0.4:3.48,0.8:3.26,1.6:3.07"}, args...)...)
		var v map[string]any
		if err := json.Unmarshal([]byte(out), &v); err != nil || code != 0 || errOut != "" {
			t.Fatalf("exit %d, %v, %s", code, err, errOut)
		}
		return v
	}
	v := read()
	for _, key := range []string{"A", "alpha", "E", "rmse", "intervals", "warnings", "residuals", "broken"} {
		if v[key] == nil {
			t.Errorf("no %q in %v", key, v)
		}
	}
	if v := read("--loss", "3.43", "--base", "3.75"); v["efficiency"].(float64) < 2.3 || v["efficiency"].(float64) > 2.4 {
		t.Errorf("efficiency %v", v["efficiency"])
	}
	if v := read("--loss", "0.5", "--base", "3.75"); v["efficiency"] != nil || v["undefined"] == nil {
		t.Errorf("%v", v)
	}
}
