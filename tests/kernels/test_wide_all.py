"""The kernels' tests once more on subgroups of 16: lavapipe with vectors of 512 bits. So the code for wide subgroups, which is what GPUs run, is
tested without one."""
import os
import pathlib
import subprocess
import sys

folder = pathlib.Path(os.environ["BUILD_DIR"], "tests/kernels")
failed = []
for program in ("test_attention", "test_latent"):
    r = subprocess.run([folder / program], env=os.environ | {"LP_NATIVE_VECTOR_WIDTH": "512"}, capture_output=True, text=True)
    print(program, r.returncode, *[line for line in r.stdout.splitlines() if line.startswith("device")], flush=True)
    if r.returncode or ("llvmpipe" in r.stdout and "subgroup size 16" not in r.stdout):
        failed.append(program)
        print(r.stdout, r.stderr, flush=True)
sys.exit(f"failed: {failed}" if failed else 0)
