"""Grain: shuffle and batch over a random-access source; in repack documents are
shuffled, joined and cut anew each epoch, in the order of the stream."""
import grain
import numpy as np


class Rows:
    def __init__(self, path, width):
        self.data = np.memmap(path, np.uint16, "r").reshape(-1, width)

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        return self.data[i]


class Docs:
    def __init__(self, path, lengths):
        self.data = np.memmap(path, np.uint16, "r")
        self.ends = np.cumsum(np.fromfile(lengths, np.uint32).astype(np.int64))

    def __len__(self):
        return len(self.ends)

    def __getitem__(self, i):
        return {"x": self.data[(self.ends[i - 1] if i else 0):self.ends[i]]}


class Loader:
    versions = {"grain": getattr(grain, "__version__", "?")}
    settings = [f"threads={t}" for t in (0, 1, 2, 16)]
    modes = ["fixed", "reshuffle"]

    def __init__(self, spec):
        self.B = spec["B"]
        self.rows = Rows(spec["rows"], spec["T"] + 1)

    def batches(self, setting, mode, epoch):
        t = int(setting.split("=")[1])
        ds = grain.MapDataset.source(self.rows).shuffle(seed=epoch if mode == "reshuffle" else 0)
        ds = ds.batch(self.B, drop_remainder=True)
        o = grain.ReadOptions(num_threads=t, prefetch_buffer_size=max(2, t) if t else 0)
        yield from ds.to_iter_dataset(o)
