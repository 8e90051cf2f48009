"""What the docstrings of intervals.py promise, case by case and against a count of single points."""

import random
import unittest

from intervals import gaps, merge


def points(intervals):
    return {point for start, end in intervals for point in range(start, end)}


class Merge(unittest.TestCase):
    def test_touching(self):
        self.assertEqual(merge([(3, 5), (1, 3)]), [(1, 5)])

    def test_same_start(self):
        self.assertEqual(merge([(1, 2), (1, 7), (1, 4)]), [(1, 7)])

    def test_nothing(self):
        self.assertEqual(merge([]), [])

    def test_argument_stays(self):
        given = [(4, 6), (1, 5), (2, 3)]
        merge(given)
        self.assertEqual(given, [(4, 6), (1, 5), (2, 3)])

    def test_any(self):
        chance = random.Random(2)
        for _ in range(300):
            given = [(start, start + chance.randint(1, 12)) for start in chance.choices(range(60), k=8)]
            found = merge(given)
            self.assertEqual(points(found), points(given))
            for (_, end), (start, _) in zip(found, found[1:]):
                self.assertLess(end, start)


class Gaps(unittest.TestCase):
    def test_beyond_the_end(self):
        self.assertEqual(gaps([(2, 4), (9, 12)], 0, 6), [(0, 2), (4, 6)])
        self.assertEqual(gaps([(9, 12)], 0, 6), [(0, 6)])

    def test_before_the_start(self):
        self.assertEqual(gaps([(0, 2), (4, 7)], 5, 9), [(7, 9)])

    def test_any(self):
        chance = random.Random(3)
        for _ in range(300):
            given = [(start, start + chance.randint(1, 12)) for start in chance.choices(range(60), k=6)]
            self.assertEqual(points(gaps(given, 10, 50)), set(range(10, 50)) - points(given))


if __name__ == "__main__":
    unittest.main()
