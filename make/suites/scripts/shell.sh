# Pipes, substitutions, traps and background jobs.
trap 'echo ended' EXIT
trap 'echo signal' USR1
kill -USR1 $$
seq 1 2000 | sort -rn | head -3
(sleep 0; exit 5) &
wait $!
echo "job $?"
echo $(printf '%s\n' b a c | sort | tr '\n' ' ')
n=0
while [ $n -lt 200 ]; do n=$((n + 1)); done
echo $n | sed 's/2/two /'
exit 4
