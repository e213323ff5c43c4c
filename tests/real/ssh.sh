# sshd and ssh on a port of their own: privilege separation, the server's seccomp filter, ciphers.
# needs: /usr/sbin/sshd ssh ssh-keygen
# run: long
# timeout: 240
# ignore: host host.pub key key.pub authorized known log
. "$LIB/wait.sh"
ssh-keygen -q -t ed25519 -N '' -f host
ssh-keygen -q -t ed25519 -N '' -f key
cp key.pub authorized
mkdir -p /run/sshd
# One connection on its standard input and output: no port is needed.
cat >config <<X
HostKey $PWD/host
AuthorizedKeysFile $PWD/authorized
StrictModes no
UsePAM no
PidFile none
X
ssh -i key -F /dev/null -o StrictHostKeyChecking=no -o UserKnownHostsFile="$PWD/known" -o LogLevel=ERROR \
    -o ProxyCommand="/usr/sbin/sshd -i -e -f $PWD/config 2>log" "$(id -un)@there" 'echo in; seq 1000 | wc -l; exit 4' || echo "status $?"
rm -f config
