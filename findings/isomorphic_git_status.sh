#!/usr/bin/env bash
# isomorphic-git 1.44.19, beside the system's git: a folder that a task has changed
#
# Guess: the status shows each change, `add` of "." is as by git, a commit without a change and HEAD~1 are as by git.
# Behaviour: `statusMatrix` shows no change of permissions, though `add` and the next commit take it. `add` leaves a removed file in the index. A commit without a
# change is made. HEAD~1 is an error, and 40 digits are a commit, whether it is there or not.
. "$(dirname "$0")/common.sh"
needs node npm
export HOME=$work
npm install --silent --no-audit --no-fund isomorphic-git@1.44.19 >npm.log 2>&1 || { cat npm.log >&2; exit 2; }
echo "versions: isomorphic-git@1.44.19; Node.js $(node --version)"

needs git
git --version
git init -q task
cat >status.mjs <<'JS'
import fs from 'fs'
import { execSync } from 'child_process'
import git from 'isomorphic-git'
const dir = 'task', author = { name: 'a', email: 'a@example.com' }
const status = () => execSync('git status --porcelain', { cwd: dir }).toString().trimEnd().split('\n').join(', ')
fs.writeFileSync('task/a', 'one')
fs.writeFileSync('task/run.sh', 'two', { mode: 0o755 })
await git.add({ fs, dir, filepath: '.' })
await git.commit({ fs, dir, author, message: 'first' })
fs.unlinkSync('task/a')
fs.chmodSync('task/run.sh', 0o644)
console.log(JSON.stringify(await git.statusMatrix({ fs, dir })))
console.log(status())
await git.add({ fs, dir, filepath: '.' })
console.log(status())
await git.commit({ fs, dir, author, message: 'second' })
await git.commit({ fs, dir, author, message: 'third' })
console.log(execSync('git log --format=%s', { cwd: dir }).toString().trim().split('\n').join(' '), execSync('git show --format= --summary HEAD~1', { cwd: dir }).toString().trim())
console.log(await git.resolveRef({ fs, dir, ref: 'HEAD~1' }).catch(error => error.code), await git.resolveRef({ fs, dir, ref: 'a'.repeat(40) }))
JS
node status.mjs >out
seen "statusMatrix of a removed file and a changed permission: name, in HEAD, in the folder, in the index" "$(sed -n 1p out)" '[["a",1,0,1],["run.sh",1,1,1]]'
seen "git's status" "$(sed -n 2p out)" " D a,  M run.sh"
seen "behind add" "$(sed -n 3p out)" " D a, M  run.sh"
seen "commits, and that of the second" "$(sed -n 4p out)" "third second first mode change 100755 => 100644 run.sh"
seen "HEAD~1, and 40 digits" "$(sed -n 5p out)" "NotFoundError aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
