import java.util.stream.IntStream;

/** Four threads sum squares of a shared array; prints one number that does not depend on who did what. */
public final class Sum {
    public static void main(String[] arguments) throws InterruptedException {
        final long[] cells = IntStream.range(0, Integer.parseInt(arguments[0])).mapToLong(i -> (long) i * i % 1_000_003).toArray();
        final long[] sums = new long[4];
        final Thread[] workers = new Thread[4];
        for (int w = 0; w < 4; w++) {
            final int worker = w;
            workers[w] = new Thread(() -> {
                for (int i = worker; i < cells.length; i += 4) {
                    sums[worker] += cells[i];
                }
            });
            workers[w].start();
        }
        long sum = 0;
        for (int w = 0; w < 4; w++) {
            workers[w].join();
            sum += sums[w];
        }
        System.out.println(sum);
    }
}
