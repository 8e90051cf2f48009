#!/usr/bin/env bash
# SWE-bench 5.0.2 with cargo 1.95.0 (of the system): the log of `cargo test`, for the Rust tasks (ripgrep, bat, ruff, tokio, ...)
#
# Guess: each test of the log has the status that cargo gives it.
# Behaviour: names have no crate, so that of two tests of one name, in the library and in a file of `tests`, the last one counts: a failed
# one has passed. Tests with `should_panic`, tests in the documentation and ignored ones are missing, as cargo writes more
# than a name in their lines; what is missing counts as failed.
. "$(dirname "$0")/common.sh"
needs cargo
packages_alone swebench==5.0.2
cargo --version

mkdir -p src tests
cat >Cargo.toml <<'TOML'
[package]
name = "probe"
version = "0.1.0"
edition = "2021"
TOML
cat >src/lib.rs <<'RUST'
//! Doubles numbers.

/// ```
/// assert_eq!(probe::double(2), 4);
/// ```
pub fn double(number: i32) -> i32 {
    number * 2
}

#[test]
fn doubles() {
    assert_eq!(double(3), 7);
}

#[test]
#[should_panic]
fn overflows() {
    double(i32::MAX);
}

#[test]
#[ignore]
fn slow() {}
RUST
cat >tests/whole.rs <<'RUST'
#[test]
fn doubles() {
    assert_eq!(probe::double(3), 6);
}
RUST
CARGO_TARGET_DIR=$work/target cargo test --offline --no-fail-fast -- --test-threads=1 >log 2>errors && status=0 || status=$?
cat >read.py <<'PYTHON'
# What this parser does not use (data sets, containers, clouds) is replaced by nothing.
import runpy
import sys
import sysconfig
import unittest.mock
for name in ("swebench", "swebench.harness", "swebench.types"):
    sys.modules[name] = unittest.mock.MagicMock()
statuses = unittest.mock.MagicMock(PASSED=unittest.mock.Mock(value="PASSED"), FAILED=unittest.mock.Mock(value="FAILED"))
sys.modules["swebench.harness.constants"] = unittest.mock.MagicMock(TestStatus=statuses)
module = runpy.run_path(sysconfig.get_path("purelib") + "/swebench/harness/log_parsers/rust.py")
print(module["parse_log_cargo"](open("log").read(), None))
PYTHON
seen "status of cargo" "$status" 101
seen "its lines" "$(grep '^test .* \.\.\. ' log | cut -d ' ' -f 2- | sed 's/ (line [0-9]*)//' | paste -s -d ';')" \
    "doubles ... FAILED;overflows - should panic ... ok;slow ... ignored;doubles ... ok;src/lib.rs - double ... ok"
seen "what is read" "$(python read.py)" "{'doubles': 'PASSED'}"
