#!/bin/sh
# Runs the tests of the workspace in the release profile; ends with the runner's summary.
# cargo-nextest is used where it is installed: one summary for all suites.
#
#     tools/test.sh          all but the long ones
#     tools/test.sh --all
set -eu
cd "$(dirname "$0")/.."
cargo=${CARGO:-cargo}

# With the features of the whole workspace, so that the tests need not build everything once more.
"$cargo" build --release --workspace --bin clew
if "$cargo" nextest --version >/dev/null 2>&1; then
    [ "${1:-}" = --all ] && ignored=all || ignored=default
    # Known damage to logs, symbols and handovers, many times as much of it.
    if [ "${1:-}" = --all ]; then export CLEW_DAMAGE="${CLEW_DAMAGE:-20}"; fi
    exec "$cargo" nextest run --release --workspace --no-fail-fast --run-ignored $ignored
fi
[ "${1:-}" = --all ] && set -- --include-ignored
exec "$cargo" test --release --workspace --no-fail-fast --lib --bins --tests -- "$@"
