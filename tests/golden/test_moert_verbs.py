#!/usr/bin/env python3
"""The verbs of moert on the embedded model: what they print, their exit codes, and the same answer however a prompt is cut.

Owns: run, bench, plan, inspect, verify, probe as a user sees them. Does not own: profile (test_moert_profile.py); whether the
numbers are right (the goldens).
"""
import json
import os
import pathlib
import re
import struct
import subprocess
import time

MOEC, MOERT = os.environ["MOEC"], os.environ["MOERT"]
FOLDER = pathlib.Path(os.environ["BUILD_DIR"], "test_moert_verbs")
IMAGE = FOLDER / "wordnet.img"


def run(*args, code=0, env=None, stdin=None):
    done = subprocess.run([MOERT, *map(str, args)], capture_output=True, text=True, input=stdin, timeout=240,
                          env={**os.environ, **(env or {})})
    assert done.returncode == code, f"moert {args}: exit code {done.returncode}, expected {code}\n{done.stdout[-2000:]}\n{done.stderr}"
    if code:
        assert len(done.stderr.strip().splitlines()) == 1, f"moert {args}: not one line: {done.stderr}"
    return done.stderr if code else done.stdout


def contains(text, *parts):
    for part in parts:
        assert part in text, f"lacks {part!r}: {text[:2000]}"


def sections():
    """Kind -> (offset, bytes) of the image's sections, read by FORMAT.md alone."""
    data = IMAGE.read_bytes()[:8192]
    n = struct.unpack_from("<I", data, 24)[0]
    rows = [struct.unpack_from("<IIQQ", data, 64 + 64 * i) for i in range(n)]
    return {kind: (offset, size) for kind, _, offset, size in rows}


def test_run():
    one = json.loads(run("run", IMAGE, "What is a piano?", "--chat", "--temp", 0, "-n", 12, "--logprobs", 4, "--json"))
    assert list(one) == ["prompt_ids", "ids", "text", "logprobs", "timings", "device", "tier"], list(one)
    assert list(one["timings"]) == ["load_ms", "first_token_ms", "prompt_tokens", "prompt_ms", "predicted_tokens", "predicted_ms"]
    assert one["tier"] == "base" and len(one["ids"]) == len(one["logprobs"]) == one["timings"]["predicted_tokens"]
    for token, top in zip(one["ids"], one["logprobs"]):
        assert len(top) == 4 and top[0][0] == token, (token, top)
        assert all(a[1] >= b[1] for a, b in zip(top, top[1:])), top
    plain = run("run", IMAGE, "What is a piano?", "--chat", "--temp", 0, "-n", 12)
    assert plain == one["text"] + "\n", (plain, one["text"])
    ids = FOLDER / "ids.json"
    ids.write_text(json.dumps(one["prompt_ids"]))
    again = json.loads(run("run", IMAGE, "--ids", ids, "--temp", 0, "-n", 12, "--json"))
    assert again["ids"] == one["ids"] and again["logprobs"] == []
    piped = json.loads(run("run", IMAGE, "--ids", "-", "--temp", 0, "-n", 12, "--json", stdin=ids.read_text()))
    assert piped["ids"] == one["ids"]
    return one["prompt_ids"]


def test_windows_and_batches(prompt):
    long = (prompt * 40)[:140]
    prompts = [prompt, long, prompt[:7], [prompt[0]]]
    file = FOLDER / "prompts.json"
    file.write_text(json.dumps(prompts))
    answers = {}
    for window in (0, 1, 7, 64, 512):
        answers[window] = json.loads(run("run", IMAGE, "--ids", file, "--temp", 0, "-n", 10, "--window", window, "--json"))
        assert [a["prompt_ids"] for a in answers[window]] == prompts
    for window, answer in answers.items():
        assert [a["ids"] for a in answer] == [a["ids"] for a in answers[0]], f"--window {window} changes the tokens"
    for index, tokens in enumerate(prompts):  # together or alone
        file.write_text(json.dumps(tokens))
        alone = json.loads(run("run", IMAGE, "--ids", file, "--temp", 0, "-n", 10, "--json"))
        assert alone["ids"] == answers[0][index]["ids"], f"prompt {index} alone answers otherwise"


def test_sampling():
    def sample(seed, *more):
        return json.loads(run("run", IMAGE, "Music is", "--temp", 1, "-n", 16, "--seed", seed, "--json", "--ignore-eos", *more))["ids"]
    first = sample(1)
    assert first == sample(1), "the same seed answers otherwise"
    assert len({tuple(sample(seed)) for seed in range(1, 5)}) > 1, "four seeds give one answer"
    greedy = json.loads(run("run", IMAGE, "Music is", "--temp", 0, "-n", 16, "--json", "--ignore-eos"))["ids"]
    assert sample(1, "--top-k", 1) == greedy and sample(2, "--top-p", 0) == greedy and sample(3, "--min-p", 1) == greedy
    assert len(first) == 16


def test_other_verbs():
    contains(run("plan", IMAGE), "weights", "states", "in all", "free")
    contains(run("inspect", "-a", IMAGE), "model.n_vocab", "template token(1)", "module", "plane")
    contains(run("verify", "--self-test", IMAGE), "self-test:", "passed")
    contains(run("probe"), "Vulkan 1.", "subgroup")
    profile = FOLDER / "profile.json"
    run("probe", "-o", profile)
    contains(json.dumps(json.loads(profile.read_text())), "bufferDeviceAddress", "max_allocation")
    rows = json.loads(run("bench", IMAGE, "-p", 16, "-n", 4, "-b", "1,2", "-d", "0,20", "-r", 1, "-o", "json"))
    assert [(r["n_prompt"], r["n_gen"], r["n_depth"], r["n_parallel"]) for r in rows] == [
        (16, 0, 0, 1), (0, 4, 0, 1), (0, 4, 0, 2), (16, 0, 20, 1), (0, 4, 20, 1), (0, 4, 20, 2)]
    for r in rows:
        assert r["median_ts"] == r["min_ts"] == r["max_ts"] == r["avg_ts"] > 0 and r["stddev_ts"] == r["stddev_ns"] == 0, r
    row = json.loads(run("bench", IMAGE, "-p", 0, "-n", 4, "-b", 2, "-r", 3, "-o", "json"))[0]
    for key in ("build_commit", "gpu_info", "backends", "model_filename", "model_type", "model_size", "model_n_params", "n_batch", "n_ubatch",
                "type_k", "type_v", "test_time", "avg_ns", "stddev_ns"):  # as llama-bench names them
        assert key in row, key
    samples = sorted(row["samples_ts"])
    assert len(samples) == len(row["samples_ns"]) == 3 and [row["min_ts"], row["median_ts"], row["max_ts"]] == samples, row
    for rate, ns in zip(row["samples_ts"], row["samples_ns"]):  # two sequences of four tokens
        assert abs(rate * ns / 1e9 - 8) < 1e-3, row
    text = run("bench", IMAGE, "-p", 16, "-n", 4, "-r", 1)
    contains(text, "| pp16 |", "| tg4 |", "t/s (median of 1)", "smallest..largest")
    assert json.loads(run("bench", IMAGE, "-p", 0, "-n", 0, "-o", "json")) == []
    assert "| pp" not in run("bench", IMAGE, "-p", 0, "-n", 4, "-r", 1) and "| tg" not in run("bench", IMAGE, "-p", 8, "-n", 0, "-r", 1)
    assert re.search(r"--repetitions.*\(default 5\)", run("bench", "--help"))
    contains(run("--version"), "moert ")
    for verb in ("run", "bench", "profile", "plan", "inspect", "verify", "probe"):
        contains(run(verb, "--help"), f"moert {verb}")


def test_errors():
    contains(run("run", IMAGE, code=2), "PROMPT")
    contains(run("run", IMAGE, "x", "--device", "nothing", code=2), "this box has")
    contains(run("run", IMAGE, "x", "--tier", "nv", code=3), "nv")
    contains(run("run", IMAGE, "x", "--ctx", 1, code=2), "--ctx 1: allowed at least 2")
    cut = subprocess.run([MOERT, "plan", IMAGE, "--ctx", "1000000"], capture_output=True, text=True, check=True)
    contains(cut.stderr, "note: --ctx 1000000 is more than the model was trained for; the context is ")
    contains(run("run", FOLDER / "none.img", "x", code=1), "none.img")
    contains(run("run", IMAGE, "x", code=3, env={"MOERT_DENY_FEATURE": "bufferDeviceAddress"}), "lacks bufferDeviceAddress")
    nowhere = {"VK_ICD_FILENAMES": "/nonexistent", "VK_DRIVER_FILES": "/nonexistent"}
    contains(run("run", IMAGE, "x", code=3, env=nowhere), "mesa-vulkan-drivers")
    contains(run("run", IMAGE, "--ids", "-", "--json", code=2, stdin="[1, 99999999]"), "prompt[1]")
    contains(run("run", IMAGE, "--ids", "-", "--json", code=1, stdin="[1,"), "line 1")
    contains(run("run", IMAGE, "word " * 5000, code=2), "the context is")
    with open("/dev/full", "w") as full:
        done = subprocess.run([MOERT, "plan", IMAGE], stdout=full, stderr=subprocess.PIPE, text=True)
        assert done.returncode == 1 and "standard output" in done.stderr, done
    # A reader that has enough: the run ends, long before its 2000 tokens.
    command = [MOERT, "run", IMAGE, "word", "-n", "2000", "--ignore-eos", "--ctx", "2048"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        process.stdout.read(20)
        process.stdout.close()
        start = time.monotonic()
        assert process.wait(60) == 1 and "standard output: Broken pipe" in process.stderr.read(), process
        assert time.monotonic() - start < 5


def test_verify_finds_a_flipped_bit():
    names = {1: "MANIFEST", 2: "MODULES", 3: "TEMPLATES", 4: "PLANE_INDEX", 5: "PLANES", 6: "TABLES", 7: "TOKENIZER", 8: "CHAT", 9: "SELFTEST"}
    broken = FOLDER / "broken.img"
    data = bytearray(IMAGE.read_bytes())
    found = sections()
    assert set(found) == set(names), found
    for kind, (offset, size) in found.items():
        at = offset + size * 2 // 3
        data[at] ^= 16
        broken.write_bytes(data)
        data[at] ^= 16
        contains(run("verify", broken, code=1), names[kind])
    broken.unlink()


def main():
    FOLDER.mkdir(exist_ok=True)
    subprocess.run([MOEC, os.environ["TESTS_DIR"] + "/models/wordnet-moe.gguf", "-o", str(IMAGE), "-q"], check=True)
    prompt = test_run()
    test_windows_and_batches(prompt)
    test_sampling()
    test_other_verbs()
    test_errors()
    test_verify_finds_a_flipped_bit()


main()
