"""The durable tool-call graph: states, the calls that lead from one to another, snapshots and leases."""

from tvsnap.graph.edges import PROOF_APART
from tvsnap.graph.model import (
    Distance,
    Edge,
    Forgotten,
    Lease,
    Listing,
    Outlined,
    RolloutRecord,
    RolloutSummary,
    RootInfo,
    Snapshot,
    SnapshotWay,
    State,
    Step,
    StepRow,
    StepSource,
    Tally,
    TreeNode,
    served,
    unserved_as,
)
from tvsnap.graph.portable import Adopted, root_from_json, root_to_json, states_of
from tvsnap.graph.store import Graph

__all__ = [
    "PROOF_APART",
    "Adopted",
    "Distance",
    "Edge",
    "Forgotten",
    "Graph",
    "Lease",
    "Listing",
    "Outlined",
    "RolloutRecord",
    "RolloutSummary",
    "RootInfo",
    "Snapshot",
    "SnapshotWay",
    "State",
    "Step",
    "StepRow",
    "StepSource",
    "Tally",
    "TreeNode",
    "root_from_json",
    "root_to_json",
    "served",
    "states_of",
    "unserved_as",
]
