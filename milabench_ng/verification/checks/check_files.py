"""Rules on the files: nothing changed, nothing added, signed."""

from __future__ import annotations

from milabench_ng.verification.evidence import Evidence
from milabench_ng.verification.findings import OFF, Finding, judged, unknown
from milabench_ng.verification.rules import Rules
from milabench_ng.verification.signing import Signer


def files(evidence: Evidence) -> Finding:
    """Every file of the bundle is the one that was packed."""
    if evidence.packing is None:
        return unknown("a plain folder has no checksums. Pack it with `mnb bundle`")
    return judged(evidence.damage)


def signature(evidence: Evidence) -> Finding:
    """The bundle is signed by an allowed signer, and by the one that the rules name."""
    return signature_finding(evidence.signer, evidence.rules, packed=evidence.packing is not None)


def signature_finding(signer: Signer, rules: Rules, *, packed: bool) -> Finding:
    """Whether that signer is the one that the rules ask for. Only what is ``packed`` can be signed."""
    if not rules.signed and not rules.signed_by and not signer.asked:
        return OFF if not signer.present else unknown(signer.problem or "")
    if not packed:
        return judged(["a plain folder is not signed. Pack it with `mnb bundle --sign KEY`"])
    if signer.problem:
        return judged([signer.problem])
    if rules.signed_by and not set(signer.principals) & set(rules.signed_by):
        return judged(
            [f"{' or '.join(signer.principals)} signed it, but {' or '.join(rules.signed_by)} is required to"]
        )
    if any("*" in name for name in signer.principals):
        return Finding("pass", (_ANYBODY,))
    return judged([])


_ANYBODY = "the file of allowed signers lets this key sign for anybody (*). Write the name of its owner"
