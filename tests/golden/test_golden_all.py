"""Every NAME.gguf of $MOEC_MODELS that has a NAME.json or NAME-long.json in $MOEC_GOLDENS, the long ones through windows of 1, 7, 64 and 512 rows too.
A model without a golden may be declined (exit code 3) and is listed then; any other must compile. Without the folders: the embedded model's long golden."""
import concurrent.futures
import os
import pathlib
import subprocess
import sys
import tempfile

from golden_bars import check_image, compile_image

WINDOWS = ("1", "7", "64", "512")
tests = pathlib.Path(os.environ["TESTS_DIR"])
models, goldens = os.environ.get("MOEC_MODELS"), os.environ.get("MOEC_GOLDENS")


def check_model(model, folder):
    """(checks, failures) of one file."""
    found = [g for g in (pathlib.Path(goldens, model.stem + s + ".json") for s in ("", "-long")) if g.exists()]
    image = pathlib.Path(folder, model.stem + ".img")
    compiled = subprocess.run([os.environ["MOEC"], str(model), "-q", "--no-selftest", "-o", str(image)], capture_output=True, text=True)
    if compiled.returncode:
        allowed = compiled.returncode == 3 and not found
        print("declined:" if allowed else f"FAILED: exit code {compiled.returncode}:", compiled.stderr.strip(), flush=True)
        return len(found), 0 if allowed else max(1, len(found))
    failures = 0
    for golden in found:
        for window in (None, *WINDOWS) if golden.stem.endswith("-long") else (None,):
            try:
                check_image(image, model, golden, *(("--window", window) if window else ()))
            except AssertionError as e:
                print("FAILED:", e, flush=True)
                failures += 1
    return len(found), failures


with tempfile.TemporaryDirectory() as folder:
    if models and goldens:
        with concurrent.futures.ThreadPoolExecutor(min(os.cpu_count(), 4)) as pool:  # a program's start and end leave cores idle
            results = list(pool.map(lambda m: check_model(m, folder), sorted(pathlib.Path(models).glob("*.gguf"))))
        checks, failures = sum(r[0] for r in results), sum(r[1] for r in results)
        print(f"{checks} goldens, {failures} failures")
        sys.exit(failures != 0 or checks == 0)
    moe = tests / "models/wordnet-moe.gguf"
    image = compile_image(moe, folder)
    for window in WINDOWS:
        check_image(image, moe, tests / "golden/wordnet-qwen3moe-q4_k_m-long.json", "--window", window)
