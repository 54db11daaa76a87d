// Parallel loops, exceptions, a collector that stops threads by signals.
import core.memory, std.algorithm, std.parallelism, std.range, std.stdio;

void main()
{
    auto values = new int[](100_000);
    foreach (at, ref value; parallel(values)) value = cast(int)(at * 7919 % 1013);
    sort(values);
    GC.collect();
    try throw new Exception("thrown");
    catch (Exception error) writeln(error.msg);
    writeln(values[50_000], " ", taskPool.reduce!"a + b"(iota(100_000)));
}
