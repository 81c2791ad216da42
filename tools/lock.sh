#!/bin/bash
# Resolve requirements/*.txt: hashed, for every platform, naming no registry host.
# usage: tools/lock.sh UV [--upgrade]
set -euo pipefail
cd "$(dirname "$0")/.."
uv=$1
shift
export UV_PYTHON_DOWNLOADS=never
compile() { "$uv" pip compile --quiet --universal --python-version 3.11 --generate-hashes --custom-compile-command "make lock" "$@"; }

compile "$@" --extra dev -o requirements/dev.txt pyproject.toml
# What one host needs: the same versions as in dev.txt, so that what was tested is what is installed.
compile --extra agent -c requirements/dev.txt -o requirements/agent.txt pyproject.toml
compile --extra controller --extra embedded --extra ctl -c requirements/dev.txt -o requirements/controller.txt pyproject.toml
compile "$@" -o requirements/proto.txt requirements/proto.in
compile "$@" -o requirements/lock.txt requirements/lock.in
