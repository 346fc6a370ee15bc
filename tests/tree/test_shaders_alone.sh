#!/usr/bin/env bash
# Checks that every kernel's GLSL file compiles standing alone, with the defaults of kernels.def, also instrumented.
set -euo pipefail
root=$(cd "$TESTS_DIR/.." && pwd)
validator=
for candidate in "$("$root/cmake/toolchain.sh" --path)/bin/glslangValidator" "${VULKAN_SDK:-}/bin/glslangValidator" \
                 "$(command -v glslangValidator || true)"; do
  if [ -x "$candidate" ]; then validator=$candidate; break; fi
done
[ -n "$validator" ] || { echo "skipped: no glslangValidator"; exit 77; }
out=$(mktemp)
trap 'rm -f "$out"' EXIT
failed=0 n=0
for file in "$root"/shadergen/glsl/*.comp; do
  for define in '' -DINSTRUMENT; do
    # shellcheck disable=SC2086
    "$validator" --quiet -V --target-env vulkan1.2 -I"$root/shadergen/glsl" -I"$root/shadergen" -I"$root/images" $define \
      -o "$out" "$file" || failed=1
    n=$((n + 1))
  done
done
echo "$n compilations"
[ "$n" -gt 0 ] && [ "$failed" = 0 ]
