#!/usr/bin/env python3
"""moert under Khronos' validation layer: not one complaint. (The layer does not see through buffer addresses: barriers are
checked at load, by img_hazard_check.) Skipped where the layer is not installed."""
import glob
import json
import os
import pathlib
import subprocess
import sys

FOLDER = pathlib.Path(os.environ["BUILD_DIR"], "test_validation")
LAYER = {**os.environ, "VK_INSTANCE_LAYERS": "VK_LAYER_KHRONOS_validation", "VK_KHRONOS_VALIDATION_VALIDATE_SYNC": "true"}

if not any(glob.glob(f"{root}/vulkan/explicit_layer.d/VkLayer_khronos_validation.json")
           for root in ("/usr/share", "/usr/local/share", "/etc")):
    print("skipped: the validation layer is not installed (Debian: vulkan-validationlayers)")
    sys.exit(77)
FOLDER.mkdir(exist_ok=True)
image = FOLDER / "wordnet.img"
subprocess.run([os.environ["MOEC"], os.environ["TESTS_DIR"] + "/models/wordnet-moe.gguf", "-o", str(image), "-q"], check=True)
arguments = [os.environ["MOERT"], "run", str(image), "What is a piano?", "--chat", "--temp", "0", "-n", "6"]
plain = subprocess.run(arguments, capture_output=True, text=True, check=True).stdout
layered = subprocess.run(arguments, capture_output=True, text=True, check=True, env=LAYER)
assert layered.stdout == plain and not layered.stderr, layered.stdout[:4000] + layered.stderr[:4000]
# The recordings with timestamps, and the copies that measure memory.
profile = subprocess.run([os.environ["MOERT"], "profile", str(image), "-r", "1", "-d", "70", "--json"], capture_output=True, text=True, check=True, env=LAYER)
assert json.loads(profile.stdout)["roles"] and not profile.stderr, profile.stdout[:4000] + profile.stderr[:4000]

# The layer was really there: the loader says so when asked.
loud = subprocess.run(arguments[:1] + ["probe"], capture_output=True, text=True, check=True, env={**LAYER, "VK_LOADER_DEBUG": "layer"})
assert "VK_LAYER_KHRONOS_validation" in loud.stderr, loud.stderr[-2000:]
