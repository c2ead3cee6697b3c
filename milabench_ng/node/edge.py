"""The two moments around a batch, and around a session, at which the node is read."""

from __future__ import annotations

from typing import Literal

Edge = Literal["before", "after"]
