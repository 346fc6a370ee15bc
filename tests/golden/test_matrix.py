"""Trained models in tier khr against their goldens: short prompts, prompts that cross pages, a long one in windows of several sizes; what reads f16
may differ by BARS_KHR. Run by `./build.sh test --matrix`, with MOERT a command that has a driver with matrices; skipped otherwise.

Owns: which models and sizes. Does not own: comparison (golden_bars.py)."""
import os
import pathlib
import tempfile

from golden_bars import BARS_KHR, check_image, compile_image

if "MATRIX" not in os.environ:
    print("skipped: ./build.sh test --matrix runs it")
    raise SystemExit(77)
tests = pathlib.Path(os.environ["TESTS_DIR"])
KHR = "--tier", "khr"


def check(model, golden, folder, *runs):
    """runs: (samples, options...)"""
    path = tests / "models" / (model + ".gguf")
    image = compile_image(path, folder, *KHR)
    for only, *options in runs:
        check_image(image, path, tests / "golden" / (golden + ".json"), *KHR, *options, only=only, bars=BARS_KHR)
    image.unlink()


with tempfile.TemporaryDirectory() as folder:
    check("wordnet-moe", "wordnet-qwen3moe-q4_k_m", folder, ([0, 5],), ([5], "--window", "16"), ([5], "--window", "64"))
    check("wordnet-moe", "wordnet-qwen3moe-q4_k_m-long", folder, ([0],), ([0], "--window", "128"))
    check("wordnet-qwen3-q5_k_m", "wordnet-qwen3-q5_k_m", folder, ([0, 5],))
    check("wordnet-gptoss-mxfp4", "wordnet-gptoss-mxfp4-long", folder, ([0],))
