"""Letters: the stages of a pipeline as Megatron-LM writes them, `--pipeline-model-parallel-layout`, written and read.

    Et*3|(tt|)*29,m|L      E the embedding, t a block, m a layer that predicts a further token, L the head and its loss

"|" is between two stages, `*n` repeats a letter or a group in parentheses, and commas have no meaning.

Source: NVIDIA/Megatron-LM, megatron/core/transformer/pipeline_parallel_layer_layout.py. Relatives: `lines`, the launch
commands; `training.stages.cut`, which cuts a model so.
"""

import re
from itertools import accumulate, groupby, pairwise

from hybridlab.core.added import added

LETTERS = "EtmL"
LONGEST = 100_000  # letters
_GROUP, _LETTER = re.compile(r"\(([^()]*)\)\*(\d{1,6})"), re.compile(r"([^()*|])\*(\d{1,6})")
_ORDER = re.compile(r"Et*m*L")


def layout(stages: list[int]) -> str:
    """Stages in Megatron-LM's letters.

    stages  the number of blocks of each

    >>> layout([1, 2, 2, 1]), layout([0, 1, 1, 0])
    ('Et|(tt|)*2tL', 'E|(t|)*2L')
    """
    if len(stages) == 1:
        return f"E{'t' * stages[0]}L"
    first, *between, last = ("t" * blocks for blocks in stages)
    runs = ((stage, len(list(alike))) for stage, alike in groupby(between))
    return f"E{first}|" + "".join(f"({stage}|)*{many}" for stage, many in runs) + f"{last}L"


def is_layout(text: str) -> bool:
    """Whether a text is meant as a layout: it begins with the embedding, or has a border between stages.

    >>> is_layout("Et|tL"), is_layout("layers")
    (True, False)
    """
    return text[:1] == "E" or "|" in text


def stages_in(text: str) -> list[range]:
    """The layers of each stage of a layout, numbered from the embedding on.

    raises  ValueError if it is not one: a letter, a repetition or the order of the layers is wrong, or a stage is empty

    >>> stages_in("Ett|(t|)*2tL")
    [range(0, 3), range(3, 4), range(4, 5), range(5, 7)]
    >>> [len(one) for one in stages_in("Et*3|(tt|)*29,m|L")][:3], len(stages_in("Et*3|(tt|)*29,m|L"))
    ([4, 2, 2], 32)
    """
    plain = text.replace(",", "")
    for repeated in (_GROUP, _LETTER):  # groups first, as Megatron-LM does
        if len(plain) + added(len(what) * int(times) for what, times in repeated.findall(plain)) > LONGEST:
            raise ValueError(f"cut={text!r} has too many layers: give at most {LONGEST} letters")
        plain = repeated.sub(lambda found: found[1] * int(found[2]), plain)
    wrong = next((letter for letter in plain if letter not in LETTERS + "|"), "")
    if wrong:
        raise ValueError(
            f"cut={text!r} has {wrong!r}, which is not a layer of Megatron-LM's layout: use E, t, m and L, with | "
            "between stages"
        )
    if not _ORDER.fullmatch(plain.replace("|", "")):
        raise ValueError(f"cut={text!r} is not a model: give one E first, then t, then m, and one L last")
    sizes = [len(stage) for stage in plain.split("|")]
    if not all(sizes):
        raise ValueError(f"cut={text!r} has an empty stage: give every stage at least one layer")
    return [range(a, b) for a, b in pairwise([0, *accumulate(sizes)])]
