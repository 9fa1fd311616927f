"""PyTorch's DataLoader over a map-style dataset: a sample a row, or, with
"batched", a list of indices at a time, which its users rarely write."""
import numpy as np
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, RandomSampler


class Rows(Dataset):
    def __init__(self, spec):
        self.data = np.memmap(spec["rows"], np.uint16, "r").reshape(spec["W"], spec["T"] + 1)

    def __len__(self):
        return len(self.data)

    def __getitem__(self, i):
        return torch.from_numpy(self.data[i].astype(np.int32))


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
