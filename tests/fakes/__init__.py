"""A backend in memory, for unit tests of the layers above and for fault injection."""
