"""Tier dot through moec and moert against the goldens, by the bars of tier base: activations of 16 bits are that exact. Models with routed and dense
feed-forward blocks, q, k and v of several formats, biases, shared experts, recurrent layers, MXFP4 and codebooks.

Owns: that a row is answered alike whatever rows are beside it.

Skipped (77) on devices without shaderIntegerDotProduct."""
import os
import pathlib
import subprocess
import sys
import tempfile

from golden_bars import check_image, compile_image, moert

MODELS = {
    "wordnet-moe": "wordnet-qwen3moe-q4_k_m",
    "wordnet-qwen3-iq2_xxs": None,
    "wordnet-gptoss-mxfp4": None,
    "wordnet-qwen35moe-q4_k_m": None,
}


def check_rows_alone(image):
    """Eight sequences of one token each, so that all their steps are of up to eight rows: each answers bit by bit what it answers alone."""
    prompts = [[300 + 17 * i] for i in range(8)]
    options = os.environ["MOERT"], image
    alone = [moert(*options, ids, 8, "--tier", "dot") for ids in prompts]
    for n in (2, 3, 8):
        got = moert(*options, prompts[:n], 8, "--tier", "dot")
        assert len(got) == n, got
        for one, other in zip(alone, got):
            assert one["ids"] == other["ids"] and one["logprobs"] == other["logprobs"], f"{n} rows: {one} {other}"


tests = pathlib.Path(os.environ["TESTS_DIR"])
with tempfile.TemporaryDirectory() as folder:
    for name, golden in MODELS.items():
        model = tests / "models" / f"{name}.gguf"
        image = compile_image(model, folder, "--tier", "dot")
        tried = subprocess.run([os.environ["MOERT"], "plan", str(image), "--tier", "dot"], capture_output=True, text=True)
        if tried.returncode == 3 and "shaderIntegerDotProduct" in tried.stderr:
            print("skipped:", tried.stderr.strip())
            sys.exit(77)
        assert tried.returncode == 0 and "tier dot" in tried.stdout, tried.stdout + tried.stderr
        check_image(image, model, tests / "golden" / f"{golden or name}.json", "--tier", "dot", only=[0, 5])
        if name == "wordnet-moe":
            check_rows_alone(image)
        image.unlink()
