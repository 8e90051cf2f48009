#!/usr/bin/env bash
# nbclient 0.11.0, papermill 2.7.0 and ipykernel 7.4.0: notebooks that end early, or run commands
#
# Guess: `exit()` ends the notebook as `sys.exit()` does, status 0 is no error, and a command that fails is one.
# Behaviour: `exit()` ends nothing: the rest of its cell and all further cells are run. `sys.exit(0)` is an error for nbclient, and
# none for papermill, which runs no further cell. `!false` passes, while `%%bash` with `false` at its end is an error.
. "$(dirname "$0")/common.sh"
packages nbclient==0.11.0 papermill==2.7.0 ipykernel==7.4.0
export HOME=$work IPYTHONDIR=$work/ipython JUPYTER_PATH=$work/venv/share/jupyter

cat >run.py <<'PYTHON'
import sys
import nbformat
import nbclient
import papermill
def notebook(cells):
    made = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell) for cell in cells])
    made.metadata["kernelspec"] = {"name": "python3", "display_name": "Python", "language": "python"}
    return made
def texts(run):
    return "".join(part.text for cell in run.cells for part in cell.get("outputs", ()) if part.output_type == "stream" and part.name == "stdout")
for cells in (
    ["exit()\nprint('rest')", "print('next')"], ["import sys\nprint('first')\nsys.exit(0)\nprint('rest')", "print('next')"],
    ["!false\nprint('rest')", "print('next')"], ["%%bash\nfalse", "print('next')"],
):
    run = notebook(cells)
    try:
        nbclient.NotebookClient(run, timeout=60).execute()
        print(texts(run).split(), "passed", end=" | ")
    except nbclient.exceptions.CellExecutionError as error:
        print(texts(run).split(), error.ename, end=" | ")
    nbformat.write(notebook(cells), "in.ipynb")
    try:
        papermill.execute_notebook("in.ipynb", "out.ipynb", progress_bar=False)
        end = "passed"
    except papermill.PapermillExecutionError as error:
        end = error.ename
    print(texts(nbformat.read("out.ipynb", 4)).split(), end)
PYTHON
python run.py >out 2>log
seen "exit(): nbclient | papermill" "$(sed -n 1p out)" "['rest', 'next'] passed | ['rest', 'next'] passed"
seen "sys.exit(0)" "$(sed -n 2p out)" "['first'] SystemExit | ['first'] passed"
seen "!false" "$(sed -n 3p out)" "['rest', 'next'] passed | ['rest', 'next'] passed"
seen "%%bash with false" "$(sed -n 4p out)" "[] CalledProcessError | [] CalledProcessError"
