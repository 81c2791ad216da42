"""Why a controller cannot be reached: asked of sockets and TLS directly, after gRPC only said `unavailable`.

Runs once, after a failure; it changes nothing and waits at most a few seconds.
"""

from __future__ import annotations

import os
import socket
import ssl
from pathlib import Path
from typing import Final

from rackpower_common.address import Address
from rackpower_common.tls import TlsFiles

PROBE_S: Final = 2.0
ALERT_S: Final = 1.0
"""How long a server may take to refuse our certificate, which it does after the handshake in TLS 1.3."""
START: Final = "start it: systemctl start rackpower-controller"
TLS_FLAGS: Final = "give --ca, --cert and --key (or the context file); rackctl pki issue operator NAME makes them"

Verdict = tuple[str, str]
"""What is wrong, and what to do."""


def diagnose(address: Address, tls: TlsFiles | None, details: str) -> Verdict:
    """Return why nothing answers at `address`.

    Args:
        address: What was dialled.
        tls: The certificates that were used, None for plain text.
        details: What gRPC said, used when we find nothing ourselves.
    """
    found = _unix(address.path) if address.path else _tcp(address, tls)
    if found is not None:
        return found
    return (
        f"the controller at {address} broke the connection off: {_short(details)}",
        "look at its log: journalctl -u rackpower-controller",
    )


def _unix(path: str) -> Verdict | None:
    try:
        with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe:
            probe.settimeout(PROBE_S)
            probe.connect(path)
    except OSError as error:
        return socket_verdict(path, error)
    return None


def socket_verdict(path: str, error: OSError) -> Verdict:
    """Return what connecting to a unix socket failed with as words."""
    if isinstance(error, FileNotFoundError):
        folder = Path(path).parent
        where = "" if folder.is_dir() else f", not even the folder {folder}"
        return (
            f"no controller runs here: there is no socket {path}{where}",
            f"{START}\nfor a controller elsewhere: rackctl --controller HOST:PORT … or RACKCTL_CONTROLLER",
        )
    if isinstance(error, PermissionError):
        return (
            f"no permission to use the controller's socket {path}",
            f"use sudo, or join the socket's group: sudo usermod -aG {_group(path)} {_user()}",
        )
    if isinstance(error, ConnectionRefusedError):
        return (f"no controller listens on {path}: it has stopped", START)
    return (f"the socket {path} cannot be used: {error.strerror or error}", "check the path after unix:")


def _tcp(address: Address, tls: TlsFiles | None) -> Verdict | None:
    try:
        with socket.create_connection((address.host, address.port), PROBE_S) as probe:
            probe.settimeout(PROBE_S)
            return _with_tls(probe, address, tls) if tls else _without_tls(probe, address)
    except socket.gaierror as error:
        return (f"the name {address.host} cannot be resolved: {error.strerror}", "check the name after --controller")
    except ConnectionRefusedError:
        return (f"no controller listens at {address}", f"check the port, or {START}")
    except TimeoutError:
        return (f"nothing answers at {address}", "check the name, the port and the firewall between")
    except OSError as error:
        return (f"{address} cannot be reached: {error.strerror or error}", "check the name and the network")


def _with_tls(probe: socket.socket, address: Address, tls: TlsFiles) -> Verdict | None:
    context = ssl.create_default_context(cafile=str(tls.ca))
    context.load_cert_chain(tls.cert, tls.key)
    context.set_alpn_protocols(["h2"])
    shaken = False
    try:
        with context.wrap_socket(probe, server_hostname=address.host) as secure:
            shaken = True
            secure.settimeout(ALERT_S)
            if secure.recv(1):  # an HTTP/2 server speaks first, once it has taken our certificate
                return None
            said = "it hung up when it saw it"
    except ssl.SSLCertVerificationError as error:
        return _unverified(error, address, tls)
    except ssl.SSLError as error:
        said = (error.reason or str(error)).lower().replace("_", " ")
        if any(word in said for word in ("wrong version", "unexpected eof", "packet length")) and not shaken:
            return (f"the controller at {address} does not speak TLS", "leave --ca, --cert and --key out")
        if not shaken and "alert" not in said and "certificate" not in said:
            return (f"TLS with {address} failed: {said}", "check the certificates")
    except TimeoutError:
        return None
    except OSError as error:
        if not shaken:
            return None
        said = error.strerror or str(error)
    return (
        f"the controller at {address} refuses our certificate {tls.cert}: {said}",
        "it must be of the controller's own authority and not expired: rackctl pki issue operator NAME",
    )


def _unverified(error: ssl.SSLCertVerificationError, address: Address, tls: TlsFiles) -> Verdict:
    reason = error.verify_message or "it cannot be verified"
    if "ostname" in reason or "IP address" in reason:
        return (
            f"the certificate of the controller at {address} is for another name: {reason}",
            f"use the name that it is for, or issue one for this: rackctl pki issue server NAME --host {address.host}",
        )
    if "expired" in reason or "not yet valid" in reason:
        return (f"the certificate of the controller at {address}: {reason}", "issue a new one, or check the clocks")
    return (
        f"the controller at {address} is not known to our authority {tls.ca}: {reason}",
        "give the authority that issued the controller's certificate with --ca",
    )


def _without_tls(probe: socket.socket, address: Address) -> Verdict | None:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE  # nothing is sent: we only ask whether TLS is spoken
    try:
        with context.wrap_socket(probe, server_hostname=address.host):
            pass
    except ssl.SSLError as error:
        alert = "ALERT" in (error.reason or "").upper()
        return _wants_tls(address) if alert else None
    except OSError:
        return None
    return _wants_tls(address)


def _wants_tls(address: Address) -> Verdict:
    return (f"the controller at {address} wants TLS, and no certificates were given", TLS_FLAGS)


def _short(details: str) -> str:
    return details.splitlines()[0][:200] if details else "without a reason"


def _group(path: str) -> str:
    try:
        return Path(path).group()
    except (OSError, KeyError):
        return "rackpower"


def _user() -> str:
    return os.environ.get("USER", "$USER")
