#!/bin/bash
set -euo pipefail
cd /app
cat >Makefile <<'MAKEFILE'
CC = gcc
CFLAGS = -O2 -Wall -Wextra
OBJECTS = main.o moments.o

summary: $(OBJECTS)
	$(CC) $(CFLAGS) -o $@ $(OBJECTS) -lm

%.o: src/%.c src/moments.h
	$(CC) $(CFLAGS) -c -o $@ $<

.PHONY: test clean
test: summary
	test/run.sh ./summary

clean:
	rm -f summary $(OBJECTS)
MAKEFILE
make test
make clean
