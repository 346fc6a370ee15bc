#!/usr/bin/env python3
"""The table of formats in compiler/PLANES.md says what compiler/formats.def says."""
import os
import re
import sys

compiler = os.path.join(os.environ.get("TESTS_DIR", os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), "..", "compiler")


def read(name):
    with open(os.path.join(compiler, name), encoding="utf-8") as file:
        return file.read()


# {name: (elements, bytes, [(sub-plane, bytes), ...])}
table = {}
row = re.compile(r"^FORMAT_COMPILED\(\d+, (\w+), \w+, (\d+), (\d+), (.*)\)$", re.MULTILINE)
for name, elements, size, subs in row.findall(read("formats.def")):
    table[name] = (int(elements), int(size), [(n, int(b)) for n, b in re.findall(r'\{"(\w+)", (\d+)\}', subs)])

prose = {}
for line in read("PLANES.md").splitlines():
    cells = [cell.strip() for cell in line.strip("|").split("|")]
    if not line.startswith("|") or len(cells) != 7 or not cells[1].isdigit():
        continue
    subs = [(cell.split()[0], int(cell.split()[1])) for cell in cells[2:6] if cell]
    for name in cells[0].split(", "):
        prose[name] = (int(cells[1]), int(cells[6]), subs)

if not table or table != prose:
    for name in sorted(table.keys() | prose.keys()):
        if table.get(name) != prose.get(name):
            print(f"{name}: formats.def {table.get(name)}, PLANES.md {prose.get(name)}")
    sys.exit("compiler/PLANES.md and compiler/formats.def differ")
print(f"{len(table)} formats agree")
