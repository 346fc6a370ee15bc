#!/usr/bin/env bash
# toolchain.sh: the third-party libraries that Debian 12 has only in versions too old for moec.
#
# Owns: glslang, SPIRV-Tools, SPIRV-Headers, QuickJS (built from Debian 13's source packages as static libraries) and the
#   Vulkan headers (from Debian 13's libvulkan-dev), in a cache outside the tree.
# Does not own: Debian packages of this machine (build.sh's table), the compiler flags of our own code (CMakeLists.txt).
# Invariants: the cache directory's name carries the hash of this script less its comments, so a changed step or version is
#   a new directory; it appears by one rename, complete or not at all; two runs at once build it once; the system's apt
#   state is not touched; what is downloaded is verified by apt against the archive's signed index.
#
# Usage: toolchain.sh            build it when it is not there yet; prints its path (and nothing else) on standard output
#        toolchain.sh --path     only print where it is or would be
#
# Environment: MOEC_CACHE (where to cache, default ${XDG_CACHE_HOME:-~/.cache}), VULKAN_SDK (a Vulkan SDK with headers at
#   least 1.4.309 and static glslang and SPIRV-Tools: used as it is; only QuickJS is built then).
#
# Layout: include/{glslang,spirv-tools,vulkan,vk_video,spirv/unified1}, include/quickjs.h, lib/lib{glslang,
#   glslang-default-resource-limits,SPIRV-Tools,SPIRV-Tools-opt,quickjs}.a, bin/{glslangValidator,spirv-val,spirv-dis,
#   spirv-opt}, VERSIONS.
set -euo pipefail

codename=trixie            # the Debian release that the sources come from
vulkan_header_minimum=309  # VK_HEADER_VERSION of Vulkan 1.4
# source package, the version this was made with (the package's current version is taken when it is gone)
sources=(
  'glslang 15.1.0+1.4.309.0-1'
  'spirv-tools 2025.1~rc1-1'
  'spirv-headers 1.6.1+1.4.309.0-1'
  'quickjs 2025.04.26-1'
)
headers_package='libvulkan-dev 1.4.309.0-1'

say() { printf 'toolchain: %s\n' "$*" >&2; }
die() { printf 'toolchain: error: %s\n' "$*" >&2; exit 1; }

# Whether VULKAN_SDK names an SDK that can be used as it is.
sdk_usable() {
  [ -n "${VULKAN_SDK:-}" ] || return 1
  local core=$VULKAN_SDK/include/vulkan/vulkan_core.h file version
  for file in "$core" "$VULKAN_SDK/include/glslang/Include/glslang_c_interface.h" \
              "$VULKAN_SDK/include/spirv-tools/libspirv.h" \
              "$VULKAN_SDK"/lib/lib{glslang,glslang-default-resource-limits,SPIRV-Tools,SPIRV-Tools-opt}.a; do
    [ -e "$file" ] || { say "VULKAN_SDK=$VULKAN_SDK has no ${file#"$VULKAN_SDK"/}: not used"; return 1; }
  done
  version=$(awk '$2 == "VK_HEADER_VERSION" {print $3}' "$core")
  grep -q VK_API_VERSION_1_4 "$core" && [ "${version:-0}" -ge "$vulkan_header_minimum" ] ||
    { say "VULKAN_SDK=$VULKAN_SDK is older than 1.4.$vulkan_header_minimum: not used"; return 1; }
}

# Runs a command with its output in a log, and a line of progress now and then; shows the log's end when it fails.
logged() {
  local what=$1 log=$2 start=$SECONDS next=15 pid; shift 2
  say "$what"
  "$@" >"$log" 2>&1 </dev/null & pid=$!
  while kill -0 "$pid" 2>/dev/null; do
    sleep 1
    if [ $((SECONDS - start)) -ge "$next" ]; then
      say "$what: $((SECONDS - start)) s $(grep -aoE '^\[[0-9]+/[0-9]+\]' "$log" | tail -n 1)"
      next=$((next + 15))
    fi
  done
  wait "$pid" || { tail -n 30 "$log" >&2; die "$what failed"; }
}

# The URI of the archive that this machine's own Debian packages come from (from the machine's own source files).
archive() {
  local release; release=$(. /etc/os-release; echo "${VERSION_CODENAME:-}")
  apt-get indextargets --format '$(RELEASE) $(CODENAME) $(REPO_URI)' 'Created-By: Packages' 'Component: main' |
    awk -v r="$release" '$1 == r || $2 == r {print $NF; exit}'
}

# download DIR: the sources' tarballs and the headers' package into DIR.
download() {
  local dir=$1 uri options entry name version keyring=/usr/share/keyrings/debian-archive-keyring.gpg
  mkdir -p "$dir/lists/partial" "$dir/archives/partial"
  uri=$(archive)
  [ -n "$uri" ] || die "apt names no Debian archive for this machine's release (apt-get indextargets); is this Debian?"
  { echo "Types: deb deb-src"; echo "URIs: $uri"; echo "Suites: $codename"; echo "Components: main"
    [ ! -e "$keyring" ] || echo "Signed-By: $keyring"; } >"$dir/archive.sources"
  options=(-qq "-oDir::Etc::SourceList=$dir/archive.sources" -oDir::Etc::SourceParts=/dev/null -oDir::Etc::Preferences=/dev/null
    -oDir::Etc::PreferencesParts=/dev/null "-oDir::State::Lists=$dir/lists" "-oDir::Cache::Archives=$dir/archives"
    -oDir::Cache::pkgcache= -oDir::Cache::srcpkgcache= -oAPT::Sandbox::User= -oAcquire::Retries=3 -oAcquire::Languages=none)
  cd "$dir"
  apt-get "${options[@]}" update
  for entry in "${sources[@]}"; do
    read -r name version <<<"$entry"
    apt-get "${options[@]}" source --download-only --tar-only "$name=$version" ||
      { say "$name $version is gone, taking the current one"
        apt-get "${options[@]}" source --download-only --tar-only "$name"; }
  done
  read -r name version <<<"$headers_package"
  apt-get "${options[@]}" download "$name=$version" || apt-get "${options[@]}" download "$name"
}

# unpack WORK: WORK/{glslang,spirv-tools,spirv-headers,quickjs} from the tarballs.
unpack() {
  local work=$1 entry name tarballs
  for entry in "${sources[@]}"; do
    name=${entry%% *}
    tarballs=("$work/download/${name}"_*.orig.tar.*)
    mkdir "$work/$name"
    tar -xf "${tarballs[0]}" -C "$work/$name" --strip-components=1
  done
}

build_shader_libraries() {
  local work=$1 out=$2
  local flags=(-G Ninja -DCMAKE_BUILD_TYPE=Release -DCMAKE_C_FLAGS=-w -DCMAKE_CXX_FLAGS=-w -DBUILD_SHARED_LIBS=OFF
    '-DCMAKE_C_FLAGS_RELEASE=-O2 -DNDEBUG' '-DCMAKE_CXX_FLAGS_RELEASE=-O2 -DNDEBUG' -DCMAKE_POSITION_INDEPENDENT_CODE=ON -DCMAKE_INSTALL_PREFIX=/usr)
  logged 'configuring SPIRV-Tools' "$work/tools-configure.log" cmake -S "$work/spirv-tools" -B "$work/tools-build" "${flags[@]}" \
    "-DSPIRV-Headers_SOURCE_DIR=$work/spirv-headers" -DSPIRV_SKIP_TESTS=ON -DSPIRV_WERROR=OFF
  logged 'building SPIRV-Tools (about 4 minutes on 2 cores)' "$work/tools-build.log" cmake --build "$work/tools-build" \
    --target SPIRV-Tools-static SPIRV-Tools-opt spirv-val spirv-dis spirv-opt
  logged 'configuring glslang' "$work/glslang-configure.log" cmake -S "$work/glslang" -B "$work/glslang-build" "${flags[@]}" \
    -DENABLE_OPT=OFF -DENABLE_HLSL=OFF -DGLSLANG_TESTS=OFF -DENABLE_PCH=OFF -DENABLE_SPVREMAPPER=OFF
  logged 'building glslang (about 1 minute)' "$work/glslang-build.log" cmake --build "$work/glslang-build"
  DESTDIR=$work/glslang-root cmake --install "$work/glslang-build" >/dev/null

  mkdir -p "$out/bin" "$out/include/spirv"
  cp -a "$work"/glslang-root/usr/include/glslang "$out/include/"
  find "$work/glslang-root" -name 'lib*.a' -exec cp -t "$out/lib" {} +
  cp "$work/glslang-build/StandAlone/glslang" "$out/bin/glslangValidator"
  cp -a "$work/spirv-tools/include/spirv-tools" "$out/include/"
  cp -a "$work/spirv-headers/include/spirv/unified1" "$out/include/spirv/"
  cp "$work"/tools-build/source/libSPIRV-Tools.a "$work"/tools-build/source/opt/libSPIRV-Tools-opt.a "$out/lib/"
  cp "$work"/tools-build/tools/spirv-{val,dis,opt} "$out/bin/"
  strip "$out"/bin/*
}

install_vulkan_headers() {
  local work=$1 out=$2
  mkdir "$work/headers"
  dpkg-deb -x "$work"/download/libvulkan-dev_*.deb "$work/headers"
  cp -a "$work/headers/usr/include/vulkan" "$work/headers/usr/include/vk_video" "$out/include/"
}

build_quickjs() {
  local work=$1 out=$2 file objects=()
  local version; version=$(cat "$work/quickjs/VERSION")
  say 'building QuickJS'
  for file in quickjs cutils libregexp libunicode dtoa; do
    cc -O2 -w -fPIC -fwrapv -D_GNU_SOURCE "-DCONFIG_VERSION=\"$version\"" -c "$work/quickjs/$file.c" -o "$work/$file.o"
    objects+=("$work/$file.o")
  done
  ar rcs "$out/lib/libquickjs.a" "${objects[@]}"
  cp "$work/quickjs/quickjs.h" "$out/include/"
}

suffix=
if sdk_usable; then suffix=-sdk; fi
hash=$(grep -v '^ *#' "${BASH_SOURCE[0]}" | sha256sum | cut -c1-16)
cache=${MOEC_CACHE:-${XDG_CACHE_HOME:-$HOME/.cache}}/moec
final=$cache/toolchain-$hash$suffix
if [ "${1:-}" = --path ] || [ -e "$final/VERSIONS" ]; then
  echo "$final"
  exit 0
fi

mkdir -p "$cache"
cd "$cache"  # the tree may be moved or removed while this builds
exec 9>"$cache/lock-$hash$suffix"
flock -n 9 || { say 'another build of the toolchain is running; waiting for it'; flock 9; }
if [ ! -e "$final/VERSIONS" ]; then
  started=$SECONDS
  work=$(mktemp -d "$cache/work-XXXXXX")
  trap 'rm -rf "$work"' EXIT
  mkdir -p "$work/out/lib" "$work/out/include"
  logged "downloading Debian $codename's sources" "$work/download.log" download "$work/download"
  unpack "$work"
  build_quickjs "$work" "$work/out"
  if [ -z "$suffix" ]; then
    build_shader_libraries "$work" "$work/out"
    install_vulkan_headers "$work" "$work/out"
  fi
  (cd "$work/download" && ls -- *.tar.* *.deb) >"$work/out/VERSIONS"
  rm -rf "$final"
  mv "$work/out" "$final"
  say "ready in $((SECONDS - started)) s: $final"
fi
echo "$final"
