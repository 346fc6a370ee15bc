#!/usr/bin/env python3
"""runtime/VERBS.md holds every verb of moert (runtime/verbs.def) with the help that the program prints. `test_verbs.py --write` puts it right."""
import os
import pathlib
import re
import subprocess
import sys

root = pathlib.Path(os.environ.get("TESTS_DIR", pathlib.Path(__file__).parent.parent)).parent
moert = os.environ.get("MOERT", root / "build/moert")
verbs = re.findall(r'^VERB\("(\w+)", \w+, "([^"]+)"\)$', (root / "runtime/verbs.def").read_text(), re.M)
assert len(verbs) >= 7, verbs
wanted = ""
for name, summary in verbs:
    help_text = subprocess.run([moert, name, "--help"], capture_output=True, text=True, check=True).stdout
    assert f"usage: moert {name}" in help_text, help_text
    wanted += f"## {name}: {summary}\n" + "".join(f"    {line}".rstrip() + "\n" for line in help_text.splitlines()) + "\n"

document = root / "runtime/VERBS.md"
mark = re.compile(r"(<!-- verbs: [^\n]* -->\n).*(<!-- end of verbs -->\n)", re.S)
text = document.read_text()
assert len(mark.findall(text)) == 1, "runtime/VERBS.md: no place for the verbs"
written = mark.sub(lambda m: m.group(1) + wanted + m.group(2), text)
if "--write" in sys.argv:
    document.write_text(written)
elif written != text:
    here, there = text.splitlines(), written.splitlines()
    for line in sorted(set(here) ^ set(there)):
        print("VERBS.md only:" if line in here else "moert only:", line)
    sys.exit("runtime/VERBS.md is not what moert's verbs print as --help: after ./build.sh, tests/tree/test_verbs.py --write")
