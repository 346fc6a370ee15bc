"""Tier resident through moec and moert: the whole step of a row in one dispatch, against the goldens by the bars of tier base. Models with experts,
with a dense network and codebooks, with biases, sinks, windows and MXFP4; sample 5 is long enough that attention splits its positions (on
subgroups of 8 from two pages on).

A CPU driver runs one workgroup, so that nothing is awaited there; run it on a GPU, too.
Skipped (77) on devices without shaderIntegerDotProduct."""
import os
import pathlib
import subprocess
import sys
import tempfile

from golden_bars import check_image, compile_image

MODELS = {
    "wordnet-moe": "wordnet-qwen3moe-q4_k_m",
    "wordnet-qwen3-iq2_xxs": None,
    "wordnet-gptoss-mxfp4": None,
}
RESIDENT = "--tier", "resident", "--window", "1"


def check_plan(model, has):
    """Whether token(1) of the tier is the one dispatch."""
    plan = subprocess.run([os.environ["MOEC"], str(model), "--tier", "resident", "--dump-plan"], capture_output=True, text=True, check=True).stdout
    assert (" step D_MODEL" in plan) == has, model


tests = pathlib.Path(os.environ["TESTS_DIR"])
check_plan(tests / "models/wordnet-qwen35moe-q4_k_m.gguf", False)  # recurrent layers
with tempfile.TemporaryDirectory() as folder:
    for name, golden in MODELS.items():
        model = tests / "models" / f"{name}.gguf"
        check_plan(model, True)
        image = compile_image(model, folder, "--tier", "resident")
        tried = subprocess.run([os.environ["MOERT"], "plan", str(image), "--tier", "resident"], capture_output=True, text=True)
        if tried.returncode == 3 and "shaderIntegerDotProduct" in tried.stderr:
            print("skipped:", tried.stderr.strip())
            sys.exit(77)
        assert tried.returncode == 0 and "tier resident" in tried.stdout, tried.stdout + tried.stderr
        check_image(image, model, tests / "golden" / f"{golden or name}.json", *RESIDENT, only=[0, 5])
        image.unlink()
