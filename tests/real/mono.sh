# Mono: a JIT, a collector that stops threads by signals, exceptions, null references by SIGSEGV.
# needs: mono mcs
# run: long
# timeout: 300
export HOME=$PWD
cat >work.cs <<'X'
using System;
using System.Collections.Generic;
using System.Threading;
class Work {
    static void Main() {
        var squares = new Dictionary<int, long>();
        for (int i = 0; i < 20000; i++) squares[i] = (long)i * i;
        long sum = 0;
        foreach (var v in squares.Values) sum += v;
        var threads = new List<Thread>();
        for (int k = 0; k < 3; k++) {
            var t = new Thread(() => { for (int i = 0; i < 1000; i++) Interlocked.Add(ref sum, i); });
            threads.Add(t);
            t.Start();
        }
        foreach (var t in threads) t.Join();
        try { throw new Exception("planned"); } catch (Exception e) { Console.WriteLine(e.Message); }
        try { string s = null; Console.WriteLine(s.Length); } catch (NullReferenceException) { Console.WriteLine("null"); }
        GC.Collect();
        Console.WriteLine(sum);
    }
}
X
mcs work.cs -out:work.exe
mono work.exe
rm -f work.exe
