//go:build amd64 && !purego

package store

import "testing"

// pairWays are the vector forms of widenPairPlain, by name, for at least as many pairs as
// they take, that this machine has.
func pairWays(t *testing.T) map[string]pairWay {
	ways := map[string]pairWay{}
	if vectors {
		ways["pair8"] = pairWay{8, pair8}
	}
	if wide {
		ways["pair16"] = pairWay{16, pair16}
	}
	if len(ways) < 2 {
		t.Logf("this machine has %d of 2 vector forms", len(ways))
	}
	return ways
}
