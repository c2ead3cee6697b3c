"""``python -m milabench_ng`` is ``mnb``."""

from milabench_ng.cli import main

if __name__ == "__main__":
    main()
