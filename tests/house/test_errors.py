"""Every ValueError of the package has one shape: what is wrong, a colon, and what to do about it."""

import ast
import re

from tools.course import HOUSE

PACKAGE = HOUSE / "hybridlab"
VERBS = (
    "add ask call choose compare compute copy correct create derive draw end export give install keep label leave let list "
    "load make measure move name number open pad plan profile put read register remove rename replicate return run save "
    "search select set start store sum swap synchronize take tie update use write"
).split()
REMEDY = re.compile(rf"\b({'|'.join(VERBS)})\b", re.IGNORECASE)
