//go:build cuda

package ptx

import "testing"

func TestChosen(t *testing.T) {
	for arch, want := range map[string]string{
		"sm_80": "sm_80", "sm_86": "sm_86", "sm_89": "sm_89", "sm_90": "sm_90a", "sm_100": "sm_100a", "sm_87": "PTX for sm_80", "sm_120": "PTX for sm_80",
		"sm_75": "", "sm_": "",
	} {
		if got, err := Chosen(arch); got != want || (err == nil) != (want != "") {
			t.Errorf("%s: %q, %v; want %q", arch, got, err, want)
		}
	}
	if b, err := Image("sm_90"); err != nil || len(b) < 1000 {
		t.Errorf("%d bytes, %v", len(b), err)
	}
}
