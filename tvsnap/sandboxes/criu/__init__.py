"""CRIU, and the properties that processes need so that it restores them unchanged. Ids are those of the host."""
