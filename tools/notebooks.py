"""Run the notebooks again and store what they show, in a form that two people's runs agree on.

    python tools/notebooks.py                      every notebook in notebooks/
    python tools/notebooks.py notebooks/01_tour.ipynb
    python tools/notebooks.py --check              run nothing; name the files that are not in stored form

Stored form: outputs of one run from top to bottom in a fresh kernel, counted from 1; no widget state and no widget
ids (a widget's static picture stays); one output per stream; kernel and language by name, without a version.
"""

import argparse
import copy
import pathlib
import sys

import nbformat
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError

from hybridlab.measuring.course_suite import execute

HERE = pathlib.Path(__file__).resolve().parent.parent
WIDGET = "application/vnd.jupyter.widget-view+json"
METADATA = {
    "kernelspec": {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"},
    "language_info": {
        "file_extension": ".py",
        "mimetype": "text/x-python",
        "name": "python",
        "pygments_lexer": "ipython3",
    },
}
KEPT_CELL_METADATA = ("tags", "slideshow", "jupyter", "editable", "deletable")


def stored_form(notebook):
    """A copy of the notebook without what differs from run to run or from machine to machine.

    Cells that never ran stay so. The function run twice changes nothing the second time.
    """
    notebook = copy.deepcopy(notebook)
    notebook.metadata = nbformat.from_dict(METADATA)
    count = 0
    for cell in notebook.cells:
        cell.metadata = {key: cell.metadata[key] for key in KEPT_CELL_METADATA if key in cell.metadata}
        if cell.cell_type != "code":
            continue
        if cell.execution_count is not None:
            count += 1
            cell.execution_count = count
        for output in cell.outputs:
            if output.output_type == "execute_result":
                output.execution_count = cell.execution_count
            if "data" in output:
                output.data.pop(WIDGET, None)
        cell.outputs = [output for output in cell.outputs if output.get("data", True)]
    return notebook


def text(notebook):
    """The notebook as the text of its file; raises nbformat's ValidationError."""
    return nbformat.writes(notebook, version=nbformat.NO_CONVERT) + "\n"


def main(arguments=None):
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--check", action="store_true", help="run nothing; name the files that are not in stored form")
    parser.add_argument("notebooks", nargs="*", type=pathlib.Path, help="default: every notebook in notebooks/")
    options = parser.parse_args(arguments)
    paths = options.notebooks or sorted((HERE / "notebooks").glob("*.ipynb"))
    wrong = []
    for path in paths:
        before = path.read_text(encoding="utf-8")
        notebook = nbformat.reads(before, as_version=4)
        if options.check:
            if text(stored_form(notebook)) != before:
                wrong.append(path)
                print(f"{path.name}: not in stored form; run  make notebooks ARGS={path}")
            continue
        print(f"{path.name} … ", end="", flush=True)
        try:
            after = text(stored_form(execute(notebook, path.parent)))
        except (CellExecutionError, CellTimeoutError, DeadKernelError) as error:
            wrong.append(path)
            print(f"left as it was, because a cell failed:\n{error}")
            continue
        path.write_text(after, encoding="utf-8")
        print("as before" if after == before else "stored")
    if not paths:
        print("notebooks/ holds no notebook")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
