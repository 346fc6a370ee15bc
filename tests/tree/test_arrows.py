#!/usr/bin/env python3
"""Checks rules about the tree itself: who may include whom, unique file names, no traces of one machine.

Owns: the rules below. Does not own: formatting (test_format.sh), what compiles (CMake: a library cannot see the headers of
a folder that it does not link).
Invariant: every rule is first shown to catch a made-up tree that breaks it, then applied to the real tree.
"""
import os
import pathlib
import re
import subprocess
import sys

# Folder -> the folders of ours whose headers its files may include.
ARROWS = {
    "images": {"images"},
    "shadergen": {"shadergen", "images"},
    "compiler": {"compiler", "images", "shadergen"},
    "runtime": {"runtime", "images"},
    "tests": {"tests", "images", "shadergen", "compiler", "runtime"},
}
# A system header's first path component or name -> which files may include it, as a pattern of paths.
SYSTEM = {
    r"(vulkan|vk_video)/": r"runtime/vk_|tests/support/vk_",
    r"(glslang|spirv-tools|spirv)/": r"(shadergen|tests)/",
    r"quickjs": r"(runtime|tests)/",
    r"(event2/|event\.h)": r"(runtime|tests)/",
    r"cmocka": r"tests/",
}
REPEATED_NAMES = {"README.md", "CMakeLists.txt", ".gitignore"}
SOURCE = re.compile(r"\.(c|h|comp|glsl|def)$")
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"\n]+)"|<([^>\n]+)>)', re.M)
# Paths of one machine, hosts of package registries (spelled so that this file does not contain one), marks of unfinished work.
TRACES = [
    ("a path of one machine", re.compile(r"(?<![\w.$}{*)\]-])/(?:work|root|home/[a-z]\w*)/", re.M)),
    ("a package registry's host", re.compile(r"\b(?:deb|ftp|security|snapshot|registry|salsa)\w*\.(?:debian|npmjs|yarnpkg)\.\w+")),
    ("a registry address in a lock file", re.compile(r'"resolved"\s*:\s*"http')),
]
UNFINISHED = re.compile(r"\b(?:TO" + r"DO|FIX" + r"ME|X" + r"XX)\b")


def check_includes(path, text, folder_of):
    folder = path.split("/")[0]
    for quoted, system in INCLUDE.findall(text):
        if quoted and "/" in quoted:
            yield f'{path}: includes "{quoted}": include by bare file name'
        target = folder_of.get(quoted.split("/")[-1]) if quoted else None
        if target and folder in ARROWS and target not in ARROWS[folder]:
            yield f'{path}: includes "{quoted}" of {target}/; {folder}/ may include only {", ".join(sorted(ARROWS[folder]))}'
        if quoted.startswith("vk_") and path.startswith("runtime/front_"):
            yield f'{path}: includes "{quoted}"; the front has no GPU'
        for pattern, allowed in SYSTEM.items():
            if re.match(pattern, system or quoted) and not re.match(allowed, path):
                yield f"{path}: includes {system or quoted}; only files matching {allowed} may"


def check(tree):
    """Yields one line per broken rule; tree: path -> text, or None for a binary file."""
    folder_of = {path.split("/")[-1]: path.split("/")[0] for path in tree if path.endswith((".h", ".def"))}
    seen = {}
    for path, text in sorted(tree.items()):
        name = path.split("/")[-1]
        if name not in REPEATED_NAMES:
            if name in seen:
                yield f"{path}: has the same name as {seen[name]}; file names are unique in the tree"
            seen[name] = path
        if text is None:
            continue
        if SOURCE.search(path):
            yield from check_includes(path, text, folder_of)
            for match in UNFINISHED.finditer(text):
                yield f"{path}:{text.count(chr(10), 0, match.start()) + 1}: unfinished work: {match.group()}"
        for what, pattern in TRACES:
            for match in pattern.finditer(text):
                yield f"{path}:{text.count(chr(10), 0, match.start()) + 1}: {what}: {match.group()}"


# Made-up trees, each of which breaks exactly one rule (the second entry is part of the expected line).
BROKEN = [
    ({"images/a.c": '#include "b.h"\n', "compiler/b.h": ""}, "may include only images"),
    ({"runtime/a.c": '#include "b.h"\n', "compiler/b.h": ""}, "may include only images, runtime"),
    ({"compiler/a.c": '#include "b.h"\n', "runtime/b.h": ""}, "may include only compiler"),
    ({"shadergen/a.c": '#include "b.h"\n', "compiler/b.h": ""}, "may include only images, shadergen"),
    ({"runtime/a.c": '# include "kernels.def"\n', "shadergen/kernels.def": ""}, "may include only images, runtime"),
    ({"compiler/a.c": '#include "../images/b.h"\n', "images/b.h": ""}, "bare file name"),
    ({"runtime/load.c": "#include <vulkan/vulkan.h>\n"}, "only files matching runtime/vk_|tests/support/vk_"),
    ({"compiler/a.c": "#include <glslang/Include/glslang_c_interface.h>\n"}, "only files matching"),
    ({"runtime/front_http.c": '#include "vk_device.h"\n', "runtime/vk_device.h": ""}, "the front has no GPU"),
    ({"images/a.c": "", "runtime/a.c": ""}, "unique"),
    ({"images/a.c": "/* TO" + "DO */"}, "unfinished"),
    ({"notes.md": "see /wo" + "rk/x"}, "one machine"),
    ({"notes.md": "x = '/ro" + "ot/x'"}, "one machine"),
    ({"notes.md": "http://deb.deb" + "ian.org/x"}, "registry's host"),
    ({"package-lock.json": '"resolved": "htt' + 'ps://x"'}, "lock file"),
]
FINE = {
    "images/a.h": "", "images/a.c": '#include "a.h"\n#include <zstd.h>\n', "runtime/vk_device.c": "#include <vulkan/vulkan.h>\n",
    "compiler/b.c": '#include "a.h"\n', "images/README.md": "", "compiler/README.md": "a/home/x and build/root/x", "m.gguf": None,
}


def check_the_rules():
    for tree, expected in BROKEN:
        found = list(check(tree))
        assert len(found) == 1 and expected in found[0], (tree, expected, found)
    assert not list(check(FINE)), list(check(FINE))


def read_tree(root):
    listed = subprocess.run(["git", "-C", root, "ls-files", "-z", "--cached", "--others", "--exclude-standard"],
                            stdout=subprocess.PIPE, check=True).stdout.decode()
    tree = {}
    for path in filter(None, listed.split("\0")):
        full = os.path.join(root, path)
        if not os.path.isfile(full):
            continue
        data = pathlib.Path(full).read_bytes()
        tree[path] = None if b"\0" in data else data.decode("utf-8", "replace")
    return tree


def main():
    check_the_rules()
    tree = read_tree(pathlib.Path(__file__).resolve().parents[2])
    assert "build.sh" in tree, "the tree was not listed"
    found = list(check(tree))
    print("\n".join(found) or f"{len(tree)} files keep the rules")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
