#!/bin/busybox sh
# Kills numaloc at random moments while it places a running program, in a guest with several nodes: the program must end as
# it would, and its threads must have the affinity that they began with.
#
# usage: kills.sh COUNT SEED RESULT NUMALOC PROGRAM [ARGUMENT...]
#   Half of the kills are of `attach`, half of `run --online`; of each, half at any moment, and half within a second after
#   the first move of pages. PROGRAM takes ten seconds, and its first line of
#   output is RESULT at the end of a correct run. Prints "COUNT kills survived" with how many of them came while the
#   program ran and after moves of its pages, or what is wrong.
b=/bin/busybox
count=$1 seed=$2 result=$3 tool=$4
shift 4
all=$($b sed -n 's/^Cpus_allowed_list:\t//p' /proc/self/status)
moved=0

fail() {
    echo "kill $n: $*"
    $b cat $out /tmp/err /tmp/tool
    for state in /proc/[0-9]*/task/*/status; do
        $b awk -v task="$state" '/^Name:|^State:/ { text = text " " $2 } END { if (text !~ /kworker|cpuhp/) print task text }' "$state"
    done
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

# Pages that the kernel has moved since it booted.
migrated() {
    $b awk '$1 == "pgmigrate_success" { print $2 }' /proc/vmstat
}

# Whether process $1 has not ended.
lives() {
    [ -d "/proc/$1" ] && ! $b grep -q '^State:.Z' "/proc/$1/status" 2>/dev/null
}

# Waits until pages have moved since there were $1, or process $2 has ended.
await_move() {
    tries=0
    while [ "$(migrated)" = "$1" ] && lives "$2"; do
        tries=$((tries + 1))
        [ $tries -lt 6000 ] || fail "numaloc neither moves pages nor ends"
        pause 10
    done
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
    before=$(migrated)
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
    draw 2
    if [ "$drawn" = 0 ]; then
        draw 5000
        pause $((300 + drawn))
    else
        await_move "$before" $victim
        draw 1000
        pause "$drawn"
    fi
    [ -n "$program" ] || program=$(started $victim "$1")
    if [ -n "$program" ] && lives "$program" && [ "$(migrated)" != "$before" ]; then
        moved=$((moved + 1))
    fi
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
        while lives "$program"; do
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
