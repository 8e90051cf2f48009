"""Tasks in Git repositories."""

from __future__ import annotations

import random

from tvsnap.plugins.training.tasks.task import WORDS, Draft

# Commits have the same hashes whenever they are made, as the dates are always the same.
_BEGIN = (
    "export GIT_AUTHOR_DATE='2026-01-01 12:00 +0000' GIT_COMMITTER_DATE='2026-01-01 12:00 +0000' && "
    "git init -q -b main . && git config user.name a && git config user.email a@example.org"
)


def git(chance: random.Random) -> Draft:
    branch, file = chance.sample(WORDS, 2)
    script = f"{_BEGIN} && echo 1 > README && git add README && git commit -q -m first"
    checks = (
        f"begin = begun({script!r})\n"
        f"goal('branch', lambda: has({branch!r}, begin['main']))\n"
        f"goal('commit', lambda: tree({branch!r}) == {{'README': '1\\n', '{file}.txt': '{file}\\n'}})\n"
        "keep('main', lambda: tips()['main'] == begin['main'])\n"
        f"keep('content', lambda: unchanged({{'/app/{file}.txt': '{file}\\n'}}) or goals['commit'])\n"
    )
    return Draft(
        f"In the Git repository /app, commit the new file {file}.txt on a new branch named {branch}. "
        "Leave main as it is.",
        f"cd /app && {script} && echo {file} > {file}.txt",
        checks,
        [
            [f"cd /app && git checkout -q -b {branch} && git add {file}.txt && git commit -q -m add"],
            [
                "cd /app",
                "git status",
                f"git branch {branch}",
                f"git checkout {branch}",
                "git add .",
                "git commit -m add",
            ],
        ],
        [["cd /app && git status"], [f"cd /app && git add {file}.txt && git commit -q -m add && git branch {branch}"]],
    )


def merge(chance: random.Random) -> Draft:
    branch, first, second = chance.sample(WORDS, 3)
    script = (
        f"{_BEGIN} && echo 1 > README && git add . && git commit -q -m first && "
        f"git checkout -q -b {branch} && echo {first} > {first}.txt && git add . && git commit -q -m {first} && "
        f"git checkout -q main && echo {second} > {second}.txt && git add . && git commit -q -m {second}"
    )
    files = {"README": "1\n", f"{first}.txt": f"{first}\n", f"{second}.txt": f"{second}\n"}
    checks = (
        f"begin, files = begun({script!r}), {files!r}\n"
        "goal('merged', lambda: tree('main') == files)\n"
        f"goal('history', lambda: has('main', begin[{branch!r}]))\n"
        "keep('main', lambda: has('main', begin['main']))\n"
        f"keep('branch', lambda: tips()[{branch!r}] == begin[{branch!r}])\n"
        f"keep('files', lambda: files.items() <= {{'{first}.txt': '{first}\\n', **tree('main')}}.items())\n"
    )
    return Draft(
        f"In the Git repository /app, merge the branch {branch} into main, so that main has {first}.txt as well as "
        f"{second}.txt and the history of both. Leave the files' contents and the branch {branch} as they are.",
        f"cd /app && {script}",
        checks,
        [
            [f"cd /app && git merge -q --no-edit {branch}"],
            ["cd /app", "git branch", "git log --oneline --all", f"git merge --no-ff -m merge {branch}", "git status"],
        ],
        [
            [f"cd /app && git checkout -q {branch} && git merge -q --no-edit main"],
            [f"cd /app && git merge -q --no-edit {branch} && git branch -q -D {branch}"],
        ],
    )


def conflict(chance: random.Random) -> Draft:
    branch, key, ours, theirs = chance.sample(WORDS, 4)
    others = [f"{word} = {chance.randint(1, 99)}" for word in chance.sample(WORDS, 2)]
    lines = [others[0], f"{key} = {theirs}", others[1]]

    def content(value: str) -> str:
        return f"{others[0]}\\n{key} = {value}\\n{others[1]}\\n"

    script = (
        f"{_BEGIN} && printf '{content('none')}' > settings && git add . && "
        f"git commit -q -m first && git checkout -q -b {branch} && printf '{content(theirs)}' > settings && "
        f"git commit -q -a -m {theirs} && git checkout -q main && printf '{content(ours)}' > settings && "
        f"git commit -q -a -m {ours}"
    )
    checks = (
        f"begin = begun({script!r})\n"
        f"goal('resolved', lambda: tree('main') == {{'settings': {chr(10).join([*lines, ''])!r}}})\n"
        f"goal('history', lambda: has('main', begin[{branch!r}]))\n"
        "keep('main', lambda: has('main', begin['main']))\n"
        f"keep('others', lambda: {{*{others!r}}} <= {{*tree('main')['settings'].split('\\n')}})\n"
    )
    return Draft(
        f"In the Git repository /app, merge the branch {branch} into main. Both changed {key} in the file settings: "
        f"take the value of {branch}, {theirs}, and leave the rest as it is.",
        f"cd /app && {script}",
        checks,
        [
            [f"cd /app && git merge -q --no-edit -X theirs {branch}"],
            [
                "cd /app",
                f"git merge {branch}",
                "git diff",
                "git checkout --theirs settings",
                "git add settings",
                "git commit --no-edit",
            ],
            [
                "cd /app",
                f"git merge {branch}",
                "cat settings",
                f"printf '{content(theirs)}' > settings",
                "git commit -a -m merged",
            ],
        ],
        [
            ["cd /app && git status"],
            # The values come together without the merge, and the merge without the values.
            ["cd /app && rm -rf .git settings && git init -q -b main ."],
        ],
    )
