#!/usr/bin/env python3
"""Shapes that no model has and that a model may have: odd numbers of heads, of experts, of columns, one key/value head for five, windows of one
position. The image against the oracle, in windows of 1, 7 and 64 rows. `test_odd_shapes_all.py NAME ...`: only these.

Owns: the table of shapes. Does not own: families, weights and files (tiny_models.py), bars (golden_bars.py)."""
import os
import pathlib
import random
import sys
import tempfile

import golden_bars
import tiny_models

# name: family, keys, sizes
SHAPES = {
    "three-heads": ("qwen2", {}, dict(d=96, h=288, k=96, hd=96, f=160)),
    "five-for-one": ("qwen2", {"rope.dimension_count": 24}, dict(d=160, h=320, k=64, hd=64, f=352)),
    "seven-for-one": ("qwen2", {"rope.freq_base": 500000.0}, dict(d=32, h=224, k=32, hd=32, f=32)),
    "all-experts": ("olmoe", {"expert_count": 5, "expert_used_count": 5}, dict(d=96, h=96, k=96, e=5, x=32)),
    "one-expert": ("olmoe", {"expert_count": 1, "expert_used_count": 1}, dict(e=1)),
    "63-experts": ("granitemoe", {"expert_count": 63, "expert_used_count": 11, "expert_feed_forward_length": 96}, dict(d=160, e=63, x=96)),
    "wide-shared": ("dots1", {"expert_feed_forward_length": 96}, dict(d=160, x=96, s=192, h=160, k=32)),
    "window-1": ("gemma3", {"attention.sliding_window": 1}, {}),
    "window-64": ("gemma3", {"attention.sliding_window": 64}, dict(h=96, k=32, f=32)),
    "six-delta-heads": ("qwen35moe", {"ssm.group_count": 3, "ssm.time_step_rank": 6, "ssm.inner_size": 192},
                        dict(qkv=384, vv=192, vh=6)),
    "nine-delta-heads": ("qwen35", {"ssm.group_count": 3, "ssm.time_step_rank": 9, "ssm.inner_size": 288},
                         dict(d=96, qkv=480, vv=288, vh=9, f=160)),
}


def check(name, folder):
    family, keys, sizes = SHAPES[name]
    row = tiny_models.FAMILIES[family]
    tiny_models.FAMILIES[name] = {**row, "keys": {**row["keys"], **keys}, "sizes": {**row["sizes"], **sizes}}
    path = pathlib.Path(folder, name + ".gguf")
    path.write_bytes(tiny_models.gguf(name))
    ids, n = [random.Random(name).randrange(tiny_models.N_VOCAB - 1) for _ in range(150)], 8
    oracle = golden_bars.oracle(os.environ["MOEC"], path, ids, n)
    sample, image, worst = {"ids": oracle["ids"], "top": oracle["logprobs"]}, golden_bars.compile_image(path, folder), 0
    bars = (0.02, 0.3) if row["recurrent"] else golden_bars.BARS_IMAGE
    for window in ("1", "7", "64"):
        got = golden_bars.moert(os.environ["MOERT"], image, ids, n, "--window", window)
        errors, _ = golden_bars.compare(f"{name}, windows of {window}", sample, got, *bars, golden_bars.generated_margin(oracle))
        worst = max([worst, *errors])
    print(f"{name}: largest difference {worst:.5f}", flush=True)


with tempfile.TemporaryDirectory(dir=os.environ["BUILD_DIR"]) as work:
    for shape in sys.argv[1:] or SHAPES:
        check(shape, work)
