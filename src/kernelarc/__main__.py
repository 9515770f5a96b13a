"""``python -m kernelarc`` is the ``kernelarc`` command."""

from kernelarc.cli import main

if __name__ == "__main__":
    main()
