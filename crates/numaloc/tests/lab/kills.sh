#!/bin/busybox sh
# Kills numaloc at random moments while it places a running program, in a guest with several nodes: the program must end as
# it would, and its threads must have the affinity that they began with.
#
# usage: kills.sh COUNT SEED RESULT NUMALOC PROGRAM [ARGUMENT...]
#   Half of the kills are of `attach`, half of `run --online`. PROGRAM takes about five seconds, and its first line of
#   output is RESULT at the end of a correct run. Prints "COUNT kills survived" with how many of them came while the
#   program ran and after moves of its pages, or what is wrong.
b=/bin/busybox
count=$1 seed=$2 result=$3 tool=$4
shift 4
all=$($b sed -n 's/^Cpus_allowed_list:\t//p' /proc/self/status)
moved=0

fail() {
    echo "kill $n: $*"
    $b cat $out /tmp/err
    exit 1
}

# Sets `drawn` to a number below $1, from a generator with a seed.
draw() {
    seed=$(((seed * 1103515245 + 12345) % 2147483648))
    drawn=$((seed / 65536 % $1))
}

pause() {
    $b usleep $(($1 * 1000))
}

# Whether all threads of process $1 have their first affinity, or it has ended.
free() {
    for status in /proc/"$1"/task/*/status; do
        mask=$($b sed -n 's/^Cpus_allowed_list:\t//p' "$status" 2>/dev/null)
        [ -z "$mask" ] || [ "$mask" = "$all" ] || return 1
    done
}

# The child of process $1 that executes the file $2; nothing before it does.
started() {
    for child in $($b cat /proc/"$1"/task/*/children 2>/dev/null); do
        [ "$($b readlink /proc/"$child"/exe)" != "$2" ] || echo "$child"
    done
}

out=/tmp/out
begun=0
n=0
while [ $n -lt "$count" ]; do
    n=$((n + 1))
    draw 5000
    moment=$((300 + drawn))
    $b rm -f "$out"
    out=/tmp/out.$n
    : > $out
    if [ $((n % 2)) = 0 ]; then
        "$@" > $out 2> /tmp/err &
        program=$!
        "$tool" attach --page-interval 0.1 --thread-interval 0.1 "$program" 2> /tmp/tool &
        victim=$!
    else
        "$tool" run --online --page-interval 0.1 --thread-interval 0.1 -- "$@" > $out 2> /tmp/err &
        victim=$!
        program=
    fi
    pause "$moment"
    [ -n "$program" ] || program=$(started $victim "$1")
    before=$($b awk '$1 == "pgmigrate_success" { print $2 }' /proc/vmstat)
    [ "${last:-0}" = "$before" ] || moved=$((moved + 1))
    last=$before
    kill -9 $victim
    wait $victim 2> /tmp/wait
    if [ -n "$program" ]; then
        tries=0
        until free "$program"; do
            tries=$((tries + 1))
            [ $tries -lt 12000 ] || fail "a thread is still bound"
            pause 10
        done
        tries=0
        while [ -d "/proc/$program" ] && ! $b grep -q '^State:.Z' "/proc/$program/status" 2>/dev/null; do
            tries=$((tries + 1))
            [ $tries -lt 15000 ] || fail "the program does not end"
            pause 20
        done
        wait "$program" 2> /tmp/wait
    fi
    line=$($b head -n 1 $out)
    if [ -n "$program" ]; then
        [ "$line" = "$result" ] || fail "result \"$line\""
        begun=$((begun + 1))
    else
        # Killed before it let the program begin, or after the program had ended.
        [ -z "$line" ] || [ "$line" = "$result" ] || fail "result \"$line\""
    fi
done
[ $begun -gt 0 ] || fail "the program never began"
echo "$count kills survived, $begun of them while the program ran, $moved after moves"
