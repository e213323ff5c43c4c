#!/bin/sh
# Makes the pictures of README.md and docs/view.md: the demo's recording in clew view, as Chromium shows it.
#
#     tools/screenshots.sh [CLEW]       needs npm and chromium; writes docs/view-*.png
set -eu
here=$(dirname "$(realpath "$0")")
clew=$(realpath "${1:-$here/../target/x86_64-unknown-linux-musl/release/clew}")
dir=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill "$server"; rm -rf "$dir"' EXIT
export CLEW_DIR="$dir/recordings"
cp "$here/demo/jobs.c" "$here/screenshots.mjs" "$dir"
cd "$dir"
gcc -O2 -g -pthread jobs.c -o jobs
"$clew" hunt ./jobs >hunt
npm install --silent --no-audit --no-fund playwright-core@1
"$clew" view --no-open jobs-1 >address &
server=$!
while [ ! -s address ]; do sleep 0.1; done
node screenshots.mjs "$(cat address)" "$here/../docs"
