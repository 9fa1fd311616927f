"""Checks that Hugging Face tokenizers reads what WriteJSON writes.

    .venv/bin/python check_written.py ../../../tokenize/testdata

The folder holds written.json.gz, the bytes that `go test ./tokenize` compares with
those it writes (with -update it writes them), and the edge strings with the ids
found then. The library must load the file and give the same ids, pieces and text.
"""

import gzip
import json
import pathlib
import sys

import tokenizers

from train_fixture import PINNED


def main():
    if tokenizers.__version__ != PINNED:
        raise SystemExit(f"tokenizers {tokenizers.__version__} is installed, want {PINNED}")
    folder = pathlib.Path(sys.argv[1])
    edge = json.loads((folder / "edge.json").read_text())["strings"]
    for family in ("r50k", "cl100k", "o200k"):
        with gzip.open(folder / f"written_{family}.json.gz", "rb") as f:
            golden = json.loads(f.read())
        tok = tokenizers.Tokenizer.from_str(golden["file"])
        for text, want in zip(edge, golden["ids"], strict=True):
            got = tok.encode(text, add_special_tokens=False)
            if got.ids != want:
                raise SystemExit(f"{family} {text!r}: {got.ids}, want {want}")
            if tok.decode(got.ids, skip_special_tokens=False) != text:
                raise SystemExit(f"{family} {text!r} does not come back")
        print(f"{family}: {len(edge)} strings agree")


if __name__ == "__main__":
    main()
