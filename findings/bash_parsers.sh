#!/usr/bin/env bash
# bashlex 0.18, tree-sitter-bash 0.25.1 with tree-sitter 0.26.1, shfmt 4.2.0: commands of an agent that bash runs
#
# Guess: what `bash -n` takes has a tree, without errors; formatting leaves the meaning.
# Behaviour: bashlex has none for a here-document with a quoted word, <<'EOF', nor for $((1+1)), [[ ]], arrays and `case`; a comment alone or no
# command is an AttributeError. tree-sitter has errors for two here-documents of one command, `for x do` and a last `;;&`. shfmt writes the key
# of q[a-b]=1 as "a - b", so that `${!q[@]}` has another one, and refuses q[a b]=1; with -mn the key stays.
. "$(dirname "$0")/common.sh"
packages bashlex==0.18 tree-sitter==0.26.1 tree-sitter-bash==0.25.1 shfmt-py==4.2.0

cat >parse.py <<'PYTHON'
import subprocess
import bashlex, tree_sitter, tree_sitter_bash
COMMANDS = (
    "cat <<'EOF' >a.py\nprint(1)\nEOF\n", "cat <<EOF >a.py\nprint(1)\nEOF\n", "n=$((1+1))\n", "[[ -n $n ]] && echo yes\n", "x=(1 2)\n",
    "case $x in a) echo 1;; esac\n", "# done\n", "\n", "cat <<A /dev/fd/3 3<<B\n1\nA\n2\nB\n",
    "for x do echo $x; done\n", "case $x in a) ;; *) echo b ;;& esac\n",
)
parser = tree_sitter.Parser(tree_sitter.Language(tree_sitter_bash.language()))
for command in COMMANDS:
    status = subprocess.run(["bash", "-n"], input=command, text=True, capture_output=True).returncode
    try:
        bashlex.parse(command)
        simple = "tree"
    except Exception as error:
        simple = type(error).__name__
    print(status, simple, "has_error" if parser.parse(command.encode()).root_node.has_error else "tree")
PYTHON
python parse.py >out
line() { sed -n "$1p" out; }
echo "bash -n, bashlex, tree-sitter"
seen "cat <<'EOF' >a.py" "$(line 1)" "0 ParsingError tree"
seen "cat <<EOF >a.py" "$(line 2)" "0 tree tree"
seen 'n=$((1+1))' "$(line 3)" "0 NotImplementedError tree"
seen '[[ -n $n ]] && echo yes' "$(line 4)" "0 ParsingError tree"
seen 'x=(1 2)' "$(line 5)" "0 ParsingError tree"
seen 'case $x in a) echo 1;; esac' "$(line 6)" "0 NotImplementedError tree"
seen '# done' "$(line 7)" "0 AttributeError tree"
seen 'no command' "$(line 8)" "0 AttributeError tree"
seen 'cat <<A /dev/fd/3 3<<B' "$(line 9)" "0 tree has_error"
seen 'for x do echo $x; done' "$(line 10)" "0 tree has_error"
seen 'case $x in a) ;; *) echo b ;;& esac' "$(line 11)" "0 NotImplementedError has_error"

keys='declare -A q; q[a-b]=1; echo "${!q[@]}"'
seen "the key of q[a-b]=1" "$(bash -c "$keys")" "a-b"
seen "behind shfmt" "$(bash -c "$(venv/bin/shfmt -ln bash <<<"$keys")")" "a - b"
seen "behind shfmt -mn" "$(bash -c "$(venv/bin/shfmt -ln bash -mn <<<"$keys")")" "a-b"
venv/bin/shfmt -ln bash <<<'declare -A q; q[a b]=1' >/dev/null 2>&1 && status=0 || status=$?
seen "status of shfmt for q[a b]=1" "$status" 1
