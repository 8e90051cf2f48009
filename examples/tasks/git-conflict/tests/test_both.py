"""What an order costs where both changes apply: the discount comes off first, each step rounded down."""

import unittest

from prices import total


class Both(unittest.TestCase):
    def test_both(self):
        self.assertEqual(total([(1000, 2)], discount=25), 1785)
        self.assertEqual(total([(30, 3), (5, 2)], 10), 107)
        self.assertEqual(total([(102, 1)], discount=50), 60)

    def test_none(self):
        self.assertEqual(total([(1000, 2)]), 2380)
        self.assertEqual(total([(1000, 2)], discount=0), 2380)


if __name__ == "__main__":
    unittest.main()
