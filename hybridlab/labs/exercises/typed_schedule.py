"""A schedule typed by a student: read and validated, with errors in one sentence."""

import hybridlab as hl

LONGEST_TEXT = 5_000  # letters; far more than these exercises need


def typed(answer):
    """(a valid schedule, "") for a typed one, or (None, its mistake)."""
    if not isinstance(answer, str | hl.Schedule):
        return None, "Answer with text: one line for each rank, its actions with commas between them."
    if len(answer if isinstance(answer, str) else answer.rows) > LONGEST_TEXT:
        return None, "The text is too long: give one line for each rank."
    try:
        return hl.validate(hl.Schedule.from_csv(answer) if isinstance(answer, str) else answer), ""
    except (ValueError, OSError) as error:
        return None, str(error)
