#!/usr/bin/env python3
"""Broken, hostile and foreign model files through the program moec: one clear line, exit code 1, 2 or 3, no output file; and
what moec promises of its output: the same bytes twice, nothing under the output's name after kill -9.

Owns: the changes to the embedded model. Does not own: the reader's own checks (test_gguf_hostile.c)."""
import json
import math
import os
import pathlib
import random
import re
import shutil
import signal
import struct
import subprocess
import sys
import time

MOEC = os.environ["MOEC"]
MODEL = pathlib.Path(os.environ["TESTS_DIR"]) / "models/wordnet-moe.gguf"
WORK = pathlib.Path(os.environ["BUILD_DIR"]) / f"moec_hostile-{os.getpid()}"
SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q", 12: "d"}


class Gguf:
    """The places of keys' values and tensors' fields in a file's bytes."""

    def __init__(self, data):
        self.data, self.at = bytearray(data), 8
        n_tensor, n_key = self.take("QQ")
        self.value, self.tensor = {}, {}
        for _ in range(n_key):
            key = self.text()
            kind, = self.take("I")
            self.value[key] = (self.at, kind)
            self.skip(kind)
        for _ in range(n_tensor):
            start = self.at
            name = self.text()
            n_dim, = self.take("I")
            dims_at = self.at
            self.at += 8 * n_dim
            self.tensor[name] = dict(name=start + 8, dims=dims_at, n_dim=n_dim, format=self.at, offset=self.at + 4)
            self.at += 12

    def take(self, form):
        values = struct.unpack_from("<" + form, self.data, self.at)
        self.at += struct.calcsize("<" + form)
        return values

    def text(self):
        n, = self.take("Q")
        self.at += n
        return self.data[self.at - n:self.at].decode()

    def skip(self, kind):
        if kind == 8:
            self.text()
        elif kind == 9:
            element, count = self.take("IQ")
            for _ in range(count):
                self.skip(element)
        else:
            self.take(SCALARS[kind])

    def put(self, at, form, *values):
        struct.pack_into("<" + form, self.data, at, *values)
        return self

    def set(self, key, value):
        at, kind = self.value[key]
        return self.put(at, SCALARS[kind], value)

    def set_text(self, key, text):
        at, _ = self.value[key]
        n, = struct.unpack_from("<Q", self.data, at)
        assert n == len(text)
        self.data[at + 8:at + 8 + n] = text.encode()
        return self

    def add(self, key, kind, value):
        """A copy with one more key. A filler key keeps the data aligned."""
        def pair(key, kind, value):
            head = struct.pack("<Q", len(key)) + key.encode() + struct.pack("<I", kind)
            return head + (struct.pack("<Q", len(value)) + value.encode() if kind == 8 else struct.pack("<" + SCALARS[kind], value))
        new, n_key = pair(key, kind, value), struct.unpack_from("<Q", self.data, 16)[0]
        filler = f"filler{n_key}"
        new += pair(filler, 8, "." * (-(len(new) + len(pair(filler, 8, ""))) % 32))
        data = self.data[:24] + new + self.data[24:]
        struct.pack_into("<Q", data, 16, n_key + 2)
        return Gguf(data)

    def rename_key(self, key, new):
        assert len(key) == len(new) and self.data.count(key.encode()) == 1
        return Gguf(self.data.replace(key.encode(), new.encode()))

    def rename(self, name, new):
        assert len(name) == len(new)
        at = self.tensor[name]["name"]
        self.data[at:at + len(new)] = new.encode()
        return self

    def dims(self, name, *dims):
        for i, d in enumerate(dims):
            self.put(self.tensor[name]["dims"] + 8 * i, "Q", d)
        return self

    def format(self, name, number):
        return self.put(self.tensor[name]["format"], "I", number)


GOOD = MODEL.read_bytes()
HEADER = Gguf(GOOD).at


def edit():
    return Gguf(GOOD)


# Whole compilations under AddressSanitizer: without stacks of allocations they take two thirds of the time.
LIGHT = {**os.environ, "ASAN_OPTIONS": os.environ.get("ASAN_OPTIONS", "") + ":malloc_context_size=0:quarantine_size_mb=1"}


def moec(*arguments, timeout=240, env=None):
    return subprocess.run([MOEC, *map(str, arguments)], capture_output=True, text=True, errors="replace", timeout=timeout, env=env)


def refused(what, path, codes, pattern, *extra):
    out = WORK / "out.img"
    r = moec(path, "-q", "-o", out, *extra)
    lines = r.stderr.splitlines()
    assert r.returncode in codes, f"{what}: exit code {r.returncode}, wanted one of {codes}: {r.stderr}"
    assert len(lines) == 1 and lines[0].startswith("moec: "), f"{what}: not one line: {r.stderr!r}"
    assert re.search(pattern, lines[0]), f"{what}: {lines[0]!r} does not match {pattern!r}"
    assert not r.stdout, f"{what}: wrote to standard output"
    assert sorted(p.name for p in WORK.iterdir()) == ["in.gguf"], f"{what}: left {list(WORK.iterdir())}"


def given(data):
    path = WORK / "in.gguf"
    path.write_bytes(data)
    return path


def test_truncated():
    for kib in range(64):
        refused(f"cut at {kib} KiB", given(GOOD[:1024 * kib]), (1, 3), r"in\.gguf")
    for n in (1, 7, 23, HEADER - 1, HEADER, len(GOOD) // 2, len(GOOD) - 1):
        refused(f"cut at {n}", given(GOOD[:n]), (1, 3), r"in\.gguf")


def test_edits():
    down, q, moe = "blk.2.ffn_down_exps.weight", "blk.1.attn_q.weight", "qwen3moe."
    shapes = "columns|rows|matrices|dimension|elements|overlap|dim"
    cases = [
        ("zero dimension", edit().dims(q, 0), 1, q),
        ("huge dimension", edit().dims(q, 1 << 63), 1, q),
        ("overflowing product", edit().dims(down, 1 << 30, 1 << 30, 1 << 30), 1, down),
        ("fewer rows", edit().dims(q, 256, 256), 1, q + ".*" + shapes),
        ("fewer columns", edit().dims("blk.3.ffn_up_exps.weight", 256, 256, 8), 1, "blk.3.ffn_up_exps.weight.*matrices"),
        ("transposed", edit().dims("blk.0.attn_output.weight", 256, 512), 1, "blk.0.attn_output.weight"),
        ("short norm", edit().dims("blk.0.attn_norm.weight", 128), 1, "blk.0.attn_norm.weight"),
        ("duplicate name", edit().rename("blk.2.attn_q.weight", "blk.1.attn_q.weight"), 1, q),
        ("missing tensor", edit().rename(down, down.replace("down", "dawn")), 1, down),
        ("unsupported format", edit().format(q, 41), 3, "Q1_0.*" + q),
        ("withdrawn format", edit().format(q, 31), 3, q),
        ("unknown format", edit().format(q, 200), 3, q),
        ("unknown architecture", edit().set_text("general.architecture", "qwen9moe"), 3, "qwen9moe.*compiles .*qwen3moe"),
        ("more chosen than experts", edit().set(moe + "expert_used_count", 17), 1, "expert_used_count: 17 of 16"),
        ("no expert chosen", edit().set(moe + "expert_used_count", 0), 1, "expert_used_count"),
        ("wrong expert count", edit().set(moe + "expert_count", 17), 1, "17"),
        ("no heads", edit().set(moe + "attention.head_count", 0), 1, "head_count"),
        ("uneven heads", edit().set(moe + "attention.head_count_kv", 3), 1, "head_count.*3"),
        ("other value length", edit().set(moe + "attention.value_length", 32), 1, "attn_v.weight: 128 rows, the hyperparameters give 64"),
        ("one layer more", edit().set(moe + "block_count", 5), 1, r"blk\.4\."),
        ("a layer left over", edit().set(moe + "block_count", 3), 3, r"blk\.3\."),
        ("no layers", edit().set(moe + "block_count", 0), 1, "block_count"),
        ("two billion layers", edit().set(moe + "block_count", 2**31), 1, "block_count"),
        ("negative epsilon", edit().set(moe + "attention.layer_norm_rms_epsilon", -1.0), 1, "epsilon"),
        ("epsilon is no number", edit().set(moe + "attention.layer_norm_rms_epsilon", math.nan), 1, "epsilon"),
        ("endless rope base", edit().set(moe + "rope.freq_base", math.inf), 1, "freq_base"),
        ("wrong width", edit().set(moe + "embedding_length", 512), 1, "token_embd|512"),
        ("huge heads", edit().rename_key(moe + "attention.key_length", moe + "attention.key_lengtx")
         .set(moe + "embedding_length", 8192).set(moe + "attention.head_count", 1).set(moe + "attention.head_count_kv", 1), 1,
         "heads of 8192"),
        ("rope scaling of another kind", edit().add(moe + "rope.scaling.type", 8, "longrope"), 3, "rope.scaling.type: 'longrope'"),
        ("a type with an escape", edit().add(moe + "rope.scaling.type", 8, "a\x1b\nb"), 3, "rope.scaling.type: 'a\ufffd\ufffdb'"),
        ("a rope factor alone", edit().add(moe + "rope.scaling.factor", 6, 0.125), 1, "rope.scaling.factor: 0.125"),
        ("its older name", edit().add(moe + "rope.scale_linear", 6, 0.125), 1, "rope.scaling.factor: 0.125"),
        ("a sliding window", edit().add(moe + "attention.sliding_window", 4, 128), 3, "sliding_window: 128"),
        ("capped logits", edit().add(moe + "final_logit_softcapping", 6, 30.0), 3, "final_logit_softcapping: 30"),
        ("other gating", edit().add(moe + "expert_gating_func", 4, 2), 3, "expert_gating_func: 2"),
        ("weights not renormalized", edit().add(moe + "expert_weights_norm", 7, False), 3, "expert_weights_norm: 0"),
        ("an embedding model", edit().add(moe + "pooling_type", 4, 3), 3, "pooling_type is 3 .last token.: it is an embedding model"),
        ("another tokenizer", edit().set_text("tokenizer.ggml.pre", "qwenX"), 3, "qwenX"),
        ("two million tensors", edit().put(8, "Q", 2_000_000), 1, r"in\.gguf|tensor"),
        ("no such version", edit().put(4, "I", 9), 3, "version"),
        ("big-endian", edit().put(4, "I", 3 << 24), 3, "endian"),
        ("not a GGUF", edit().put(0, "4s", b"ELF\0"), 1, "GGUF"),
    ]
    for what, changed, code, pattern in cases:
        refused(what, given(bytes(changed.data)), (code,), pattern)


def test_rope_scaling():
    """A factor is linear scaling unless the type says otherwise; what changes nothing is taken."""
    ids = WORK / "ids.json"

    def logprobs(changed):
        r = moec("oracle", given(bytes(changed.data)), "--ids", ids, "-n", "1", "--logprobs", "4", "--json")
        assert r.returncode == 0, r
        return json.loads(r.stdout)["logprobs"]

    ids.write_text("[9, 8, 7, 6, 5]")
    moe = "qwen3moe."
    plain, factor = logprobs(edit()), edit().add(moe + "rope.scaling.factor", 6, 4.0)
    scaled = logprobs(factor)
    assert scaled != plain, "rope.scaling.factor without a type is ignored"
    assert logprobs(factor.add(moe + "rope.scaling.type", 8, "linear")) == scaled
    assert logprobs(edit().add(moe + "rope.scale_linear", 6, 4.0)) == scaled
    assert logprobs(factor.add(moe + "rope.scaling.type", 8, "none")) == plain
    assert logprobs(edit().add(moe + "attention.sliding_window", 4, 1 << 20)
                    .add(moe + "expert_gating_func", 4, 1).add(moe + "expert_weights_norm", 7, True)) == plain
    ids.unlink()


def test_inspect_agrees():
    for changed, pattern in ((edit(), None), (edit().add("qwen3moe.rope.scaling.type", 8, "longrope"), "longrope"),
                             (edit().set("qwen3moe.block_count", 5), r"blk\.4\."),
                             (edit().set_text("tokenizer.ggml.pre", "qwenX"), "qwenX")):
        r = moec("inspect", given(bytes(changed.data)), "--json")
        assert r.returncode == 0, r
        report = json.loads(r.stdout)
        assert report["compiles"] == (pattern is None), report["reasons"]
        assert pattern is None or re.search(pattern, report["reasons"][0]), report["reasons"]


def test_unknown_key():
    """Ignored, but not silently."""
    path = given(bytes(edit().add("qwen3moe.rope.unheard_of", 8, "1").data))
    assert json.loads(moec("inspect", path, "--json").stdout)["unknown_keys"] == ["rope.unheard_of"]
    assert 'unknown keys     ["rope.unheard_of"], ignored' in moec("inspect", path).stdout.splitlines()
    r = moec(path, "-q", "--dump-plan")
    assert r.returncode == 0 and r.stderr == "moec: keys that moec does not know and ignores: qwen3moe.rope.unheard_of (1)\n", r.stderr
    path = given(GOOD)
    assert json.loads(moec("inspect", path, "--json").stdout)["unknown_keys"] == []
    assert "unknown keys" not in moec("inspect", path).stdout and not moec(path, "-q", "--dump-plan").stderr


def test_places():
    given(GOOD)
    refused("no such file", WORK / "none.gguf", (1,), "none.gguf")
    refused("a folder", WORK, (1,), re.escape(str(WORK)))
    r = moec(WORK / "in.gguf", "-q", "-o", WORK / "nowhere/out.img")
    assert r.returncode == 1 and "nowhere" in r.stderr, r.stderr
    r = moec(WORK / "in.gguf", "-q", "-o", WORK / "in.gguf")
    assert r.returncode == 2 and "replace the model" in r.stderr, r.stderr
    assert (WORK / "in.gguf").read_bytes() == GOOD
    for arguments in ([], [WORK / "in.gguf", "--kv", "q3"], [WORK / "in.gguf", "--compress", "23"], [WORK / "in.gguf", "-x"],
                      [WORK / "in.gguf", "b.gguf"], ["oracle", WORK / "in.gguf"], ["inspect"]):
        r = moec(*arguments)
        assert r.returncode == 2 and len(r.stderr.splitlines()) == 1, (arguments, r.returncode, r.stderr)
    for arguments in (["--help"], ["--version"], ["oracle", "--help"], ["inspect", "--help"]):
        r = moec(*arguments)
        assert r.returncode == 0 and r.stdout and not r.stderr, (arguments, r)


def test_damaged_weights():
    """A weight that is no number is named by what computes with it: the oracle, and so the self-test of a compilation."""
    data = edit()
    record = data.tensor["blk.2.attn_norm.weight"]
    offset, = struct.unpack_from("<Q", data.data, record["offset"])
    data.put((data.at + 31) // 32 * 32 + offset + 40, "f", math.nan)
    (WORK / "ids.json").write_text("[1, 2]")
    r = moec("oracle", given(bytes(data.data)), "--ids", WORK / "ids.json", "-n", "1")
    assert r.returncode == 1 and "logits are not finite; row 0 of blk.2.attn_norm.weight holds a weight that is NaN" in r.stderr, r


def test_flipped_bits():
    """Any header with one or two flipped bits: an answer, never a crash. The plan is made, nothing is written."""
    rng = random.Random(7)
    for i in range(int(os.environ.get("MOEC_FLIPS", "60"))):
        data = bytearray(GOOD)
        for _ in range(rng.choice((1, 1, 2))):
            # tensor records and hyperparameters rather than the vocabulary, which is most of the header
            at = rng.choice((rng.randrange(1400), rng.randrange(HEADER - 4000, HEADER)))
            data[at] ^= 1 << rng.randrange(8)
        r = moec(given(data), "--dump-plan", timeout=60)
        assert r.returncode in (0, 1, 3), f"flip {i}: exit code {r.returncode}: {r.stderr}"
        assert r.returncode == 0 or len(r.stderr.splitlines()) == 1, f"flip {i}: {r.stderr!r}"


def test_compiles_the_same_twice():
    given(GOOD)
    images = []
    for name, threads in (("a.img", "1"), ("b.img", "3")):
        shutil.copy(WORK / "in.gguf", WORK / f"{name}.gguf")  # another path, another time
        r = moec(WORK / f"{name}.gguf", "-q", "-j", threads, "-o", WORK / name, env=LIGHT)
        assert r.returncode == 0 and not r.stderr and not r.stdout, r
        images.append((WORK / name).read_bytes())
    assert images[0] == images[1], "two compilations give different images"
    r = moec(WORK / "in.gguf", "--kv", "f32", "--no-selftest", "-o", WORK / "a.img", env=LIGHT)  # an image that is there is replaced
    assert r.returncode == 0 and (WORK / "a.img").read_bytes() not in (b"", images[0]), "--kv changes nothing"
    for path in WORK.iterdir():
        path.unlink()


def test_killed():
    """kill -9 at any time: the old image is still there, or none is, and no other file."""
    given(GOOD)
    start = time.monotonic()
    assert moec(WORK / "in.gguf", "-q", "--no-selftest", "-o", WORK / "out.img", env=LIGHT).returncode == 0
    whole, image = time.monotonic() - start, (WORK / "out.img").read_bytes()
    rng = random.Random(3)
    for i in range(4):
        if i % 2 == 0:
            (WORK / "out.img").unlink(missing_ok=True)
        else:
            (WORK / "out.img").write_bytes(b"old")
        p = subprocess.Popen([MOEC, WORK / "in.gguf", "-q", "--no-selftest", "-o", WORK / "out.img"], env=LIGHT)
        time.sleep(whole * (0.3 + 0.7 * rng.random()))
        p.send_signal(signal.SIGKILL)
        done = p.wait() == 0
        now = (WORK / "out.img").read_bytes() if (WORK / "out.img").exists() else None
        assert now == image or (not done and now == (b"old" if i % 2 else None)), f"kill {i}: a partial image"
        assert {p.name for p in WORK.iterdir()} <= {"in.gguf", "out.img"}, f"kill {i}: left {list(WORK.iterdir())}"


WORK.mkdir(parents=True)
try:
    for name, test in list(globals().items()):
        if name.startswith("test_") and (len(sys.argv) < 2 or name in sys.argv[1:]):
            begin = time.monotonic()
            test()
            print(f"{name}: {time.monotonic() - begin:.1f} s", flush=True)
            for path in WORK.iterdir():
                path.unlink()
finally:
    shutil.rmtree(WORK)
