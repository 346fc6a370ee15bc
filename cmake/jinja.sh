#!/usr/bin/env bash
# jinja.sh: the chat template engine, @huggingface/jinja, as one script for QuickJS.
#
# Owns: jinja/ (package.json, package-lock.json with integrity hashes, entry.js) and the bundle in the cache.
# Does not own: how the runtime calls it.
# Invariants: the bundle's directory carries the hash of this script and jinja/, appears by one rename, and is built once;
#   npm verifies each package against the lock; no package's install script is run.
#
# Usage: jinja.sh            make the bundle when it is not there yet; prints the path of jinja.js on standard output
#        jinja.sh --path     only print where it is or would be
# Environment: MOEC_CACHE, as for toolchain.sh.
set -euo pipefail

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
hash=$(cat "$here/jinja.sh" "$here"/jinja/{package.json,package-lock.json,entry.js} | sha256sum | cut -c1-16)
cache=${MOEC_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}}/moec
final=$cache/jinja-$hash
if [ "${1:-}" = --path ] || [ -e "$final/jinja.js" ]; then
  echo "$final/jinja.js"
  exit 0
fi

mkdir -p "$cache"
exec 9>"$cache/lock-jinja-$hash"
flock 9
if [ ! -e "$final/jinja.js" ]; then
  echo 'jinja: bundling @huggingface/jinja' >&2
  work=$(mktemp -d "$cache/work-XXXXXX")
  trap 'rm -rf "$work"' EXIT
  cp "$here"/jinja/* "$work"
  cd "$work"
  npm ci --omit-lockfile-registry-resolved=true --ignore-scripts --no-audit --no-fund --loglevel=error >&2
  mkdir out
  node_modules/.bin/esbuild entry.js --bundle --format=iife --global-name=Jinja --minify --target=es2020 \
    --platform=neutral --main-fields=module,main --log-level=warning --outfile=out/jinja.js \
    --banner:js='/* @huggingface/jinja, MIT License; see LICENSE-jinja */'
  cp node_modules/@huggingface/jinja/LICENSE out/LICENSE-jinja
  mv out "$final"
fi
echo "$final/jinja.js"
