#!/usr/bin/env bash
# Checks that `./build.sh fmt` would change nothing. Other versions of clang-format than Debian 12's break lines differently.
set -euo pipefail
clang-format --version | grep -q 'version 14\.' || { echo "skipped: $(clang-format --version), not version 14"; exit 77; }
exec "$TESTS_DIR/../build.sh" fmt --check
