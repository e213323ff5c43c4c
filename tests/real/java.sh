# Java: JIT, garbage collection, threads, null-pointer traps, exceptions; compiled beforehand.
# recorded: long
# needs: java javac
# timeout: 300
java -Xmx256m -XX:+UseSerialGC -XX:-UsePerfData -cp . Main || echo "status $?"
java -Xmx256m -XX:+UseG1GC -XX:-UsePerfData -cp . Main || echo "status $?"
