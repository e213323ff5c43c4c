cat >Main.java <<'X'
import java.util.*; import java.util.concurrent.*; import java.util.stream.*;
public class Main {
    static int fib(int n) { return n < 2 ? n : fib(n - 1) + fib(n - 2); }
    interface Shape { double area(); }
    record Circle(double r) implements Shape { public double area() { return Math.PI * r * r; } }
    record Square(double s) implements Shape { public double area() { return s * s; } }
    static int npe(String s) { try { return s.length(); } catch (NullPointerException e) { return -1; } }
    public static void main(String[] args) throws Exception {
        System.out.println(fib(30));
        double sum = 0; for (int i = 0; i < 300000; i++) { Shape s = i % 2 == 0 ? new Circle(i) : new Square(i); sum += s.area(); } System.out.printf("%.3e%n", sum);
        int n = 0; for (int i = 0; i < 30000; i++) n += npe(i % 3 == 0 ? null : "abc"); System.out.println(n);
        Map<String, List<Integer>> m = new TreeMap<>(); for (int i = 0; i < 100000; i++) m.computeIfAbsent("k" + i % 50, k -> new ArrayList<>()).add(i); System.out.println(m.get("k7").size());
        long garbage = 0; for (int i = 0; i < 200; i++) { byte[] b = new byte[1 << 20]; b[i] = 1; garbage += b.length; } System.out.println(garbage);
        ExecutorService pool = Executors.newFixedThreadPool(4); List<Future<Long>> f = new ArrayList<>();
        for (int t = 0; t < 8; t++) { final int k = t; f.add(pool.submit(() -> LongStream.range(0, 200000).map(x -> x * k % 7).sum())); }
        long total = 0; for (Future<Long> x : f) total += x.get(); pool.shutdown(); System.out.println(total);
        System.out.println(IntStream.range(0, 1000).parallel().map(x -> x * x % 13).sum());
        try { int[] a = new int[3]; a[args.length + 3] = 1; } catch (ArrayIndexOutOfBoundsException e) { System.out.println(e.getMessage()); }
        try { System.out.println(1 / args.length); } catch (ArithmeticException e) { System.out.println(e.getMessage()); }
        try { deep(0); } catch (StackOverflowError e) { System.out.println("overflow"); }
        System.exit(5);
    }
    static int deep(int n) { return deep(n + 1) + 1; }
}
X
javac Main.java
