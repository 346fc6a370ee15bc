#!/usr/bin/env python3
"""A split model through the program moec: the image of its parts is that of the whole file, whichever part is given; the same
numbers from the oracle; a part that is missing, foreign, twice there or cut is named.

Owns: a small splitter. Does not own: the reader's checks of parts (test_gguf_split.c)."""
import hashlib
import json
import os
import pathlib
import shutil
import struct
import subprocess

MOEC = os.environ["MOEC"]
MODEL = pathlib.Path(os.environ["TESTS_DIR"]) / "models/wordnet-moe.gguf"
WORK = pathlib.Path(os.environ["BUILD_DIR"]) / f"moec_split-{os.getpid()}"
SCALARS = {0: 1, 1: 1, 2: 2, 3: 2, 4: 4, 5: 4, 6: 4, 7: 1, 10: 8, 11: 8, 12: 8}


def split(data, n_part, stem, first_empty=False):
    """Writes STEM-00001-of-0000N.gguf, ...: the keys in part 1, the tensors in order, about as many in each part. Returns the paths."""
    at = 24
    n_tensor, n_key = struct.unpack_from("<QQ", data, 8)

    def text():
        nonlocal at
        n, = struct.unpack_from("<Q", data, at)
        at += 8 + n

    def value(kind):
        nonlocal at
        if kind == 8:
            text()
        elif kind == 9:
            element, count = struct.unpack_from("<IQ", data, at)
            at += 12
            if element == 8:
                for _ in range(count):
                    text()
            else:
                at += SCALARS[element] * count
        else:
            at += SCALARS[kind]

    for _ in range(n_key):
        text()
        at += 4
        value(struct.unpack_from("<I", data, at - 4)[0])
    keys, tensors = data[24:at], []
    for _ in range(n_tensor):
        start = at
        text()
        at += 4 + 8 * struct.unpack_from("<I", data, at)[0] + 4
        tensors.append((data[start:at], struct.unpack_from("<Q", data, at)[0]))
        at += 8
    base = (at + 31) // 32 * 32
    ends = [offset for _, offset in tensors[1:]] + [len(data) - base]

    def pair(name, kind, form, number):
        return struct.pack("<Q", len(name)) + name.encode() + struct.pack("<I" + form, kind, number)

    paths = []
    for no in range(n_part):
        n_full = n_part - first_empty
        first, last = ((no - first_empty + i) * n_tensor // n_full for i in (0, 1))
        first = max(first, 0)
        out = b"GGUF" + struct.pack("<IQQ", 3, last - first, 3 + (n_key if no == 0 else 0)) + (keys if no == 0 else b"")
        out += pair("split.no", 2, "H", no) + pair("split.tensors.count", 5, "i", n_tensor) + pair("split.count", 2, "H", n_part)
        body = b""
        for (record, offset), end in list(zip(tensors, ends))[first:last]:
            out += record + struct.pack("<Q", len(body))
            body += data[base + offset:base + end]
        out += bytes(-len(out) % 32) + body
        paths.append(WORK / f"{stem}-{no + 1:05}-of-{n_part:05}.gguf")
        paths[-1].write_bytes(out)
    return paths


def moec(*arguments):
    return subprocess.run([MOEC, *map(str, arguments)], capture_output=True, text=True, timeout=300, cwd=WORK)


def sections(image):
    """The sections of an image by kind (images/FORMAT.md)."""
    n, = struct.unpack_from("<I", image, 24)
    table = [struct.unpack_from("<IIQQ", image, 64 + 64 * i) for i in range(n)]
    return {kind: image[offset:offset + size] for kind, _, offset, size in table}


def test_same_image():
    parts = split(MODEL.read_bytes(), 3, "m")
    assert moec(MODEL, "-q", "--no-selftest", "-o", "whole.img").returncode == 0
    r = moec(parts[2], "-q", "--no-selftest")  # without -o the image has the name of the model, not of the part
    assert r.returncode == 0 and not r.stderr, r
    whole, split_image = sections((WORK / "whole.img").read_bytes()), sections((WORK / "m.img").read_bytes())
    a, b = json.loads(whole.pop(1)), json.loads(split_image.pop(1))
    joined = b"".join(p.read_bytes() for p in parts)
    assert b.pop("source") == {"blake2b": hashlib.blake2b(joined, digest_size=32).hexdigest(), "bytes": len(joined)}
    a.pop("source")
    assert a == b and whole == split_image, "the parts give another image"
    r = moec(parts[0], "-q", "-o", parts[1])
    assert r.returncode == 2 and "would replace the model" in r.stderr, r


def test_oracle_and_inspect():
    (WORK / "ids.json").write_text("[9, 8, 7, 6, 5]")
    arguments = ("--ids", "ids.json", "-n", "2", "--logprobs", "4", "--json")
    whole = json.loads(moec("oracle", MODEL, *arguments).stdout)
    for n in (2, 7):
        parts = split(MODEL.read_bytes(), n, f"o{n}", first_empty=True)
        got = json.loads(moec("oracle", parts[n // 2], *arguments).stdout)
        assert (got["ids"], got["logprobs"]) == (whole["ids"], whole["logprobs"]), n
        report = json.loads(moec("inspect", parts[-1], "--json").stdout)
        assert report["compiles"] and [p["path"] for p in report["parts"]] == [str(p) for p in parts], report["reasons"]
        assert report["parts"][0]["n_tensor"] == 0 and {t["part"] for t in report["tensors"]} == set(range(2, n + 1))


def test_broken_parts():
    data = MODEL.read_bytes()
    other = split(data, 4, "x")

    def refused(what, given, change):
        parts = split(data, 3, "b")
        change(parts)
        r = moec(parts[given], "-q", "-o", "out.img")
        assert r.returncode == 1 and len(r.stderr.splitlines()) == 1 and what in r.stderr, (what, r)
        assert not (WORK / "out.img").exists()

    refused("b-00002-of-00003.gguf: part 2 of 3 of the model is missing", 0, lambda p: p[1].unlink())
    refused("b-00001-of-00003.gguf: part 1 of 3 of the model is missing", 2, lambda p: p[0].unlink())
    refused("b-00003-of-00003.gguf: its name says part 3 of 3, its keys (split.no, split.count) say part 2 of 3", 0,
            lambda p: shutil.copy(p[1], p[2]))
    refused("b-00003-of-00003.gguf: its name says part 3 of 3, its keys (split.no, split.count) say part 3 of 4", 0,
            lambda p: shutil.copy(other[2], p[2]))
    refused("b-00002-of-00003.gguf: tensor[", 0, lambda p: os.truncate(p[1], p[1].stat().st_size - 5))
    refused("b-00002-of-00003.gguf: truncated file", 0, lambda p: os.truncate(p[1], 0))


WORK.mkdir(parents=True)
try:
    for name, test in list(globals().items()):
        if name.startswith("test_"):
            test()
finally:
    shutil.rmtree(WORK)
