package kernels

import "testing"

// TestRegistry is the house rule: every kernel has a contract, a reference in
// both precisions, a cost, and a name of its own.
func TestRegistry(t *testing.T) {
	seen := map[string]bool{}
	for _, e := range All() {
		if seen[e.Name] || e.Name == "" {
			t.Errorf("kernel name %q is empty or used twice", e.Name)
		}
		seen[e.Name] = true
		if !e.HasCheck || !e.HasAccess || !e.HasCost || !e.HasRef || !e.HasWide {
			t.Errorf("kernel %s is incomplete: %+v", e.Name, e)
		}
	}
}
