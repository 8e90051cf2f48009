"""Answers that are made again and compared, so that mistakes are found."""
