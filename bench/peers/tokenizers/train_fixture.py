"""Writes the fixtures of tokenize/testdata with Hugging Face tokenizers.

    python -m venv .venv && .venv/bin/pip install -r requirements.txt
    .venv/bin/python train_fixture.py ../../../tokenize/testdata

For each pair of corpus and split pattern it trains a vocabulary and stores the
merge list and the ids of the edge strings; once, it stores the pieces of the edge
strings, a small tokenizer.json as the library saves it, and what added tokens with
all their flags do. Everything is deterministic; the corpora are in the same folder.
"""

import gzip
import json
import pathlib
import sys

import tokenizers
from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, pre_tokenizers, trainers

PINNED = "0.22.2"

R50K = None  # the pattern that ByteLevel has built in
CL100K = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
O200K = "|".join(
    [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)
FAMILIES = {"r50k": R50K, "cl100k": CL100K, "o200k": O200K}


def fresh(pattern):
    tok = Tokenizer(models.BPE())
    if pattern is None:
        tok.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    else:
        tok.pre_tokenizer = pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(pattern), "isolated"),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    tok.decoder = decoders.ByteLevel()
    return tok


def train(pattern, docs, vocab, specials, min_frequency=0, full_alphabet=True):
    tok = fresh(pattern)
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        special_tokens=specials,
        min_frequency=min_frequency,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet() if full_alphabet else [],
        show_progress=False,
    )
    tok.train_from_iterator(docs, trainer)
    return tok


def lines(text):
    """Lines ended by \\n alone, with it; str.splitlines knows more ends."""
    return [line for line in text.replace("\n", "\n\0").split("\0") if line]


def merges_of(tok):
    return json.loads(tok.to_str())["model"]["merges"]


def write(path, value):
    text = json.dumps(value, ensure_ascii=False, separators=(",", ":"))
    with open(path, "wb") as f:
        with gzip.GzipFile(filename="", mode="wb", fileobj=f, mtime=0) as z:
            z.write(text.encode())


def pieces(tok, text):
    """Lengths in bytes of the pieces of text."""
    spans = [span for _, span in tok.pre_tokenizer.pre_tokenize_str(text)]
    if any(a[1] != b[0] for a, b in zip(spans, spans[1:])):
        raise SystemExit(f"pieces of {text!r} do not touch: {spans}")
    return [len(text[a:b].encode()) for a, b in spans]


def added_cases():
    """Added tokens with every flag, over a tiny vocabulary."""
    text = ["hello world", "a b c", "mask me", "X_1 x"]
    out = []
    flags = [
        dict(),
        dict(single_word=True),
        dict(lstrip=True),
        dict(rstrip=True),
        dict(lstrip=True, rstrip=True),
        dict(normalized=True),
    ]
    inputs = [
        "",
        "[M]",
        "a[M]b",
        "a [M] b",
        "a  [M]  b",
        "[M][M]",
        "[M] [M]",
        "[M]  [M]  [M]",
        "a_[M]",
        "[M]_a",
        "1[M]",
        "\u4e2d[M]\u4e2d",
        "\u0301[M]",
        "([M])",
        "\n[M]\n",
        "[M]]",
        "[[M]",
        "[M",
        "[MM]",
        "[M][MM][M]",
        "x[S]y [S]",
        "[S][M]",
        "\u00a0[M]\u3000",
        "[M]a[MM",
    ]
    for f in flags:
        for special in (False, True):
            tok = train(CL100K, text, 270, ["<|endoftext|>"])
            tok.add_tokens([AddedToken("[M]", special=special, **{"normalized": False, **f})])
            tok.add_special_tokens([AddedToken("[S]", normalized=False)])
            tok.add_tokens([AddedToken("[MM]", normalized=True), AddedToken("[M][", normalized=True)])
            case = {"tokenizer": json.loads(tok.to_str()), "inputs": inputs}
            tok.encode_special_tokens = False
            case["special"] = [tok.encode(s, add_special_tokens=False).ids for s in inputs]
            tok.encode_special_tokens = True
            case["plain"] = [tok.encode(s, add_special_tokens=False).ids for s in inputs]
            out.append(case)
    return out


def main():
    if tokenizers.__version__ != PINNED:
        raise SystemExit(f"tokenizers {tokenizers.__version__} is installed; the fixtures are those of {PINNED}")
    folder = pathlib.Path(sys.argv[1])
    edge = json.loads((folder / "edge.json").read_text())["strings"]
    corpora = {p.stem: p.read_bytes().decode() for p in sorted((folder / "corpus").glob("*.txt"))}

    out = {name: [pieces(fresh(pattern), s) if s else [] for s in edge] for name, pattern in FAMILIES.items()}
    write(folder / "hf_pieces.json.gz", out)

    runs = []
    settings = [
        ("r50k", "go", 1200, ["<|endoftext|>"], 0, True),
        ("cl100k", "go", 1200, ["<|endoftext|>", "<|pad|>"], 0, True),
        ("o200k", "go", 1000, ["<|endoftext|>"], 2, True),
        ("r50k", "mixed", 1500, [], 0, False),
        ("cl100k", "mixed", 2500, ["<|endoftext|>"], 0, True),
        ("o200k", "mixed", 1500, ["<|endoftext|>"], 3, True),
    ]
    for family, corpus, vocab, specials, min_frequency, full in settings:
        # One document a line, newline included: what training on files does.
        docs = lines(corpora[corpus])
        tok = train(FAMILIES[family], docs, vocab, specials, min_frequency, full)
        run = dict(family=family, corpus=corpus, vocab=vocab, specials=specials, min_frequency=min_frequency)
        run.update(full_alphabet=full, size=tok.get_vocab_size(), merges=merges_of(tok))
        run["ids"] = [tok.encode(s, add_special_tokens=False).ids for s in edge]
        runs.append(run)
    write(folder / "hf_train.json.gz", runs)

    small = train(CL100K, lines(corpora["go"]), 300, ["<|endoftext|>"])
    (folder / "hf_saved.json").write_text(small.to_str(pretty=True) + "\n")
    write(folder / "hf_added.json.gz", added_cases())


if __name__ == "__main__":
    main()
