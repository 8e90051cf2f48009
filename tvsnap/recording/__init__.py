"""What a call came to: observed, recorded in the graph, and snapshotted where that pays."""
