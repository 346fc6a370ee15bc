#!/usr/bin/env python3
"""The double-precision oracle against recorded tokens and log-probabilities of the embedded model.

Owns: the oracle's bars. `test_oracle.py MOEC FOLDER_OF_GOLDENS FOLDER_OF_MODELS NAME...` compares other models by hand."""
import json
import os
import pathlib
import sys

import golden_bars

BARS = 1e-4, 1e-3


def check(moec, golden, model):
    errors = []
    for i, sample in enumerate(golden_bars.samples(golden)):
        name = f'{golden.stem}[{i}]'
        got = golden_bars.oracle(moec, model, sample["prompt_ids"], len(sample["ids"]))
        if i == 0:
            golden_bars.must_fail(name, sample, got, *BARS)
        errors += golden_bars.compare(name, sample, got, *BARS)[0]
        assert got["text"] == sample["text"] or got["ids"] != sample["ids"], f'{name}: text {got["text"]!r}'
        margin = got["router_margin"]
        assert margin is None or len(margin) == len(got["prompt_ids"]) + len(got["ids"]) - 1, f"{name}: margins"
    print(f"{golden.stem}: {len(errors)} log-probabilities, mean {sum(errors) / len(errors):.6f}, largest {max(errors):.6f}", flush=True)


if len(sys.argv) > 1:
    moec, goldens, models, *names = sys.argv[1:]
    for name in names:
        golden = pathlib.Path(goldens, name + ".json")
        check(moec, golden, str(pathlib.Path(models, json.loads(golden.read_text())["model"])))
else:
    tests = pathlib.Path(os.environ["TESTS_DIR"])
    check(os.environ["MOEC"], tests / "golden/wordnet-qwen3moe-q4_k_m.json", tests / "models/wordnet-moe.gguf")
