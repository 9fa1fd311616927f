"""The stream contract, version 1, written a second time from docs/formats/stream.md.

Nothing here shares code with the Go package; the golden vectors of
stages/repack/golden_test.go come from `python3 stream.py`.
"""

import hashlib
import struct

M64 = (1 << 64) - 1


def key(purpose, seed, index):
    p = purpose.encode()
    text = b"refrain stream\0" + struct.pack("<II", 1, len(p)) + p + struct.pack("<QQ", seed, index)
    return struct.unpack("<QQ", hashlib.sha256(text).digest()[:16])


def mix(x):
    x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9 & M64
    x = (x ^ x >> 27) * 0x94D049BB133111EB & M64
    return x ^ x >> 31


class PRP:
    def __init__(self, n, k):
        self.n = n
        self.half = max(1, ((n - 1).bit_length() + 1) // 2)
        rounds = 12 if n <= 1 << 12 else 6 if n < 1 << 20 else 4
        self.keys = [mix(mix(k[0] + (i + 1) * 0x9E3779B97F4A7C15 & M64) + k[1] & M64) for i in range(rounds)]

    def at(self, i):
        h = self.half
        while True:
            l, r = i >> h, i & (1 << h) - 1
            for k in self.keys:
                f = (r ^ k) * 0x9FB21C651E98DF25 & M64
                f = (f ^ f >> 32) * 0xD6E8FEB86659FD93 & M64
                l, r = r, l ^ f >> (64 - h)
            i = l << h | r
            if i < self.n:
                return i


class Stream:
    def __init__(self, lengths, mode, seed, T, tail="drop", block=0):
        self.lengths, self.mode, self.seed, self.T, self.tail, self.m = lengths, mode, seed, T, tail, block
        self.N = sum(lengths)
        self.W = -(-self.N // T) if tail == "pad" else self.N // T

    def first(self, e):
        return -(-e * self.N // self.T) if self.tail == "carry" else e * self.W

    def pieces(self, e):
        pi = PRP(len(self.lengths), key("doc", self.seed, e if self.mode == "repack" else 0))
        return [pi.at(r) for r in range(len(self.lengths))]

    def rows(self, e):
        """Spans (doc, from, to) of every row of epoch e, in the order shown."""
        T, N = self.T, self.N
        windows = self.first(e + 1) - self.first(e)
        start = self.first(e) * T - e * N if self.tail == "carry" else 0
        flat = [(d, i) for d in self.pieces(e) for i in range(self.lengths[d])]
        if self.tail == "carry":
            flat += [(d, i) for d in self.pieces(e + 1) for i in range(self.lengths[d])]
        if self.mode == "block":
            blocks = -(-(-(-N // T)) // self.m)
            order = []
            for b in range(-(-windows // self.m)):
                size = min(self.m, windows - b * self.m)
                p = PRP(size, key("blk", self.seed, e * blocks + b))
                order += [b * self.m + p.at(i) for i in range(size)]
        else:
            p = PRP(windows, key("win", self.seed, 0 if self.mode == "fixed" else e))
            order = [p.at(i) for i in range(windows)]
        for j in order:
            spans = []
            for d, i in flat[start + j * T : start + (j + 1) * T]:
                if spans and spans[-1][0] == d and spans[-1][2] == i:
                    spans[-1][2] = i + 1
                else:
                    spans.append([d, i, i + 1])
            yield spans

    def order_hash(self, e):
        h = hashlib.sha256()
        for spans in self.rows(e):
            h.update(struct.pack("<I", len(spans)))
            for s in spans:
                h.update(struct.pack("<QQQ", *s))
        return h.hexdigest()


if __name__ == "__main__":
    print("key", ["%016x" % w for w in key("doc", 7, 3)])
    for n in (1, 2, 3, 10, 4097, 65537, 1048577, 1 << 40):
        p = PRP(n, key("doc", 1, 2))
        print("prp", n, [p.at(i % n) for i in (0, 1, 2, n // 2, n - 1)])
    lengths = [1 + (i * i * 7 + i * 3) % 23 for i in range(60)]
    for mode, block in (("fixed", 0), ("block", 5), ("reshuffle", 0), ("repack", 0)):
        for tail in ("drop", "carry", "pad"):
            s = Stream(lengths, mode, 42, 16, tail, block)
            for e in (0, 3):
                print("hash", mode, tail, e, s.order_hash(e))
