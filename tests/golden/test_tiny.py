"""Every family of tiny_models.py against its golden: the oracle, then the image: both samples at once, and the long one through windows of 1, 7 and
64 rows (of TWINS only in test_tiny_all.py). Keys and values are F32 as the goldens' are, so that nothing but rounding differs and the bars are narrow.
Every family of families.def has a row there or a trained model (TRAINED). `test_tiny.py FAMILY ...`: only these, in all windows."""
import concurrent.futures
import json
import os
import pathlib
import re
import sys
import time

import golden_bars
import tiny_models

# Families whose goldens are of trained models: tests/golden/wordnet-*.json and those that test_golden_all.py takes.
TRAINED = {
    "glm4moe",
    "gpt-oss",
    "qwen3",
    "qwen3moe",
}
BARS_ORACLE, BARS_IMAGE = (1e-4, 1e-3), (1e-3, 1e-2)
BARS_HALF_GELU = (1e-3, 1e-2), (2e-3, 2e-2)  # of a peer that rounds GELU to f16: tiny_models.py
BARS_RECURRENT = 0.02, 0.3
WINDOWS = ("1", "7", "64")
# Rows whose graphs are those of another row or of a trained model with other numbers.
TWINS = {
    "deepseek2-kv_b",
    "dots1",
    "ernie4_5",
    "gemma4",
    "gemma4-suppress",
    "glm4moe",
    "glm4v",
    "granite",
    "hunyuan-dense",
    "mixtral",
    "qwen2moe",
    "qwen2vl",
    "qwen35moe",
    "qwen3vl",
    "qwen3vlmoe",
}
goldens = pathlib.Path(__file__).parent


def write_model(name, golden, folder):
    data = tiny_models.gguf(name)
    assert tiny_models.digest(data) == golden["sha256"], f"tiny-{name}.json is of other weights: its row in tiny_models.py or how values are made has changed"
    model = folder / f"tiny-{name}.gguf"
    model.write_bytes(data)
    return model


def bars_of(name):
    """(the oracle's, the image's)."""
    row = tiny_models.FAMILIES[name]
    if row["half_gelu"]:
        return BARS_HALF_GELU
    return BARS_ORACLE, BARS_RECURRENT if row["recurrent"] else BARS_IMAGE


def check_oracle(name, model, samples):
    errors, margins = [], []
    for i, sample in enumerate(samples):
        label, got = f"tiny-{name}[{i}] oracle", golden_bars.oracle(os.environ["MOEC"], model, sample["prompt_ids"], len(sample["ids"]))
        errors += golden_bars.compare(label, sample, got, *bars_of(name)[0])[0]
        golden_bars.must_fail(label, sample, got, *bars_of(name)[0])
        margins.append(golden_bars.generated_margin(got))
    return errors, margins


def check_image(name, model, samples, margins, folder, windows):
    """All samples in one run (rows of several prompts in a step), then the long one through the windows."""
    bars, errors = bars_of(name)[1], []
    image, n = golden_bars.compile_image(model, folder, "--kv", "f32"), len(samples[0]["ids"])
    runs = [(range(len(samples)), ())] + [([len(samples) - 1], ("--window", w)) for w in windows]
    for which, options in runs:
        answers = golden_bars.moert(os.environ["MOERT"], image, [samples[i]["prompt_ids"] for i in which], n, *options)
        for i, got in zip(which, answers, strict=True):
            label = " ".join([f"tiny-{name}[{i}]", *options])
            errors += golden_bars.compare(label, samples[i], got, *bars, margins[i])[0]
            assert got["text"] == samples[i]["text"] or got["ids"] != samples[i]["ids"], f'{label}: text {got["text"]!r}'
    return errors


def check(name, folder, windows):
    start, golden = time.monotonic(), json.loads((goldens / f"tiny-{name}.json").read_text())
    model = write_model(name, golden, folder)
    oracle, margins = check_oracle(name, model, golden["samples"])
    middle = time.monotonic()
    image = check_image(name, model, golden["samples"], margins, folder, windows)
    print(f"{name:16s} mean and largest difference: oracle {sum(oracle) / len(oracle):.6f} {max(oracle):.5f}, image {sum(image) / len(image):.5f} "
          f"{max(image):.5f}; {middle - start:.1f} + {time.monotonic() - middle:.1f} s", flush=True)


def check_covered():
    rows = re.findall(r'^FAMILY\("([^"]+)"', (goldens.parent.parent / "compiler/families.def").read_text(), re.M)
    covered = TRAINED | {row["architecture"] for row in tiny_models.FAMILIES.values()}
    assert rows and not set(rows) - covered, f"no golden: {sorted(set(rows) - covered)}; add a row to tiny_models.py and run tiny_goldens.py"


def main(names, windows_of_all):
    check_covered()
    folder = pathlib.Path(os.environ["BUILD_DIR"], "tests-tiny")
    folder.mkdir(exist_ok=True)
    with concurrent.futures.ThreadPoolExecutor(min(os.cpu_count(), 4)) as pool:  # a program's start and end leave cores idle
        for done in [pool.submit(check, name, folder, () if name in TWINS and not windows_of_all else WINDOWS) for name in names]:
            done.result()


if __name__ == "__main__":
    main(sys.argv[1:] or tiny_models.FAMILIES, len(sys.argv) > 1)
