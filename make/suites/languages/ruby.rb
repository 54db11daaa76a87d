# Threads, fibres, a forked process, exceptions, collection of garbage.
results = Queue.new
threads = 4.times.map { |id| Thread.new { results << [id, 20_000.times.sum { |at| id * at % 7 }] } }
threads.each(&:join)
p 4.times.map { results.pop }.sort
child = fork { exit 3 }
Process.wait child
p $?.exitstatus
begin
  raise "raised"
rescue => error
  p error.message
end
fibre = Fiber.new { 3.times { |at| Fiber.yield at }; :done }
4.times { p fibre.resume }
GC.start
