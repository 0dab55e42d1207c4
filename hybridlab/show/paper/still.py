"""A still: a static SVG picture with its description, as a notebook shows and stores it."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Still:
    """A picture as SVG text (`svg`), and in words (`summary`), which are its alternative text too."""

    svg: str
    summary: str

    def _repr_mimebundle_(self, include=None, exclude=None, **more) -> dict:
        return {"image/svg+xml": self.svg, "text/plain": self.summary}

    def __repr__(self):
        return f"<picture {self.summary}>"
