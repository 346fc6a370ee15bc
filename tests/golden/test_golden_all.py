"""Every NAME.gguf in $MOEC_MODELS that has a NAME.json or NAME-long.json in $MOEC_GOLDENS, all samples, the long ones through windows of 1, 7, 64 and
512 rows too. Models that moec declines (exit code 3) are listed and left out. Without the folders: the embedded model's long golden."""
import glob
import os
import subprocess
import tempfile
import golden_lib as g

here = os.path.dirname(os.path.abspath(__file__))
models, goldens = os.environ.get('MOEC_MODELS'), os.environ.get('MOEC_GOLDENS')


def check_model(model, folder):
    name = os.path.basename(model)[:-5]
    found = [s for s in ('', '-long') if os.path.exists(os.path.join(goldens, name + s + '.json'))]
    image = os.path.join(folder, name + '.img')
    result = subprocess.run([g.MOEC, model, '-o', image, '-q'], stderr=subprocess.PIPE, text=True)
    if result.returncode == 3:
        print('declined:', result.stderr.strip())
        return 0, 0
    failures = result.returncode != 0
    for suffix in found:
        golden = os.path.join(goldens, name + suffix + '.json')
        failures += g.check(image, model, golden)
        for window in ('1', '7', '64', '512') if suffix else ():
            failures += g.check(image, model, golden, '--window', window)
    os.unlink(image)
    return failures, len(found)


failures = checked = 0
with tempfile.TemporaryDirectory() as folder:
    if models and goldens:
        for model in sorted(glob.glob(os.path.join(models, '*.gguf'))):
            failed, n = check_model(model, folder)
            failures, checked = failures + failed, checked + n
        failures += checked == 0
    else:
        moe = os.path.join(here, '..', 'models', 'wordnet-moe.gguf')
        image = g.compile_image(moe, folder)
        for window in ('7', '64', '512'):
            failures += g.check(image, moe, os.path.join(here, 'wordnet-qwen3moe-q4_k_m-long.json'), '--window', window)
g.finish(failures)
