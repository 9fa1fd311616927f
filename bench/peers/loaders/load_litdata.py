"""litdata: optimised chunks read with TokensLoader."""
import os

import litdata
import numpy as np
import torch
from litdata import StreamingDataLoader, StreamingDataset, TokensLoader


def rows_from(args):
    path, width, lo, hi = args
    data = np.memmap(path, np.uint16, "r").reshape(-1, width)
    for r in data[lo:hi]:
        yield torch.from_numpy(r.astype(np.int32))


class Loader:
    versions = {"litdata": litdata.__version__, "torch": torch.__version__}
    settings = [f"workers={w}" for w in (0, 1, 2)]

    def __init__(self, spec):
        self.B, self.width = spec["B"], spec["T"] + 1
        self.dir = os.path.join(spec["dir"], "chunks")
        litdata.optimize(rows_from, [(spec["rows"], self.width, 0, spec["W"])], self.dir, num_workers=1,
                         chunk_size=self.width * 2048, item_loader=TokensLoader(), verbose=False)

    def batches(self, setting, mode, epoch):
        ds = StreamingDataset(self.dir, item_loader=TokensLoader(self.width), shuffle=True, drop_last=False,
                              seed=epoch if mode == "reshuffle" else 0)
        for b in StreamingDataLoader(ds, batch_size=self.B, num_workers=int(setting[-1])):
            yield b.numpy()
