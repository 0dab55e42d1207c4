"""The site: every page is there, every link leads somewhere in it, nothing is asked of another machine."""

import re
from html.parser import HTMLParser

import nbformat
import pytest

from tools import sheet, website
from tools.course import books

pytestmark = pytest.mark.slow

FETCHES = {"script": "src", "img": "src", "iframe": "src", "link": "href", "source": "src", "video": "src"}


class Page(HTMLParser):
    """What a page names itself, links to and fetches."""

    def __init__(self, text):
        super().__init__()
        self.names, self.links, self.fetched = set(), [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        told = dict(attributes)
        self.names |= {told["id"]} if "id" in told else set()
        self.links += [told["href"]] if tag == "a" and "href" in told else []
        self.fetched += [told[FETCHES[tag]]] if FETCHES.get(tag) in told else []


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """{file: its page} of the whole site; a file that is no page has None."""
    folder = tmp_path_factory.mktemp("site") / "site"
    files = website.build(folder)
    return {file: Page(file.read_text("utf-8")) if file.suffix == ".html" else None for file in files}


@pytest.mark.long
def test_every_link_leads_to_a_page_of_the_site_and_to_a_place_on_it(built):
    lost = []
    for file, page in built.items():
        for link in page.links if page else ():
            path, _, anchor = link.partition("#")
            if "://" in path:
                continue
            there = (file.parent / path).resolve() if path else file
            names = built[there].names if built.get(there) else set()
            if there not in built or (anchor and anchor not in names):
                lost.append((file.name, link))
    assert lost == []


@pytest.mark.long
def test_nothing_is_asked_of_another_machine(built):
    for file, page in built.items():
        for source in page.fetched if page else ():
            assert source.startswith("data:") or (file.parent / source).resolve() in built, (file.name, source)
        if page:
            style = "".join(re.findall(r"<style>(.*?)</style>", file.read_text("utf-8"), flags=re.DOTALL))
            assert not re.search(r"url\((?!data:)|@import", style)


@pytest.mark.long
def test_every_notebook_is_there_to_read_to_show_and_to_take_along(built):
    names = {f"{file.parent.name}/{file.name}" for file in built}
    for name in books():
        assert {f"notebooks/{name}.html", f"slides/{name}.html", f"notebooks/{name}.ipynb"} <= names
    taken = [nbformat.read(file, as_version=4) for file in built if file.suffix == ".ipynb"]
    assert len(taken) == len(books())
    assert not any(cell.get("outputs") for notebook in taken for cell in notebook.cells)


def test_a_formula_is_drawn_by_the_browser():
    page = sheet.text(r"so $\frac{p-1}{m}$ and $$T = m \cdot t_F$$")
    assert page.count("<math") == 2 and "<mfrac>" in page and 'display="block"' in page and "$" not in page


def test_a_link_between_sources_is_one_between_pages():
    told = '<a href="../README.md#From-Slide">a</a> <a href="https://example.org/A.md#B">b</a>'
    assert website._linked(told) == told.replace("../README.md#From-Slide", "../README.html#from-slide")
    assert website._linked('<a href="12_1f1b.ipynb" download>') == '<a href="12_1f1b.ipynb" download>'


def test_the_first_page_has_a_card_for_every_notebook():
    """Also for one of a family that nobody has named yet."""
    assert [name for name in books() if f'href="notebooks/{name}.html"' not in website.index()] == []


def test_a_page_says_once_that_some_pictures_need_the_notebook():
    page = website.notebook(books()["00_start"])
    assert page.count(website.STORED) == 1 and page.index("</h1>") < page.index(website.STORED) < page.index("<h2")
