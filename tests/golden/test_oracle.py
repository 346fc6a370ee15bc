#!/usr/bin/env python3
"""The double-precision oracle against recorded tokens and log-probabilities of the embedded model.

Owns: the bars of the oracle. Does not own: those of images (they are compared with the oracle and with the same golden).
The golden is llama.cpp 0.7.0 on the CPU over the same file's weights as float32 (golden/wordnet-qwen3moe-q4_k_m.json).
`test_oracle.py MOEC FOLDER_OF_GOLDENS FOLDER_OF_MODELS NAME...` compares other models by hand."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile

BAR_MEAN, BAR_LARGEST = 1e-4, 1e-3


def oracle(moec, model, ids, n):
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        json.dump(ids, f)
        f.flush()
        return json.loads(subprocess.run([moec, "oracle", model, "--ids", f.name, "-n", str(n), "--logprobs", "16", "--json"],
                                         check=True, capture_output=True, text=True).stdout)


def compare(name, sample, got, bars=True):
    """Differences of the golden's best four over the positions up to the first other token."""
    errors = []
    for i, (mine, theirs) in enumerate(zip(got["ids"], sample["ids"])):
        top = sample["top"][i]
        if mine != theirs:
            assert top[0][1] - top[1][1] < 0.05, f"{name}: token {i} is {mine}, the golden has {theirs}"
            break
        mine_top = {id: logprob for id, logprob in got["logprobs"][i]}
        errors += [abs(mine_top[id] - logprob) for id, logprob in top[:4] if id in mine_top]
    assert errors, f"{name}: nothing to compare"
    assert max(errors) < BAR_LARGEST, f"{name}: largest difference {max(errors)}"
    assert sum(errors) / len(errors) < BAR_MEAN, f"{name}: mean difference {sum(errors) / len(errors)}"
    assert len(got["router_margin"] or []) in (0, len(got["prompt_ids"]) + len(got["ids"]) - 1), f"{name}: margins"
    return errors


def check(moec, golden, model):
    data = json.loads(golden.read_text())
    errors = []
    for sample in data["samples"]:
        name = f'{golden.stem}: {sample["prompt"][:40]!r}'
        got = oracle(moec, model, sample["prompt_ids"], len(sample["ids"]))
        errors += compare(name, sample, got)
        assert got["text"] == sample["text"] or got["ids"] != sample["ids"], f'{name}: text {got["text"]!r}'
    print(f"{golden.stem}: {len(errors)} log-probabilities, mean {sum(errors) / len(errors):.6f}, largest {max(errors):.6f}")


def controls(moec, golden, model):
    """The comparison notices a wrong log-probability and a wrong token."""
    sample = json.loads(golden.read_text())["samples"][0]
    got = oracle(moec, model, sample["prompt_ids"], len(sample["ids"]))
    for damage in (lambda g: g["logprobs"][0][0].__setitem__(1, g["logprobs"][0][0][1] + 0.01), lambda g: g["ids"].__setitem__(1, 7)):
        bad = json.loads(json.dumps(got))
        damage(bad)
        try:
            compare("control", sample, bad)
        except AssertionError:
            continue
        sys.exit("a damaged answer passes the comparison")


if len(sys.argv) > 1:
    moec, goldens, models, *names = sys.argv[1:]
    for name in names:
        golden = pathlib.Path(goldens, name + ".json")
        check(moec, golden, str(pathlib.Path(models, json.loads(golden.read_text())["model"])))
else:
    tests = pathlib.Path(os.environ["TESTS_DIR"])
    arguments = os.environ["MOEC"], tests / "golden/wordnet-qwen3moe-q4_k_m.json", str(tests / "models/wordnet-moe.gguf")
    controls(*arguments)
    check(*arguments)
