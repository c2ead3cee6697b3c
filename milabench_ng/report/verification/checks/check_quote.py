"""The rule on the TPM: the machine whose key the buyer knows vouches for the ledger, and for what it had booted."""

from __future__ import annotations

from collections.abc import Iterator

from milabench_ng.report.verification.evidence import Evidence
from milabench_ng.report.verification.findings import OFF, Finding, judged
from milabench_ng.report.verification.quoting import Quote
from milabench_ng.report.verification.rules import QuoteRule


def quoted(evidence: Evidence) -> Finding:
    """The TPM with the demanded key quoted nonce and last head of the ledger, with the demanded PCRs."""
    rule = evidence.rules.quote
    return OFF if rule is None else judged(_reasons(evidence.quote, rule))


def _reasons(quote: Quote | None, rule: QuoteRule) -> Iterator[str]:
    if quote is None:
        yield "no TPM quoted the last head of the ledger; `mnb stamp quote` makes it"
    elif quote.problem:
        yield f"the quote of the last head does not count: {quote.problem}"
    elif quote.key != rule.key:
        yield f"the quote is of the key {quote.key[:12]}, {rule.key[:12]} is demanded: another machine made it"
    else:
        yield from _differing(quote, rule)


def _differing(quote: Quote, rule: QuoteRule) -> Iterator[str]:
    """What the machine had booted, where it is not what was demanded."""
    for number, demanded in rule.pcrs.items():
        value = quote.pcrs[int(number)]
        if value != demanded:
            yield f"PCR {number} is {value[:12]}, {demanded[:12]} is demanded: something else was booted"
    if rule.ima and not quote.logged:
        yield "the kernel's log of what it loaded (IMA) is not there"
