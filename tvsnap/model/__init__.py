"""Plain types and errors, which all else is written in. Imports nothing but itself."""
