import random
import unittest

from intervals import gaps, merge


def points(intervals):
    return {point for start, end in intervals for point in range(start, end)}


class Merge(unittest.TestCase):
    def test_apart(self):
        self.assertEqual(merge([(5, 6), (1, 3)]), [(1, 3), (5, 6)])

    def test_overlapping(self):
        self.assertEqual(merge([(1, 4), (3, 6)]), [(1, 6)])

    def test_one_inside_another(self):
        self.assertEqual(merge([(1, 9), (3, 5)]), [(1, 9)])

    def test_keeps_every_point(self):
        chance = random.Random(1)
        for _ in range(2000):
            intervals = [(start, start + chance.randint(1, 90)) for start in chance.choices(range(900), k=40)]
            self.assertEqual(points(merge(intervals)), points(intervals))


class Gaps(unittest.TestCase):
    def test_between(self):
        self.assertEqual(gaps([(2, 3), (5, 6)], 0, 8), [(0, 2), (3, 5), (6, 8)])

    def test_all_covered(self):
        self.assertEqual(gaps([(0, 8)], 0, 8), [])


if __name__ == "__main__":
    unittest.main()
