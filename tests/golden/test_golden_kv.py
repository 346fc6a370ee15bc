"""Keys and values in Q8_0: models with several kinds of attention through moec --kv q8_0 and moert against their goldens, which were made with f32
keys and values.

Bars are a model's own: eight bits are a coarse state for models as small as these. Beside them: mean and largest difference of llama.cpp 0.7.0 with
-ctk q8_0 -ctv q8_0 -fa on from the same goldens, then ours."""
import os
import pathlib
import tempfile

from golden_bars import check_image, compile_image

tests = pathlib.Path(os.environ["TESTS_DIR"])
SHORT, CROSSING = 0, 5  # samples of the goldens
MODELS = (
    ("wordnet-moe", "wordnet-qwen3moe-q4_k_m", (0.12, 2.0)),  # 0.079 and 1.19; 0.066 and 1.25
    ("wordnet-gptoss-mxfp4", "wordnet-gptoss-mxfp4", (0.02, 0.2)),  # windows, sinks: 0.007 and 0.064; 0.006 and 0.042
    ("wordnet-glm4moe-q4_k_m", "wordnet-glm4moe-q4_k_m", (0.05, 0.5)),  # half of a head rotated: the peer's are 0.73 and 96; 0.022 and 0.14
)
with tempfile.TemporaryDirectory() as folder:
    for model, golden, bars in MODELS:
        file, golden = tests / "models" / (model + ".gguf"), tests / "golden" / (golden + ".json")
        image = compile_image(file, folder, "--kv", "q8_0")
        check_image(image, file, golden, only=[SHORT, CROSSING], bars=bars)
        check_image(image, file, golden, "--window", "7", only=[SHORT], bars=bars)
        image.unlink()
