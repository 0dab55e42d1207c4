"""Lists as they are typed: numbers with commas between them."""

import argparse


def slices(text):
    """A number of slices, or their lengths."""
    try:
        return tuple(map(int, text.split(","))) if "," in text else int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is neither a number of slices nor their lengths: give 4, or 12,9,7"
        ) from None


def numbers(text):
    try:
        return tuple(map(int, text.split(",")))
    except ValueError:
        raise argparse.ArgumentTypeError(
            f"{text!r} is not a list of whole numbers: separate them by commas, as in 3,1"
        ) from None


def betas(text: str) -> tuple[float, ...]:
    try:
        return tuple(map(float, text.split(",")))
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a pair of numbers: give two, such as 0.9,0.95") from None


def cut(text: str):
    return list(numbers(text)) if text[:1].isdigit() else text
