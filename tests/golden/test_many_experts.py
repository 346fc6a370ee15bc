#!/usr/bin/env python3
"""As many experts as moec takes, 512, of which 64 are chosen: the oracle and the image against a golden of llama.cpp, and one expert or choice more
is declined by name. `test_many_experts.py --make LLAMA_SERVER` makes the golden (as tiny_goldens.py does for its models).

Owns: the model, a layer of random experts. Does not own: its other weights and the file (tiny_models.py), the bars (golden_bars.py)."""
import json
import math
import os
import pathlib
import random
import shlex
import struct
import subprocess
import sys
import tempfile

import golden_bars
import tiny_models

NAME, N_EXPERT, N_USED, D_MODEL, D_FF = "experts-512", 512, 64, 64, 32
KEYS = {"expert_count": N_EXPERT, "expert_used_count": N_USED, "expert_feed_forward_length": D_FF}
GOLDEN = pathlib.Path(__file__).parent / (NAME + ".json")
plain = tiny_models.tensor


def tensor(row, name, dims, f32):
    """Experts: F16 of random sign and mantissa, magnitudes from 1 to 2 times a power of two, made without a loop over a million values."""
    if "_exps." not in name:
        return plain(row, name, dims, f32)
    n, exponent = math.prod(dims), 15 - (1 if "down" in name else 3)
    bits = int.from_bytes(random.Random(name).randbytes(2 * n), "little")
    words = bits & int.from_bytes(struct.pack("<H", 0x83ff) * n, "little") | int.from_bytes(struct.pack("<H", exponent << 10) * n, "little")
    data = words.to_bytes(2 * n, "little")
    return ("F32", struct.pack(f"<{n}f", *struct.unpack(f"<{n}e", data))) if f32 else ("F16", data)


def model(n_expert, n_used, f32=False):
    keys = {**KEYS, "expert_count": n_expert, "expert_used_count": n_used}
    tiny_models.tensor = tensor
    tiny_models.FAMILIES[NAME] = tiny_models.family("qwen3moe", keys, tiny_models.HEAD, tiny_models.ATTENTION, tiny_models.QK_NORM, tiny_models.EXPERTS,
                                                    layers=1, seed=5, e=n_expert, d=D_MODEL, x=D_FF)
    return tiny_models.gguf(NAME, f32)


def check(folder):
    golden = json.loads(GOLDEN.read_text())
    path = pathlib.Path(folder, NAME + ".gguf")
    path.write_bytes(model(N_EXPERT, N_USED))
    assert tiny_models.digest(path.read_bytes()) == golden["sha256"], "the golden is of other weights"
    image = golden_bars.compile_image(path, folder)
    for i, sample in enumerate(golden["samples"]):
        oracle = golden_bars.oracle(os.environ["MOEC"], path, sample["prompt_ids"], len(sample["ids"]))
        errors, _ = golden_bars.compare(f"{NAME}[{i}] oracle", sample, oracle, 1e-3, 1e-2)
        golden_bars.must_fail(NAME, sample, oracle, 1e-3, 1e-2)
        print(f"{NAME}[{i}]: oracle: largest difference {max(errors):.5f}")
        for window in ("1", "64"):
            got = golden_bars.moert(os.environ["MOERT"], image, sample["prompt_ids"], len(sample["ids"]), "--window", window)
            errors, _ = golden_bars.compare(f"{NAME}[{i}]", sample, got, *golden_bars.BARS_IMAGE, golden_bars.generated_margin(oracle))
            print(f"{NAME}[{i}]: image, windows of {window}: largest difference {max(errors):.5f}")
    for n_expert, n_used, code, words in ((N_EXPERT + 1, N_USED, 3, "513"), (N_EXPERT, N_USED + 1, 3, "65"), (8, 9, 1, "expert_used_count: 9 of 8")):
        path.write_bytes(model(n_expert, n_used))
        r = subprocess.run([os.environ["MOEC"], path, "-q", "-o", path.with_suffix(".img")], capture_output=True, text=True)
        assert r.returncode == code and words in r.stderr and len(r.stderr.splitlines()) == 1, (n_expert, n_used, r)


if sys.argv[1:2] == ["--make"]:
    import tiny_goldens
    model(N_EXPERT, N_USED)
    tiny_goldens.make(shlex.split(sys.argv[2]), 8131, NAME, GOLDEN)
else:
    with tempfile.TemporaryDirectory(dir=os.environ["BUILD_DIR"]) as work:
        check(work)
