#!/usr/bin/env bash
# pathspec 1.1.1, gitignore-parser 0.1.13: the files that a .gitignore leaves out, by two libraries and by the system's git
#
# Guess: all name the files that git leaves out, as they say.
# Behaviour: git looks at no file of a folder that is left out, so that `logs/` and `!logs/keep.log` leave out the whole folder; for pathspec the second
# line counts. `*`, `!*/` and `!*.py` keep every file in a folder for its PathSpec, and not for its GitIgnoreSpec. gitignore-parser leaves out no
# file of a folder `build` that `build` or `/build` names, takes `abc/` for a file, and [^b] for b. `src/**/` leaves out src/main.py for both.
. "$(dirname "$0")/common.sh"
needs git
git --version
export HOME=$work
packages pathspec==1.1.1 gitignore-parser==0.1.13

git init -q task
cat >task/read.py <<'PYTHON'
import pathlib, subprocess, sys, warnings
import gitignore_parser, pathspec
warnings.simplefilter("ignore")
here, rules = pathlib.Path.cwd(), pathlib.Path(".gitignore")
lines, names = sys.argv[1].split(), sys.argv[2].split()
for name in names:
    pathlib.Path(name).parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(name).touch()
rules.write_text("\n".join(lines) + "\n")
seen = subprocess.run(["git", "ls-files", "-co", "--exclude-standard"], capture_output=True, text=True).stdout.split()
parser = gitignore_parser.parse_gitignore(here / rules)
print([name for name in names if name not in seen], *([name for name in names if left_out(name)] for left_out in (
    pathspec.GitIgnoreSpec.from_lines(lines).match_file, pathspec.PathSpec.from_lines("gitwildmatch", lines).match_file,
    lambda name: parser(here / name),
)))
PYTHON
reads() { (cd task && python read.py "$@" 2>&1 | sed "s/'//g"); }
echo "by git, GitIgnoreSpec, PathSpec, gitignore-parser:"
seen "logs/ and !logs/keep.log" "$(reads "logs/ !logs/keep.log" "logs/x logs/keep.log")" \
    "[logs/x, logs/keep.log] [logs/x] [logs/x] [logs/x]"
seen "* and !*/ and !*.py" "$(reads "* !*/ !*.py" "src/a.py src/a.o")" "[src/a.o] [src/a.o] [] [src/a.o]"
seen "build" "$(reads "build" "build/a.o src/a.o")" "[build/a.o] [build/a.o] [build/a.o] []"
seen "abc/, which is a file" "$(reads "abc/" "abc")" "[] [] [] [abc]"
seen "a[^b]c" "$(reads "a[^b]c" "abc axc")" "[axc] [axc] [axc] [abc]"
seen "src/**/" "$(reads "src/**/" "src/main.py src/lib/a.py")" "[src/lib/a.py]$(printf ' [src/main.py, src/lib/a.py]%.0s' 1 2 3)"
