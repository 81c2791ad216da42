"""`rackctl policy …`: judge files offline, see what is in force, compare, apply."""

from __future__ import annotations

import getpass
import socket
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from rackpower_ctl.commands.flags import Json, operator
from rackpower_ctl.errors import ExitCode

if TYPE_CHECKING:  # pydantic and YAML are imported only by commands that read policies
    from rackpower_ctl.policy_files import Judged

app = typer.Typer(no_args_is_help=True, help="Judge, show, compare and apply policies.")
Files = Annotated[
    list[Path],
    typer.Argument(metavar="FILE...", help="Policy files, or folders with *.yaml in them.", show_default=False),
]


@app.command()
def check(paths: Files, as_json: Json = False) -> None:
    """Judge policy files without a controller: every error with file, line and column, and what to do.

    Exit code 0: they may be used; 1: there are errors.
    """
    from rackpower_ctl.policy_files import judge_files

    judged = judge_files(paths)
    if as_json:
        from rackpower_ctl.output import print_json
        from rackpower_ctl.render.policies import verdict_document

        print_json(verdict_document(judged))
    else:
        _print_judged(judged)
    raise typer.Exit(ExitCode.FINE if judged.ok else ExitCode.ATTENTION)


@app.command()
def show(
    context: typer.Context,
    revision: Annotated[str, typer.Argument(metavar="[REVISION]", help="Default: the one in force.")] = "",
    as_json: Json = False,
) -> None:
    """Print a policy: its files, when there is one only its bytes, so that it can be saved."""
    with operator(context) as rack:
        policy = rack.policy(revision)
    from rackpower_ctl.output import print_json
    from rackpower_ctl.render.policies import policy_document, policy_text

    if as_json:
        print_json(policy_document(policy))
    else:
        print(policy_text(policy), end="")


@app.command()
def diff(context: typer.Context, paths: Files) -> None:
    """Compare policy files with the policy in force, and tell what the controller thinks of them.

    Exit code 0: it would accept them; 1: it would refuse them.
    """
    from rackpower_ctl.output import console
    from rackpower_ctl.policy_files import judge_files, judged_by_controller
    from rackpower_ctl.render.policies import difference

    judged = judge_files(paths)
    with operator(context) as rack:
        in_force = rack.policy()
        if judged.ok:
            judged = judged_by_controller(judged, rack.check(judged.files))
    screen = console()
    screen.print(difference(in_force, judged.files), soft_wrap=True)
    _print_judged(judged)
    raise typer.Exit(ExitCode.FINE if judged.ok else ExitCode.ATTENTION)


@app.command()
def apply(
    context: typer.Context,
    paths: Files,
    expect: Annotated[
        str, typer.Option(metavar="REVISION", help="Apply only if this revision is in force.", show_default=False)
    ] = "",
    as_json: Json = False,
) -> None:
    """Put policy files in force. What does not validate changes nothing.

    Exit code 0: in force; 1: refused.
    """
    from rackpower_ctl.output import print_json
    from rackpower_ctl.policy_files import judge_files, judged_by_controller
    from rackpower_ctl.render.policies import verdict_document

    judged = judge_files(paths)
    applied = False
    if judged.ok:
        with operator(context) as rack:
            answer = rack.apply(judged.files, author(), expect)
        judged = judged_by_controller(judged, answer)
        applied = answer.applied
    if as_json:
        print_json(verdict_document(judged) | {"applied": applied})
    else:
        _print_judged(judged)
        print(f"policy {judged.revision} is in force" if applied else "nothing was changed")
    raise typer.Exit(ExitCode.FINE if applied else ExitCode.ATTENTION)


def author() -> str:
    """Return who we are, `user@host`."""
    try:
        user = getpass.getuser()
    except (OSError, KeyError):  # a user id without a name
        user = "unknown"
    return f"{user}@{socket.gethostname()}"


def _print_judged(judged: Judged) -> None:
    from rackpower_ctl.render.policies import judged_text

    print(judged_text(judged), end="")
