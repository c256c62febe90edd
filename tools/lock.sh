#!/usr/bin/env bash
# Pins every dependency with its hashes, for Python 3.11 and every newer one. The lock files name no registry.
set -euo pipefail
cd "$(dirname "$0")/.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
python3 -m venv "$scratch"
"$scratch/bin/pip" --quiet install uv
for set in runtime dev; do
  "$scratch/bin/uv" pip compile --quiet --upgrade --universal --python-version 3.11 --generate-hashes \
    --no-strip-extras --no-emit-index-url --no-header "requirements/$set.in" -o "requirements/$set.lock"
done
