"""PyTorch's DataLoader over a map-style dataset: a sample a row, as most of its users
write it, or, with "batched", a list of indices at a time, as its documentation
describes for stores that read many at once; that is numpy's gather inside a
DataLoader. A loader is measured at its best setting, so both are here. Rows stay
16 bits wide until the copy into the ring, as numpy's do."""
import numpy as np
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler


class Rows(Dataset):
    def __init__(self, spec):
        # A plain array over the map: indexing the map itself costs more. Of a map that
        # is copied on write, since PyTorch warns of arrays that cannot be written.
        self.data = np.asarray(np.memmap(spec["rows"], np.uint16, "c")).reshape(spec["W"], spec["T"] + 1)

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        return torch.from_numpy(self.data[i])


class Loader:
    versions = {"torch": torch.__version__}
    settings = [f"{form}workers={w}" for form in ("", "batched,") for w in (0, 1, 2)]

    def __init__(self, spec):
        self.B, self.rows = spec["B"], Rows(spec)

    def batches(self, setting, mode, epoch):
        g = torch.Generator().manual_seed(epoch if mode == "reshuffle" else 0)
        w = int(setting[-1])
        if setting.startswith("batched"):
            s = BatchSampler(RandomSampler(self.rows, generator=g), self.B, drop_last=True)
            it = DataLoader(self.rows, sampler=s, batch_size=None, num_workers=w)
        else:
            it = DataLoader(self.rows, self.B, shuffle=True, generator=g, num_workers=w, drop_last=True)
        for b in it:
            yield b.numpy()
