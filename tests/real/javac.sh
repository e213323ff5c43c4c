# javac of a small project, under clew itself.
# needs: javac
# run: long
# timeout: 300
# ignore: *.class
for i in $(seq 1 20); do echo "package p; public class C$i { int v = $i; public int add(C$i o) { return v + o.v; } interface I { int f(int x); } public int apply(I i) { return i.f(v); } public static int run() { return new C$i().apply(x -> x * $i); } }" ; done | while read -r line; do n=${line#*class }; n=${n%% *}; mkdir -p p; echo "$line" >p/$n.java; done
javac -d . p/*.java
ls p/*.class | wc -l
