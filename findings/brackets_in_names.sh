#!/usr/bin/env bash
# unzip 6.00, zip 3.0, bsdtar 3.6.2, as in Debian 12, git 2.39.5 (of the system): the path app/[id]/page.js, as Next.js has it, as an argument
#
# Guess: an argument that is the path of a file that is there names that file.
# Behaviour: `unzip` and bsdtar take it as a pattern, for app/i/page.js and app/d/page.js, and not for the file itself; GNU tar and `zip -d` take the
# file. `git diff` and `git add` take all three, `git commit` and `git checkout` of the same argument only the file.
. "$(dirname "$0")/common.sh"
needs git zip unzip tar
debian libarchive-tools
bsdtar --version
git --version
unzip -v | sed -n 1p

path='app/[id]/page.js'
mkdir -p "app/[id]" app/i app/d
change() { for folder in '[id]' i d; do echo "$1" >>"app/$folder/page.js"; done; }
change 1
zip -qr app.zip app
tar cf app.tar app
names() { grep -o 'app/.*js' | sort | xargs; }
seen "unzip -l" "$(unzip -l app.zip "$path" | sed 1d | names)" "app/d/page.js app/i/page.js"
seen "bsdtar -tf" "$(bsdtar -tf app.tar "$path" | names)" "app/d/page.js app/i/page.js"
seen "tar -tf" "$(tar -tf app.tar "$path" | names)" "$path"
zip -q one.zip "$path"
seen "zip, to add it" "$(unzip -l one.zip | sed 1d | names)" "$path"
zip -qd app.zip "$path"
seen "what zip -d leaves" "$(unzip -l app.zip | sed 1d | names)" "app/d/page.js app/i/page.js"

export HOME=$work GIT_AUTHOR_NAME=a GIT_AUTHOR_EMAIL=a@example.org GIT_COMMITTER_NAME=a GIT_COMMITTER_EMAIL=a@example.org
git init -q .
git add app
git commit -qm first
change 2
seen "git diff" "$(git diff --name-only -- "$path" | names)" "app/[id]/page.js app/d/page.js app/i/page.js"
git add "$path"
seen "git add" "$(git diff --cached --name-only | names)" "app/[id]/page.js app/d/page.js app/i/page.js"
git reset -q
git commit -qm second -- "$path"
seen "git commit" "$(git show --name-only --format= | names)" "$path"
change 3
git checkout -q -- "$path"
seen "what git checkout leaves changed" "$(git diff --name-only | names)" "app/d/page.js app/i/page.js"
