"""`python -m corral.cli`, and `corral`."""

from corral.cli.early_signals import survive_dump_signal


def main() -> None:
    survive_dump_signal()
    from corral.cli.main import main as run  # what it imports takes a while

    run()


if __name__ == "__main__":
    main()
