#!/usr/bin/env python3
"""Where moec writes: a disk that is too small is refused before the work, with both numbers; a write that fails ends it at
once; no /proc is needed. Skips what this system has no mount namespaces for.

Owns: nothing of the image. Does not own: other outputs and inputs (tests/hostile/test_moec_hostile.py)."""
import os
import pathlib
import resource
import shutil
import signal
import subprocess
import tempfile

MOEC = os.environ["MOEC"]
MODEL = pathlib.Path(os.environ["TESTS_DIR"]) / "models/wordnet-moe.gguf"
WORK = pathlib.Path(tempfile.mkdtemp(dir=os.environ["BUILD_DIR"]))
COMPILE = f"{MOEC} {MODEL} -q --no-selftest"


def inside(mounts, command):
    """Runs a shell command as root of namespaces of its own."""
    return subprocess.run(["unshare", "-rm", "sh", "-c", f"{mounts} && {command}"], capture_output=True, text=True, timeout=300)


def test_small_disk():
    r = inside(f"mount -t tmpfs -o size=4m none {WORK}", f"cd {WORK} && {COMPILE} -o out.img; echo $?; ls -A")
    assert r.stdout.split() == ["1"], r
    assert "out.img: the image needs " in r.stderr and "4194304 free; make room" in r.stderr and len(r.stderr.splitlines()) == 1, r


def test_no_proc():
    command = f"{COMPILE} -o {WORK}/out.img && {COMPILE} -o {WORK}/out.img; echo $?; ls -A {WORK}"  # new, then in place of another
    r = inside("mount -t tmpfs none /proc", command)
    assert r.stdout.split() == ["0", "out.img"] and not r.stderr, r


def test_failed_write():
    def limit():
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # then a write beyond the limit fails like one on a full disk
        resource.setrlimit(resource.RLIMIT_FSIZE, (4 << 20, 4 << 20))

    r = subprocess.run(f"{COMPILE} -o {WORK}/full.img".split(), capture_output=True, text=True, timeout=300, preexec_fn=limit)
    assert r.returncode == 1 and "full.img: cannot write: File too large" in r.stderr and len(r.stderr.splitlines()) == 1, r
    assert not (WORK / "full.img").exists()


try:
    test_failed_write()
    if shutil.which("unshare") and inside(f"mount -t tmpfs none {WORK}", "true").returncode == 0:
        test_small_disk()
        test_no_proc()
    else:
        print("no mount namespaces here: only the failed write was tried")
finally:
    shutil.rmtree(WORK)
