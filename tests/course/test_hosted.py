"""Hosted notebooks: each installs the course itself, and leaves what the host has."""

import json
import re
import tomllib

import nbformat
import pytest
from packaging.requirements import Requirement

from tools import hosted
from tools.course import HOUSE, books

EXTRAS = tomllib.loads((HOUSE / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]


def names(extra):
    return {Requirement(line).name for line in EXTRAS[extra]}


@pytest.mark.slow
def test_every_notebook_installs_itself_first_and_was_not_run(tmp_path):
    files = hosted.write(tmp_path / "colab", "you/lab")
    assert {file.stem for file in files} == {*books(), "README"}
    for name, book in books().items():
        notebook = nbformat.read(tmp_path / "colab" / f"{name}.ipynb", as_version=4)
        nbformat.validate(notebook)
        badges, install, *its = notebook.cells
        assert f"/github/you/lab/blob/colab/{name}.ipynb)" in badges.source
        assert install.source.splitlines()[-1] == '%pip install -q "hybridlab[colab] @ git+https://github.com/you/lab"'
        assert [cell.source for cell in its] == [cell.source for cell in book.cells]
        assert not any(cell.get("outputs") for cell in its)
        assert f"blob/colab/{name}.ipynb)" in (tmp_path / "colab" / "README.md").read_text(encoding="utf-8")


def test_what_a_host_has_stays_as_it_is_and_what_it_lacks_is_installed():
    assert not names("colab") & {"torch", "numpy", "jupyterlab", "ipywidgets", "plotly", "ipykernel", "ipython"}
    assert names("torch") - {"torch"} <= names("colab")


@pytest.mark.parametrize("wrong", ["lab", "https://github.com/you/lab", "you/lab;x", ""])
def test_an_address_that_is_no_repository_is_refused(wrong, capsys):
    with pytest.raises(SystemExit):
        hosted.main([wrong])
    assert "give OWNER/NAME" in capsys.readouterr().err


def test_the_image_is_built_from_the_lock_and_a_dev_container_from_its_first_stage():
    image = (HOUSE / "binder" / "Dockerfile").read_text(encoding="utf-8")
    assert "make setup TORCH=cpu" in image and "pip install --no-cache-dir -c requirements.lock" in image
    container = json.loads((HOUSE / ".devcontainer" / "devcontainer.json").read_text(encoding="utf-8"))
    stages = re.findall(r"^FROM \S+ AS (\w+)", image, flags=re.MULTILINE)
    assert container["build"]["target"] in stages and container["postCreateCommand"] == "make setup TORCH=cpu"
