"""The reference: every public name has its place, every argument its meaning, every verb an example that runs."""

import inspect
import re

import pytest

import hybridlab as hl
from tools import reference
from tools.docstrings import read, untold

CALLABLES = {
    f"{space}.{one.name}": getattr(module, one.name)
    for space, module in reference.namespaces().items()
    for one in reference.members(module)
    if one.kind != "variable"
}
VERBS = [name for name in CALLABLES if name.count(".") == 1 and not inspect.isclass(CALLABLES[name])]


@pytest.fixture(scope="module")
def pages():
    return {page.file: page.body for page in reference.pages()}


@pytest.mark.slow
def test_every_public_name_has_its_place_on_a_page(pages):
    public = {name for name in hl.__all__ if not inspect.ismodule(getattr(hl, name))} - {"__version__"}
    assert {name.removeprefix("hl.") for name in CALLABLES if name.count(".") == 1} == public
    for space, module in reference.namespaces().items():
        for one in reference.members(module):
            assert pages[reference.file(space)].count(f'id="{reference.anchor(one)}"') == 1, one.name


@pytest.mark.slow
def test_every_link_of_the_reference_leads_to_a_place_in_it(pages):
    names = {f"{file}#{name}" for file, body in pages.items() for name in re.findall(r'\bid="([^"]+)"', body)}
    for file, body in pages.items():
        links = re.findall(r'href="([^"]*)"', body)
        lost = {link for link in links if (f"{file}{link}" if link[0] == "#" else link) not in {*names, *pages}}
        assert lost == set(), file


def test_nothing_of_the_reference_lies_outside(pages):
    for body in pages.values():
        assert not re.search(r"(src|href)=\"https?:|<script|<link|@import|url\(", body)


@pytest.mark.parametrize("name", CALLABLES)
def test_a_docstring_names_every_argument(name):
    assert untold(CALLABLES[name]) == []


@pytest.mark.parametrize("name", CALLABLES)
def test_a_docstring_says_when_there_is_a_value_error(name):
    thing = CALLABLES[name]
    own = [vars(thing).get(made) for made in ("__init__", "__post_init__")] if inspect.isclass(thing) else [thing]
    codes = [inspect.unwrap(one).__code__ for one in own if inspect.isfunction(inspect.unwrap(one))]
    if any("ValueError" in code.co_names for code in codes):
        assert "ValueError" in read(inspect.getdoc(thing)).raises


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_has_an_example_that_begins_with_hl(name):
    examples = read(inspect.getdoc(CALLABLES[name])).examples
    assert examples and f"{name}(" in examples[0]


@pytest.mark.parametrize("name", VERBS)
def test_a_verb_has_a_meaning_for_every_argument(name):
    meanings = read(inspect.getdoc(CALLABLES[name])).meanings
    assert [one for one in inspect.signature(CALLABLES[name]).parameters if one not in meanings] == []


def test_the_check_of_docstrings_finds_what_is_left_out():
    def half_told(here, there):
        """Go.

        here  from this place
        """

    assert untold(half_told) == ["there"]
