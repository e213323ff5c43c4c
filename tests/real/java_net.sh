# Java with its defaults (a shared file of performance data): sockets, threads that wait and notify; compiled beforehand.
# needs: java javac
# timeout: 300
java -Xmx256m -cp . Net || echo "status $?"
