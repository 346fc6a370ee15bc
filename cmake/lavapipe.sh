#!/usr/bin/env bash
# lavapipe.sh: a CPU Vulkan driver that has VK_KHR_cooperative_matrix, for the tests of the matrix tiers on a machine without a GPU.
#
# Owns: lavapipe of Debian 13's backports with the libraries that it needs, unpacked into a cache outside the tree, and how programs built here
#   run with it: by that release's own loader of programs and C library, so that nothing has to be installed, chrooted or run as root.
# Invariants: as toolchain.sh: the directory's name carries the hash of this script less its comments; it appears by one rename; two runs at once
#   make it once; the system's apt state is not touched; what is downloaded is verified by apt against the archive's signed index.
#
# Usage: lavapipe.sh            make it when it is not there yet (about 15 s, 310 MB); prints its path (and nothing else) on standard output
# Layout: run PROGRAM ARGUMENTS...  runs a program with this driver as the only one
set -euo pipefail

codename=trixie
packages=(mesa-vulkan-drivers libvulkan1) # of its backports
loader=ld-linux-x86-64.so.2
libraries=usr/lib/x86_64-linux-gnu

say() { printf 'lavapipe: %s\n' "$*" >&2; }
die() { printf 'lavapipe: error: %s\n' "$*" >&2; exit 1; }

# The URI of the archive that this machine's own Debian packages come from (from the machine's own source files).
archive() {
  local release; release=$(. /etc/os-release; echo "${VERSION_CODENAME:-}")
  apt-get indextargets --format '$(RELEASE) $(CODENAME) $(REPO_URI)' 'Created-By: Packages' 'Component: main' |
    awk -v r="$release" '$1 == r || $2 == r {print $NF; exit}'
}

# download DIR: the packages and all that they depend on, as for a machine that has none, into DIR/archives.
download() {
  local dir=$1 uri keyring=/usr/share/keyrings/debian-archive-keyring.gpg suite options
  mkdir -p "$dir/lists/partial" "$dir/archives/partial"
  uri=$(archive)
  [ -n "$uri" ] || die "apt names no Debian archive for this machine's release (apt-get indextargets); is this Debian?"
  for suite in "$codename" "$codename-backports"; do
    printf 'Types: deb\nURIs: %s\nSuites: %s\nComponents: main\n' "$uri" "$suite"
    [ ! -e "$keyring" ] || echo "Signed-By: $keyring"
    echo
  done >"$dir/archive.sources"
  : >"$dir/status"
  options=(-qq "-oDir::Etc::SourceList=$dir/archive.sources" -oDir::Etc::SourceParts=/dev/null -oDir::Etc::Preferences=/dev/null
    -oDir::Etc::PreferencesParts=/dev/null "-oDir::State::Lists=$dir/lists" "-oDir::State::status=$dir/status"
    "-oDir::State::extended_states=$dir/extended" "-oDir::Cache::Archives=$dir/archives" -oDir::Cache::pkgcache=
    -oDir::Cache::srcpkgcache= -oAPT::Sandbox::User= -oAcquire::Retries=3 -oAcquire::Languages=none -oDebug::NoLocking=1)
  apt-get "${options[@]}" update
  apt-get "${options[@]}" --yes --download-only --no-install-recommends --target-release "$codename-backports" install "${packages[@]}"
}

[ "$(uname -m)" = x86_64 ] || die "$(uname -m) is not x86_64"
hash=$(grep -v '^ *#' "${BASH_SOURCE[0]}" | sha256sum | cut -c1-16)
cache=${MOEC_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}}/moec
final=$cache/lavapipe-$hash
if [ ! -e "$final/run" ]; then
  mkdir -p "$cache"
  cd "$cache"
  exec 9>"$cache/lock-lavapipe-$hash"
  flock -n 9 || { say 'another run makes it; waiting for it'; flock 9; }
  if [ ! -e "$final/run" ]; then
    work=$(mktemp -d "$cache/work-XXXXXX")
    trap 'rm -rf "$work"' EXIT
    say "downloading Debian $codename's Mesa"
    download "$work/download" >"$work/download.log" 2>&1 || { tail -n 30 "$work/download.log" >&2; die 'the download failed'; }
    mkdir -p "$work/out/root"
    for package in "$work"/download/archives/*.deb; do dpkg-deb -x "$package" "$work/out/root"; done
    for file in "$loader" libvulkan_lvp.so libvulkan.so.1; do
      [ -e "$work/out/root/$libraries/$file" ] || die "the packages have no $libraries/$file"
    done
    printf '{"ICD": {"api_version": "1.3.0", "library_path": "%s"}, "file_format_version": "1.0.1"}\n' \
      "$final/root/$libraries/libvulkan_lvp.so" >"$work/out/driver.json"
    cat >"$work/out/run" <<RUN
#!/bin/sh
root=$final/root/$libraries
VK_DRIVER_FILES=$final/driver.json VK_ICD_FILENAMES=$final/driver.json \\
  exec "\$root/$loader" --library-path "\$root:/usr/lib/x86_64-linux-gnu:/lib/x86_64-linux-gnu" "\$@"
RUN
    chmod +x "$work/out/run"
    rm -rf "$final"
    mv "$work/out" "$final"
  fi
fi
echo "$final"
