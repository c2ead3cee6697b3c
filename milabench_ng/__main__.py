"""``mnb``, which is ``python -m milabench_ng``: it answers signals before it imports what takes time."""

from __future__ import annotations

from milabench_ng.model.signals import hear


def main() -> None:
    """Entry point of the ``mnb`` script."""
    hear()
    from milabench_ng import cli

    cli.main()


if __name__ == "__main__":
    main()
