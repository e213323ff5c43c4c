cat >Net.java <<'X'
import java.io.*; import java.net.*; import java.util.concurrent.atomic.*;
public class Net {
    public static void main(String[] args) throws Exception {
        ServerSocket server = new ServerSocket(0, 50, InetAddress.getLoopbackAddress());
        Thread serving = new Thread(() -> { try { for (;;) { Socket s = server.accept(); new Thread(() -> echo(s)).start(); } } catch (IOException e) { System.out.println("closed"); } });
        serving.start();
        AtomicInteger lines = new AtomicInteger(); Thread[] clients = new Thread[8];
        for (int c = 0; c < clients.length; c++) { final int k = c; clients[c] = new Thread(() -> { try (Socket s = new Socket(server.getInetAddress(), server.getLocalPort())) {
            BufferedReader in = new BufferedReader(new InputStreamReader(s.getInputStream())); PrintWriter out = new PrintWriter(s.getOutputStream(), true);
            for (int i = 0; i < 100; i++) { out.println(k + " " + i); if ((k + " " + i).equals(in.readLine())) lines.incrementAndGet(); } } catch (IOException e) { e.printStackTrace(); } }); clients[c].start(); }
        for (Thread t : clients) t.join();
        System.out.println(lines); server.close(); serving.join();
        Object lock = new Object(); int[] turn = { 0 }; Thread[] pair = new Thread[2];
        for (int p = 0; p < 2; p++) { final int me = p; pair[p] = new Thread(() -> { for (int i = 0; i < 2000; i++) synchronized (lock) { while (turn[0] % 2 != me) try { lock.wait(); } catch (InterruptedException e) { return; } turn[0]++; lock.notifyAll(); } }); pair[p].start(); }
        for (Thread t : pair) t.join();
        System.out.println(turn[0]);
    }
    static void echo(Socket s) { try (s) { BufferedReader in = new BufferedReader(new InputStreamReader(s.getInputStream())); PrintWriter out = new PrintWriter(s.getOutputStream(), true); String line; while ((line = in.readLine()) != null) out.println(line); } catch (IOException e) { e.printStackTrace(); } }
}
X
javac Net.java
