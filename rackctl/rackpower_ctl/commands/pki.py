"""`rackctl pki …`: certificates for a rack that has no authority of its own."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

app = typer.Typer(no_args_is_help=True, help="Make a small certificate authority, and certificates for mutual TLS.")
DEFAULT_FOLDER = Path("pki")
Folder = Annotated[Path, typer.Option("--dir", help="The authority's folder.")]
Days = Annotated[int, typer.Option(min=1, max=36_500, help="How long it is valid.")]


class RoleName(StrEnum):
    """Whom a certificate is for."""

    SERVER = "server"
    AGENT = "agent"
    OPERATOR = "operator"


@app.command()
def init(folder: Annotated[Path, typer.Argument(help="Where it is made.")] = DEFAULT_FOLDER, days: Days = 3650) -> None:
    """Make an authority: `ca.pem` for everybody, `ca.key` for nobody else."""
    from rackpower_ctl.pki_files import CA_CERT, CA_KEY, Authority

    Authority.create(folder, days=days)
    print(f"{folder / CA_CERT}  give this one to every agent, controller and operator")
    print(f"{folder / CA_KEY}  keep this one safe: who has it can be anybody")


@app.command()
def issue(
    role: Annotated[RoleName, typer.Argument(help="Whom it is for.")],
    name: Annotated[str, typer.Argument(help="A node's name for an agent, a host's or person's for the others.")],
    host: Annotated[
        list[str] | None, typer.Option(help="DNS name or address under which a server is dialled; may be repeated.")
    ] = None,
    folder: Folder = DEFAULT_FOLDER,
    out: Annotated[Path | None, typer.Option(help="Folder for the new files; default is the authority's.")] = None,
    days: Days = 365,
) -> None:
    """Issue a certificate and its key as NAME.pem and NAME.key."""
    from rackpower_common.roles import Role
    from rackpower_ctl.pki_files import Authority

    issued = Authority.open(folder).issue(Role[role.name], name, host or (), into=out, days=days)
    print(f"ca: {issued.ca}\ncert: {issued.cert}\nkey: {issued.key}")
