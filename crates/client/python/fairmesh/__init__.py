"""Ask and feed a Fairmesh node: priorities, reports, explanations, quotas.

`Node` speaks HTTP and JSON over `control.sock` (docs/api.md); `Lookup` the batched protocol of `lookup.sock`
(docs/lookup.md). Neither keeps anything; both need the standard library only.
"""

from .control import Node, Record, Refused, Report
from .lookup import FACTOR_MAX, Answer, Lookup, LookupFailed, View

__all__ = [
    "FACTOR_MAX",
    "Answer",
    "Lookup",
    "LookupFailed",
    "Node",
    "Record",
    "Refused",
    "Report",
    "View",
]
