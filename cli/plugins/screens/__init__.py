"""The screens of `tvsnap browse`, made with Textual: the tree of states, and what can be done with a state."""
