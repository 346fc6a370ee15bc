"""A model with a NextN block behind its trunk: whole, in parts, or absent, the trunk computes the same; a whole block's planes are in the image,
bit for bit, and are not loaded; the manifest and `moec inspect` say so. Its golden is tiny-glm4moe.json (test_tiny.py). A hybrid (tiny-qwen35moe.json)
with such a block behind its recurrent layers computes as without, and so does glm4 (GLM-OCR; tiny-glm4v.json)."""
import json
import os
import pathlib
import subprocess

import golden_bars
import tiny_models

MOEC, MOERT = os.environ["MOEC"], os.environ["MOERT"]
NAME = "glm4moe"
ROW = tiny_models.FAMILIES[NAME]
LAST = ROW["layers"] - 1
WHOLE = ROW["per_layer"][LAST]
SAMPLE = json.loads((pathlib.Path(__file__).parent / f"tiny-{NAME}.json").read_text())["samples"][0]


def without(texts, name):
    return tuple(", ".join(i for i in t.split(", ") if not i.startswith(name)) for t in texts)


# variant: (texts of the last block, what inspect reports)
VARIANTS = {
    "whole": (WHOLE, (1, 0, 0)),
    "no projection": (without(WHOLE, "nextn.eh_proj"), (0, 1, 0)),
    "no experts": (without(WHOLE, "ffn_down_exps"), (0, 1, 0)),
    "no head norm": (without(WHOLE, "nextn.shared_head_norm"), (1, 0, 0)),
    "absent": ((), (0, 0, 1)),
}
IMAGES = "whole", "no projection", "absent"


def build(variant, texts, folder):
    tiny_models.FAMILIES[variant] = {**ROW, "per_layer": {**ROW["per_layer"], LAST: texts}}
    model = folder / f'{variant.replace(" ", "-")}.gguf'
    model.write_bytes(tiny_models.gguf(variant))
    return model


def check(variant, texts, counts, folder):
    """The oracle's answer, and the image's where one is made; checks all that inspect says."""
    model = build(variant, texts, folder)
    report = json.loads(subprocess.run([MOEC, "inspect", str(model), "--json"], check=True, capture_output=True, text=True).stdout)
    assert report["compiles"], report["reasons"]
    assert tuple(report["nextn"][k] for k in ("carried", "left_out", "absent")) == counts, f'{variant}: {report["nextn"]}'
    n = len(SAMPLE["ids"])
    oracle = golden_bars.oracle(MOEC, model, SAMPLE["prompt_ids"], n)
    if variant not in IMAGES:
        return oracle["ids"], oracle["logprobs"], None, None
    image = golden_bars.compile_image(model, folder, "--kv", "f32")
    shown = subprocess.run([MOERT, "inspect", str(image), "--planes"], check=True, capture_output=True, text=True).stdout
    carried = {line.split()[-2] for line in shown.splitlines() if line.endswith(" (carried)")}
    wanted = {name for name, _ in tiny_models.tensors_of(tiny_models.FAMILIES[variant]) if counts[0] and name.startswith(f"blk.{LAST}.")}
    assert carried == wanted, f"{variant}: carried {sorted(carried ^ wanted)}"
    fields = dict(line.split(None, 1) for line in shown.splitlines() if line.startswith("  model."))
    assert (fields["model.n_nextn"], fields["model.n_layer"]) == (str(counts[0]), str(LAST)), fields
    subprocess.run([MOERT, "verify", str(image)], check=True, capture_output=True)
    answer = golden_bars.moert(MOERT, image, SAMPLE["prompt_ids"], n)
    return oracle["ids"], oracle["logprobs"], answer["ids"], answer["logprobs"]


def check_behind(name, texts, folder):
    """The golden's tokens come from a row with one more block, whole, of these texts."""
    row = tiny_models.FAMILIES[name]
    tiny_models.FAMILIES["behind"] = {**row, "layers": row["layers"] + 1, "keys": {**row["keys"], "nextn_predict_layers": 1},
                                      "per_layer": {**row["per_layer"], row["layers"]: [*texts, tiny_models.NEXTN_GLM]}}
    model = folder / "behind.gguf"
    model.write_bytes(tiny_models.gguf("behind"))
    for sample in json.loads((pathlib.Path(__file__).parent / f"tiny-{name}.json").read_text())["samples"]:
        assert golden_bars.oracle(MOEC, model, sample["prompt_ids"], len(sample["ids"]))["ids"] == sample["ids"], f"the trunk of {name}"


folder = pathlib.Path(os.environ["BUILD_DIR"], "tests-nextn")
folder.mkdir(exist_ok=True)
check_behind("qwen35moe", tiny_models.FAMILIES["qwen35moe"]["per_layer"][1], folder)
check_behind("glm4v", tiny_models.FAMILIES["glm4v"]["layer"], folder)
answers = {v: check(v, texts, counts, folder) for v, (texts, counts) in VARIANTS.items()}
whole = answers["whole"]
assert whole[0] == SAMPLE["ids"] == whole[2], "the trunk's tokens"
for variant, answer in answers.items():
    assert answer == (whole if variant in IMAGES else whole[:2] + (None, None)), f"{variant}: the trunk's answer depends on the NextN block"
print(f"{len(answers)} variants, {len(SAMPLE['ids'])} tokens each")
