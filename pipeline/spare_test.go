package pipeline

import "testing"

// TestSpare: what comes back is handed out again, empty, the last one first, if it is
// large enough; the one kept longest gives way; too large a one is not kept, and a nil
// Spare keeps nothing.
func TestSpare(t *testing.T) {
	s := NewSpare(2, 5*spareUnit)
	caps := func(needs ...int) (got []int) {
		for _, n := range needs {
			b := s.Get(n)
			if len(b) != 0 || cap(b) < n {
				t.Errorf("Get(%d): %d bytes, room for %d", n, len(b), cap(b))
			}
			got = append(got, cap(b)/spareUnit)
		}
		return got
	}
	sized := func(units int) []byte { return make([]byte, 1, units*spareUnit) }
	expect := func(what string, got []int, want ...int) {
		t.Helper()
		for i := range want {
			if got[i] != want[i] {
				t.Errorf("%s: %v units, want %v", what, got, want)
				return
			}
		}
	}
	expect("new", caps(0, 1, spareUnit, spareUnit+1), 1, 1, 1, 2)
	s.Put(sized(4))
	s.Put(sized(2))
	s.Put(sized(6)) // too large to be kept
	s.Put(nil)
	expect("kept", caps(1, 1, 1), 2, 4, 1)
	s.Put(sized(4))
	s.Put(sized(2))
	expect("the first that fits", caps(3*spareUnit, 1, 1), 4, 2, 1)
	s.Put(sized(5))
	s.Put(sized(4))
	s.Put(sized(3)) // for which the first gives way
	expect("full", caps(1, 1, 1), 3, 4, 1)
	s = nil
	s.Put(sized(3))
	expect("nil", caps(1), 1)
}
