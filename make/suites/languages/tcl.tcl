# Byte code, sorting, errors, a child.
proc fib n { expr {$n < 2 ? $n : [fib [expr {$n - 1}]] + [fib [expr {$n - 2}]]} }
set values {}
for {set at 0} {$at < 20000} {incr at} { lappend values [expr {$at * 7919 % 1013}] }
puts "[fib 18] [lindex [lsort -integer $values] 10000] [catch {error x} message] $message [exec echo child]"
