package tokens

import "testing"

// TestIDBuffers: what comes back is handed out again, empty; too much and too large is
// not kept; and a nil one keeps nothing.
func TestIDBuffers(t *testing.T) {
	u := newIDBuffers(2)
	if got := u.get(); got != nil {
		t.Errorf("a new one gives %v", got)
	}
	u.put(make([]uint32, 3, 10))
	u.put(make([]uint32, maxSpare+1))
	u.put(make([]uint32, 3, 20))
	u.put(make([]uint32, 3, 30)) // no room
	var caps []int
	for range 3 {
		ids := u.get()
		if len(ids) != 0 {
			t.Errorf("%d ids in a buffer", len(ids))
		}
		caps = append(caps, cap(ids))
	}
	if caps[0] != 20 || caps[1] != 10 || caps[2] != 0 {
		t.Errorf("capacities %v, want 20, 10 and none", caps)
	}
	var none *idBuffers
	none.put(make([]uint32, 3))
	if got := none.get(); got != nil {
		t.Errorf("none gives %v", got)
	}
}
