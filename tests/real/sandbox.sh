# bubblewrap: namespaces of users, processes and mounts, an init of its own.
# needs: bwrap
# run: long
# timeout: 120
bwrap --ro-bind / / --dev /dev --proc /proc --unshare-user --unshare-pid --unshare-ipc --tmpfs /mnt sh -c '
echo pid $$; id -u; touch /mnt/x && ls /mnt; exit 5' || echo "status $?"
