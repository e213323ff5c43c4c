#!/bin/sh
# Tries what people install where nothing else is: in a root with one static program, and in a Debian that was just made.
# Needs root, debootstrap and the network.
#
#     tools/clean-root.sh CLEW FOLDER
set -eu
clew=$(realpath "$1")
folder=$(realpath "$2")
cd "$(dirname "$0")/.."

# Recordings need /proc; it goes with the folder.
enter() {
    root=$1
    shift
    mkdir -p "$root/proc" "$root/tmp" "$root/dev"
    unshare --mount sh -c 'mount -t proc proc "$1/proc" && mount --bind /dev "$1/dev" && root=$1 && shift && exec chroot "$root" "$@"' sh "$root" "$@"
}

# A program is recorded, replayed, and asked about.
try() {
    root=$1
    command=$2
    program=$3
    asked() {
        enter "$root" /usr/bin/env -i HOME=/tmp PATH=/usr/local/bin:/usr/bin:/bin "$command" "$@"
    }
    test "$(asked record -n one "$program")" = hello
    test "$(asked replay one)" = hello
    asked output one | grep -q hello
    asked rm one >/dev/null
}

printf '#include <stdio.h>\nint main(void) { puts("hello"); return 0; }\n' >"$folder/hello.c"
cc -static -o "$folder/hello" "$folder/hello.c"

tools/package.sh dist "$clew" >/dev/null
tools/package.sh deb "$clew" >/dev/null
(cd target/package && sha256sum --quiet -c clew-*-x86_64-linux.tar.gz.sha256)

# Nothing but clew and a program: no shell, no libc, no /etc.
bare=$folder/bare
mkdir -p "$bare/usr/bin" "$bare/opt"
install -m 755 "$clew" "$bare/usr/bin/clew"
install -m 755 "$folder/hello" "$bare/usr/bin"
cc -static -x c -o "$bare/usr/bin/env" - <<'END'
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>
// env -i NAME=VALUE ... PROGRAM ARGUMENTS
int main(int n, char **words) {
    clearenv();
    char **at = words + 2;
    for (; *at && strchr(*at, '='); at++)
        putenv(*at);
    execvp(*at, at);
    perror(*at);
    return n > 0;
}
END
try "$bare" /usr/bin/clew /usr/bin/hello
echo "bare: works"
rm "$bare/usr/bin/clew"
tar -C "$bare/opt" -xzf target/package/clew-*-x86_64-linux.tar.gz
inside=$(cd "$bare" && echo opt/clew-*)
try "$bare" "/$inside/bin/clew" /usr/bin/hello
echo "tarball: works"

debian=$folder/debian
debootstrap --variant=minbase --include=bash-completion,man-db bookworm "$debian" >"$folder/debootstrap.log" 2>&1 ||
    { tail -5 "$folder/debootstrap.log" >&2; exit 1; }
cp "$folder/hello" "$debian/usr/bin"
cp target/package/clew_*_amd64.deb "$debian/tmp/clew.deb"
enter "$debian" /usr/bin/dpkg -i /tmp/clew.deb >/dev/null
try "$debian" clew /usr/bin/hello
enter "$debian" /usr/bin/clew doctor >/dev/null || true
enter "$debian" /usr/bin/man -w clew-record >/dev/null
enter "$debian" /bin/bash -c '. /usr/share/bash-completion/completions/clew && complete -p clew' >/dev/null
enter "$debian" /usr/bin/dpkg -r clew >/dev/null
test ! -e "$debian/usr/bin/clew"
echo "deb: works"

tools/package.sh install "$clew" "$debian/usr/local" >/dev/null
try "$debian" clew /usr/bin/hello
enter "$debian" /usr/bin/man -w clew-record >/dev/null
echo "make install: works"
