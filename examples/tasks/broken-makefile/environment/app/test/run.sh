#!/bin/sh
# Feeds a program some numbers and compares what it prints: run.sh PROGRAM
status=0
check() {
    got=$(echo "$2" | "$1")
    if [ "$got" = "$3" ]; then
        echo "ok   $2"
    else
        echo "FAIL $2: $got, not $3"
        status=1
    fi
}
check "$1" "2 4 4 4 5 5 7 9" "mean 5.00, deviation 2.00"
check "$1" "1" "mean 1.00, deviation 0.00"
check "$1" "-1 1" "mean 0.00, deviation 1.00"
exit $status
