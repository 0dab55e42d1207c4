"""The tree that is tried: where its package and its tests are, and whether they are still what they were."""

import hashlib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Tree:
    """A package and its tests.

    root    the folder of both;  package  its name;  floors  its folders in which mistakes are made
    cache   the folder for what the bench need not do twice;  notebooks  whether these count as tests
    """

    root: Path
    package: str
    floors: tuple[str, ...]
    cache: Path
    notebooks: bool = False

    def files(self) -> dict[str, list[str]]:
        """The files of each floor."""
        found = {floor: sorted((self.root / self.package / floor).rglob("*.py")) for floor in self.floors}
        return {floor: [str(file.relative_to(self.root)) for file in files] for floor, files in found.items()}

    def books(self) -> list[str]:
        """The notebooks that count as tests."""
        found = sorted((self.root / "notebooks").glob("*.ipynb")) if self.notebooks else []
        return [str(file.relative_to(self.root)) for file in found]

    def code(self) -> str:
        """A digest of the whole package."""
        return self._digest((self.root / self.package).rglob("*.py"))

    def test(self, file: str) -> str:
        """A digest of one file of tests and of all that tests share: a test is the same as long as this is."""
        shared = [one for one in (self.root / "tests").rglob("*.py") if not one.name.startswith("test_")]
        return self._digest({self.root / file, *shared})

    def tests(self) -> str:
        """A digest of all tests."""
        return self._digest([*(self.root / "tests").rglob("*.py"), *(self.root / file for file in self.books())])

    def _digest(self, files) -> str:
        whole = hashlib.sha256()
        for file in sorted(file for file in files if file.is_file()):
            whole.update(f"{file.relative_to(self.root)}\0".encode() + file.read_bytes() + b"\0")
        return whole.hexdigest()[:16]
