"""Peers for bench loader --compare peers: one loader on the rows of a corpus.

    peer_rows.py LOADER SPEC

SPEC is JSON: dir, stream, rows, docs, lengths (files of the corpus), T, B, W.
The first answer tells versions, settings and modes. Then one JSON request a
line: {"setting", "mode", "epoch", "limit", "pace"} measures batches for limit
seconds, {"setting", "mode", "epoch", "dump"} writes all rows of an epoch as
int32 to a file, whose digest the asking side takes; in repack each row is
followed by as many int32 that are 1 where a document starts. Every loader pays one copy
into a ring of four page-aligned buffers, whose every cache line is read."""
import importlib
import json
import mmap
import os
import sys
import time

import numpy as np

found_within = 0.05  # as in bench/ours.go


def children(pid):
    for task in os.listdir(f"/proc/{pid}/task"):
        try:
            with open(f"/proc/{pid}/task/{task}/children") as f:
                for c in f.read().split():
                    yield int(c)
                    yield from children(int(c))
        except OSError:
            pass


tick = os.sysconf("SC_CLK_TCK")


def cpu():
    """CPU seconds of this process and of those below it."""
    s = time.process_time()
    if sys.platform == "linux":
        for c in set(children(os.getpid())):
            try:
                with open(f"/proc/{c}/stat") as f:
                    v = f.read().rsplit(")", 1)[1].split()
                s += (int(v[11]) + int(v[12]) + int(v[13]) + int(v[14])) / tick
            except OSError:
                pass
    return s


class Ring:
    def __init__(self, B, width):
        self.mem = mmap.mmap(-1, 4 * B * width * 4)
        self.bufs = np.frombuffer(self.mem, np.int32).reshape(4, B, width)
        self.k = self.sum = 0

    def put(self, batch):
        buf = self.bufs[self.k][:len(batch)]
        self.k = (self.k + 1) % 4
        np.copyto(buf, batch, casting="unsafe")
        self.sum += int(buf.ravel()[::16].sum())
        return buf


def deliver(loader, spec, q, ring):
    pace, waits = q.get("pace", 0), []
    began = time.perf_counter()
    epoch = q["epoch"]
    it = iter(loader.batches(q["setting"], q["mode"], epoch))
    tokens = found = 0
    start = None
    while True:
        t0 = time.perf_counter()
        batch = next(it, None)
        if batch is None:  # the gap between epochs is part of the wait
            epoch += 1
            it = iter(loader.batches(q["setting"], q["mode"], epoch))
            batch = next(it)
        ring.put(batch)
        now = time.perf_counter()
        if start is None:
            first, start, c0 = now - began, now, cpu()
        else:
            tokens += len(batch) * spec["T"]
            waits.append(now - t0)
            found += now - t0 <= found_within * pace
        if now - start >= q["limit"]:
            break
        if pace:
            time.sleep(pace)
    c1 = cpu()
    del it
    w = np.sort(waits or [0.0])
    at = lambda p: float(w[min(int(p * len(w)), len(w) - 1)])
    return {"tokens": tokens, "wall_s": now - start, "cpu_s": c1 - c0, "first_s": first,
            "p50_s": at(.5), "p99_s": at(.99), "max_s": float(w[-1]), "found": found / max(1, len(waits))}


def dump(loader, q, ring):
    rows = 0
    with open(q["dump"], "wb") as f:
        if q["mode"] == "repack":  # each row is followed by where documents start in it
            for batch, starts in loader.parts(q["setting"], q["epoch"]):
                np.stack([ring.put(batch), starts.astype(np.int32)], 1).tofile(f)
                rows += len(batch)
            return {"rows": rows}
        for batch in loader.batches(q["setting"], q["mode"], q["epoch"]):
            ring.put(batch).tofile(f)
            rows += len(batch)
    return {"rows": rows}


def main():
    name, spec = sys.argv[1], json.loads(sys.argv[2])
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # what libraries print is no answer
    sys.path.insert(0, os.path.join(os.path.dirname(os.path.abspath(__file__)), "loaders"))

    def say(v):
        answers.write(json.dumps(v) + "\n")
        answers.flush()

    try:
        loader = importlib.import_module("load_" + name).Loader(spec)
    except Exception as e:  # whatever a foreign library fails with is its row's text
        say({"error": f"{type(e).__name__}: {e}"})
        return
    say({"versions": loader.versions, "settings": loader.settings, "modes": getattr(loader, "modes", ["fixed", "reshuffle"])})
    ring = Ring(spec["B"], spec["T"] + 1)
    for line in sys.stdin:
        q = json.loads(line)
        try:
            say(dump(loader, q, ring) if "dump" in q else deliver(loader, spec, q, ring))
        except Exception as e:
            say({"error": f"{type(e).__name__}: {e}"})


if __name__ == "__main__":
    main()
