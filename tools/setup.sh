#!/bin/sh
# Installs the Debian packages that the named groups of tools/packages.txt list and that
# are missing. As another user than root it says which ones, and fails.
#
#     tools/setup.sh build test
set -eu
cd "$(dirname "$0")/.."

# The pinned toolchain and its targets come with rust-toolchain.toml.
if command -v rustup >/dev/null; then
    rustup show active-toolchain >/dev/null 2>&1 || rustup toolchain install
    rustup target list --installed | grep -q x86_64-unknown-linux-musl ||
        rustup target add x86_64-unknown-linux-musl
elif ! command -v cargo >/dev/null; then
    echo "setup: no Rust toolchain: https://rustup.rs" >&2
    exit 1
fi

command -v dpkg-query >/dev/null || {
    echo "setup: not a Debian system; tools/packages.txt lists what is needed" >&2
    exit 0
}

# Another package may provide the same: nginx for nginx-light, a full JDK for a headless one.
installed() {
    dpkg-query -W -f '${Status} ${Provides}\n' "$1" 2>/dev/null | grep -q '^install ok installed' && return
    case $1 in
    nginx-light) command -v nginx >/dev/null || [ -x /usr/sbin/nginx ] ;;
    openjdk-*) command -v javac >/dev/null ;;
    nodejs) command -v node >/dev/null ;;
    git | gcc | g++ | make | python3 | npm) command -v "$1" >/dev/null ;;
    *) false ;;
    esac
}

missing=
for group; do
    for package in $(awk -v group="$group" '$1 == group { $1 = ""; print }' tools/packages.txt); do
        installed "$package" || missing="$missing $package"
    done
done
[ -n "$missing" ] || exit 0

if [ "$(id -u)" -ne 0 ]; then
    echo "setup: missing packages; install them with:" >&2
    echo "    sudo apt-get install --no-install-recommends$missing" >&2
    exit 1
fi
echo "setup: installing$missing"
export DEBIAN_FRONTEND=noninteractive
# Servers are test subjects here: they must not start by themselves.
policy=/usr/sbin/policy-rc.d
if [ ! -e $policy ]; then
    printf '#!/bin/sh\nexit 101\n' >$policy
    chmod +x $policy
    trap 'rm -f $policy' EXIT
fi
apt-get update -qq
# shellcheck disable=SC2086
apt-get install -y -qq --no-install-recommends $missing >/dev/null
