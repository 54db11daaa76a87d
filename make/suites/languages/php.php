<?php // Sorting, recursion, regular expressions (which PHP compiles), exceptions.
function fib($n) { return $n < 2 ? $n : fib($n - 1) + fib($n - 2); }
$values = [];
for ($at = 0; $at < 50000; $at++) $values[] = $at * 7919 % 1000;
sort($values);
echo md5(implode(',', $values)), "\n", fib(20), "\n";
preg_match('/(a+)+b/', str_repeat('a', 20) . 'b', $found);
echo strlen($found[0]), "\n";
try { throw new Exception('thrown'); } catch (Exception $error) { echo $error->getMessage(), "\n"; }
