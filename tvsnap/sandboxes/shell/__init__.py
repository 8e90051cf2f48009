"""An idle shell as text: its state, read from it and recreated in another shell."""
