"""numpy: a vectorised gather of permuted rows. One setting takes every id by its
place, as nanoGPT-like code does; the other takes whole rows of a strided view."""
import numpy as np


def order(W, mode, epoch):
    return np.random.default_rng(epoch if mode == "reshuffle" else 0).permutation(W)


class Loader:
    versions = {"numpy": np.__version__}
    settings = ["ids", "rows"]

    def __init__(self, spec):
        self.B, self.T, self.W = spec["B"], spec["T"], spec["W"]
        self.data = np.memmap(spec["stream"], np.uint16, "r")
        self.offs = np.arange(self.T + 1)
        self.view = np.lib.stride_tricks.as_strided(self.data, (self.W, self.T + 1), (2 * self.T, 2), writeable=False)

    def batches(self, setting, mode, epoch):
        perm = order(self.W, mode, epoch)
        for k in range(0, self.W, self.B):
            rows = perm[k:k + self.B]
            yield self.view[rows] if setting == "rows" else self.data[(rows * self.T)[:, None] + self.offs]
