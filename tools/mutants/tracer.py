"""Which functions of the package run during which test, in the test's own process and in all that it starts.

The process that runs the tests writes the number of the test under way into a file that all processes map. Each of them
appends a line for every function that it has not yet seen in this test: number, file, name. Ranks are killed and never
leave in order, so nothing is kept back.

This file stands alone: a copy of it, called sitecustomize, starts with every Python process of the tests.
"""

import mmap
import os
import sys
import threading

FOLDER = "MUTANTS_TRACE"  # the environment's name for the folder of both files
PACKAGE = "MUTANTS_PACKAGE"  # and for the folder of the package, with a slash behind it
NUMBER, SEEN = "number", "seen"
BEFORE = b"%08d" % 0  # the number while tests are collected


def start():
    """From here on, note the functions of this process and of its children."""
    folder, package = os.environ[FOLDER], os.environ[PACKAGE]
    with open(os.path.join(folder, NUMBER), "rb") as file:
        cell = mmap.mmap(file.fileno(), len(BEFORE), prot=mmap.PROT_READ)
    notes = os.open(os.path.join(folder, SEEN), os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    number, seen = BEFORE, set()

    def called(frame, event, argument):
        nonlocal number, seen
        code = frame.f_code
        if number != cell[:]:
            number, seen = cell[:], set()
        if code not in seen:
            seen.add(code)
            if code.co_filename.startswith(package):
                line = f"{int(number)}\t{code.co_filename.removeprefix(package)}\t{code.co_qualname}\n"
                os.write(notes, line.encode())

    sys.settrace(called)
    threading.settrace(called)


if FOLDER in os.environ and __name__ == "sitecustomize":
    start()
