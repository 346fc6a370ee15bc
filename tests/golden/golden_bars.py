"""Compares an answer with a golden: tokens, and log-probabilities of the golden's best four, by the bars of the caller.

A golden (tests/golden/*.json) has samples with prompt_ids, ids, and top: per generated position the 16 most likely ids with their
log-probabilities; made by llama.cpp 0.7.0 on the CPU over the file's own weights as float32, with float32 K and V."""
import json
import os
import pathlib
import shlex
import subprocess
import tempfile

NEAR_TIE = 0.05  # golden's best two: closer, and either may be chosen
NEAR_ROUTE = 1e-3  # router logits: closer, and another expert may be chosen


def answer(program, model, ids, n, *options):
    """The JSON object of `moec oracle` or `moert run`."""
    with tempfile.NamedTemporaryFile("w", suffix=".json") as f:
        json.dump(ids, f)
        f.flush()
        r = subprocess.run([*program, str(model), "--ids", f.name, "-n", str(n), "--logprobs", "16", "--json", *options],
                           capture_output=True, text=True)
    assert r.returncode == 0, f"{program} {model}: exit code {r.returncode}: {r.stderr}"
    return json.loads(r.stdout)


def oracle(moec, model, ids, n):
    return answer([moec, "oracle"], model, ids, n)


def moert(program, image, ids, n, *options):
    """program: a path, or a command that ends in one."""
    return answer([*shlex.split(str(program)), "run"], image, ids, n, "--temp", "0", *options)


def samples(path):
    return json.loads(pathlib.Path(path).read_text())["samples"]


def compare(name, sample, got, bar_mean, bar_largest, margin=None):
    """Up to the first other token, which must be a near tie. margin: of the oracle, by generated position; where it is below
    NEAR_ROUTE a difference above bar_largest is allowed, listed, and ends the comparison: other experts ran, and all that follows
    reads the keys and values of that position. Returns (differences, lines about exempt positions)."""
    errors, exempt = [], []
    for i, (mine, theirs) in enumerate(zip(got["ids"], sample["ids"])):
        top, mine_top = sample["top"][i], dict(map(tuple, got["logprobs"][i]))
        here = [abs(mine_top.get(id, float("-inf")) - logprob) for id, logprob in top[:4]]
        if margin and margin[i] < NEAR_ROUTE and max(here) >= bar_largest:
            exempt.append(f"{name}: position {i} of {len(sample['ids'])}: difference {max(here):.3f}, router margin {margin[i]:.5f}")
            break
        assert max(here) < bar_largest, f"{name}: position {i}: difference {max(here):.5f}, bar {bar_largest}"
        errors += here
        if mine != theirs:
            assert top[0][1] - top[1][1] < NEAR_TIE, f"{name}: token {i} is {mine}, the golden has {theirs}"
            break
    else:
        assert len(got["ids"]) == len(sample["ids"]), f'{name}: {len(got["ids"])} tokens, the golden has {len(sample["ids"])}'
    mean = sum(errors) / len(errors) if errors else 0
    assert mean < bar_mean, f"{name}: mean difference {mean:.6f}, bar {bar_mean}"
    return errors, exempt


def generated_margin(got):
    """The oracle's margins by generated position, or None without routers."""
    margin = got["router_margin"]
    return margin[len(got["prompt_ids"]) - 1:] if margin else None


def must_fail(name, sample, got, *bars):
    """The comparison notices a wrong log-probability, a wrong token and a missing one."""
    def shift(g): g["logprobs"][0][0][1] += 2 * bars[1]
    def swap(g): g["ids"][0] = 7
    def drop(g): g["ids"].pop()
    for damage in (shift, swap, drop):
        bad = json.loads(json.dumps(got))
        damage(bad)
        try:
            compare(name, sample, bad, *bars)
        except AssertionError:
            continue
        raise SystemExit(f"{name}: an answer damaged by {damage.__name__} passes the comparison")


BARS_IMAGE = 0.01, 0.15  # tier base
BARS_KHR = 0.05, 0.5


def compile_image(model, folder, *options):
    """The image of a model, with kernels up to the tier of `options` or of MOE_TEST_TIER (base: what CPU drivers take; each tier more takes
    as long again to compile)."""
    image = pathlib.Path(folder, pathlib.Path(model).stem + ".img")
    tier = [] if "--tier" in options else ["--tier", os.environ.get("MOE_TEST_TIER", "base")]
    subprocess.run([os.environ["MOEC"], str(model), "-q", "--no-selftest", "-o", str(image), *options, *tier], check=True)
    return image


def check_image(image, model, golden, *options, only=None, bars=BARS_IMAGE):
    """Every sample of a golden (or those numbered in `only`) through `moert run`; prints one line, raises AssertionError beyond the bars. The
    oracle is asked for router margins only when a difference is beyond the largest allowed."""
    errors, exempt, tokens = [], [], 0
    for i, sample in enumerate(samples(golden)):
        if only is not None and i not in only:
            continue
        name, n = " ".join([f"{pathlib.Path(golden).stem}[{i}]", *options]), len(sample["ids"])
        got = moert(os.environ["MOERT"], image, sample["prompt_ids"], n, *options)
        try:
            more = compare(name, sample, got, *bars)
        except AssertionError:
            margin = generated_margin(oracle(os.environ["MOEC"], model, sample["prompt_ids"], n))
            if not margin:
                raise
            more = compare(name, sample, got, *bars, margin)
        assert got["text"] == sample["text"] or got["ids"] != sample["ids"], f'{name}: text {got["text"]!r}'
        if not errors:
            must_fail(name, sample, got, *bars)
        errors, exempt, tokens = errors + more[0], exempt + more[1], tokens + len(got["ids"])
    assert errors, f"{golden}: nothing was compared"
    print(f"{' '.join([pathlib.Path(golden).stem, *options]):44s} {tokens:4d} tokens: mean {sum(errors) / len(errors):.5f}, largest {max(errors):.5f}",
          *exempt, sep="\n  ", flush=True)
