#!/usr/bin/env bash
# build.sh: the one entry to building, trying, testing and measuring moec and moert. `./build.sh help` lists the verbs.
#
# Owns: the verbs and the table of Debian packages. Does not own: how sources become programs (CMakeLists.txt), the
#   third-party libraries that Debian 12 is too old for (cmake/toolchain.sh), the chat template engine (cmake/jinja.sh), a driver with
#   matrices (cmake/lavapipe.sh), published vocabularies for tests (cmake/vocabularies.sh).
# Invariants: every verb may be called first on a bare Debian 12 or newer; a failure ends the script with a message and a
#   code that is not 0; nothing outside the tree and the cache is written, but for Debian packages when it runs as root.
set -euo pipefail
cd "$(dirname "$(readlink -f "$0")")"

# Debian packages: name | license | why. "name:command" is also satisfied by that command in PATH.
packages() {
  cat <<'TABLE'
gcc                   | GPL-3 with runtime exception | compiles the C sources and QuickJS
g++                   | GPL-3 with runtime exception | compiles glslang and SPIRV-Tools; libstdc++ for linking them
libc6-dev             | LGPL-2.1                     | the C library's headers
binutils              | GPL-3                        | ar, strip
cmake                 | BSD-3-Clause                 | the build, and CTest for the tests
ninja-build           | Apache-2.0                   | runs the build
pkg-config:pkg-config | GPL-2                        | finds the libraries below
libzstd-dev           | BSD-3-Clause                 | compression of image sections
libjansson-dev        | MIT                          | JSON in profiles, requests and answers
libpcre2-dev          | BSD-3-Clause                 | pre-tokenizer patterns
libutf8proc-dev       | MIT                          | Unicode normalization (NFC): small, and maintained by the Julia project
libsodium-dev         | ISC                          | BLAKE2b hash tree, Ed25519 signatures
libevent-dev          | BSD-3-Clause                 | the HTTP server
libcmocka-dev         | Apache-2.0                   | unit tests
libvulkan1            | Apache-2.0                   | the Vulkan loader
mesa-vulkan-drivers   | MIT                          | lavapipe: Vulkan on a machine without a GPU
vulkan-validationlayers | Apache-2.0                 | a test runs moert under the validation layer
python3:python3       | PSF-2.0                      | test scripts, and SPIRV-Tools' own build
curl:curl             | curl (MIT-like)              | the demo and the server tests
ca-certificates       | MPL-2.0                      | certificates for npm
nodejs:node           | MIT                          | bundles the chat template engine (esbuild)
npm:npm               | Artistic-2.0                 | fetches @huggingface/jinja and esbuild; tokenizers for tests
clang-format          | Apache-2.0 with LLVM exception | ./build.sh fmt
git:git               | GPL-2                        | lists the tree's files for fmt and for a test
TABLE
}

model=tests/models/wordnet-moe.gguf
image=build/wordnet-moe.img

say() { printf '== %s\n' "$*" >&2; }
die() { printf 'build.sh: error: %s\n' "$*" >&2; exit 1; }

usage() {
  cat <<'HELP'
usage: ./build.sh [verb]
  (none)         install what is missing, build moec and moert into build/
  deps           only install what is missing (as root) or name it; build the toolchain into the cache
  demo           build, compile the embedded model, serve it on a free local port, ask it a question
  test [--all]   build twice (optimized, and Debug with sanitizers) and run the tests; --all: also the slow ones
  test --matrix  build, and run the tests of the matrix tiers on a CPU driver that has matrices (Debian 13's, from the cache)
  bench          measure the embedded model on this machine's Vulkan device
  fmt [--check]  format the C sources; --check only says which would change
  clean          remove build/ and build-debug/ (the cache stays)
  help           this text
Environment: MOEC_CACHE (where the toolchain is kept, default ~/.cache), VULKAN_SDK (used when new enough),
  CMAKE_BUILD_PARALLEL_LEVEL (jobs at once, default: the number of cores).
HELP
}

# The packages of the table that are missing here, one a line.
missing_packages() {
  local name rest command
  while IFS='|' read -r name rest; do
    name=${name// /}; command=
    case $name in *:*) command=${name#*:}; name=${name%%:*};; esac
    if [ -n "$command" ] && command -v "$command" >/dev/null 2>&1; then continue; fi
    [ "$(dpkg-query -W -f '${db:Status-Status}' "$name" 2>/dev/null)" = installed ] || echo "$name"
  done < <(packages)
}

install_packages() {
  command -v dpkg-query >/dev/null || die "this is not Debian; install these by hand: $(packages | cut -d'|' -f1 | tr -s ' :\n' ' ')"
  local missing; missing=$(missing_packages | tr '\n' ' ')
  [ -n "$missing" ] || return 0
  local command="apt-get install --no-install-recommends $missing"
  [ "$(id -u)" = 0 ] || die "Debian packages are missing; as root: apt-get update && $command"
  say "installing Debian packages: $missing"
  export DEBIAN_FRONTEND=noninteractive
  apt-get -qq -o DPkg::Lock::Timeout=600 update
  # shellcheck disable=SC2086
  apt-get -yqq -o DPkg::Lock::Timeout=600 -o Dpkg::Use-Pty=0 install --no-install-recommends $missing >/dev/null
  missing=$(missing_packages | tr '\n' ' ')
  [ -z "$missing" ] || die "still missing after the installation: $missing"
}

verb_deps() {
  install_packages
  say 'toolchain (glslang, SPIRV-Tools, QuickJS, Vulkan headers)'
  # From /: what is built there for minutes does not depend on this tree, which may be moved meanwhile.
  local here=$PWD jinja
  toolchain=$(cd / && "$here/cmake/toolchain.sh")
  say "toolchain: $toolchain"
  jinja=$(cmake/jinja.sh)
  say "chat template engine: $jinja"
}

# configure_and_build DIR TYPE
configure_and_build() {
  say "building $1 ($2)"
  mkdir -p "$1"
  cmake -S . -B "$1" -G Ninja -DCMAKE_BUILD_TYPE="$2" -DMOEC_TOOLCHAIN="$toolchain" >"$1/configure.log" 2>&1 ||
    { cat "$1/configure.log" >&2; die "cmake failed"; }
  export CMAKE_BUILD_PARALLEL_LEVEL=${CMAKE_BUILD_PARALLEL_LEVEL:-$(nproc)}
  cmake --build "$1" >"$1/build.log" 2>&1 || { grep -v '^\[' "$1/build.log" >&2; die "the build in $1 failed"; }
}

verb_build() {
  verb_deps
  configure_and_build build RelWithDebInfo
  say 'built build/moec and build/moert'
}

compile_model() {
  say "compiling $model to $image"
  build/moec "$model" -o "$image"
}

verb_demo() {
  local question="What is a guitar?" port server tries=0
  verb_build
  compile_model
  port=$(python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])')
  say "serving $image on http://127.0.0.1:$port"
  build/moert "$image" --host 127.0.0.1 --port "$port" 2>build/demo-server.log &
  server=$!
  trap 'kill '"$server"' 2>/dev/null || true' EXIT

  until curl -fsS -o /dev/null "http://127.0.0.1:$port/health" 2>/dev/null; do
    kill -0 "$server" 2>/dev/null || { cat build/demo-server.log >&2; die 'the server ended before it was ready'; }
    tries=$((tries + 1))
    [ "$tries" -le 600 ] || { cat build/demo-server.log >&2; die 'the server was not ready after 60 s'; }
    sleep 0.1
  done
  say "asking: $question"
  curl -fsS --max-time 120 "http://127.0.0.1:$port/v1/chat/completions" -H 'Content-Type: application/json' \
    -d "{\"model\": \"wordnet-moe\", \"temperature\": 0, \"max_tokens\": 64,
         \"messages\": [{\"role\": \"user\", \"content\": \"$question\"}]}" >build/demo-answer.json ||
    { cat build/demo-server.log >&2; die 'the request failed'; }
  python3 -c 'import json; print(json.load(open("build/demo-answer.json"))["choices"][0]["message"]["content"])'
  kill "$server"
  wait "$server" || true
  trap - EXIT
  say 'the server is stopped; done'
}

# The kernel tests and a golden of the tiers whose kernels need matrices, by a driver that is not this machine's (cmake/lavapipe.sh).
test_matrix() {
  verb_build
  local driver; driver=$(cmake/lavapipe.sh)/run
  say "running the tests of the matrix tiers with $driver"
  "$driver" "$PWD/build/tests/kernels/test_khr"
  MATRIX=1 TESTS_DIR=$PWD/tests BUILD_DIR=$PWD/build MOEC=$PWD/build/moec MOERT="'$driver' '$PWD/build/moert'" PYTHONDONTWRITEBYTECODE=1 \
    python3 tests/golden/test_matrix.py
  say 'the tests of the matrix tiers passed'
}

verb_test() {
  local when=fast
  case ${1:-} in
    '') ;;
    --all) when='(fast|all)' ;;
    --matrix) test_matrix; return ;;
    *) usage >&2; exit 2 ;;
  esac
  verb_build
  cmake/vocabularies.sh >/dev/null || say 'the published vocabularies cannot be fetched: tests with them are skipped'
  configure_and_build build-debug Debug
  compile_model
  # One run over both builds: what is about bytes and logic under the sanitizers, what computes with the optimized build.
  mkdir -p build/tests/all
  printf 'subdirs("%s/build-debug/tests" "%s/build/tests")\n' "$PWD" "$PWD" >build/tests/all/CTestTestfile.cmake
  say "running the tests ($when)"
  ctest --test-dir build/tests/all --output-on-failure --parallel "$(nproc)" --no-tests=error \
    -L "^(debug-(unit|hostile)|optimized-(tree|kernels|golden|server|fuzz))-$when\$"
}

verb_bench() {
  verb_build
  compile_model
  say "measuring $image"
  build/moert bench "$image"
}

verb_fmt() {
  install_packages
  local files; mapfile -t files < <(git ls-files --cached --others --exclude-standard -- '*.c' '*.h')
  if [ "${1:-}" = --check ]; then
    clang-format --dry-run --Werror "${files[@]}"
    say "${#files[@]} files are formatted"
  else
    clang-format -i "${files[@]}"
    say "formatted ${#files[@]} files"
  fi
}

verb_clean() {
  say 'removing build/ and build-debug/'
  rm -rf build build-debug
}

verb=${1:-build}
[ $# -eq 0 ] || shift
case $verb in
  deps | build | demo | test | bench | fmt | clean) "verb_$verb" "$@" ;;
  help | -h | --help) usage ;;
  *) usage >&2; exit 2 ;;
esac
