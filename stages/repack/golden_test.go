package repack

import (
	"encoding/hex"
	"testing"
)

// The vectors of this file were made by bench/peers/pyarrow_store/stream.py, a
// second implementation written from docs/formats/stream.md.

func TestGoldenKeyAndPRP(t *testing.T) {
	if got, want := NewKey("doc", 7, 3), (Key{0x36abd45ba43ba781, 0x24da329892cd4751}); got != want {
		t.Errorf("key = %x, want %x", got, want)
	}
	for _, c := range []struct {
		n    uint64
		want [5]uint64 // images of 0, 1, 2, n/2, n-1 (modulo n)
	}{
		{1, [5]uint64{0, 0, 0, 0, 0}},
		{2, [5]uint64{0, 1, 0, 1, 1}},
		{3, [5]uint64{0, 2, 1, 2, 1}},
		{10, [5]uint64{3, 0, 2, 4, 7}},
		{4097, [5]uint64{355, 2472, 3415, 3003, 2354}},
		{65537, [5]uint64{57372, 23136, 50703, 16083, 58113}},
		{1048577, [5]uint64{1003122, 713257, 854392, 16766, 126918}},
		{1099511627776, [5]uint64{561059685668, 727801779966, 181680214096, 1017903129121, 9463997494}},
	} {
		p := NewPRP(c.n, NewKey("doc", 1, 2))
		for i, x := range []uint64{0, 1, 2, c.n / 2, c.n - 1} {
			if got := p.At(x % c.n); got != c.want[i] {
				t.Errorf("n = %d: At(%d) = %d, want %d", c.n, x%c.n, got, c.want[i])
			}
		}
	}
}

func TestRow04GoldenOrders(t *testing.T) {
	lengths := make([]uint32, 60)
	for i := range lengths {
		lengths[i] = uint32(1 + (i*i*7+i*3)%23)
	}
	for _, c := range []struct {
		mode  Mode
		tail  Tail
		epoch int64
		want  string
	}{
		{Fixed, Drop, 0, "2e4be56e2d3b0b780a50e5da0b4ad163e5572139e499cabfcf212aaa5428b30c"},
		{Fixed, Drop, 3, "2e4be56e2d3b0b780a50e5da0b4ad163e5572139e499cabfcf212aaa5428b30c"},
		{Fixed, Carry, 0, "b60a42f7a52235930aab5569776dc070106699f7327a2dc6a22be748a1b56d58"},
		{Fixed, Carry, 3, "f4cce2e212a09bc035054c316cd09055645de51dbabb969d24525743bd8ff872"},
		{Fixed, Pad, 0, "f4bdc5db7e5d4c158eaa9175c802a82711242e01f20f4a05a768e97f51c6935a"},
		{Fixed, Pad, 3, "f4bdc5db7e5d4c158eaa9175c802a82711242e01f20f4a05a768e97f51c6935a"},
		{Block, Drop, 0, "e9d90b5c81fb1b4e4283f0f4bdade82443e232054f764cad556055096c7c3999"},
		{Block, Drop, 3, "06809ddb43da7c9991dc4c51c6697f823ac630ec0cce4a023c187db5383e73c8"},
		{Block, Carry, 0, "f863572eb74e23b00fd0639f873337578f51800981b32ebb92e7e5b73de9b9c5"},
		{Block, Carry, 3, "0089c479e23b2ac9760ec5b197a66027e1bebbd26d038c4e31a65f47c42b392a"},
		{Block, Pad, 0, "71b30293f2614c59448c1362da4fc5590e146916d5eeac4637ada3be6e3f09ff"},
		{Block, Pad, 3, "ac8fc83e0a9330f30088b142cf30b79a9fcecff6371b05916b9065a122841943"},
		{Reshuffle, Drop, 0, "2e4be56e2d3b0b780a50e5da0b4ad163e5572139e499cabfcf212aaa5428b30c"},
		{Reshuffle, Drop, 3, "3371399691b233bd85630ddf81aa1833afe229be228a4dc716a7560247c180a9"},
		{Reshuffle, Carry, 0, "b60a42f7a52235930aab5569776dc070106699f7327a2dc6a22be748a1b56d58"},
		{Reshuffle, Carry, 3, "50d3b41423197611a3cdfb40f2606e40ce8ecc36bd8fbcd2246812f40c6f6af8"},
		{Reshuffle, Pad, 0, "f4bdc5db7e5d4c158eaa9175c802a82711242e01f20f4a05a768e97f51c6935a"},
		{Reshuffle, Pad, 3, "d2dbb7b14627ac9e242407253a2912ae7dffc39bda52c5719bcee45ce0240a27"},
		{Repack, Drop, 0, "2e4be56e2d3b0b780a50e5da0b4ad163e5572139e499cabfcf212aaa5428b30c"},
		{Repack, Drop, 3, "40a91d4059c1d677c7d9a3c8f2f1cd5911af21c6becd4122c1760594a2e7d354"},
		{Repack, Carry, 0, "bd9c742beaec1699199204770a6f754c94fccef42f545faa9c0d1ca1602ede21"},
		{Repack, Carry, 3, "02d2fc088de09d8dc696ae2afad603eebf759707f396e5dd3a0f52d215ba9ede"},
		{Repack, Pad, 0, "f4bdc5db7e5d4c158eaa9175c802a82711242e01f20f4a05a768e97f51c6935a"},
		{Repack, Pad, 3, "04881f47aec6ca8fc927af1373a63b71df7b1b64821c14e2dce20cbf2bf1ab7e"},
	} {
		cfg := Config{Mode: c.mode, Seed: 42, T: 16, Tail: c.tail}
		if c.mode == Block {
			cfg.Block = 5
		}
		got, err := mustStream(t, memOf(lengths), cfg).OrderHash(c.epoch)
		if err != nil || hex.EncodeToString(got[:]) != c.want {
			t.Errorf("%v %v epoch %d: order hash %x (%v), want %s", c.mode, c.tail, c.epoch, got, err, c.want)
		}
	}
}
