"""webdataset: tar shards with a member a row, shards shuffled and rows through a
shuffle buffer."""
import io
import os
import random
import tarfile

import numpy as np
import webdataset as wds


class Loader:
    versions = {"webdataset": getattr(wds, "__version__", None) or __import__("importlib.metadata").metadata.version("webdataset")}
    settings = [f"workers={w}" for w in (0, 1, 2)]

    def __init__(self, spec):
        self.B, width = spec["B"], spec["T"] + 1
        rows = np.fromfile(spec["rows"], np.uint16).reshape(-1, width)
        self.urls = []
        per = max(1, -(-len(rows) // 16))
        for k in range(0, len(rows), per):
            path = os.path.join(spec["dir"], f"shard-{k // per:03d}.tar")
            with tarfile.open(path, "w") as t:
                for i in range(k, min(k + per, len(rows))):
                    raw = rows[i].tobytes()
                    m = tarfile.TarInfo(f"{i:09d}.u16")
                    m.size = len(raw)
                    t.addfile(m, io.BytesIO(raw))
            self.urls.append(path)

    def batches(self, setting, mode, epoch):
        r = random.Random(epoch if mode == "reshuffle" else 0)
        urls = self.urls[:]
        r.shuffle(urls)
        ds = (wds.WebDataset(urls, shardshuffle=False, empty_check=False).shuffle(1000, rng=r)
              .map(lambda s: np.frombuffer(s["u16"], np.uint16))
              .batched(self.B, collation_fn=np.stack, partial=True))
        w = int(setting[-1])
        if w == 0:
            yield from ds
        else:  # a worker sees whole shards, so batches are made of what one worker reads
            for b in wds.WebLoader(ds, batch_size=None, num_workers=w):
                yield b.numpy() if hasattr(b, "numpy") else b
