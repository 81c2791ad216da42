"""The command `rackctl`: its root options, its nouns, and the one place where errors become words and exit codes."""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from typing import Annotated

import typer

from rackpower_common.errors import RackpowerError
from rackpower_ctl.commands import demo, events, pki, policy, rack, status
from rackpower_ctl.connection import DEFAULT_CONTROLLER, Wanted
from rackpower_ctl.errors import CtlError, ExitCode
from rackpower_ctl.output import complain

app = typer.Typer(
    name="rackctl",
    no_args_is_help=True,
    add_completion=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
    help="Look at a rack's power, judge and apply its policy. Exit codes: 0 fine, 1 needs attention, 2 usage, "
    "3 the controller cannot be reached.",
)
app.command("status")(status.status)
app.command("nodes")(rack.nodes)
app.command("gpu")(rack.gpu)
app.command("explain")(rack.explain)
app.command("events")(events.events)
app.add_typer(policy.app, name="policy")
app.add_typer(pki.app, name="pki")
app.command("demo")(demo.demo)


def _version(wanted: bool) -> None:
    if wanted:
        from importlib.metadata import version

        print(f"rackctl {version('rackpower')}")
        raise typer.Exit


@app.callback()
def root(
    context: typer.Context,
    controller: Annotated[
        str | None,
        typer.Option(
            help="Where the controller is: host:port or unix:/path (RACKCTL_CONTROLLER). "
            f"Default {DEFAULT_CONTROLLER}.",
            show_default=False,
        ),
    ] = None,
    ca: Annotated[
        str | None, typer.Option(help="Certificate of the authority, PEM (RACKCTL_CA).", show_default=False)
    ] = None,
    cert: Annotated[str | None, typer.Option(help="Our certificate, PEM (RACKCTL_CERT).", show_default=False)] = None,
    key: Annotated[
        str | None, typer.Option(help="Key of our certificate, PEM (RACKCTL_KEY).", show_default=False)
    ] = None,
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version and end.")
    ] = False,
) -> None:
    """Keep the connection's flags for the command that follows."""
    del version
    context.obj = Wanted(controller, ca, cert, key)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run rackctl and return its exit code; None takes the process's arguments."""
    # The C core of gRPC logs what we say in words.
    os.environ.setdefault("GRPC_VERBOSITY", "NONE")
    try:
        app(arguments, prog_name="rackctl")
    except SystemExit as end:  # typer's way to say that it is done
        return end.code if isinstance(end.code, int) else ExitCode.FINE
    except CtlError as error:
        complain(error.message, error.hint)
        return error.code
    except RackpowerError as error:
        complain(error.message, error.hint)
        return ExitCode.ATTENTION
    except BrokenPipeError:
        # Whoever read our output went away; flushing at exit would say so again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return ExitCode.ATTENTION
    return ExitCode.FINE


if __name__ == "__main__":
    sys.exit(main())
