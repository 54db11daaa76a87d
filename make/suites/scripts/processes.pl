# Processes, pipes, signals, sockets and sorting; prints what does not depend on the run.
use strict;
use warnings;
use POSIX ();
use Socket;

my @pipes;
for my $n (1 .. 4) {
    pipe(my $reader, my $writer) or die;
    my $pid = fork() // die;
    if ($pid == 0) {
        close $reader;
        my $sum = 0;
        $sum += $_ * $n for 1 .. 1000;
        print $writer "$n $sum\n";
        close $writer;
        POSIX::_exit($n);
    }
    close $writer;
    push @pipes, [$reader, $pid];
}
for my $one (@pipes) {
    my ($reader, $pid) = @$one;
    print scalar <$reader>;
    waitpid $pid, 0;
    print "status ", $? >> 8, "\n";
}

my $signals = 0;
local $SIG{USR1} = sub { $signals++ };
kill 'USR1', $$ for 1 .. 20;
print "signals ", ($signals > 0 ? "arrive" : "are lost"), "\n";
my $late = eval { local $SIG{ALRM} = sub { die "alarm\n" }; alarm 1; sleep 5 while 1; 1 };
print "left by $@";

socketpair(my $one, my $two, AF_UNIX, SOCK_STREAM, PF_UNSPEC) or die;
syswrite $one, "over a socket\n";
sysread $two, my $text, 100;
print $text;

my @sorted = sort { $a <=> $b } map { ($_ * 7919) % 10007 } 1 .. 20000;
print "$sorted[0] $sorted[9999] $sorted[-1]\n";
my %words;
$words{$_ % 97}++ for @sorted;
print join(' ', map { "$_:$words{$_}" } (sort { $a <=> $b } keys %words)[0 .. 4]), "\n";
print `echo through a shell`;
exec 'false' or die;
