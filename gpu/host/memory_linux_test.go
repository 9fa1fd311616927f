package host

import (
	"errors"
	"testing"
)

func TestHugePages(t *testing.T) {
	refuse := func([]byte) error { return errors.New("no huge pages here") }
	for _, n := range []int64{1, hugePage - 1, hugePage, hugePage + 1, 3*hugePage + 5} {
		asked := false
		for name, advise := range map[string]func([]byte) error{"granted": func(m []byte) error { asked = true; return nil }, "refused": refuse} {
			b, err := mapBlock(n, advise)
			ok(t, err)
			align := uintptr(4096)
			if n >= hugePage {
				align = hugePage
			}
			if int64(len(b.data)) != n || addr(b.data)%align != 0 {
				t.Errorf("%s: %d bytes came as %d at %#x", name, n, len(b.data), addr(b.data))
			}
			b.data[0], b.data[n-1] = 1, 1
			ok(t, b.free())
			ok(t, b.free())
		}
		if asked != (n >= hugePage) {
			t.Errorf("%d bytes: huge pages asked for: %v", n, asked)
		}
	}
	if TotalMemory() < 1<<20 {
		t.Errorf("the machine has %d bytes", TotalMemory())
	}
}
