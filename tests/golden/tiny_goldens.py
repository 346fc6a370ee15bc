#!/usr/bin/env python3
"""Makes the goldens of tiny_models.py with llama.cpp: `tiny_goldens.py LLAMA_SERVER [FAMILY ...]` writes tiny-FAMILY.json beside this
file for each family that has none. LLAMA_SERVER: the program, or "RUNNER llama-server".

On the CPU, over the file's own values as F32, with F32 keys and values, no flash attention, temperature 0: float arithmetic all through, so that what
differs from us is rounding. A golden that is there stays: it is evidence, and is not made again because a test fails. To replace one (its family's
row changed), delete it and say why in the commit."""
import json
import pathlib
import random
import shlex
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

import tiny_models

N_PREDICT, N_TOP = 12, 8


def prompts(name):
    """A short one, and one that crosses two pages of 64 positions and any sliding window of a row."""
    rng = random.Random(f"prompts of {name}")
    return [[rng.randrange(tiny_models.N_VOCAB - 1) for _ in range(n)] for n in (7, 150)]


def post(port, ids):
    body = dict(prompt=ids, n_predict=N_PREDICT, temperature=0, n_probs=N_TOP, cache_prompt=False, return_tokens=True)
    request = urllib.request.Request(f"http://127.0.0.1:{port}/completion", json.dumps(body).encode(), {"Content-Type": "application/json"})
    return json.load(urllib.request.urlopen(request, timeout=300))


def wait_for(server, port):
    for _ in range(300):
        if server.poll() is not None:
            sys.exit(f"the server ended with code {server.returncode}")
        try:
            urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=2)
            return
        except (urllib.error.URLError, OSError):
            time.sleep(0.1)
    sys.exit("the server does not answer after 30 s")


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def make(server_command, name, out):
    samples, port = [], free_port()
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "model.gguf")
        file.write_bytes(tiny_models.gguf(name, f32=True))
        log = open(pathlib.Path(folder, "log"), "w+")
        server = subprocess.Popen([*server_command, "-m", str(file), "--port", str(port), "-c", str(tiny_models.N_CTX), "-np", "1", "--no-webui", "-fit", "off",
                                   "--no-warmup", "-ctk", "f32", "-ctv", "f32", "-fa", "off", "-ngl", "0", "-t", "2"], stdout=log, stderr=log)
        try:
            wait_for(server, port)
            for ids in prompts(name):
                answer = post(port, ids)
                chosen = answer["completion_probabilities"]
                top = [[[t["id"], round(t["logprob"], 4)] for t in position["top_logprobs"]] for position in chosen]
                samples.append(dict(prompt_ids=ids, ids=[position["id"] for position in chosen], text=answer["content"], top=top))
        except SystemExit:
            log.seek(0)
            print(log.read()[-3000:], file=sys.stderr)
            raise
        finally:
            server.terminate()
            server.wait()
    gaps = [top[0][1] - top[1][1] for s in samples for top in s["top"]]
    assert all(len(s["ids"]) == N_PREDICT for s in samples), f"{name}: the model ended the text; another seed"
    source = "llama.cpp 0.7.0 (ggml 0.27), CPU, weights as float32, float32 K/V, no flash attention, temperature 0"
    golden = dict(model=f"tiny {name}", sha256=tiny_models.digest(tiny_models.gguf(name)), source=source, samples=samples)
    out.write_text(json.dumps(golden, separators=(",", ":")) + "\n")
    print(f"{out.name}: ids {samples[0]['ids'][:6]} ..., the best two tokens differ by {min(gaps):.3f} at least, {sum(gaps) / len(gaps):.2f} on average")


def main(arguments):
    if not arguments:
        sys.exit(__doc__)
    for name in arguments[1:] or tiny_models.FAMILIES:
        out = pathlib.Path(__file__).with_name(f"tiny-{name}.json")
        if out.exists():
            print(f"{out.name}: is there, left as it is")
        else:
            make(shlex.split(arguments[0]), name, out)


if __name__ == "__main__":
    main(sys.argv[1:])
