#!/usr/bin/env python3
"""The embedded model on prompts of about 550 and 2,600 tokens: windows of 512 rows, many pages. Slow on a CPU driver."""
import os
import pathlib
import subprocess
import sys

tests = pathlib.Path(os.environ["TESTS_DIR"])
golden = tests / "golden/wordnet-qwen3moe-q4_k_m-long.json"
models = pathlib.Path(os.environ["BUILD_DIR"], "golden-models")
models.mkdir(exist_ok=True)
link = models / "wordnet-qwen3moe-q4_k_m.gguf"  # the name that the golden has for it
link.unlink(missing_ok=True)
link.symlink_to(tests / "models/wordnet-moe.gguf")
sys.exit(subprocess.run([sys.executable, tests / "golden/test_image_golden.py", tests / "golden", models, golden.stem]).returncode)
