#!/usr/bin/env python3
"""Hyperparameters that differ from layer to layer (arrays of head counts and feed-forward lengths): a model whose middle layer is narrower gives the
same numbers as one whose layers are alike and whose middle layer has zeros there instead; and arrays of equal numbers are as good as one number.
A sliding window as long as the context hides nothing, but its layers keep the rotation that is theirs.

Owns: the pairs of models. Does not own: weights and files (tiny_models.py), bars (golden_bars.py)."""
import os
import pathlib
import struct
import tempfile

import golden_bars
import tiny_models

LAYERS, NARROW = 3, 1
MOEC, MOERT = os.environ["MOEC"], os.environ["MOERT"]
KINDS = tiny_models.ATTENTION, tiny_models.QKV_BIAS, tiny_models.DENSE
WIDE_SIZES = dict(h=128, k=64, f=96)
NARROW_SIZES = dict(h1=64, k1=32, f1=32)


def renamed(text):
    """The texts of the narrow layer: h, k and f become h1, k1 and f1."""
    return ", ".join(" ".join(w + "1" if w in WIDE_SIZES else w for w in item.split()) for item in text.split(", "))


def row(keys, narrow):
    per_layer = {NARROW: [renamed(text) for text in KINDS]} if narrow else {}
    return tiny_models.family("qwen2", keys, tiny_models.HEAD_TIED, *KINDS, layers=LAYERS, seed=3, per_layer=per_layer, **WIDE_SIZES, **NARROW_SIZES)


def padded(values, narrow, wide):
    """Zeros behind what is missing of each row, and rows of zeros behind the last."""
    columns, rows = (*narrow, 1)[:2]
    wide_columns, wide_rows = (*wide, 1)[:2]
    out = []
    for r in range(rows):
        out += [*values[r * columns:(r + 1) * columns], *[0.0] * (wide_columns - columns)]
    return out + [0.0] * (wide_columns * (wide_rows - rows))


def write(folder, name, keys, narrow):
    """The model, all F32. The wide one has the narrow one's values."""
    plain = tiny_models.tensor
    small = dict(tiny_models.tensors_of(row({}, True)))

    def tensor(model, tensor_name, dims, f32):
        kind, data = plain(model, tensor_name, small[tensor_name], True)
        values = struct.unpack(f"<{len(data) // 4}f", data)
        values = padded(values, small[tensor_name], dims) if dims != small[tensor_name] else values
        return kind, struct.pack(f"<{len(values)}f", *values)

    tiny_models.FAMILIES[name], tiny_models.tensor = row(keys, narrow), tensor
    path = pathlib.Path(folder, name + ".gguf")
    path.write_bytes(tiny_models.gguf(name))
    tiny_models.tensor = plain
    return path


def main(folder):
    ids, n = list(b"What is the best of three?"), 12
    heads, key_heads, lengths = [4, 2, 4], [2, 1, 2], [96, 32, 96]
    arrays = {"attention.head_count": heads, "attention.head_count_kv": key_heads, "feed_forward_length": lengths}
    wide = write(folder, "wide", {}, False)
    narrow = write(folder, "narrow", arrays, True)
    equal = write(folder, "equal", {key: [max(v)] * LAYERS for key, v in arrays.items()}, False)
    oracle = golden_bars.oracle(MOEC, wide, ids, n)
    sample = {"ids": oracle["ids"], "top": oracle["logprobs"]}
    for model, bars in ((equal, (1e-12, 1e-12)), (narrow, (1e-5, 1e-4))):
        got = golden_bars.oracle(MOEC, model, ids, n)
        errors, _ = golden_bars.compare(f"{model.stem}: oracle", sample, got, *bars)
        golden_bars.must_fail(model.stem, sample, got, *bars)
        print(f"{model.stem}: oracle: largest difference {max(errors):.2g}")
    image = golden_bars.compile_image(narrow, folder)
    for window in ("1", "64"):
        got = golden_bars.moert(MOERT, image, ids, n, "--window", window)
        errors, _ = golden_bars.compare("narrow: image", sample, got, *golden_bars.BARS_IMAGE)
        print(f"narrow: image, windows of {window}: largest difference {max(errors):.2g}")


def windows(folder):
    """gemma3's local layers have a rope of their own, also where their window is as long as the context or longer."""
    row, answers = tiny_models.FAMILIES["gemma3"], []
    for window in (tiny_models.N_CTX - 1, tiny_models.N_CTX, 2**31):
        tiny_models.FAMILIES["window"] = {**row, "keys": {**row["keys"], "attention.sliding_window": window}}
        path = pathlib.Path(folder, "window.gguf")
        path.write_bytes(tiny_models.gguf("window"))
        answers.append(golden_bars.oracle(MOEC, path, list(b"What is the best of three?"), 4)["logprobs"])
    assert answers[0] == answers[1] == answers[2], "a window that hides nothing changes the model"


with tempfile.TemporaryDirectory(dir=os.environ["BUILD_DIR"]) as folder:
    main(folder)
    windows(folder)
