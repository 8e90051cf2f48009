#!/usr/bin/env bash
# cargo 1.95.0 (of the system): a source that is put back with its time, as by `cp -p`, `tar` or a restored snapshot
#
# Guess: the tests run what the sources say, as cargo keeps a fingerprint of them.
# Behaviour: the fingerprint holds the time of the last build; a source that is older than it counts as unchanged. `cargo test`
# runs the earlier program and passes, though the source is that of which it failed before.
. "$(dirname "$0")/common.sh"
needs cargo
cargo --version

mkdir src
cat >Cargo.toml <<'END'
[package]
name = "task"
version = "0.1.0"
edition = "2021"
END
write() { printf 'pub fn answer() -> i32 { %s }\n#[test]\nfn right() { assert_eq!(answer(), 42); }\n' "$1" >src/lib.rs; }
result() { cargo test --offline --quiet --lib 2>&1 | sed -n 's/^test result: \([a-zA-Z]*\)\..*/\1/p'; }
write 7
touch -d '1 hour ago' src/lib.rs
cp -p src/lib.rs saved.rs
seen "wrong source" "$(result)" FAILED
write 42
seen "right source" "$(result)" ok
cp -p saved.rs src/lib.rs
seen "wrong source, put back with its time" "$(grep -c 7 src/lib.rs) $(result)" "1 ok"
touch src/lib.rs
seen "with a new time" "$(result)" FAILED
