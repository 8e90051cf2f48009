#!/usr/bin/env bash
# patch-ng 1.19.1, whatthepatch 1.0.7: a diff of git with a new empty file, a mode, a link and a renamed file, as an agent's answer
#
# Guess: it is applied as by `git apply`, or refused.
# Behaviour: `apply` of patch-ng returns True, and leaves out the new empty file, as `__init__.py`, and the permission to execute; a
# symbolic link becomes a file that holds its target. Applied twice, it returns True as well. whatthepatch gives the paths of files that
# have no lines in the diff as a/run.sh and b/run.sh, and those of others without a/ and b/.
. "$(dirname "$0")/common.sh"
needs git
git --version
packages patch-ng==1.19.1 whatthepatch==1.0.7
export GIT_CONFIG_GLOBAL=/dev/null GIT_CONFIG_SYSTEM=/dev/null
export GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.com GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.com

git init --quiet task
cd task
mkdir tool
echo one >run.sh
seq 20 >old.py
echo a >text
git add --all && git commit --quiet -m start
chmod +x run.sh
touch tool/__init__.py
git mv old.py new.py
echo b >text
ln -s text link
git add --all && git diff --cached -M >../answer.patch && git reset --hard --quiet
cat >../apply.py <<'PYTHON'
import patch_ng
import whatthepatch
print(patch_ng.fromfile("../answer.patch").apply(root="."))
with open("../answer.patch") as file:
    print(*sorted(each.header.new_path for each in whatthepatch.parse_patch(file.read())))
PYTHON
state() { find . -path ./.git -prune -o ! -type d -printf '%P %M\n' | sort | xargs; }
python ../apply.py >../out
seen "result of patch-ng" "$(sed -n 1p ../out)" "True"
seen "files" "$(state)" "link -rw-r--r-- new.py -rw-r--r-- run.sh -rw-r--r-- text -rw-r--r--"
seen "the link, and the changed text" "$(cat link text | xargs)" "text b"
seen "paths by whatthepatch" "$(sed -n 2p ../out)" "b/new.py b/run.sh link text tool/__init__.py"
git reset --hard --quiet && git clean -fdxq && git apply ../answer.patch
seen "files by git apply" "$(state)" "link lrwxrwxrwx new.py -rw-r--r-- run.sh -rwxr-xr-x text -rw-r--r-- tool/__init__.py -rw-r--r--"
