"""MosaicML Streaming: MDS shards, read in process or by workers."""
import os

import numpy as np
import streaming
from streaming import MDSWriter, StreamingDataset
from torch.utils.data import DataLoader


class Loader:
    versions = {"mosaicml-streaming": streaming.__version__, "numpy": np.__version__}
    settings = ["direct", "workers=0", "workers=1", "workers=2"]

    def __init__(self, spec):
        self.B, width = spec["B"], spec["T"] + 1
        self.dir = os.path.join(spec["dir"], "mds")
        with MDSWriter(out=self.dir, columns={"x": f"ndarray:uint16:{width}"}) as w:
            for r in np.fromfile(spec["rows"], np.uint16).reshape(-1, width):
                w.write({"x": r})

    def batches(self, setting, mode, epoch):
        streaming.base.util.clean_stale_shared_memory()
        ds = StreamingDataset(local=self.dir, shuffle=True, batch_size=self.B, num_canonical_nodes=1,
                              shuffle_seed=epoch if mode == "reshuffle" else 0)
        if setting == "direct":
            buf = []
            for s in ds:
                buf.append(s["x"])
                if len(buf) == self.B:
                    yield np.stack(buf)
                    buf = []
            if buf:
                yield np.stack(buf)
        else:
            for b in DataLoader(ds, batch_size=self.B, num_workers=int(setting[-1]), collate_fn=lambda l: np.stack([s["x"] for s in l])):
                yield b
