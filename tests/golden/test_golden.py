"""Embedded models against their goldens: every sample, a prompt through windows of several sizes, a long prompt."""
import os
import tempfile
import golden_lib as g

here = os.path.dirname(os.path.abspath(__file__))
models = os.path.join(here, '..', 'models')


def golden(name):
    return os.path.join(here, name + '.json')


failures = g.control(golden('wordnet-qwen3moe-q4_k_m'))
with tempfile.TemporaryDirectory() as folder:
    moe = os.path.join(models, 'wordnet-moe.gguf')
    image = g.compile_image(moe, folder)
    failures += g.check(image, moe, golden('wordnet-qwen3moe-q4_k_m'))
    for window in ('1', '7', '64'):
        failures += g.check(image, moe, golden('wordnet-qwen3moe-q4_k_m'), '--window', window, samples=[5])
    failures += g.check(image, moe, golden('wordnet-qwen3moe-q4_k_m-long'), samples=[0])
    dense = os.path.join(models, 'wordnet-qwen3-q5_k_m.gguf')
    failures += g.check(g.compile_image(dense, folder), dense, golden('wordnet-qwen3-q5_k_m'), samples=[0, 1])
g.finish(failures)
