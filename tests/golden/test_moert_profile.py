#!/usr/bin/env python3
"""`moert profile` on embedded models: its numbers agree with one another and with the image, its picture is XML, it declines by name.

Owns: what a user of profile sees, on a dense, an expert and a recurrent model. Does not own: the counting of bytes (tests/unit/test_profile.c)."""
import json
import os
import pathlib
import re
import subprocess
import xml.etree.ElementTree

MOEC, MOERT = os.environ["MOEC"], os.environ["MOERT"]
FOLDER = pathlib.Path(os.environ["BUILD_DIR"], "test_moert_profile")


def run(*args, code=0, env=None):
    done = subprocess.run([MOERT, *map(str, args)], capture_output=True, text=True, timeout=240, env={**os.environ, **(env or {})})
    assert done.returncode == code, f"moert {args}: exit code {done.returncode}, expected {code}\n{done.stdout[-2000:]}\n{done.stderr}"
    return done.stderr.strip().splitlines()[-1] if code else done.stdout


def image_of(model):
    image = FOLDER / f"{model}.img"
    subprocess.run([MOEC, f'{os.environ["TESTS_DIR"]}/models/{model}.gguf', "-o", str(image), "-q", "--no-selftest"], check=True)
    return image


def dispatches(image, name, tier):
    """Role -> dispatches of a tier's template, calls unrolled, out of `moert inspect --templates`."""
    lists, current = {}, None
    for line in run("inspect", "--templates", image).splitlines():
        if head := re.match(r"(template \S+  tier \w+|body \d+)", line):
            current = lists[head.group(1)] = []
        elif call := re.match(r"\s+\d+ call body (\d+) table \d+ rows (\d+)\.\.(\d+)", line):
            current.append(("call", f"body {call.group(1)}", int(call.group(3)) - int(call.group(2)) + 1))
        elif found := re.match(r"\s+\d+ (.{16,}?) \w+ (?:\w+=\S+ ?)+ \d+ x \d+ x \d+$", line):
            current.append(("role", found.group(1).strip(), 1))
    counts = {}

    def add(entries, times):
        for kind, what, n in entries:
            if kind == "call":
                add(lists[what], times * n)
            else:
                counts[what] = counts.get(what, 0) + times
    add(lists[f"template {name}  tier {tier}"], 1)
    return counts


def check(image, *args, template, rows, sequences=1):
    p = json.loads(run("profile", image, "--json", *args))
    assert (p["template"], p["n_row"], p["n_sequence"]) == (template, rows, sequences), p
    assert {r["role"]: r["dispatches"] for r in p["roles"]} == dispatches(image, template, p["tier"]), p["roles"]
    assert p["dispatches"] == sum(r["dispatches"] for r in p["roles"]) and p["barriers"] > 0
    gap, ceiling = p["gap"], p["ceiling"]["gb_s"]
    assert ceiling == p["ceiling"][p["ceiling"]["by"]] and ceiling["median"] == max(p["ceiling"][by]["median"] for by in ("read", "copy")), p["ceiling"]
    for spread in [ceiling, p["ceiling"]["read"], p["ceiling"]["copy"], *(r["us"] for r in p["roles"]), *(r["empty_us"] for r in p["roles"]), gap["step_us"], gap["host_us"], gap["one_by_one_us"], gap["empty_step_us"],
                   gap["empty_one_by_one_us"]]:
        assert 0 < spread["min"] <= spread["median"] <= spread["max"], spread
    for r in p["roles"]:
        assert r["bytes"]["all"] == r["bytes"]["weights"] + r["bytes"]["state"] + r["bytes"]["other"]
        assert r["floor_us"] > 0 and abs(r["floor_us"] - r["bytes"]["all"] / ceiling["median"] / 1e3) < 1e-3 * r["floor_us"], r
        assert abs(r["gb_s"] * r["us"]["median"] * 1e3 - r["bytes"]["all"]) < 1e-3 * r["bytes"]["all"], r
    for kind in p["bytes"]:
        assert p["bytes"][kind] == sum(r["bytes"][kind] for r in p["roles"]), kind
    # Roles are sums of the dispatches' times of one repetition: so are their extremes' sums, and all of it when there is one repetition.
    assert sum(r["us"]["min"] for r in p["roles"]) <= gap["one_by_one_us"]["min"] * 1.000001
    assert sum(r["us"]["max"] for r in p["roles"]) >= gap["one_by_one_us"]["max"] * 0.999999
    assert sum(r["empty_us"]["min"] for r in p["roles"]) <= gap["empty_one_by_one_us"]["min"] * 1.000001
    assert abs(gap["sum_of_roles_us"] - sum(r["us"]["median"] for r in p["roles"])) < 1e-3 * gap["sum_of_roles_us"]
    if p["repetitions"] == 1:
        assert abs(gap["sum_of_roles_us"] - gap["one_by_one_us"]["median"]) < 1e-6 * gap["sum_of_roles_us"]
    assert gap["empty_step_us"]["min"] < gap["step_us"]["max"] and gap["step_us"]["min"] < gap["host_us"]["max"]
    assert abs(gap["floor_us"] - sum(r["floor_us"] for r in p["roles"])) < 1e-3 * gap["floor_us"]
    assert 0 < gap["floor_weights_state_us"] <= gap["floor_us"]
    return {r["role"]: r for r in p["roles"]} | {"": p}


def test_shapes(image, planes):
    one = check(image, template="token(1)", rows=1)
    assert one[""]["repetitions"] == 5
    four = check(image, "-b", 4, "-r", 1, template="token(4)", rows=4, sequences=4)
    three = check(image, "-b", 3, "-r", 1, template="token(4)", rows=3, sequences=3)
    window = check(image, "-p", 100, "-r", 1, template="window(128)", rows=100)
    # 4 of 16 experts for a row, all of them for four: what the image says of its planes
    experts = sum(size for name, size in planes.items() if re.search("ffn_(gate|up)_exps", name))
    assert [p["gate/up"]["bytes"]["weights"] for p in (one, three, four, window)] == [experts // 4, experts * 3 // 4, experts, experts]
    head = planes["output.weight"]
    assert all(head <= p["head"]["bytes"]["weights"] <= head + 4096 for p in (one, four))


def test_depth(image):
    near, deep = check(image, "-r", 1, template="token(1)", rows=1), check(image, "-r", 1, "-d", 200, template="token(1)", rows=1)
    assert deep["attention"]["bytes"]["state"] == 201 * near["attention"]["bytes"]["state"] > 0
    assert deep[""]["n_depth"] == 200


def test_table_and_picture(image):
    picture = FOLDER / "profile.svg"
    text = run("profile", image, "-r", 2, "--svg", picture)
    for part in ("tier base", "token(1): 1 row at depth 0; medians of 2", "GB/s", "gate/up", "step, recorded as it runs", "launches and barriers", "x floor"):
        assert part in text, (part, text)
    root = xml.etree.ElementTree.parse(picture).getroot()
    name = "{http://www.w3.org/2000/svg}"
    assert root.tag == name + "svg" and root.find(name + "title") is not None
    words = ["".join(t.itertext()) for t in root.iter(name + "text")]
    for role, n in dispatches(image, "token(1)", "base").items():
        assert f"{role} x{n}" in words, (role, words)
    assert any("tier base" in w for w in words) and any("copying" in w and "GB/s" in w for w in words), words
    width, height = float(root.get("width")), float(root.get("height"))
    for box in root.iter(name + "rect"):
        assert 0 <= float(box.get("x", 0)) and float(box.get("x", 0)) + float(box.get("width")) <= width
        assert 0 <= float(box.get("y", 0)) and float(box.get("y", 0)) + float(box.get("height")) <= height


def test_errors(image):
    def fails(code, expected, *args, env=None):
        line = run("profile", *args, code=code, env=env)
        assert expected in line, line
    fails(2, "give one of them", image, "-b", 2, "-p", 5)
    fails(2, "largest step takes 512 rows", image, "-p", 513)
    fails(2, "the context is 4096", image, "-d", 4096)
    fails(2, "--slots 2 is less", image, "-b", 4, "--slots", 2)
    fails(2, "-b 65", image, "-b", 65)
    fails(2, "-r 0", image, "-r", 0)
    fails(1, "--svg", image, "-r", 1, "--svg", FOLDER / "none" / "x.svg")
    fails(1, "none.img", FOLDER / "none.img")
    fails(3, "has no kernels of tier nv", image, "--tier", "nv")
    fails(3, "timestampValidBits 0", image, env={"MOERT_DENY_FEATURE": "timestampValidBits"})


def main():
    FOLDER.mkdir(exist_ok=True)
    image = image_of("wordnet-moe")
    planes = dict((line.split()[-1], int(re.search(r"\+(\d+)", line).group(1))) for line in run("inspect", "--planes", image).splitlines() if line.startswith("plane"))
    test_shapes(image, planes)
    test_depth(image)
    test_table_and_picture(image)
    test_errors(image)
    hybrid = check(image_of("wordnet-qwen35moe-q4_k_m"), "-b", 2, "-r", 1, "-d", 70, template="token(2)", rows=2, sequences=2)
    assert hybrid["delta rule"]["bytes"]["state"] > 0 and hybrid["short convolution"]["bytes"]["state"] > 0
    check(image_of("wordnet-qwen3-q5_k_m"), "-r", 1, template="token(1)", rows=1)


main()
