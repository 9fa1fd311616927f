//go:build !amd64 || purego

package store

import "testing"

// pairWays is empty: this build has the plain form alone.
func pairWays(*testing.T) map[string]pairWay { return nil }
