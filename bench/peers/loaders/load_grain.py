"""Grain: shuffle and batch over a random-access source; in repack documents are
shuffled, joined and cut anew each epoch, in the order of the stream."""
import grain
import numpy as np


class Rows:
    def __init__(self, path, width):
        # A plain array over the map: indexing the map itself costs more.
        self.data = np.asarray(np.memmap(path, np.uint16, "r")).reshape(-1, width)

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        return self.data[i]


class Docs:
    def __init__(self, path, lengths, places=False):
        self.places = places
        self.data = np.asarray(np.memmap(path, np.uint16, "r"))
        self.ends = np.cumsum(np.fromfile(lengths, np.uint32).astype(np.int64))

    def __len__(self):
        return len(self.ends)

    def __getitem__(self, i):
        x = self.data[(self.ends[i - 1] if i else 0):self.ends[i]]
        return {"x": x, "at": np.arange(len(x))} if self.places else {"x": x}


class Loader:
    versions = {"grain": getattr(grain, "__version__", "?")}
    settings = [f"threads={t}" for t in (0, 1, 2, 16)]
    modes = ["fixed", "reshuffle", "repack"]

    def __init__(self, spec):
        self.B = spec["B"]
        self.width = spec["T"] + 1
        self.rows = Rows(spec["rows"], self.width)
        self.docs = Docs(spec["docs"], spec["lengths"])
        self.placed = Docs(spec["docs"], spec["lengths"], True)

    def packed(self, docs, setting, epoch):
        """Rows of T+1 ids that do not overlap."""
        t = int(setting.split("=")[1])
        ds = grain.MapDataset.source(docs).shuffle(seed=epoch)
        ds = ds.to_iter_dataset(grain.ReadOptions(num_threads=t, prefetch_buffer_size=max(2, t) if t else 0))
        ds = grain.experimental.ConcatThenSplitIterDataset(ds, length_struct={k: self.width for k in docs[0]})
        return ds.batch(self.B, drop_remainder=True)

    def parts(self, setting, epoch):
        # Its own positions begin again in each row; those that travel with the ids do not.
        for b in self.packed(self.placed, setting, epoch):
            yield b["x"], b["at"] == 0

    def batches(self, setting, mode, epoch):
        if mode == "repack":
            for b in self.packed(self.docs, setting, epoch):
                yield b["x"]
            return
        t = int(setting.split("=")[1])
        ds = grain.MapDataset.source(self.rows).shuffle(seed=epoch if mode == "reshuffle" else 0)
        ds = ds.batch(self.B, drop_remainder=True)
        o = grain.ReadOptions(num_threads=t, prefetch_buffer_size=max(2, t) if t else 0)
        yield from ds.to_iter_dataset(o)
