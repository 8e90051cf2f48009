"""Plain types and errors, on which everything else is built. Imports nothing but itself."""
