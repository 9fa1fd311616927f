"""Hugging Face datasets: an Arrow table of rows, shuffled, in numpy format."""
import os

import datasets
import numpy as np

datasets.disable_progress_bars()


class Loader:
    versions = {"datasets": datasets.__version__}
    settings = ["slices", "iter", "torch,workers=0", "torch,workers=2"]

    def __init__(self, spec):
        self.B, self.W, width = spec["B"], spec["W"], spec["T"] + 1
        rows = np.fromfile(spec["rows"], np.uint16).reshape(self.W, width)
        import pyarrow as pa
        path = os.path.join(spec["dir"], "rows.arrow")
        kind = pa.list_(pa.uint16(), width)
        with pa.OSFile(path, "wb") as f, pa.ipc.new_stream(f, pa.schema([("x", kind)])) as w:
            for i in range(0, self.W, 1000):
                flat = pa.array(rows[i:i + 1000].ravel())
                w.write_batch(pa.record_batch([pa.FixedSizeListArray.from_arrays(flat, width)], names=["x"]))
        self.ds = datasets.Dataset.from_file(path).with_format("numpy")

    def batches(self, setting, mode, epoch):
        ds = self.ds.shuffle(seed=epoch if mode == "reshuffle" else 0, keep_in_memory=True)
        if setting == "slices":
            for i in range(0, self.W, self.B):
                yield ds[i:i + self.B]["x"]
        elif setting == "iter":
            for b in ds.iter(self.B, drop_last_batch=True):
                yield b["x"]
        else:
            from torch.utils.data import BatchSampler, DataLoader, SequentialSampler
            s = BatchSampler(SequentialSampler(ds), self.B, drop_last=True)
            for b in DataLoader(ds, sampler=s, batch_size=None, num_workers=int(setting[-1]), collate_fn=lambda b: b["x"]):
                yield b
