#!/bin/sh
# Puts the built command where people find it.
#
#     tools/package.sh install CLEW DIR    the command, manuals, completions below DIR
#     tools/package.sh deb CLEW            target/package/clew_VERSION_amd64.deb
#     tools/package.sh dist CLEW           target/package/clew-VERSION-x86_64-linux.tar.gz and .sha256
set -eu
what=$1
clew=$(realpath "$2")
cd "$(dirname "$0")/.."
version=$("$clew" --version | awk '{ print $2 }')
out=target/package

# The tree of an installation below a folder.
tree() {
    install -D -m 755 "$clew" "$1/bin/clew"
    install -D -m 644 include/clew.h "$1/include/clew.h"
    "$clew" man "$1/share/man/man1"
    chmod 644 "$1"/share/man/man1/*
    for shell in bash:share/bash-completion/completions/clew zsh:share/zsh/site-functions/_clew \
        fish:share/fish/vendor_completions.d/clew.fish; do
        file=$1/${shell#*:}
        mkdir -p "$(dirname "$file")"
        "$clew" completions "${shell%%:*}" >"$file"
        chmod 644 "$file"
    done
    for file in README.md CHANGELOG.md LICENSE-MIT LICENSE-APACHE docs/*.md; do
        install -D -m 644 "$file" "$1/share/doc/clew/$file"
    done
}

case $what in
install)
    tree "$3"
    echo "clew $version is in $3/bin"
    ;;
deb)
    root=$out/deb
    rm -rf "$root"
    tree "$root/usr"
    strip --strip-debug "$root/usr/bin/clew"
    mkdir -p "$root/DEBIAN"
    size=$(du -sk "$root/usr" | cut -f1)
    cat >"$root/DEBIAN/control" <<END
Package: clew
Version: $version
Architecture: amd64
Maintainer: clew's makers <clew@example.invalid>
Installed-Size: $size
Section: devel
Priority: optional
Recommends: gdb
Description: record, replay and ask: a debugger for failures that happen once
 Records one run of an unmodified program exactly, repeats it as often as asked,
 forwards and backwards, and answers questions about it. Needs no hardware
 counters, no root and no recompiling.
END
    dpkg-deb --root-owner-group --build "$root" "$out/clew_${version}_amd64.deb"
    ;;
dist)
    name=clew-$version-x86_64-linux
    rm -rf "${out:?}/$name"
    tree "$out/$name"
    strip --strip-debug "$out/$name/bin/clew"
    tar -C "$out" --owner=0 --group=0 --sort=name -czf "$out/$name.tar.gz" "$name"
    (cd "$out" && sha256sum "$name.tar.gz" >"$name.tar.gz.sha256")
    echo "$out/$name.tar.gz"
    ;;
*)
    echo "package: install, deb or dist" >&2
    exit 2
    ;;
esac
