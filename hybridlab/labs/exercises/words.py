"""Small numbers as words, for questions and replies whose numbers vary."""

WORDS = "no one two three four five six seven eight nine ten eleven twelve".split()


def in_words(number: int) -> str:
    """
    >>> in_words(3), in_words(24)
    ('three', '24')
    """
    return WORDS[number] if number < len(WORDS) else str(number)
