"""Words for questions and replies: small numbers, kinds of values."""

WORDS = "no one two three four five six seven eight nine ten eleven twelve".split()


def in_words(number: int) -> str:
    """
    >>> in_words(3), in_words(24)
    ('three', '24')
    """
    return WORDS[number] if number < len(WORDS) else str(number)


def so_many(number: int, what: str) -> str:
    """
    >>> so_many(1, "layer"), so_many(4, "layer")
    ('1 layer', '4 layers')
    """
    return f"{number} {what}{'s' * (number != 1)}"


def a_kind(value) -> str:
    """The type of a value, with its article.

    >>> a_kind(3), a_kind([])
    ('an int', 'a list')
    """
    kind = type(value).__name__
    return f"{'an' if kind[0].lower() in 'aeiou' else 'a'} {kind}"
