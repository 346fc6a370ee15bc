"""The trained models of tests/models, one a family or a format, through moec and moert against their goldens: a short prompt, one that crosses pages and
sliding windows, and, where there is a long golden, its prompt of some 550 tokens in windows of every size, which must give the tokens of one window.

Owns: which models. Does not own: bars and comparison (golden_bars.py), families without a trained model (test_tiny.py), every model (test_golden_all.py)."""
import os
import pathlib
import tempfile

from golden_bars import check_image, compile_image

WINDOWS = ("1", "7", "64", "512")
SHORT, CROSSING, LONG = 0, 5, 0  # samples of the goldens
EMBEDDED = "wordnet-moe", "wordnet-qwen3-q5_k_m"  # test_golden.py has them
tests = pathlib.Path(os.environ["TESTS_DIR"])
models = [m for m in sorted((tests / "models").glob("*.gguf")) if m.stem not in EMBEDDED]
assert models
with tempfile.TemporaryDirectory() as folder:
    for model in models:
        image = compile_image(model, folder)
        check_image(image, model, tests / "golden" / (model.stem + ".json"), only=[SHORT, CROSSING])
        long = tests / "golden" / (model.stem + "-long.json")
        for window in WINDOWS if long.exists() else ():
            check_image(image, model, long, "--window", window, only=[LONG])
        image.unlink()
