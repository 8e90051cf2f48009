"""The screens of `tvsnap browse`, made with Textual: the tree of states, and the actions on a state."""
