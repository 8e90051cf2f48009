"""An idle shell as text: what it holds, asked of it, and made anew in another."""
