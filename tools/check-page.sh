#!/bin/sh
# Checks the types of the page's scripts (crates/view/page), which are plain modules with comments that say them. TypeScript comes from npm,
# once; where there is no npm, that is said and nothing is checked.
set -eu
cd "$(dirname "$0")/.."
if ! command -v npm >/dev/null; then
    echo "check-page: no npm: the types of crates/view/page aren't checked" >&2
    exit 0
fi
dir=target/check-page
tsc=$dir/node_modules/.bin/tsc
if [ ! -x $tsc ]; then
    mkdir -p $dir
    if ! npm install --silent --no-audit --no-fund --prefix $dir typescript@5; then
        echo "check-page: npm can't get TypeScript: the types of crates/view/page aren't checked" >&2
        exit 0
    fi
fi
exec $tsc --project crates/view/page/tsconfig.json
