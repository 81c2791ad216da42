"""`rackctl demo`: a whole simulated rack on this machine."""

import typer


def demo(context: typer.Context) -> None:
    """Run a whole simulated rack on this machine."""
    del context
