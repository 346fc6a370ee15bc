#!/usr/bin/env python3
"""The embedded model through moec and moert against its golden: the same tokens, log-probabilities within the bars.

Owns: the bars of images, tier base. `test_image_golden.py FOLDER_OF_GOLDENS FOLDER_OF_MODELS NAME...` (MOEC, MOERT and BUILD_DIR in the
environment) compares other models by hand."""
import json
import os
import pathlib
import subprocess
import sys
import time

import golden_bars

BARS = 0.01, 0.15


def check(golden, model):
    start = time.monotonic()
    image = pathlib.Path(os.environ["BUILD_DIR"], f"golden-{golden.stem}.img")
    subprocess.run([os.environ["MOEC"], model, "-q", "--no-selftest", "-o", image], check=True)
    errors, exempt = [], []
    for i, sample in enumerate(golden_bars.samples(golden)):
        name, n = f"{golden.stem}[{i}]", len(sample["ids"])
        got = golden_bars.moert(os.environ["MOERT"], image, sample["prompt_ids"], n)
        margin = golden_bars.generated_margin(golden_bars.oracle(os.environ["MOEC"], model, sample["prompt_ids"], n))
        if i == 0:
            golden_bars.must_fail(name, sample, got, *BARS)
        more = golden_bars.compare(name, sample, got, *BARS, margin)
        errors += more[0]
        exempt += more[1]
        assert got["text"] == sample["text"] or got["ids"] != sample["ids"], f'{name}: text {got["text"]!r}'
    image.unlink()
    print(f"{golden.stem}: {len(errors)} log-probabilities, mean {sum(errors) / len(errors):.6f}, largest {max(errors):.6f}, "
          f"{time.monotonic() - start:.0f} s", *exempt, sep="\n  ", flush=True)


if len(sys.argv) > 1:
    goldens, models, *names = sys.argv[1:]
    for name in names:
        golden = pathlib.Path(goldens, name + ".json")
        check(golden, pathlib.Path(models, json.loads(golden.read_text())["model"]))
else:
    tests = pathlib.Path(os.environ["TESTS_DIR"])
    check(tests / "golden/wordnet-qwen3moe-q4_k_m.json", tests / "models/wordnet-moe.gguf")
