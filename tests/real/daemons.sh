# Processes that leave: sessions of their own, all descriptors closed, outliving whoever started them.
# needs: setsid python3 nohup
. "$LIB/wait.sh"
(setsid sh -c 'echo done >late.tmp; mv late.tmp late' &)
nohup sh -c 'echo nohup' >nohup.txt 2>&1 &
wait $!
wait_for test -s late
cat late nohup.txt | grep -v ignoring
python3 - <<'P'
import os
r, w = os.pipe()
if os.fork() == 0:
    os.setsid()
    if os.fork() == 0:
        folder = os.getcwd(); os.chdir("/"); os.umask(0); os.closerange(0, 3); os.write(w, b"x"); os.closerange(3, 4096)
        os.chdir(folder); f = os.open("daemon.tmp", os.O_CREAT | os.O_WRONLY); os.write(f, b"%d descriptor\n" % (f + 1)); os.rename("daemon.tmp", "daemon"); os._exit(5)
    os._exit(0)
os.wait(); os.read(r, 1); print("daemon made")
P
wait_for test -s daemon
cat daemon
exec sh -c 'exec env A=1 sh -c "exec sh -c \"echo three execs \$A\""'
