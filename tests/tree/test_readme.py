#!/usr/bin/env python3
"""README.md's lists of what compiles say what compiler/families.def and compiler/formats.def say. `test_readme.py --write` puts them right."""
import os
import pathlib
import re
import sys

root = pathlib.Path(os.environ.get("TESTS_DIR", pathlib.Path(__file__).parent.parent)).parent
families = re.findall(r'^FAMILY\("([^"]+)", \w+, "([^"]+)"\)$', (root / "compiler/families.def").read_text(), re.M)
formats = re.findall(r"^FORMAT_COMPILED\(\d+, (\w+),", (root / "compiler/formats.def").read_text(), re.M)
assert families and formats
wanted = {
    "families": "| `general.architecture` | models |\n|---|---|\n" + "".join(f"| `{name}` | {what} |\n" for name, what in sorted(families)),
    "formats": " ".join(formats) + "\n",
}

readme = root / "README.md"
text = written = readme.read_text()
for name, content in wanted.items():
    between = re.compile(rf"(<!-- {name}: [^\n]* -->\n).*?(<!-- end of {name} -->\n)", re.S)
    assert len(between.findall(text)) == 1, f"README.md: no place for the list of {name}"
    written = between.sub(lambda m: m.group(1) + content + m.group(2), written)
if "--write" in sys.argv:
    readme.write_text(written)
elif written != text:
    here, there = text.splitlines(), written.splitlines()
    for line in sorted(set(here) ^ set(there)):
        print("README.md only:" if line in here else "tables only:", line)
    sys.exit("README.md's lists are not those of compiler/families.def and compiler/formats.def: tests/tree/test_readme.py --write")
print(f"{len(families)} families, {len(formats)} formats")
