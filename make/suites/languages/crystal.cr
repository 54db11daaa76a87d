# Fibres and channels, exceptions, a conservative collector, a child.
channel = Channel(Int32).new
8.times { |id| spawn { channel.send((1..1000 * id).sum { |at| at % 7 }) } }
p (1..8).map { channel.receive }.sort
begin
  raise "raised"
rescue error
  puts error.message
end
GC.collect
p Process.run("true").success?
