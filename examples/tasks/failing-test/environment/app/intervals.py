"""Half-open intervals (start, end) of whole numbers, such as the hours for which a room is booked."""


def merge(intervals):
    """Returns the points of all intervals as few intervals, sorted, of which no two overlap or touch.

    The argument stays as it was.
    """
    merged = []
    for start, end in sorted(intervals):
        if merged and start < merged[-1][1]:
            merged[-1] = (merged[-1][0], end)
        else:
            merged.append((start, end))
    return merged


def gaps(intervals, start, end):
    """Returns the intervals within (start, end) that no interval covers, sorted."""
    found = []
    for busy_start, busy_end in merge(intervals):
        if busy_start > start:
            found.append((start, busy_start))
        start = max(start, busy_end)
    if start < end:
        found.append((start, end))
    return found
