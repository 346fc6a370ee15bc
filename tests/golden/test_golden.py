"""Embedded models through moec and moert against their goldens: every sample, a prompt through windows of several sizes, a long prompt."""
import os
import pathlib
import tempfile

from golden_bars import check_image, compile_image

tests = pathlib.Path(os.environ["TESTS_DIR"])
goldens = tests / "golden"
with tempfile.TemporaryDirectory() as folder:
    moe = tests / "models/wordnet-moe.gguf"
    image = compile_image(moe, folder)
    check_image(image, moe, goldens / "wordnet-qwen3moe-q4_k_m.json")
    for window in ("1", "7", "64"):
        check_image(image, moe, goldens / "wordnet-qwen3moe-q4_k_m.json", "--window", window, only=[5])
    check_image(image, moe, goldens / "wordnet-qwen3moe-q4_k_m-long.json", only=[0])
    dense = tests / "models/wordnet-qwen3-q5_k_m.gguf"
    check_image(compile_image(dense, folder), dense, goldens / "wordnet-qwen3-q5_k_m.json", only=[0, 1])
